"""Which links of a run's graph are up in a round: drawn from the run's seed, the same for every strategy.

What nodes send over a link, and what they do in a round without any, is each strategy's own.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_simulator.graphs.graph import Graph
from fl_simulator.seeds import Seeds


@dataclass(frozen=True, slots=True)
class Links:
    """How reliable a graph's links and nodes are, and how unequal its links (section ``[topology]``)."""

    links_up: float = parameter(1.0, above=0.0, at_most=1.0, doc="Probability with which a link is up in a round.")
    nodes_up: float = parameter(
        1.0, above=0.0, at_most=1.0, doc="Probability of a node; one that is down trains, and exchanges nothing."
    )
    lightest: float = parameter(1.0, above=0.0, doc="Each link's weight ω is drawn evenly from here …")
    heaviest: float = parameter(1.0, above=0.0, doc="… to here; the same in both directions.")

    def __post_init__(self) -> None:
        if self.lightest > self.heaviest:
            raise ParameterError(f"[topology]: lightest ({self.lightest}) must be at most heaviest ({self.heaviest})")

    @property
    def weights(self) -> tuple[float, float] | None:
        """Between which weights links lie; None where each counts 1."""
        return None if self.lightest == self.heaviest == 1.0 else (self.lightest, self.heaviest)

    def up(self, graph: Graph, number: int, seeds: Seeds) -> Graph:
        """The graph with only those arcs that are up in a round.

        A link is up in both directions or in none, with probability ``links_up``; a node is up with ``nodes_up``, and
        none of its links is where it is not (Uncoordinated initialisation, Fig. 4). Round -1 is what comes before the
        first, when first models are sent.
        """
        if self.links_up == self.nodes_up == 1.0:
            return graph
        arcs: NDArray[np.bool_] = np.ones(graph.num_arcs, dtype=np.bool_)
        targets = graph.targets
        if self.links_up < 1.0:
            low, high = np.minimum(targets, graph.sources), np.maximum(targets, graph.sources)
            links, link_of = np.unique(low * graph.num_nodes + high, return_inverse=True)  # (m,), (a,)
            arcs &= (seeds.generator("links", number + 1).random(len(links)) < self.links_up)[link_of]
        if self.nodes_up < 1.0:
            nodes = seeds.generator("nodes", number + 1).random(graph.num_nodes) < self.nodes_up
            arcs &= nodes[targets] & nodes[graph.sources]
        return graph.only(arcs)
