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
from fl_simulator.data.partition import dirichlet, iid, rotations, shards, superclass, truncated_zipf
from fl_simulator.data.partition.dirichlet import Dirichlet, DirichletParams
from fl_simulator.data.partition.iid import Iid, IidParams
from fl_simulator.data.partition.protocol import TRAIN_FRACTION, Partitioner
from fl_simulator.data.partition.rotations import Rotations, RotationsParams
from fl_simulator.data.partition.shards import Shards, ShardsParams
from fl_simulator.data.partition.superclass import Superclass, SuperclassParams
from fl_simulator.data.partition.truncated_zipf import TruncatedZipf, TruncatedZipfParams

PartitionerFactory: TypeAlias = Callable[[Mapping[str, JsonScalar]], Partitioner]


def _iid(params: Mapping[str, JsonScalar]) -> Partitioner:
    return Iid(read_parameters(IidParams, params, owner="partition 'iid'"))


def _superclass(params: Mapping[str, JsonScalar]) -> Partitioner:
    return Superclass(read_parameters(SuperclassParams, params, owner="partition 'superclass'"))


def _dirichlet(params: Mapping[str, JsonScalar]) -> Partitioner:
    return Dirichlet(read_parameters(DirichletParams, params, owner="partition 'dirichlet'"))


def _shards(params: Mapping[str, JsonScalar]) -> Partitioner:
    return Shards(read_parameters(ShardsParams, params, owner="partition 'shards'"))


def _rotations(params: Mapping[str, JsonScalar]) -> Partitioner:
    return Rotations(read_parameters(RotationsParams, params, owner="partition 'rotations'"))


def _truncated_zipf(params: Mapping[str, JsonScalar]) -> Partitioner:
    return TruncatedZipf(read_parameters(TruncatedZipfParams, params, owner="partition 'truncated-zipf'"))


PARTITIONERS: Final[Mapping[str, PartitionerFactory]] = MappingProxyType(
    {
        iid.NAME: _iid,
        superclass.NAME: _superclass,
        dirichlet.NAME: _dirichlet,
        shards.NAME: _shards,
        rotations.NAME: _rotations,
        truncated_zipf.NAME: _truncated_zipf,
    }
)


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
    "Dirichlet",
    "DirichletParams",
    "Iid",
    "IidParams",
    "Partitioner",
    "PartitionerFactory",
    "Rotations",
    "RotationsParams",
    "Shards",
    "ShardsParams",
    "Superclass",
    "SuperclassParams",
    "TruncatedZipf",
    "TruncatedZipfParams",
    "build_partitioner",
]
