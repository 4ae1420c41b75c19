"""Who is whose neighbour, coloured by data: a graph of up to some hundreds of nodes."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ShapeMismatchError
from fl_core.types import Vector64
from fl_simulator.graphs.graph import Graph
from fl_simulator.plots.style import DPI, INK, SOFT, label_colours, new_figure, set_titles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NODES: Final = 499
"""More are a cloud, and networkx wants SciPy to place them."""
_NODES_AREA: Final = 16_000.0
"""Of all nodes together, in square points: few nodes are drawn large and many small."""
_CLIQUE_SHARE: Final = 0.38
"""Radius of a clique, of half the way to the next one's middle; more would let cliques touch."""
_APART: Final = 0.02
_NO_DATA: Final = "#d1d5db"
_LEGEND_ROWS: Final = 16


def draw_graph(graph: Graph, path: Path, *, label_counts: NDArray[np.int64] | None = None, title: str = "") -> "Figure":
    """Nodes as discs, as large as they have neighbours and in the colour of their most frequent label.

    Nodes of a clique (D-Cliques) stand together, cliques in a circle; nodes of other graphs stand where springs along
    their edges would bring them.

    Args:
        graph: Of up to ``MOST_NODES`` nodes.
        path: Picture to write; its suffix says the format, PNG or any other that matplotlib writes.
        label_counts: Samples of each class at each node, shape ``(n, classes)``; without them, and for a node without
            samples, the colour is grey.
        title: Of the picture; by default how many nodes and edges there are.

    Returns:
        The figure as written. Its axes have one collection of lines, the edges, and then one of discs, the nodes in
        their order.
    """
    if graph.num_nodes > MOST_NODES:
        raise ValueError(f"a picture shows up to {MOST_NODES} nodes, not {graph.num_nodes}")
    if label_counts is not None and (label_counts.ndim != 2 or len(label_counts) != graph.num_nodes):
        raise ShapeMismatchError(f"label counts of shape {label_counts.shape} for {graph.num_nodes} nodes")
    num_labels = 0 if label_counts is None else label_counts.shape[1]
    figure, axes = new_figure(width=8.4, height=8.0)
    from matplotlib.collections import LineCollection  # noqa: PLC0415

    places = _by_clique(graph) if len(graph.cliques) > 1 else _by_springs(graph)  # (n, 2)
    forth = graph.targets < graph.sources
    lines = np.stack([places[graph.targets[forth]], places[graph.sources[forth]]], axis=1)  # (m, 2, 2)
    # Many edges are drawn fainter, or they would hide one another.
    opacity = min(0.55, max(0.08, 120 / max(1, len(lines))))
    axes.add_collection(LineCollection(list(lines), colors=SOFT, linewidths=0.6, alpha=opacity, zorder=1))
    degrees = np.maximum(graph.degrees, 1)
    sizes = _NODES_AREA / graph.num_nodes * np.clip(degrees / degrees.mean(), 0.2, 5.0)
    sizes = np.minimum(sizes, 600.0)
    palette = label_colours(num_labels)
    colours = [_NO_DATA] * graph.num_nodes
    if label_counts is not None:
        most = label_counts.argmax(axis=1)
        colours = [palette[label] if row[label] else _NO_DATA for row, label in zip(label_counts, most, strict=True)]
    axes.scatter(places[:, 0], places[:, 1], s=sizes, c=colours, edgecolors=INK, linewidths=0.5, zorder=2)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.margins(0.06)
    for label, colour in enumerate(palette):
        axes.scatter([], [], s=60, color=colour, edgecolors=INK, linewidths=0.5, label=str(label))
    if num_labels:
        legend = axes.legend(
            title="label",
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            ncols=-(-num_labels // _LEGEND_ROWS),
            frameon=False,
            fontsize=9,
            labelcolor=SOFT,
        )
        legend.get_title().set_color(SOFT)
    subtitle = "Each node in the colour of its most frequent label" if num_labels else "Each node"
    subtitle += ", as large as it has neighbours."
    if len(graph.cliques) > 1:
        subtitle += " Nodes of a clique stand together."
    set_titles(figure, title=title or f"{graph.num_nodes} nodes and {graph.num_edges:,} edges", subtitle=subtitle)
    figure.subplots_adjust(left=0.03, right=0.88 if num_labels else 0.97, top=0.91, bottom=0.03)
    figure.savefig(path, dpi=DPI, facecolor="white")
    return figure


def _by_clique(graph: Graph) -> Vector64:
    """Cliques round a large circle, the members of each round a small one."""
    places = np.empty((graph.num_nodes, 2))
    radius = _CLIQUE_SHARE * 2 * math.sin(math.pi / len(graph.cliques))
    for middle, clique in zip(_circle(len(graph.cliques)), graph.cliques, strict=True):
        places[list(clique)] = middle + radius * _circle(len(clique)) * (len(clique) > 1)
    return places


def _circle(count: int) -> Vector64:
    """So many points on the unit circle, from the top, clockwise, shape ``(count, 2)``."""
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _by_springs(graph: Graph) -> Vector64:
    """Fruchterman and Reingold's places, from those of the Laplacian's first vectors, which unfold rings and grids."""
    import networkx as nx  # noqa: PLC0415 -- only pictures of graphs need it here

    drawn: nx.Graph[int] = nx.Graph()
    drawn.add_nodes_from(range(graph.num_nodes))
    drawn.add_edges_from(zip(graph.targets.tolist(), graph.sources.tolist(), strict=True))
    first = nx.spectral_layout(drawn)
    # Nodes with the same neighbours have the same place there, and no spring would part them.
    start = {node: first[node] + _APART * at for node, at in enumerate(_circle(graph.num_nodes))}
    places = nx.spring_layout(drawn, pos=start, iterations=60, seed=0)
    return np.array([places[node] for node in range(graph.num_nodes)])
