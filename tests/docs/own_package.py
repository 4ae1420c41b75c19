"""The package that docs/extend/ describes: ``python -m tests.docs.own_package FOLDER`` writes it, for pip to install."""

import re
import sys
from pathlib import Path

from tests.docs.test_docs import ROOT, code_blocks

PAGES = ROOT / "docs" / "extend"
MINE, PACKAGE, GENESIS = code_blocks(PAGES / "index.md", "toml")


def write_modules(folder: Path) -> None:
    """Each page's file under the name that the page gives it."""
    for page in PAGES.glob("*.md"):
        for name in re.findall(r"as `(\w+\.py)`:", page.read_text("utf-8")):
            (folder / name).write_text(code_blocks(page, "python")[0])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    write_modules(folder)
    (folder / "pyproject.toml").write_text(PACKAGE)
