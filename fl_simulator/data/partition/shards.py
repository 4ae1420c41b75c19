"""Samples sorted by label, cut into equal shards, and a few shards for each client.

McMahan et al. (AISTATS 2017): two shards for each client, cut without regard to where a label ends, so that most
clients have two labels. D-Cliques (Sec. 2.2): one label for each client, all labels with equally many clients, all
clients with equally many samples; that is ``shards=1`` and ``balanced``. Nobody's true cluster is known, so there is
one. Deviation from both: what does not divide evenly is left out at random.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_simulator.data.partition.shares import split
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError


@dataclass(frozen=True, slots=True)
class ShardsParams:
    clients: int = parameter(10, at_least=1, doc="How many clients.")
    shards: int = parameter(2, at_least=1, doc="Shards of each client.")
    shard_samples: int = parameter(
        0, at_least=0, doc="Samples of a shard, to train and test on; 0: as many as there are."
    )
    balanced: bool = parameter(
        False, doc="Every shard is of one label and every label has equally many; asks for a multiple of the labels."
    )


def shards(
    params: ShardsParams, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """Few labels for each client."""
    cut = _cut(params, labels, rng)
    dealt = rng.permutation(len(cut)).reshape(params.clients, params.shards)
    return [split(cut[mine].ravel(), train_fraction=train_fraction, rng=rng, cluster=0) for mine in dealt]


def _cut(params: ShardsParams, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """All shards, by label, shape ``(clients × shards, samples)``."""
    count = params.clients * params.shards
    if not params.balanced:
        size = _size(params, len(labels) // count, f"{len(labels)} samples in {count} shards")
        kept = rng.permutation(len(labels))[: count * size]
        return kept[np.argsort(labels[kept], kind="stable")].reshape(count, size)
    names, available = np.unique(labels, return_counts=True)
    if len(names) == 0 or count % len(names):
        raise PartitionError(
            f"{count} shards cannot be equally many of each of {len(names)} labels: ask for a multiple"
        )
    each, scarcest = count // len(names), int(available.min())
    size = _size(params, scarcest // each, f"{scarcest} samples of the scarcest label in {each} shards")
    pools = [rng.permutation(np.flatnonzero(labels == label))[: each * size] for label in names]
    return np.concatenate(pools).reshape(count, size)


def _size(params: ShardsParams, room: int, what: str) -> int:
    size = params.shard_samples or room
    if size > room or size * params.shards < 2:
        raise PartitionError(f"{what} give {room} for each shard, not {size}; a client needs two samples")
    return size
