"""The list of decision records, by number."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).resolve().parent.parent / "adr"


def decisions() -> str:
    """A line for each record: its title, linked, and its status."""
    lines = []
    for page in sorted(_FOLDER.glob("[0-9]*.md")):
        title, _, status, *_ = page.read_text("utf-8").splitlines()
        if not page.name.startswith("0000"):
            lines.append(f"* [{title.removeprefix('# ')}]({page.name}): {status.removeprefix('Status: ')}")
    return "\n".join(lines)


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {"decisions": decisions}
