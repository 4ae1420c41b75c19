"""The picture of who has which labels, read back from what was drawn."""

from pathlib import Path

import numpy as np
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from experiments.label_pictures import draw_label_distribution
from fl_core.types import JsonScalar
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.engine.population import Population, Share, gather

MNIST_LIKE = np.repeat(np.arange(10), 600)


def population(labels: np.ndarray, shares: list[Share], *, num_classes: int = 10) -> Population:  # type: ignore[type-arg]
    return gather(np.zeros((len(labels), 1, 1), dtype=np.uint8), labels, shares, num_classes=num_classes)


def superclasses(kind: str) -> Population:
    """The paper's ninety clients of three superclasses, 60 samples each."""
    return population(MNIST_LIKE, shared({"kind": kind, "samples": 60}))


def shared(params: dict[str, JsonScalar]) -> list[Share]:
    return PARTITIONERS.build("superclass", params, MNIST_LIKE, train_fraction=0.8, rng=np.random.default_rng(0))


def bars(figure: Figure) -> list[BarContainer]:
    (axes,) = figure.axes
    return [each for each in axes.containers if isinstance(each, BarContainer)]


def heights(figure: Figure) -> np.ndarray:  # type: ignore[type-arg]
    """Of the drawn bars, ``(clients, labels)``."""
    return np.array([[bar.get_height() for bar in label] for label in bars(figure)]).T


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in [*figure.texts, *figure.axes[0].texts]]


def test_ninety_clients_bars_are_their_label_counts(tmp_path: Path) -> None:
    path = tmp_path / "labels.png"
    figure = draw_label_distribution(superclasses("II"), path, title="MNIST, type II")
    assert words(figure)[0] == "MNIST, type II"
    assert words(figure)[2:] == [f"cluster {cluster}, 30 clients" for cluster in range(3)]
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    drawn = heights(figure)
    assert drawn.shape == (90, 10)
    assert drawn.tolist() == superclasses("II").label_counts.tolist()
    assert drawn.sum(axis=1).tolist() == [60] * 90
    assert drawn[0, 3:].tolist() == [0] * 7
    assert drawn[89, :6].tolist() == [0] * 6
    assert drawn[:30, :3].std() > 5


def test_clients_stand_by_cluster_and_keep_their_numbers(tmp_path: Path) -> None:
    labels = np.array([0, 0, 1, 2, 2, 2])
    shares = [Share(np.array([3, 4, 5]), np.array([], dtype=np.int64), cluster=1)]
    shares += [Share(np.array([0]), np.array([1])), Share(np.array([2]), np.array([], dtype=np.int64), cluster=1)]
    figure = draw_label_distribution(population(labels, shares, num_classes=3), tmp_path / "labels.png")
    assert heights(figure).tolist() == [[2, 0, 0], [0, 0, 3], [0, 1, 0]]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["1", "0", "2"]
    assert "Labels of 3 clients in 2 clusters" in words(figure)


def test_nothing_is_cut_off_at_the_edges_of_the_picture(tmp_path: Path) -> None:
    shares = shared({"clients": "1,60,1", "samples": 10})
    figure = draw_label_distribution(population(MNIST_LIKE, shares), tmp_path / "labels.png")
    assert words(figure)[2:] == ["cluster 1, 60 clients"], "one bar has no room for a number"
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert 0 <= drawn.x0 < drawn.x1 <= width
    assert 0 <= drawn.y0 < drawn.y1 <= height
