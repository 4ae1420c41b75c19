"""Pictures of one selection: its similarities and its change points."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from experiments.selection_pictures import draw_change_points, draw_similarities
from fl_simulator.plots.style import cluster_colour

PNG = b"\x89PNG\r\n\x1a\n"
SIMILARITIES = np.array([0.9, 0.8, 0.3, 0.2])


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [each for each in axes.lines if each.get_label() == label]
    return found


def words(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_heat_map_shows_the_sequence_and_the_clusters_in_its_order(tmp_path: Path) -> None:
    figure = draw_similarities(SIMILARITIES, np.array([2, 2, 0, 2]), tmp_path / "s.png", cut=2)
    strip, heat, _ = figure.axes
    (image,) = heat.images
    np.testing.assert_array_equal(np.asarray(image.get_array()), SIMILARITIES[None])
    cells = [(patch.get_label(), patch.get_extents().x0 < patch.get_extents().x1) for patch in strip.patches]
    assert cells == [("cluster 2", True), ("cluster 0", True), ("cluster 2", True)]
    colours = [tuple(round(255 * part) for part in patch.get_facecolor()[:3]) for patch in strip.patches]
    assert colours[0] == tuple(bytes.fromhex(cluster_colour(2)[1:]))
    assert words(strip) == ["2", "0", "2"]
    assert [set(line(axes, "cut").get_xdata()) for axes in (strip, heat)] == [{2}, {2}]
    assert (tmp_path / "s.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("count", [1, 10])
def test_tips_are_counted_in_whole_numbers(tmp_path: Path, count: int) -> None:
    descending = np.linspace(0.9, 0.1, count)
    _, heat, _ = draw_similarities(descending, np.zeros(count, np.int64), tmp_path / "s.png", cut=1).axes
    (axes,) = draw_change_points(descending, np.zeros(count), tmp_path / "c.png", cut=1).axes
    for ticks in (heat.get_xticks(), axes.get_xticks()):
        assert len(ticks)
        assert all(float(tick).is_integer() for tick in ticks)


def test_change_points_are_bars_below_the_line_of_similarities(tmp_path: Path) -> None:
    figure = draw_change_points(SIMILARITIES, np.array([0.0, 0.1, 0.9]), tmp_path / "c.png", cut=2)
    (axes,) = figure.axes
    assert [round(bar.get_height(), 3) for bar in axes.patches] == [0.0, 0.1, 0.9]
    np.testing.assert_array_equal(line(axes, "cosine of updates").get_ydata(), SIMILARITIES)
    assert set(line(axes, "the first 2 were taken").get_xdata()) == {1.5}
    assert (tmp_path / "c.png").read_bytes().startswith(PNG)


def test_negative_similarities_are_seen(tmp_path: Path) -> None:
    figure = draw_change_points(np.array([0.5, -0.5]), np.zeros(2), tmp_path / "c.png", cut=1)
    assert figure.axes[0].get_ylim()[0] < -0.5
