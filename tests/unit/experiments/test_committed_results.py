"""What is committed was played as its file says today, as far as the tables tell."""

import re
from pathlib import Path

import pandas as pd

from experiments.reporting import RESULTS

PLAYED_BEFORE: set[str] = set()
"""Files that have been changed since their results were made, which their pages say."""


def scales_differ(results: Path) -> bool:
    """Whether pixels were scaled otherwise than the experiment's file says; False for a table that does not tell."""
    played = pd.read_csv(results)
    name = results.parent.relative_to(RESULTS)
    file = RESULTS.parent / f"{name}.toml"
    if "pixels" not in played or not file.exists():
        return False
    return set(played.pixels) != set(re.findall(r'pixels = "(\w+)"', file.read_text("utf-8")))


def test_pixels_are_scaled_as_the_files_say() -> None:
    differ = {
        each.parent.relative_to(RESULTS).as_posix() for each in RESULTS.rglob("summary.csv") if scales_differ(each)
    }
    assert differ == PLAYED_BEFORE
