"""The picture of a graph, read back from what was drawn."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fl_core.errors import ShapeMismatchError
from fl_simulator.errors import ReportExtraMissingError
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology import build_graph
from fl_simulator.plots.graph import draw_graph
from fl_simulator.plots.style import LABEL_COLOURS

STAR = Graph.from_edges(5, [(0, 1), (0, 2), (0, 3), (0, 4)])
ONE_CLASS_EACH = np.eye(10, dtype=np.int64)[np.arange(100) % 10] * 5


def drawn(figure: Figure) -> tuple[LineCollection, PathCollection]:
    lines, nodes = figure.axes[0].collections[:2]
    assert isinstance(lines, LineCollection)
    assert isinstance(nodes, PathCollection)
    return lines, nodes


def colours(nodes: PathCollection) -> list[str]:
    return [to_hex(colour) for colour in np.asarray(nodes.get_facecolor())]


def test_nodes_have_the_colour_of_their_most_frequent_label(tmp_path: Path) -> None:
    counts = np.array([[5, 1], [0, 3], [2, 1], [1, 2], [0, 0]])
    _, nodes = drawn(draw_graph(STAR, tmp_path / "star.png", label_counts=counts))
    first, second = (colour.lower() for colour in LABEL_COLOURS[:2])
    assert colours(nodes) == [first, second, first, second, "#d1d5db"]
    assert (tmp_path / "star.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_without_labels_nodes_are_grey_and_there_is_no_legend(tmp_path: Path) -> None:
    figure = draw_graph(STAR, tmp_path / "star.svg")
    assert set(colours(drawn(figure)[1])) == {"#d1d5db"}
    assert figure.axes[0].get_legend() is None


def test_a_node_is_larger_the_more_neighbours_it_has(tmp_path: Path) -> None:
    sizes = drawn(draw_graph(STAR, tmp_path / "star.png"))[1].get_sizes()
    graph = build_graph("barabasi-albert", {}, count=100, rng=np.random.default_rng(0))
    assert sizes[0] >= sizes[1] == sizes[4]
    sizes = drawn(draw_graph(graph, tmp_path / "hubs.png"))[1].get_sizes()
    assert sizes[graph.degrees.argmax()] > 3 * sizes[graph.degrees.argmin()]


def test_every_edge_is_one_line_between_its_nodes(tmp_path: Path) -> None:
    lines, nodes = drawn(draw_graph(STAR, tmp_path / "star.png"))
    places = np.asarray(nodes.get_offsets())
    segments = np.array(lines.get_segments())
    assert segments.tolist() == [[places[0].tolist(), places[leaf].tolist()] for leaf in (1, 2, 3, 4)]
    assert len({tuple(place) for place in places.round(3).tolist()}) == 5


def test_cliques_are_drawn_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graph = build_graph("d-cliques", {}, count=100, rng=rng, label_counts=ONE_CLASS_EACH)
    places = np.asarray(drawn(draw_graph(graph, tmp_path / "c.png", label_counts=ONE_CLASS_EACH))[1].get_offsets())
    middles = np.array([places[list(clique)].mean(axis=0) for clique in graph.cliques])
    for number, clique in enumerate(graph.cliques):
        distances = np.linalg.norm(places[list(clique)][:, np.newaxis] - middles, axis=2)
        assert (distances.argmin(axis=1) == number).all()


def test_a_ring_is_drawn_as_one(tmp_path: Path) -> None:
    graph = build_graph("ring", {}, count=24, rng=np.random.default_rng(0))
    places = np.asarray(drawn(draw_graph(graph, tmp_path / "ring.png"))[1].get_offsets())
    radii = np.linalg.norm(places - places.mean(axis=0), axis=1)
    assert radii.min() > 0.8 * radii.max()


def test_the_same_graph_has_the_same_picture(tmp_path: Path) -> None:
    graph = build_graph("erdos-renyi", {}, count=40, rng=np.random.default_rng(0))
    first, second = (drawn(draw_graph(graph, tmp_path / name))[1].get_offsets() for name in ("a.png", "b.png"))
    assert np.array_equal(np.asarray(first), np.asarray(second))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_nodes_can_be_drawn(count: int, tmp_path: Path) -> None:
    graph = build_graph("ring", {}, count=count, rng=np.random.default_rng(0))
    assert len(np.asarray(drawn(draw_graph(graph, tmp_path / "few.png"))[1].get_offsets())) == count


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeMismatchError, match="5 nodes"):
        draw_graph(STAR, tmp_path / "s.png", label_counts=np.ones((4, 2), dtype=np.int64))
    large = build_graph("ring", {}, count=500, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="up to 499 nodes"):
        draw_graph(large, tmp_path / "s.png")


def test_without_matplotlib_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Absent:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name.partition(".")[0] == "matplotlib":
                raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")

    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(ReportExtraMissingError, match="pip install matplotlib"):
        draw_graph(STAR, tmp_path / "s.png")
    assert not (tmp_path / "s.png").exists()


def test_importing_it_loads_no_matplotlib_and_no_networkx() -> None:
    code = "import sys, fl_simulator.plots.graph; assert not {'matplotlib', 'networkx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
