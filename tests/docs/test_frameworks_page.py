"""docs/frameworks.md: its examples are short, and the one that needs nothing but NumPy shares.

The others run in ``make frameworks``; that the page shows the files as they are, ``make docs`` sees to.
"""

from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, code_blocks
from tests.example_files import EXAMPLES, last_line_of_site_0

BLOCKS = code_blocks(ROOT / "docs" / "frameworks.md", "python")


def test_every_example_is_in_the_page_and_has_at_most_forty_lines() -> None:
    for name in ("numpy", "sklearn", "lightning", "transformers"):
        text = (EXAMPLES / f"{name}_client.py").read_text("utf-8")
        assert text in BLOCKS
        assert len(text.splitlines()) <= 40


def test_a_numpy_client_shares_with_the_one_that_is_like_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    update = last_line_of_site_0(EXAMPLES / "numpy_client.py", tmp_path, capsys)
    assert "average with 1 of 2 others" in update
