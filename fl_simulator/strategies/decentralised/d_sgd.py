"""D-SGD: a step on one mini-batch, then an average with the neighbours (D-Cliques: Bellet et al., 2021).

Alg. D-PSGD: x_i <- Σ_j W_ji (x_j - γ ∇F(x_j; s_j)), with Metropolis-Hastings weights W (Eq. metro). With Clique
Averaging (Alg. Clique-Unbiased-D-PSGD) the gradient is first averaged over the node's clique, itself among it, so that
every class counts the same; on a graph without cliques it is averaged over the neighbourhood, D-Cliques's analogue
for random graphs. With momentum, v_i <- m v_i + g_i of the (averaged) gradient takes the gradient's place.

A round is one step. Batch size, learning rate and loss are those of [training]; its epochs, momentum and optimiser play
no part. Models and gradients are messages of their own: a gradient is sent only within a clique, where D-Cliques counts
two messages on every edge. Over links that are down neither is sent, and weights are those of the links that are up.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_simulator.engine.world import Clients, World
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix, decentralised_average, metropolis_hastings, mix
from fl_simulator.strategies.decentralised.base import DecentralisedStrategy, Dynamics, as_mask, induced_subgraph
from fl_simulator.strategies.decentralised.first_models import FirstModelParams
from fl_simulator.strategies.protocol import Traffic


@dataclass(frozen=True, slots=True)
class DSgdParams(FirstModelParams):
    clique_averaging: bool = parameter(True, doc="Whether gradients are averaged over the clique before the step.")
    momentum: float = parameter(0.0, at_least=0.0, below=1.0, doc="m, of the (averaged) gradient.")
    init: str = parameter(
        "shared",
        choices=("shared", "independent"),
        doc="All nodes begin with one and the same first model, or every node draws its own.",
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Arcs:
    """Over which arcs a round's messages travel, and how both averages weigh."""

    links: Graph
    within: Graph
    mixing: MixingMatrix
    averaging: MixingMatrix


class DSgd(DecentralisedStrategy):
    """A model for each node, a step and an average at a time."""

    name = "d-sgd"
    uses_optimizer: ClassVar = False  # momentum is a parameter of its own

    def __init__(self, params: DSgdParams, world: World) -> None:
        super().__init__(params, world, aggregates_first=False)
        self._params = params
        if params.momentum:
            self.velocity = np.zeros_like(self.models)
            self.remembered = ("models", "velocity")
        self._clique_of = _clique_of(self._graph)
        self._arcs: _Arcs | None = None

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``; ``up`` is what nodes sent to one another."""
        world, before = self._world, self.models
        arcs = self._arcs_of(induced_subgraph(world.links(number), participants))
        everybody = len(participants) == len(before)
        gradients = world.gradients(before if everybody else before[participants], participants, round_index=number)
        with world.stopwatch.measure("aggregation"):
            step = gradients if everybody else np.zeros_like(before)  # (n, P)
            if not everybody:
                step[participants] = gradients
            sent = arcs.links.num_arcs
            if self._params.clique_averaging:
                step = mix(arcs.averaging, step)
                sent += arcs.within.num_arcs
            if self._params.momentum:
                self.velocity[participants] *= np.float32(self._params.momentum)
                self.velocity += step  # which is 0 for who takes no part
                step = self.velocity
                if not everybody:
                    step = np.where(as_mask(participants, len(step))[:, None], step, 0)
            stepped = before - np.float32(world.training.learning_rate) * step
            self.models, self._averaged = mix(arcs.mixing, stepped), arcs.mixing
        self._dynamics = Dynamics(before, stepped, self.models, participants, aggregates_first=False)
        self._messages = sent / len(before)
        return Traffic(up=sent * world.model_bytes)

    def _averages(self) -> MixingMatrix:
        return metropolis_hastings(self._graph)

    def _arcs_of(self, links: Graph) -> _Arcs:
        """What follows from the links that are up, kept for as long as they are the same."""
        if self._arcs is None or self._arcs.links is not links:
            within = links.only(self._clique_of[links.targets] == self._clique_of[links.sources])
            ones = np.ones(links.num_nodes, dtype=np.int64)
            averaging = decentralised_average(within.unweighted(), ones, include_self=True)
            self._arcs = _Arcs(links, within, metropolis_hastings(links), averaging)
        return self._arcs


def _clique_of(graph: Graph) -> NDArray[np.int64]:
    """The number of each node's clique, shape ``(n,)``; one for all where the graph has no cliques."""
    numbers = np.zeros(graph.num_nodes, dtype=np.int64)
    for number, clique in enumerate(graph.cliques):
        numbers[list(clique)] = number
    return numbers
