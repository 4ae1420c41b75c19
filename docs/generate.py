"""Write the parts of docs/ that the code decides: `make docs`. With `--check` write nothing, fail when one is stale.

Whole pages: settings.md, commands.md, openapi.json, conformance/v1.json; and, beside the code that reads it,
ledger_server/admin/measured_costs.json, from the results of benchmarks. In the others, the blocks between
<!-- generated: NAME --> and <!-- end -->. Each page's parts have a module in docs/parts/.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.parts import (
    capacity,
    clients,
    decisions,
    experiments,
    faults,
    frameworks,
    operations,
    protocol,
    selection,
    simulator,
)
from docs.parts.commands import commands_page
from docs.parts.measured_costs import FILE as MEASURED_COSTS
from docs.parts.measured_costs import measured_costs
from docs.parts.settings import settings_page
from docs.vectors import conformance_vectors
from ledger_server.app import openapi_document

DOCS: Final = Path(__file__).resolve().parent
_BLOCK: Final = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_BLOCKS: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "adr/index.md": decisions.BLOCKS,
    "capacity.md": capacity.BLOCKS,
    "clients.md": clients.BLOCKS,
    "protocol.md": protocol.BLOCKS,
    "faults.md": faults.BLOCKS,
    "frameworks.md": frameworks.BLOCKS,
    "operations.md": operations.BLOCKS,
    "privacy.md": experiments.PRIVACY,
    "security.md": experiments.ATTACKS,
    "selection.md": {**selection.BLOCKS, **experiments.CANDIDATES},
    "simulator.md": simulator.BLOCKS,
    "papers/dag-acfl.md": experiments.DAG_ACFL,
    "papers/decdiff.md": experiments.DECDIFF,
    "papers/uncoordinated-initialisation.md": experiments.INITIALISATION,
    "papers/d-cliques.md": experiments.CLIQUES,
    "papers/clustered.md": experiments.CLUSTERED,
    "findings.md": experiments.FINDINGS,
}
"""What stands in each page's blocks."""


def with_blocks(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """A page with its generated blocks written anew.

    Raises:
        ValueError: The page has no place for some of them, so that nobody would see them.
    """
    placed = {name for _, name, _ in _BLOCK.findall(text)}
    if unplaced := blocks.keys() - placed:
        raise ValueError(f"no page has <!-- generated: NAME --> … <!-- end --> for {', '.join(sorted(unplaced))}")
    return _BLOCK.sub(lambda match: f"{match[1]}\n{blocks[match[2]]()}\n{match[3]}", text)


def pages() -> dict[Path, str]:
    """Every generated file and what it must hold."""
    vectors = json.dumps(conformance_vectors(), indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    return {
        DOCS / "settings.md": settings_page(),
        DOCS / "commands.md": commands_page(),
        DOCS / "conformance" / "v1.json": vectors,
        MEASURED_COSTS: measured_costs(),
        DOCS / "openapi.json": json.dumps(openapi_document(), indent=1, ensure_ascii=True) + "\n",
        **{DOCS / name: with_blocks((DOCS / name).read_text("utf-8"), blocks) for name, blocks in _BLOCKS.items()},
    }


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description="Write the generated parts of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a part is stale")
    check = parser.parse_args().check
    stale = [(page, text) for page, text in pages().items() if not page.exists() or page.read_text("utf-8") != text]
    for page, text in stale:
        if not check:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, "utf-8")
        print(f"{'stale' if check else 'written'}: {page.relative_to(DOCS.parent)}")
    if check and stale:
        sys.exit("run `make docs` and commit what it writes")


if __name__ == "__main__":
    main()
