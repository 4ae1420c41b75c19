"""All clients' data: one array of images, and which of them each client trains and tests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fl_simulator.errors import PartitionError


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What one client gets, as places in the data set.

    Attributes:
        train: Samples to train on, shape ``(n,)``, at least one.
        test: Samples to be tested on, shape ``(m,)``, none of them in ``train``.
        cluster: The client's true cluster, from 0.
        quarter_turns: By how many quarters of a turn its images are turned, counter-clockwise, 0 to 3; one number for
            all, or one for each, those to train on first.
        labels: What it calls its samples, those to train on first; None: as the data set does.
    """

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    cluster: int = 0
    quarter_turns: int | NDArray[np.int64] = 0
    labels: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """A federation's clients.

    Attributes:
        images: float32, in [0, 1] unless standardised, shape ``(N, …)``; every client's images stand together.
        labels: int64, shape ``(N,)``.
        train: Of each client, its training samples' rows.
        test: Of each client, its test samples' rows.
        clusters: True cluster of each client, shape ``(C,)``.
        num_classes: Labels lie in ``range(num_classes)``.
        test_is_common: Whether all are tested on the same samples, which are nobody's; else each on its own.
        held_out: Of each client, rows that it neither trains nor is tested on: what it judges averages by. Or nothing.
        clusters_known: Otherwise ``clusters`` says nothing, and nothing is judged by it.
        claimed: How many training samples some clients say that they have, where that is a lie.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    train: tuple[NDArray[np.int64], ...]
    test: tuple[NDArray[np.int64], ...]
    clusters: NDArray[np.int64]
    num_classes: int
    test_is_common: bool = False
    clusters_known: bool = True
    held_out: tuple[NDArray[np.int64], ...] = ()
    claimed: Mapping[int, int] = field(default_factory=dict)

    @property
    def num_clients(self) -> int:
        return len(self.train)

    @property
    def num_examples(self) -> NDArray[np.int64]:
        """Training samples of each client, as it says, shape ``(C,)``."""
        return np.array([self.claimed.get(client, len(rows)) for client, rows in enumerate(self.train)])

    @property
    def label_counts(self) -> NDArray[np.int64]:
        """Samples of each label that each client has, to train and test on together, shape ``(C, num_classes)``."""
        if self.test_is_common:
            return self.train_label_counts
        return self._count([np.concatenate(both) for both in zip(self.train, self.test, strict=True)])

    @property
    def train_label_counts(self) -> NDArray[np.int64]:
        """Samples of each label that each client trains on, shape ``(C, num_classes)``."""
        return self._count(self.train)

    def _count(self, samples: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.array([np.bincount(self.labels[rows], minlength=self.num_classes) for rows in samples])

    @property
    def num_clusters(self) -> int:
        return int(self.clusters.max()) + 1


def gather(
    images: NDArray[np.uint8] | NDArray[np.float32],
    labels: NDArray[np.int64],
    shares: Sequence[Share],
    *,
    num_classes: int,
    common_test: tuple[NDArray[np.uint8] | NDArray[np.float32], NDArray[np.int64]] | None = None,
) -> Population:
    """The population in which each client has its share; a sample that several clients have is copied for each.

    Args:
        images: The data set's, shape ``(n, …)``: bytes in 0..255, or float32 in [0, 1].
        labels: Theirs, shape ``(n,)``.
        shares: One for each client.
        num_classes: Labels lie in ``range(num_classes)``.
        common_test: Images and labels that everybody is tested on, instead of samples of its share; kept once.

    Raises:
        PartitionError: A client has nothing to train on, is tested on what it trains on, or does not fit a common
            test: it has test samples of its own, turned images, or other labels.
    """
    train: list[NDArray[np.int64]] = []
    test: list[NDArray[np.int64]] = []
    parts: list[NDArray[np.float32]] = []
    names: list[NDArray[np.int64]] = []
    start = 0
    for client, share in enumerate(shares):
        if len(share.train) == 0:
            raise PartitionError(f"client {client} has no sample to train on")
        if np.intersect1d(share.train, share.test).size:
            raise PartitionError(f"client {client} would be tested on samples that it trains on")
        if common_test is not None and len(share.test):
            raise PartitionError(f"client {client} has test samples of its own, and the test is common")
        if common_test is not None and (share.labels is not None or np.any(share.quarter_turns)):
            raise PartitionError(
                f"client {client} has its images turned or calls them otherwise, and the common test does not: "
                'say data.test = "own"'
            )
        mine = np.concatenate([share.train, share.test])
        parts.append(_turned(images[mine], share.quarter_turns))
        names.append(labels[mine] if share.labels is None else share.labels)
        middle, end = start + len(share.train), start + len(mine)
        train.append(np.arange(start, middle))
        test.append(np.arange(middle, end))
        start = end
    own_labels = np.concatenate(names)
    if common_test is not None:
        parts.append(_turned(common_test[0], 0))
        own_labels = np.concatenate([own_labels, common_test[1]])
        test = [np.arange(start, len(own_labels))] * len(shares)
    return Population(
        images=np.concatenate(parts),
        labels=own_labels.astype(np.int64),
        train=tuple(train),
        test=tuple(test),
        clusters=np.array([share.cluster for share in shares], dtype=np.int64),
        num_classes=num_classes,
        test_is_common=common_test is not None,
    )


def holding_out(population: Population, share: float, *, rng: np.random.Generator) -> Population:
    """The population whose clients keep a share of their training samples to judge averages by, and train on the rest.

    Raises:
        PartitionError: A client would have nothing left to train on.
    """
    drawn = [rng.permutation(rows) for rows in population.train]
    middles = [round(len(rows) * share) for rows in drawn]
    for client, (rows, middle) in enumerate(zip(drawn, middles, strict=True)):
        if middle == len(rows):
            raise PartitionError(f"client {client} would hold out all of its {middle} training samples")
    return replace(
        population,
        train=tuple(np.sort(rows[middle:]) for rows, middle in zip(drawn, middles, strict=True)),
        held_out=tuple(np.sort(rows[:middle]) for rows, middle in zip(drawn, middles, strict=True)),
    )


def exchanged(population: Population, share: float, *, rng: np.random.Generator) -> Population:
    """The population in which some clients of each cluster, equally many, have the data of clients of the next one.

    What a client claims of its samples stays with it.

    Args:
        population: Of at least two known clusters.
        share: Of the smallest cluster's clients; at least one moves.
        rng: Draws them.

    Raises:
        PartitionError: There is no other cluster whose data they could have.
    """
    if not population.clusters_known or len(np.unique(population.clusters)) < 2:
        raise PartitionError("clients can only move to another cluster where there are two or more")
    members = [np.flatnonzero(population.clusters == cluster) for cluster in np.unique(population.clusters)]
    moving = max(round(share * min(map(len, members))), 1)
    movers = np.stack([np.sort(rng.choice(each, moving, replace=False)) for each in members])
    source = np.arange(population.num_clients)
    source[movers] = np.roll(movers, -1, axis=0)
    return replace(
        population,
        train=tuple(population.train[client] for client in source),
        test=tuple(population.test[client] for client in source),
        held_out=tuple(population.held_out[client] for client in source) if population.held_out else (),
        clusters=population.clusters[source],
    )


def standardised(population: Population) -> Population:
    """The population whose training images have mean 0 and standard deviation 1 in each channel, over all clients.

    Test images are scaled by the same numbers. The images are changed in place.
    """
    images = population.images
    axes = (0, -2, -1)  # all but the channel, where there is one
    train = images[np.concatenate(population.train)]
    mean = train.mean(axis=axes, dtype=np.float64, keepdims=True)[0]
    deviation = train.std(axis=axes, dtype=np.float64, keepdims=True)[0]
    images -= mean.astype(np.float32)
    images /= np.where(deviation > 0, deviation, 1).astype(np.float32)
    return population


def _turned(
    images: NDArray[np.uint8] | NDArray[np.float32], quarter_turns: int | NDArray[np.int64]
) -> NDArray[np.float32]:
    values = images.astype(np.float32) / np.float32(255) if images.dtype == np.uint8 else images.astype(np.float32)
    if isinstance(quarter_turns, int):
        return np.ascontiguousarray(np.rot90(values, quarter_turns, axes=(-2, -1))) if quarter_turns else values
    for turns in np.unique(quarter_turns[quarter_turns > 0]):
        some = quarter_turns == turns
        values[some] = np.rot90(values[some], int(turns), axes=(-2, -1))
    return values
