"""Merging: where a client goes on from, given its own model and the average that it received.

A new rule is one file with a frozen params dataclass and one line in ``MERGES``; the contract tests in
``tests/contract/test_merges.py`` then hold it to what every merge promises.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from fl_core.errors import UnknownNameError
from fl_core.merging import dec_diff, replacing
from fl_core.merging.dec_diff import DecDiff, DecDiffParams, decdiff
from fl_core.merging.protocol import Merge
from fl_core.merging.replacing import Replace, ReplaceParams, replace
from fl_core.parameters import read_parameters
from fl_core.types import JsonScalar

MergeFactory: TypeAlias = Callable[[Mapping[str, JsonScalar]], Merge]


def _replace(params: Mapping[str, JsonScalar]) -> Merge:
    return Replace(read_parameters(ReplaceParams, params, owner="merge 'replace'"))


def _decdiff(params: Mapping[str, JsonScalar]) -> Merge:
    return DecDiff(read_parameters(DecDiffParams, params, owner="merge 'decdiff'"))


MERGES: Final[Mapping[str, MergeFactory]] = MappingProxyType({replacing.NAME: _replace, dec_diff.NAME: _decdiff})


def build_merge(name: str, params: Mapping[str, JsonScalar]) -> Merge:
    """The merge that a client or a scenario names.

    Args:
        name: A key of ``MERGES``.
        params: Its parameters; those left out have their defaults.

    Raises:
        UnknownNameError: no such merge.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    if name not in MERGES:
        raise UnknownNameError("merge", name, MERGES)
    return MERGES[name](params)


__all__ = [
    "MERGES",
    "DecDiff",
    "DecDiffParams",
    "Merge",
    "MergeFactory",
    "Replace",
    "ReplaceParams",
    "build_merge",
    "decdiff",
    "replace",
]
