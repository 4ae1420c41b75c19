"""Clusters by one kind of shift, of any strength: for comparing methods where clients differ in different ways.

* ``labels``: a part of each client's samples, as large as the strength, is of its cluster's own labels, which are
  shared out in turn; the rest is of all labels, and all have all of these alike.
* ``inputs``: the same labels for all; such a part of a cluster's images is turned, by as many quarters as its number.
* ``concept``: the same samples for all; such a part of the labels means something else in each cluster, which calls
  each by the name of another, as many places on as its number.
* ``mixed``: as ``inputs``, and numbers of samples differ: lognormally, sigma 1, but at least a quarter of the mean.

Strength 0 is one cluster whatever the numbers say, and 1 is the clearest that there is: superclasses of labels,
cameras that hang four ways, clusters that agree on no label.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.data.partition.shares import deal
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError

_SIGMA: Final = 1.0
_LEAST_SHARE: Final = 0.25
"""Of the mean: otherwise some clients would have nothing to be tested on."""
_FULL_TURN: Final = 4


@dataclass(frozen=True, slots=True)
class ShiftsParams:
    """What differs, and how much."""

    kind: str = parameter("labels", choices=("labels", "inputs", "concept", "mixed"), doc="What differs.")
    strength: float = parameter(1.0, at_least=0.0, at_most=1.0, doc="The part of samples, or of labels, that does.")
    clients: str = parameter("10,10,10", doc="Clients of each cluster, with commas.")
    samples: int = parameter(
        0, at_least=0, doc="Samples of each client in the mean, to train and test on; 0: as many as there are."
    )

    def __post_init__(self) -> None:
        try:
            counts = self.counts
        except ValueError:
            raise ParameterError("clients are whole numbers, with commas between") from None
        if min(counts) < 1:
            raise ParameterError("each cluster has at least one client")
        if self.kind in ("inputs", "mixed") and len(counts) > _FULL_TURN:
            raise ParameterError("images can be turned four ways; ask for at most four clusters")

    @property
    def counts(self) -> list[int]:
        return [int(count) for count in self.clients.split(",")]


def shifts(
    params: ShiftsParams, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """Clients of the first cluster come first."""
    known = np.unique(labels)
    if params.kind in ("labels", "concept") and len(known) < len(params.counts):
        raise PartitionError(f"{len(params.counts)} clusters need as many labels, and there are {len(known)}")
    clusters = np.repeat(np.arange(len(params.counts)), params.counts)
    amounts = _amounts(params, labels, clusters, rng)
    shares = deal(labels, amounts, train_fraction=train_fraction, rng=rng)
    return [
        _shifted(params, replace(share, cluster=int(cluster)), labels, known, rng)
        for share, cluster in zip(shares, clusters, strict=True)
    ]


def _amounts(
    params: ShiftsParams, labels: NDArray[np.int64], clusters: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many samples of each label each client gets, shape ``(labels, clients)``."""
    known, available = np.unique(labels, return_counts=True)
    num_clusters = len(params.counts)
    wanted = np.full((len(known), len(clusters)), 1 / len(known))
    if params.kind == "labels":
        own = np.arange(len(known))[:, None] * num_clusters // len(known) == clusters
        wanted = (1 - params.strength) * wanted + params.strength * own / own.sum(axis=0)
    if params.kind == "mixed":
        sizes = rng.lognormal(0.0, _SIGMA, len(clusters))
        sizes = np.maximum(sizes, _LEAST_SHARE * sizes.mean())
        wanted = wanted * sizes / sizes.mean()
    most = int((available / wanted.sum(axis=1)).min()) if len(known) else 0
    size = params.samples or most
    if not 0 < size <= most:
        raise PartitionError(f"clients can have {most} samples each, not {size}")
    # Where labels end in the sum is rounded, for each client: the parts sum to its size, to within one.
    ends = np.floor(np.cumsum(size * wanted, axis=0) + 1e-9).astype(np.int64)
    amounts = np.diff(ends, axis=0, prepend=0)
    short = np.maximum(amounts.sum(axis=1) - available, 0)
    for label in np.flatnonzero(short):  # rounding may ask for a few more than there are
        amounts[label, np.argsort(-amounts[label], kind="stable")[: short[label]]] -= 1
    if (amounts.sum(axis=0) < 2).any():
        raise PartitionError(f"a client would have fewer than two of {size} samples in the mean; ask for fewer clients")
    return amounts


def _shifted(
    params: ShiftsParams, share: Share, labels: NDArray[np.int64], known: NDArray[np.int64], rng: np.random.Generator
) -> Share:
    mine = np.concatenate([share.train, share.test])
    if params.kind in ("inputs", "mixed"):
        turned = rng.permutation(len(mine)) < round(params.strength * len(mine))
        return replace(share, quarter_turns=np.where(turned, share.cluster % _FULL_TURN, 0))
    if params.kind == "concept":
        renamed = round(params.strength * len(known))
        names = known.copy()
        names[:renamed] = np.roll(known[:renamed], -share.cluster)
        return replace(share, labels=names[np.searchsorted(known, labels[mine])])
    return share
