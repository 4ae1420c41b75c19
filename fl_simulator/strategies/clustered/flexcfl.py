"""FlexCFL: clients are put into groups once, by the directions in which they first move (Duan et al., TPDS 2022).

*Group cold start*: min(alpha k, N) clients, drawn from all, train E′ epochs from the run's first model. Each update is
described by its cosines to the first k right singular vectors of all of them (EDC), and k-means of these makes the
groups. A group begins at the mean of its members' models; its direction is their mean update, and from then on its
model's latest step, as an early program of the authors has it (morningD/FlexCFL, 200d4de; 39be430 keeps the first).
*Client cold start*: everybody else trains like that when it takes part first, and joins the group whose direction has
the smallest (1 - cosine) / 2. *Rounds* are FedAvg in each group, by samples; the mean of updates of one starting
model is the mean of the models, so models are averaged. Groups learn apart, as in DAG-ACFL's comparison.

Differences: E′ epochs, where the authors count batches (50); all-zero updates resemble nothing and join group 0.
Left out: the program's random placement (RAC, RCC), as in DAG-ACFL's comparison (Sec. IV-A), and what it does about
clients whose data change (early by their distance from the group, later by sorted counts of labels). A program that
drops all updates but the first from unweighted averages is not followed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_core.types import Matrix32
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy, average, every
from fl_simulator.strategies.clustered.clustering import cosines, decomposed_cosines, k_means
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic


@dataclass(frozen=True, slots=True)
class FlexCflParams:
    """How many groups, and whom the cold start asks."""

    clusters: int = parameter(3, at_least=1, doc="Groups k; fewer if fewer clients train in the cold start.")
    alpha: int = parameter(20, at_least=1, doc="The cold start asks alpha k clients, or all.")


class FlexCfl(GroupStrategy):
    """The groups' models and directions, and each client's group."""

    name = "flexcfl"
    remembered: tuple[str, ...] = ("models", "directions", "assigned")

    def __init__(self, params: FlexCflParams, world: World) -> None:
        self.num_groups: int = params.clusters
        self._params = params
        self._first = world.initial_model()
        super().__init__(world, np.empty((0, len(self._first)), np.float32))
        self.directions: Matrix32 = self.models.copy()  # (G, P); of each group the latest step that was one
        self.assigned = every(range(world.num_clients), -1)

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``; 2 |C| |w| (Table III), and as much for each training of a cold start."""
        trainings = len(participants)
        if len(self.models) == 0:
            trainings += self._start_groups()
        joining = participants[self.assigned[participants] < 0]
        if joining.size:
            trainings += len(joining)
            updates = self.train_first(self._first, joining)
            updates -= self._first
            self.assigned[joining] = cosines(updates, self.directions).argmax(axis=1)
        groups = self.assigned[participants]
        trained = self.train(participants, groups, round_index=number)
        before = self.models.copy()
        self.replace_by_means(trained, participants, groups)
        steps = self.models - before
        self.directions = np.where(steps.any(axis=1, keepdims=True), steps, self.directions)
        return self.models_moved(trainings)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``: its group's model; who has no group yet, the run's first."""
        groups = self.assigned[np.asarray(clients, dtype=np.int64)]
        models = np.concatenate([self.models, self._first[None]])
        return PersonalizedModels(models, np.where(groups < 0, len(self.models), groups))

    def groups(self) -> NDArray[np.int64] | None:
        return self.assigned

    def _start_groups(self) -> int:
        """The group cold start; how many clients trained for it."""
        world, count = self.world, self._params.clusters
        asked = min(self._params.alpha * count, world.num_clients)
        chosen = world.seeds.generator("group cold start").choice(world.num_clients, asked, replace=False)
        chosen.sort()
        updates = self.train_first(self._first, chosen)
        updates -= self._first
        with world.stopwatch.measure("clustering"):
            groups = k_means(decomposed_cosines(updates, count), count, world.seeds.generator("k-means"))
        members = [groups == group for group in range(int(groups.max()) + 1)]
        self.directions = np.stack([average(world, updates[each], chosen[each], weighted=False) for each in members])
        self.models = self.directions + self._first
        self.assigned[chosen] = groups
        return asked
