"""Partitioners: who gets which samples of a data set.

A partitioner is a function ``(params, labels, *, train_fraction, rng)`` that makes one ``Share`` for each client:

* ``labels``: of all samples, shape ``(n,)``; it knows no images;
* ``train_fraction``: part of each client's samples to train on, in (0, 1]; ``split`` parts them;
* ``rng``: every draw.

It raises ``PartitionError`` where there are not enough samples. A new one is one file and one line in
``PARTITIONERS``; the contract tests in ``tests/contract/test_partitioners.py`` hold each to this: no sample is given
twice, within a client or among clients; the same labels, number of clients and state of the generator give the same
shares; ``train_fraction`` of a client's samples, rounded, are to train on, at least one.
"""

from typing import Final

from fl_core.registry import PartRegistry
from fl_simulator.engine.population import Share

TRAIN_FRACTION: Final = 0.8
"""DAG-ACFL, Sec. IV-A: "an 80:20 ratio"."""

PARTITIONERS: Final = PartRegistry[list[Share]](
    "partition",
    {
        "iid": "fl_simulator.data.partition.iid:iid",
        "superclass": "fl_simulator.data.partition.superclass:superclass",
        "dirichlet": "fl_simulator.data.partition.dirichlet:dirichlet",
        "shards": "fl_simulator.data.partition.shards:shards",
        "rotations": "fl_simulator.data.partition.rotations:rotations",
        "shifts": "fl_simulator.data.partition.shifts:shifts",
        "truncated-zipf": "fl_simulator.data.partition.truncated_zipf:truncated_zipf",
    },
    group="dag_acfl.partitioners",
)
