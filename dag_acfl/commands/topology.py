"""``dag-acfl topology``: what a graph of nodes looks like, before anything runs on it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CLASSES = 10
"""As in MNIST and CIFAR-10, which the papers part among the nodes."""
MOST_NODES_FOR_DIAMETER = 2000
"""Beyond, finding it takes seconds to minutes."""
PICTURES = (".png", ".svg", ".pdf")


def topology(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Such as ring, erdos-renyi or d-cliques, or your own module:function.")
    ],
    *,
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes.")] = 100,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter, such as p=0.1. May be said several times."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    labels: Annotated[
        int, typer.Option(min=1, max=CLASSES, help=f"Classes at each node, of {CLASSES}; D-Cliques goes by them.")
    ] = 1,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the graph, coloured by class; .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show how a topology connects nodes: edges, messages, hops, and the gain of uncoordinated initialisation.

    Example: dag-acfl topology d-cliques --nodes 1000

    Example: dag-acfl topology d-cliques --nodes 200 --set inter_clique=small-world --picture cliques.png

    Example: dag-acfl topology barabasi-albert --nodes 64 --set m=4 --seed 3
    """
    import numpy as np  # noqa: PLC0415

    from dag_acfl.commands.options import find_own_parts, scalars  # noqa: PLC0415
    from fl_simulator.graphs.gain.steady_state import averaging_matrix, gain  # noqa: PLC0415
    from fl_simulator.graphs.topology import build_graph  # noqa: PLC0415

    if picture is not None:
        _check_picture(picture, nodes)
    find_own_parts()
    counts = label_counts(nodes, labels, rng=np.random.default_rng([seed, 1]))
    params = scalars(change or (), option="--set")
    graph = build_graph(name, params, count=nodes, rng=np.random.default_rng(seed), label_counts=counts)
    degrees = graph.degrees
    lines = [
        ("nodes", f"{graph.num_nodes:,}"),
        ("edges", f"{graph.num_edges:,}"),
        ("mean degree", f"{degrees.mean():.4g}, from {degrees.min()} to {degrees.max()}"),
        ("edges per node", f"{graph.edges_per_node:.4g}"),
        ("messages per node and round", f"{graph.messages_per_node():.4g}"),
    ]
    if graph.cliques:
        averaging = f"{graph.messages_per_node(clique_averaging=True):.4g}"
        lines.append(("  with Clique Averaging", averaging))
        lines.append(("cliques", f"{len(graph.cliques):,} of up to {max(map(len, graph.cliques))} nodes"))
    if nodes <= MOST_NODES_FOR_DIAMETER:
        lines.append(("diameter", f"{graph.diameter()} hops"))
    lines.append(("gain", f"{gain(averaging_matrix(graph)):.4g} (initial weights are scaled by it)"))
    for what, value in lines:
        typer.echo(f"{what:<29}{value}")
    if picture is not None:
        from fl_simulator.plots.graph import draw_graph  # noqa: PLC0415

        title = f"{name}: {graph.num_nodes} nodes and {graph.num_edges:,} edges"
        draw_graph(graph, picture, label_counts=counts, title=title)
        typer.echo(f"{'picture':<29}{picture}")


def label_counts(nodes: int, labels: int, *, rng: "np.random.Generator") -> "NDArray[np.int64]":
    """One sample of ``labels`` consecutive classes at each node, every class on as many nodes, shape (nodes, 10)."""
    import numpy as np  # noqa: PLC0415

    first = rng.permutation(np.arange(nodes) % CLASSES)
    counts = np.zeros((nodes, CLASSES), dtype=np.int64)
    for further in range(labels):
        counts[np.arange(nodes), (first + further) % CLASSES] = 1
    return counts


def _check_picture(picture: Path, nodes: int) -> None:
    """Refuse what cannot be drawn before anything is worked out."""
    from fl_core.errors import ParameterError  # noqa: PLC0415
    from fl_simulator.plots.graph import MOST_NODES  # noqa: PLC0415

    if picture.suffix.lower() not in PICTURES:
        raise ParameterError(f"--picture {picture} must end in {', '.join(PICTURES)}")
    if nodes > MOST_NODES:
        raise ParameterError(f"--picture shows up to {MOST_NODES} nodes, not {nodes:,}; lower --nodes or leave it out")
