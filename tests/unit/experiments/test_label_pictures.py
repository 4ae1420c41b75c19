"""The picture of who has which labels, read back from what was drawn."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
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


Picture: TypeAlias = Callable[[str], tuple[Path, Figure]]


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    """The file and the figure of the ninety clients of one kind, drawn once."""

    @cache
    def draw(kind: str) -> tuple[Path, Figure]:
        path = tmp_path_factory.mktemp("drawn") / "labels.png"
        return path, draw_label_distribution(superclasses(kind), path, title=f"MNIST, type {kind}")

    return draw


@pytest.mark.parametrize("kind", ["I", "II"])
def test_ninety_clients_bars_are_their_label_counts(picture: Picture, kind: str) -> None:
    path, figure = picture(kind)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    drawn = heights(figure)
    assert drawn.shape == (90, 10)
    assert drawn.tolist() == superclasses(kind).label_counts.tolist()
    assert drawn.sum(axis=1).tolist() == [60] * 90
    assert drawn[0, 3:].tolist() == [0] * 7
    assert drawn[89, :6].tolist() == [0] * 6
    evenness = drawn[:30, :3].std()
    assert evenness == 0 if kind == "I" else evenness > 5


def test_a_clients_bars_stand_on_one_another_and_the_clients_beside_one_another(picture: Picture) -> None:
    _, figure = picture("II")
    floors = np.array([[bar.get_y() for bar in label] for label in bars(figure)]).T
    assert floors.tolist() == (np.cumsum(heights(figure), axis=1) - heights(figure)).tolist()
    edges = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars(figure)[0]]
    gaps = [right[0] - left[1] for left, right in pairwise(edges)]
    assert min(gaps) > 0.1
    assert [place for place, gap in enumerate(gaps) if gap > 1] == [29, 59], "a wider gap between clusters"


def test_clients_stand_by_cluster_and_keep_their_numbers(tmp_path: Path) -> None:
    labels = np.array([0, 0, 1, 2, 2, 2])
    shares = [Share(np.array([3, 4, 5]), np.array([], dtype=np.int64), cluster=1)]
    shares += [Share(np.array([0]), np.array([1])), Share(np.array([2]), np.array([], dtype=np.int64), cluster=1)]
    figure = draw_label_distribution(population(labels, shares, num_classes=3), tmp_path / "labels.png")
    assert heights(figure).tolist() == [[2, 0, 0], [0, 0, 3], [0, 1, 0]]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["1", "0", "2"]
    assert "Labels of 3 clients in 2 clusters" in words(figure)


def test_clusters_and_labels_are_named(picture: Picture) -> None:
    _, figure = picture("I")
    assert words(figure)[0] == "MNIST, type I"
    assert words(figure)[2:] == [f"cluster {cluster}, 30 clients" for cluster in range(3)]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert sorted(text.get_text() for text in legend.get_texts()) == [str(label) for label in range(10)]


def test_every_label_has_a_colour_of_its_own_however_many_there_are(tmp_path: Path) -> None:
    labels = np.arange(62)
    made = population(labels, [Share(labels, labels[:0])], num_classes=62)
    figure = draw_label_distribution(made, tmp_path / "labels.png")
    assert len({label[0].get_facecolor() for label in bars(figure)}) == 62
    assert "Labels of 1 client in 1 cluster" in words(figure)


def test_nothing_is_cut_off_at_the_edges_of_the_picture(tmp_path: Path) -> None:
    shares = shared({"clients": "1,60,1", "samples": 10})
    figure = draw_label_distribution(population(MNIST_LIKE, shares), tmp_path / "labels.png")
    assert words(figure)[2:] == ["cluster 1, 60 clients"], "one bar has no room for a number"
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert 0 <= drawn.x0 < drawn.x1 <= width
    assert 0 <= drawn.y0 < drawn.y1 <= height
