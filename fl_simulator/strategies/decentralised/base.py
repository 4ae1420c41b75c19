"""What strategies on a graph share: first models, a round of aggregation, training and sending, and how it is seen.

Every node has a model of its own and hears its neighbours only. A round of ``TrainAndAggregate``: each node aggregates
its model with those that it heard in the round before (in round 0 nobody has heard anything, unless nodes begin with
aggregation: then first models were sent over links that are up), trains, and sends the result to all that hear it. A
node that is not drawn for a round aggregates what it heard before, and neither trains nor sends nor hears; over links
that are down nothing is sent; who heard nobody goes on from its own model. How models are aggregated is each
strategy's own.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_core.types import Matrix32
from fl_simulator.engine.world import Clients, World
from fl_simulator.errors import ScenarioError
from fl_simulator.graphs.gain.dispersion import parameter_spread
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, decentralised_average
from fl_simulator.strategies.decentralised.first_models import FirstModelParams, first_models
from fl_simulator.strategies.protocol import Edge, Figures, PersonalizedModels, State, Strategy, Traffic


@dataclass(frozen=True, slots=True)
class NodeParams(FirstModelParams):
    """First models, and which models are judged."""

    evaluate_on: str = parameter(
        "trained",
        choices=("trained", "aggregated"),
        doc="Which of a node's models is its own: the one that it trained, or what it would train from next.",
    )
    first_step: str = parameter(
        "training",
        choices=("training", "aggregation"),
        doc="aggregation: first models are sent as they are, and aggregated before the first training; say so with a "
        "gain, which a first training may destroy.",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Dynamics:
    """How a round moved the nodes' models.

    Attributes:
        before: At the round's beginning, shape ``(n, P)``.
        between: After the first of its two halves, aggregation or training.
        after: At its end.
        nodes: Who took part, shape ``(k,)``.
        aggregates_first: Whether aggregation is the first half.
    """

    before: Matrix32
    between: Matrix32
    after: Matrix32
    nodes: Clients
    aggregates_first: bool

    @np.errstate(over="ignore", invalid="ignore")  # models that diverge
    def figures(self) -> dict[str, float | None]:
        """Standard deviations of ``after`` and lengths of changes, by the names that ``RoundRecord`` gives them."""
        halves = np.empty((2, len(self.nodes)))
        totals, cosines = np.empty(len(self.nodes)), np.full(len(self.nodes), np.nan)
        for place, node in enumerate(self.nodes):
            first = self.between[node] - self.before[node]  # (P,)
            second = self.after[node] - self.between[node]  # (P,)
            squares = float(first @ first), float(second @ second)
            product = float(first @ second)
            halves[:, place] = np.sqrt(squares)
            totals[place] = np.sqrt(max(squares[0] + squares[1] + 2 * product, 0.0))
            if min(squares) > 0:
                cosines[place] = product / np.sqrt(squares[0] * squares[1])
        aggregation, training = halves if self.aggregates_first else halves[::-1]
        known = cosines[~np.isnan(cosines)]
        sigma_an, sigma_ap = parameter_spread(self.after)
        return {
            "sigma_an": sigma_an,
            "sigma_ap": sigma_ap,
            "change_by_training": float(training.mean()),
            "change_by_aggregation": float(aggregation.mean()),
            "change_in_total": float(totals.mean()),
            "change_cosine": float(known.mean()) if len(known) else None,
        }


class DecentralisedStrategy(Strategy):
    """A strategy whose nodes hear their neighbours on the run's graph, and have a model each."""

    needs_graph: ClassVar = True
    remembered: Sequence[str] = ("models",)

    def __init__(self, params: FirstModelParams, world: World, *, aggregates_first: bool) -> None:
        if world.graph is None:
            raise ScenarioError(
                f'strategy {self.name!r} needs a graph: add a section [topology], such as name = "complete"'
            )
        self._world, self._graph = world, world.graph
        models = first_models(world, params, averages=self._averages())
        self.models: Matrix32 = models
        self._messages = 0.0  # of the latest round: mean over nodes of how many each sent
        self._averaged: MixingMatrix | None = None  # with what weights, in the latest round
        self._dynamics = Dynamics(models, models, models, np.arange(len(models)), aggregates_first=aggregates_first)

    @abstractmethod
    def _averages(self) -> MixingMatrix:
        """The average, own model included, whose steady state an exact gain undoes."""

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        return PersonalizedModels(self.models, np.asarray(clients, dtype=np.int64))

    def take_edges(self) -> list[Edge]:
        matrix, self._averaged = self._averaged, None
        if matrix is None:
            return []
        triples = zip(matrix.columns.tolist(), matrix.rows.tolist(), matrix.values.tolist(), strict=True)
        return [(source, target, share) for source, target, share in triples if share > 0]

    def figures(self, *, evaluated: bool) -> Figures:
        return {"messages": self._messages, **(self._dynamics.figures() if evaluated else {})}


def induced_subgraph(graph: Graph, nodes: Clients) -> Graph:
    """The arcs from one of these nodes to another of them; the graph itself where they are all there are."""
    if len(nodes) == graph.num_nodes:
        return graph
    taking_part = as_mask(nodes, graph.num_nodes)
    return graph.only(taking_part[graph.targets] & taking_part[graph.sources])


def as_mask(nodes: Clients, count: int) -> NDArray[np.bool_]:
    """Whether each node is one of these, shape ``(count,)``."""
    mask = np.zeros(count, dtype=np.bool_)
    mask[nodes] = True
    return mask


class TrainAndAggregate(DecentralisedStrategy):
    """A model for each node, aggregated with what it heard; ``params`` also say which of its models are judged."""

    remembered: Sequence[str] = ("models", "latest", "took_part")

    def __init__(self, params: NodeParams, world: World) -> None:
        super().__init__(params, world, aggregates_first=True)
        self._judges_aggregated = params.evaluate_on == "aggregated"
        nothing = self._graph.only(np.zeros(self._graph.num_arcs, dtype=np.bool_))
        self._heard = world.links(-1) if params.first_step == "aggregation" else nothing
        self.latest, self.took_part = -1, np.zeros(world.num_clients, dtype=np.bool_)
        self._aggregated: Matrix32 | None = None
        self._matrix: tuple[Graph, MixingMatrix] | None = None

    @abstractmethod
    def weights(self, heard: Graph) -> MixingMatrix:
        """With what weights models are averaged that were heard over these arcs."""

    @abstractmethod
    def aggregate(self, models: Matrix32, heard: Graph) -> Matrix32:
        """What each node goes on from, shape ``(n, P)``, a new array; ``heard`` has an arc at least."""

    def _averages(self) -> MixingMatrix:
        return decentralised_average(self._graph, self._world.population.num_examples, include_self=True)

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``; ``up`` is what nodes sent to one another."""
        before, start, heard_before = self.models, self._start(), self._heard
        self._averaged = self.mixing(heard_before) if heard_before.num_arcs else None
        first = heard_before.num_arcs if self.latest < 0 else 0  # messages that brought first models
        trained = start.copy()
        if len(participants) == len(trained):
            self._world.train(trained, participants, round_index=number)
        else:
            rows = trained[participants]
            self._world.train(rows, participants, round_index=number)
            trained[participants] = rows
        self._hear(number, participants)
        sent = first + self._heard.num_arcs + self._also_send(number, before, heard_before)
        self.models, self._aggregated = trained, None
        self._dynamics = Dynamics(before, start, trained, participants, aggregates_first=True)
        self._messages = sent / len(trained)
        return Traffic(up=sent * self._world.model_bytes)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        models = self._start() if self._judges_aggregated else self.models
        return PersonalizedModels(models, np.asarray(clients, dtype=np.int64))

    def restore(self, state: State) -> None:
        """See ``Strategy.restore``; what was heard follows from the latest round and who took part in it."""
        super().restore(state)
        self._aggregated = None
        if self.latest >= 0:
            self._hear(int(self.latest), np.flatnonzero(self.took_part))

    def mixing(self, heard: Graph) -> MixingMatrix:
        """``weights``, kept for as long as the same arcs are up."""
        if self._matrix is None or self._matrix[0] is not heard:
            self._matrix = (heard, self.weights(heard))
        return self._matrix[1]

    def _also_send(self, number: int, before: Matrix32, heard_before: Graph) -> int:  # noqa: ARG002
        """Send something beside models; how many messages as large as a model that was."""
        return 0

    def _start(self) -> Matrix32:
        """What everybody trains from next."""
        if self._aggregated is None:
            with self._world.stopwatch.measure("aggregation"):
                arcs = self._heard.num_arcs
                self._aggregated = self.aggregate(self.models, self._heard) if arcs else self.models
        return self._aggregated

    def _hear(self, number: int, participants: Clients) -> None:
        self._heard = induced_subgraph(self._world.links(number), participants)
        self.latest = number
        self.took_part = as_mask(participants, self._world.num_clients)
