"""FedAsync and FedBuff within each true cluster: the upper bounds of clustering without rounds.

Each cluster has a model of its own, all from one initial model, as if it were a federation by itself: staleness counts
its own changes alone. Told what the others must find out, as ``oracle`` is in rounds.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_core.types import Vector32
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.asynchronous.fedasync import FedAsync, FedAsyncParams
from fl_simulator.strategies.asynchronous.fedbuff import FedBuff, FedBuffParams
from fl_simulator.strategies.asynchronous.protocol import Assignment
from fl_simulator.strategies.protocol import PersonalizedModels, Reporting, State, Traffic


class OneModelPerCluster(Reporting):
    """A method for each true cluster."""

    def __init__(self, world: World, begin: Callable[[], FedAsync | FedBuff]) -> None:
        self._clusters = world.population.clusters
        self._methods = [begin() for _ in range(world.population.num_clusters)]
        self.num_groups: int = 1
        self.traffic: Traffic = Traffic()

    def _of(self, client: int) -> FedAsync | FedBuff:
        return self._methods[int(self._clusters[client])]

    def begin_interval(self) -> None:
        for method in self._methods:
            method.begin_interval()
        self.traffic = Traffic()

    def question_bytes(self, client: int) -> int:
        """Nothing: it is known to which cluster a client belongs."""
        return self._of(client).question_bytes(client)

    def start(self, client: int, *, now: float) -> Assignment:
        assignment = self._of(client).start(client, now=now)
        self._count()
        return assignment

    def finish(self, client: int, model: Vector32, *, now: float) -> None:
        self._of(client).finish(client, model, now=now)
        self._count()

    def _count(self) -> None:
        self.traffic = sum((method.traffic for method in self._methods), start=Traffic())

    def personal(self, clients: Sequence[int] | Clients, *, now: float) -> PersonalizedModels:
        models = [method.personal([], now=now).models for method in self._methods]
        return PersonalizedModels(np.concatenate(models), self._clusters[np.asarray(clients, dtype=np.int64)])

    def groups(self) -> NDArray[np.int64] | None:
        return self._clusters

    def state(self) -> State:
        return {
            f"{cluster}.{name}": values
            for cluster, method in enumerate(self._methods)
            for name, values in method.state().items()
        }

    def restore(self, state: State) -> None:
        for cluster, method in enumerate(self._methods):
            prefix = f"{cluster}."
            method.restore({name.removeprefix(prefix): each for name, each in state.items() if name.startswith(prefix)})
        self.traffic = Traffic()


class OracleFedAsync(OneModelPerCluster):
    """FedAsync within each true cluster: an upper bound, for it is told the clusters."""

    name = "oracle-fedasync"

    def __init__(self, params: FedAsyncParams, world: World) -> None:
        super().__init__(world, lambda: FedAsync(params, world))


class OracleFedBuff(OneModelPerCluster):
    """FedBuff within each true cluster: an upper bound, for it is told the clusters."""

    name = "oracle-fedbuff"

    def __init__(self, params: FedBuffParams, world: World) -> None:
        super().__init__(world, lambda: FedBuff(params, world))
