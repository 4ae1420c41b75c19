"""FeSEM: k centres, each the mean of the models nearest to it, by expectation and maximisation (Long et al., WWW 2023).

A round here: participants train from their centre; each trained model goes to the centre nearest in the Euclidean
distance (E); each centre becomes the mean of the models that came to it (M). FeSEM's loop has E and M first and
training last; it is the same loop, entered half a turn later, so that a round's training shows in its own centres.
Differences: the means are of the round's participants, not of models that others trained rounds ago, and a centre
that nobody came to stays where it is. The authors' program never reaches its own reassignment and compares one layer;
this follows the FeSEM paper, and ``layers`` says what is compared.

A model that was trained from a centre has not gone far from it, so the first assignment nearly decides the last:

* ``shared``: every centre, and every client's model before its first training, is the run's first model. All
  distances tie, everybody goes to the first centre, and the others stay where everybody has left: FeSEM is FedAvg,
  unless clients pull so much against one another that some come back. Who begins in a later round begins at a centre
  that nobody has trained, so with some taking part clusters also say who began when. Programs that share one first
  model do this.
* ``random``: centres and clients' first models are independent; the first assignment is chance.
* ``kmeans``: the first participants train E′ epochs from the run's first model and k-means of what they learnt gives
  the centres. Who joins later does so, too, and begins at the centre whose first position is nearest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_core.types import Matrix32
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy, average, compared, every
from fl_simulator.strategies.clustered.clustering import coordinates, distances, k_means
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic


@dataclass(frozen=True, slots=True)
class FesemParams:
    """How many centres, where they begin, and what is compared."""

    clusters: int = parameter(3, at_least=1, doc="Centres; fewer with `kmeans` if fewer clients take part first.")
    init: str = parameter(
        "random",
        choices=("shared", "random", "kmeans"),
        doc="Where centres and clients begin: at one model, at independent ones, or at k-means of first trainings.",
    )
    layers: str = parameter(
        "all", choices=("all", "similarity"), doc="Tensors that distances are taken of: all, or the similarity layers."
    )
    weighted: bool = parameter(False, doc="Means by samples instead of alike.")


class Fesem(GroupStrategy):
    """The centres' models, and each client's centre."""

    name = "fesem"
    remembered: tuple[str, ...] = ("models", "beginnings", "assigned")

    def __init__(self, params: FesemParams, world: World) -> None:
        self.num_groups: int = params.clusters
        self._params = params
        self._first = world.initial_model()
        if params.init == "random":
            models = np.stack([world.initial_model(centre) for centre in range(params.clusters)])
        else:
            models = np.tile(self._first, (params.clusters, 1))
        super().__init__(world, models)
        self.beginnings: Matrix32 = self._compared(models).copy()  # where the centres began, (G, d)
        self.assigned = every(range(world.num_clients), -1)

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``; 2 |C| |w| (Table III), and as much for each first training of ``kmeans``."""
        world, joining = self.world, participants[self.assigned[participants] < 0]
        before = self.assigned.copy()
        if self._params.init == "kmeans" and joining.size:
            before[joining] = self._groups_of_first_trainings(joining)
        starts = self._known_or_nearest(participants, before)
        trained = self.train(participants, starts, round_index=number)
        with world.stopwatch.measure("clustering"):
            groups = distances(self._compared(trained), self._compared(self.models)).argmin(axis=1)
        self.assigned[participants] = groups
        self.replace_by_means(trained, participants, groups, weighted=self._params.weighted)
        trainings = len(participants) + (len(joining) if self._params.init == "kmeans" else 0)
        return self.models_moved(trainings)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``: its centre; who never took part, where it would begin, which with ``kmeans`` is
        the run's first model.
        """
        numbers = np.asarray(clients, dtype=np.int64)
        models = self.models
        if self._params.init == "kmeans":
            rows = np.where(self.assigned[numbers] < 0, len(models), self.assigned[numbers])
            return PersonalizedModels(np.concatenate([models, self._first[None]]), rows)
        return PersonalizedModels(models, self._known_or_nearest(numbers, self.assigned))

    def groups(self) -> NDArray[np.int64] | None:
        return self.assigned

    def _compared(self, models: Matrix32) -> Matrix32:
        return compared(self.world, models, self._params.layers)

    def _known_or_nearest(self, clients: Clients, assigned: NDArray[np.int64]) -> NDArray[np.int64]:
        """The centre of each; of those without one, the centre nearest to the model that they begin with."""
        groups = assigned[clients]
        missing = np.flatnonzero(groups < 0)
        if missing.size == 0:
            return groups
        if self._params.init == "random":
            offset = self._params.clusters  # the centres' draws come first
            begins = np.stack([self.world.initial_model(offset + int(client)) for client in clients[missing]])
        else:
            begins = self._first[None]
        groups[missing] = distances(self._compared(begins), self._compared(self.models)).argmin(axis=1)
        return groups

    def _groups_of_first_trainings(self, joining: Clients) -> NDArray[np.int64]:
        """Train them from the run's first model; the centres are made of that if there are none yet."""
        world = self.world
        models = self.train_first(self._first, joining)
        places = self._compared(models)
        with world.stopwatch.measure("clustering"):
            if self.assigned.max() >= 0:
                nearest: NDArray[np.int64] = distances(places, self.beginnings).argmin(axis=1)
                return nearest
            groups = k_means(coordinates(places), self._params.clusters, world.seeds.generator("k-means"))
        members = [groups == group for group in range(int(groups.max()) + 1)]
        weighted = self._params.weighted
        self.models = np.stack([average(world, models[each], joining[each], weighted=weighted) for each in members])
        self.beginnings = self._compared(self.models).copy()
        return groups
