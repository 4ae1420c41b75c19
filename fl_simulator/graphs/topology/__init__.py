"""Topologies: who is whose neighbour, among nodes that are numbered from 0.

A topology is a function of its parameters and the number of nodes that makes a ``Graph``; it also takes ``rng`` if it
draws, and ``label_counts`` (see ``build_graph``) if it looks at what data the nodes have. It raises ``ParameterError``
where it cannot connect so few, or so many, nodes, and ``build_graph`` puts its name before the message. A new one is
one file and one line in ``TOPOLOGIES``; the contract tests in ``tests/contract/test_topologies.py`` hold each to this:
edges join two different nodes and connect all of them; the same count and the same state of the generator give the
same edges.
"""

from collections.abc import Mapping
from inspect import signature
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fl_core.errors import ParameterError, ShapeMismatchError
from fl_core.registry import PartRegistry
from fl_core.types import JsonScalar
from fl_simulator.graphs.graph import Graph

TOPOLOGIES: Final = PartRegistry[Graph](
    "topology",
    {
        "barabasi-albert": "fl_simulator.graphs.topology.barabasi_albert:barabasi_albert",
        "complete": "fl_simulator.graphs.topology.complete:complete",
        "configuration": "fl_simulator.graphs.topology.configuration:configuration",
        "d-cliques": "fl_simulator.graphs.topology.d_cliques:d_cliques",
        "erdos-renyi": "fl_simulator.graphs.topology.erdos_renyi:erdos_renyi",
        "grid": "fl_simulator.graphs.topology.lattice:grid",
        "k-regular": "fl_simulator.graphs.topology.k_regular:k_regular",
        "random-diverse": "fl_simulator.graphs.topology.random_diverse:random_diverse",
        "ring": "fl_simulator.graphs.topology.ring:ring",
        "torus": "fl_simulator.graphs.topology.lattice:torus",
    },
    group="dag_acfl.topologies",
)


def build_graph(
    name: str,
    params: Mapping[str, JsonScalar],
    *,
    count: int,
    rng: Generator,
    label_counts: NDArray[np.int64] | None = None,
    weights: tuple[float, float] | None = None,
) -> Graph:
    """The graph that a topology makes of so many nodes.

    Args:
        name: One of ``TOPOLOGIES``.
        params: The topology's.
        count: Nodes, at least 1.
        rng: Every draw.
        label_counts: Samples of each class at each node, shape ``(count, classes)``; only d-cliques and random-diverse
            read them.
        weights: The range from which each edge draws its weight uniformly, above 0; none for 1 each.

    Raises:
        UnknownNameError: No such topology.
        ParameterError: A parameter is wrong; a topology that looks at data without label counts; a topology that cannot
            connect so many nodes; a range of weights that is empty or reaches 0.
        ShapeMismatchError: Label counts of another number of nodes.
    """
    if label_counts is None and "label_counts" in signature(TOPOLOGIES[name]).parameters:
        raise ParameterError(
            f"topology {name!r} arranges nodes by their data: give the samples of each class at each node "
            f"(label_counts), or take a topology that needs none"
        )
    if label_counts is not None and (label_counts.ndim != 2 or len(label_counts) != count):
        raise ShapeMismatchError(f"label counts of shape {label_counts.shape} for {count} nodes")
    TOPOLOGIES.read_params(name, params)  # whose messages name the topology already
    try:
        graph = TOPOLOGIES.build(name, params, count, rng=rng, label_counts=label_counts)
    except ParameterError as error:
        raise ParameterError(f"topology {name!r}: {error}") from error
    return graph if weights is None else graph.weighted(weights, rng)
