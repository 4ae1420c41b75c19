"""Partitioners: who gets which samples.

A new rule is one file with a frozen params dataclass and one line in ``PARTITIONERS``; the contract tests in
``tests/contract/test_partitioners.py`` then hold it to what every partitioner promises.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from fl_core.errors import UnknownNameError
from fl_core.parameters import read_parameters
from fl_core.types import JsonScalar
from fl_simulator.partition import iid, superclass
from fl_simulator.partition.iid import Iid, IidParams
from fl_simulator.partition.protocol import TRAIN_FRACTION, Partitioner
from fl_simulator.partition.superclass import Superclass, SuperclassParams

PartitionerFactory: TypeAlias = Callable[[Mapping[str, JsonScalar]], Partitioner]


def _iid(params: Mapping[str, JsonScalar]) -> Partitioner:
    return Iid(read_parameters(IidParams, params, owner="partition 'iid'"))


def _superclass(params: Mapping[str, JsonScalar]) -> Partitioner:
    return Superclass(read_parameters(SuperclassParams, params, owner="partition 'superclass'"))


PARTITIONERS: Final[Mapping[str, PartitionerFactory]] = MappingProxyType({iid.NAME: _iid, superclass.NAME: _superclass})


def build_partitioner(name: str, params: Mapping[str, JsonScalar]) -> Partitioner:
    """The partitioner that a scenario names.

    Raises:
        UnknownNameError: no such partitioner.
        ParameterError: an unknown parameter, a wrong type, or a value out of range.
    """
    if name not in PARTITIONERS:
        raise UnknownNameError("partition", name, PARTITIONERS)
    return PARTITIONERS[name](params)


__all__ = [
    "PARTITIONERS",
    "TRAIN_FRACTION",
    "Iid",
    "IidParams",
    "Partitioner",
    "PartitionerFactory",
    "Superclass",
    "SuperclassParams",
    "build_partitioner",
]
