"""Merging: where a client goes on from, given its own model and the average that it received.

A new rule is one file and one line in ``MERGES``; the contract tests in ``tests/contract/test_merges.py`` then hold it
to what every merge promises.
"""

from typing import Final

from fl_core.registry import PartRegistry
from fl_simulator.strategies.merging.decdiff import DecDiff, DecDiffParams, decdiff
from fl_simulator.strategies.merging.protocol import Merge
from fl_simulator.strategies.merging.replace import Replace, ReplaceParams, replace

MERGES: Final = PartRegistry[Merge](
    "merge",
    {
        "replace": "fl_simulator.strategies.merging.replace:Replace",
        "decdiff": "fl_simulator.strategies.merging.decdiff:DecDiff",
    },
)

__all__ = ["MERGES", "DecDiff", "DecDiffParams", "Merge", "Replace", "ReplaceParams", "decdiff", "replace"]
