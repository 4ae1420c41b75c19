"""Partitioners: who gets which samples.

A new rule is one file and one line in ``PARTITIONERS``; the contract tests in
``tests/contract/test_partitioners.py`` then hold it to what every partitioner promises.
"""

from typing import Final

from fl_core.registry import PartRegistry
from fl_simulator.data.partition.protocol import TRAIN_FRACTION, Partitioner

PARTITIONERS: Final = PartRegistry[Partitioner](
    "partition",
    {
        "iid": "fl_simulator.data.partition.iid:Iid",
        "superclass": "fl_simulator.data.partition.superclass:Superclass",
        "dirichlet": "fl_simulator.data.partition.dirichlet:Dirichlet",
        "shards": "fl_simulator.data.partition.shards:Shards",
        "rotations": "fl_simulator.data.partition.rotations:Rotations",
        "truncated-zipf": "fl_simulator.data.partition.truncated_zipf:TruncatedZipf",
    },
)

__all__ = ["PARTITIONERS", "TRAIN_FRACTION", "Partitioner"]
