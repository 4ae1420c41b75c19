"""docs/frameworks.md: each example, as its file has it."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

_EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"


def _example(name: str) -> str:
    return f"```python\n{(_EXAMPLES / f'{name}_client.py').read_text('utf-8')}```\n"


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    f"{name}-client": partial(_example, name) for name in ("numpy", "sklearn", "lightning", "transformers")
}
