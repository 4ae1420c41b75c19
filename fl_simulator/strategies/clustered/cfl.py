"""Clustered federated learning by bipartition: FedAvg that splits where it has come to rest without satisfying
everybody (Sattler, Müller & Samek, TNNLS 2020).

All clients begin in one cluster. Where the mean of a cluster's updates has become short although some update is long
(two thresholds, eps1 and eps2), its clients want different things, and it is split into the two parts between which
the greatest cosine of updates is least. That bipartition is exact (``clustering.bipartition``); programs that take
complete linkage for it find another one at times. A split cluster is never joined again.

The CFL paper has every client take part in every round. With only some of them, this does as follows:

* the thresholds are asked of the round's participants, the mean weighted by samples;
* the bipartition is of every client that took part since its cluster began, by its last update;
* a client that did not is left behind at the split cluster, whose model is kept. When it takes part again it trains
  from there and goes to the part whose mean direction its update is more like, and so on down to a cluster that is
  whole; then it trains with that. So does who never took part: the CFL paper's way for clients that join late, with the
  mean direction of a part instead of all its updates.

Clusters are the leaves of this tree, numbered in the order in which they arose; who was left behind has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.models import model_norm
from fl_core.parameters import parameter
from fl_core.types import Matrix32
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy, average, compared, every
from fl_simulator.strategies.clustered.clustering import bipartition, cosines
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic


@dataclass(frozen=True, slots=True)
class CflParams:
    """When a cluster is split."""

    eps1: float = parameter(
        0.3, above=0.0, doc="The mean update is short below this: a share of the round's longest update, or a norm."
    )
    eps2: float = parameter(
        0.25, at_least=0.0, doc="An update is long above this: a share of the run's first round's longest, or a norm."
    )
    relative: bool = parameter(
        True, doc="The thresholds are shares, as above; otherwise norms, as the CFL paper has it (0.4 and 1.6)."
    )
    gamma: float = parameter(
        0.0,
        at_least=0.0,
        below=1.0,
        doc="Split only if sqrt((1 - greatest cosine across) / 2) exceeds this bound on the noise of updates.",
    )
    layers: str = parameter(
        "all", choices=("all", "similarity"), doc="Tensors that cosines are taken of: all, or the similarity layers."
    )

    def __post_init__(self) -> None:
        if self.relative and (self.eps1 > 1 or self.eps2 >= 1):
            raise ParameterError("strategy 'cfl': relative thresholds are shares; eps1 is at most 1 and eps2 below 1")


class Cfl(GroupStrategy):
    """The tree of clusters, and where in it each client stands.

    Every node has a model; that of a split one is what it was when the round of its split began.
    """

    name = "cfl"
    remembered: tuple[str, ...] = ("models", "children", "directions", "at", "updates", "fresh", "seen", "first_norm")

    def __init__(self, params: CflParams, world: World) -> None:
        self._params = params
        super().__init__(world, world.initial_model()[None].copy())  # the root of the tree is node 0
        width = self._compared(self.models).shape[1]
        self.children = np.full((1, 2), -1)  # of each node; -1: it is whole
        self.directions: Matrix32 = np.zeros((1, width), np.float32)  # by which each node was split off, (T, d)
        self.at = every(range(world.num_clients), 0)
        self.updates: Matrix32 = np.zeros((world.num_clients, width), np.float32)
        self.fresh = np.zeros(world.num_clients, bool)  # took part since its cluster began
        self.seen = np.zeros(world.num_clients, bool)
        self.first_norm = np.zeros(())  # the longest update of the run's first round

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``; 2 |C| |w|, and as much for each step of a client that was left behind."""
        trainings = len(participants) + self._walk_down(participants, round_index=number)
        clusters = self.at[participants]
        trained = self.train(participants, clusters, round_index=number)
        updates = trained - self.models[clusters]
        norms = np.array([model_norm(update) for update in updates])
        self.first_norm = self.first_norm or norms.max()
        self.updates[participants] = self._compared(updates)
        self.fresh[participants] = self.seen[participants] = True
        for cluster in np.unique(clusters):
            here = np.flatnonzero(clusters == cluster)
            if self._is_torn(updates[here], norms[here], participants[here]):
                self._split(int(cluster))
        # Who was in a cluster that is now split is in one of its parts, which begins at the mean of its own members.
        self.replace_by_means(trained, participants, self.at[participants])
        return self.models_moved(trainings)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``: its cluster's model; who was left behind, the one that it will train from."""
        return PersonalizedModels(self.models, self.at[np.asarray(clients, dtype=np.int64)])

    def groups(self) -> NDArray[np.int64] | None:
        return np.where(self.seen & (self.children[self.at, 0] < 0), self.at, -1)

    def _compared(self, models: Matrix32) -> Matrix32:
        return compared(self.world, models, self._params.layers)

    def _walk_down(self, participants: Clients, *, round_index: int) -> int:
        """Take those who stand at split clusters to whole ones, one split at a time; how many trainings it took."""
        trainings = 0
        while (walkers := participants[self.children[self.at[participants], 0] >= 0]).size:
            trainings += len(walkers)
            places = self.at[walkers]
            updates = self.train(walkers, places, round_index=round_index)
            updates -= self.models[places]
            for client, update, parts in zip(walkers, self._compared(updates), self.children[places], strict=True):
                self.at[client] = parts[cosines(update[None], self.directions[parts])[0].argmax()]
        return trainings

    def _is_torn(self, updates: Matrix32, norms: NDArray[np.float64], members: Clients) -> bool:
        """Whether the mean of the updates is short although one is long (Sattler et al., the two norm criteria)."""
        mean, longest = model_norm(average(self.world, updates, members)), float(norms.max())
        shares = self._params.relative
        short = self._params.eps1 * (longest if shares else 1.0)
        long = self._params.eps2 * (self.first_norm if shares else 1.0)
        return bool(mean < short and longest > long)

    def _split(self, cluster: int) -> None:
        """Split a cluster, unless its parts are too alike for the noise."""
        members = np.flatnonzero((self.at == cluster) & self.fresh)
        if len(members) < 2:
            return
        updates = self.updates[members]
        with self.world.stopwatch.measure("clustering"):
            similarities = cosines(updates, updates)
            parts = bipartition(similarities)
        across = float(similarities[np.ix_(parts == 0, parts == 1)].max())
        if np.sqrt((1.0 - across) / 2.0) <= self._params.gamma:
            return
        first = len(self.models)
        self.children[cluster] = first, first + 1
        self.children = np.concatenate([self.children, np.full((2, 2), -1)])
        self.models = np.concatenate([self.models, self.models[[cluster] * 2]])
        directions = np.stack([_mean_direction(updates[parts == part]) for part in (0, 1)])
        self.directions = np.concatenate([self.directions, directions])
        self.at[members] = first + parts
        self.fresh[members] = False


def _mean_direction(updates: Matrix32) -> NDArray[np.float32]:
    """The mean of the updates at length 1 each; a zero one has no direction and adds none."""
    norms = np.array([[model_norm(update)] for update in updates])
    mean: NDArray[np.float32] = np.divide(updates, norms, out=np.zeros(updates.shape), where=norms > 0).mean(axis=0)
    return mean.astype(np.float32)
