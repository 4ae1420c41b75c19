"""Clusters by label: each superclass of labels has clients of its own (DAG-ACFL, Sec. IV-A and Fig. 6).

Type I: a client has about as many samples of each label of its superclass. Type II: every client has all of the
superclass's labels, in shares of its own, drawn from a symmetric Dirichlet distribution.

DAG-ACFL names neither the samples of a client nor the distribution of type II. Here all clients of all superclasses
have equally many, as many as the scarcest superclass allows, unless told; type II's ``concentration`` is a parameter.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.data.partition.shares import split
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError

_LEAST: Final = 1e-9
"""A frequency that Dirichlet drew as 0 could never be balanced."""
_FITTING_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class SuperclassParams:
    superclasses: str = parameter(
        "0,1,2;3,4,5;6,7,8,9", doc="Labels of each superclass, with commas; semicolons between."
    )
    clients: str = parameter("30,30,30", doc="Clients of each superclass, with commas.")
    kind: str = parameter(
        "I", doc="I: labels are equally frequent with each client. II: each has frequencies of its own."
    )
    samples: int = parameter(
        0, at_least=0, doc="Samples of each client, to train and test on; 0: as many as there are."
    )
    equal: bool = parameter(
        True, doc="Whether clients of different superclasses have equally many; if not, each superclass is given out."
    )
    concentration: float = parameter(
        1.0, at_least=0.01, doc="Type II: of the Dirichlet distribution; less is less even."
    )

    def __post_init__(self) -> None:
        if self.kind not in ("I", "II"):
            raise ParameterError(f"kind is I or II, not {self.kind!r}")
        try:
            groups, counts = self.groups, self.counts
        except ValueError:
            raise ParameterError("superclasses and clients are whole numbers, with commas between") from None
        labels = [label for group in groups for label in group]
        if len(labels) != len(set(labels)):
            raise ParameterError("a label stands in two superclasses")
        if len(groups) != len(counts) or min(counts) < 1:
            raise ParameterError("clients names a number of at least 1 for each superclass")

    @property
    def groups(self) -> list[list[int]]:
        return [[int(label) for label in group.split(",")] for group in self.superclasses.split(";")]

    @property
    def counts(self) -> list[int]:
        return [int(count) for count in self.clients.split(",")]


def superclass(
    params: SuperclassParams, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """DAG-ACFL's two cluster-wise distributions.

    Clients of the first superclass come first.
    """
    groups, counts = params.groups, params.counts
    room = [int(np.isin(labels, group).sum()) // count for group, count in zip(groups, counts, strict=True)]
    sizes = [params.samples or (min(room) if params.equal else most) for most in room]
    if any(not 2 <= size <= most for size, most in zip(sizes, room, strict=True)):
        raise PartitionError(f"clients of a superclass can have {min(room)} samples each, not {max(sizes)}")
    shares: list[Share] = []
    for cluster, (group, count, size) in enumerate(zip(groups, counts, sizes, strict=True)):
        pools = [rng.permutation(np.flatnonzero(labels == label)) for label in group]
        wanted = _wanted(params, np.array([len(pool) for pool in pools]), count, size, rng)
        taken = np.zeros(len(pools), dtype=np.int64)
        for amounts in wanted:
            mine = [pool[start : start + n] for pool, start, n in zip(pools, taken, amounts, strict=True)]
            taken += amounts
            shares.append(split(np.concatenate(mine), train_fraction=train_fraction, rng=rng, cluster=cluster))
    return shares


def _wanted(
    params: SuperclassParams, available: NDArray[np.int64], clients: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many samples of each label each client gets, ``(clients, labels)``: rows sum to ``size``, no column
    exceeds what is available, and every client has some of each label, as far as there are so many.
    """
    if params.kind == "I":
        frequencies = np.tile(available / available.sum(), (clients, 1))
    else:
        frequencies = rng.dirichlet(np.full(len(available), params.concentration), clients)
    exact = _balanced(frequencies, row=float(size), columns=available * (clients * size / available.sum()))
    wanted: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    for column, has in enumerate(available):
        lacking = np.flatnonzero(wanted[:, column] == 0)
        if len(lacking) <= has - wanted[:, column].sum():
            wanted[lacking, column] = 1
    for client, amounts in enumerate(wanted):
        while (excess := int(amounts.sum()) - size) > 0:
            amounts[amounts.argmax()] -= excess
        # What rounding leaves goes where most is missing, as far as a label lasts.
        while (missing := size - int(amounts.sum())) > 0:
            open_labels = np.flatnonzero(available > wanted.sum(axis=0))
            short = (exact[client] - amounts)[open_labels]
            for place in open_labels[np.argsort(-short, kind="stable")][:missing]:
                amounts[place] += 1
    return wanted


def _balanced(frequencies: NDArray[np.float64], *, row: float, columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The table nearest to ``frequencies`` (in relative entropy) with these sums: iterative proportional fitting.

    First come, first served would leave the last clients without the labels that the first ones liked.
    """
    table = np.maximum(frequencies, _LEAST)
    for _ in range(_FITTING_STEPS):
        table = table * (columns / table.sum(axis=0))
        table = table * (row / table.sum(axis=1, keepdims=True))
    return table
