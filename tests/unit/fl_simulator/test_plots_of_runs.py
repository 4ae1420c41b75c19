"""The pictures of runs, read back from what was drawn."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fl_simulator.errors import SimulationError
from fl_simulator.plots import (
    Series,
    draw_change_points,
    draw_communities,
    draw_curves,
    draw_misclassified,
    draw_satisfaction,
    draw_similarities,
    draw_worst_client,
)
from fl_simulator.plots.series import over_seeds, spread
from fl_simulator.plots.style import CLUSTER_COLOURS, cluster_colour
from fl_simulator.run.record import RoundRecord

PNG = b"\x89PNG\r\n\x1a\n"


def run(*accuracies: float | None, first: int = 0, step_s: float = 1.0) -> list[RoundRecord]:
    """A run with these accuracies, loss 1 minus each."""
    return [
        RoundRecord(
            round=first + number,
            virtual_time_s=step_s * (number + 1),
            participants=2,
            up_bytes=0,
            down_bytes=0,
            accuracy=accuracy,
            loss=None if accuracy is None else 1 - accuracy,
        )
        for number, accuracy in enumerate(accuracies)
    ]


def with_figures(records: Sequence[RoundRecord], name: str, *values: float | None) -> list[RoundRecord]:
    return [replace(record, **{name: value}) for record, value in zip(records, values, strict=True)]


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [each for each in axes.lines if each.get_label() == label]
    return found


def words(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_line_is_the_mean_over_seeds_and_the_band_goes_from_the_lowest_to_the_highest(tmp_path: Path) -> None:
    series = Series("DAG-ACFL", (run(0.1, 0.5), run(0.3, 0.9), run(0.2, 0.7)), 0)
    figure = draw_curves([series], tmp_path / "curves.png")
    accuracy, loss = figure.axes
    drawn = line(accuracy, "DAG-ACFL")
    np.testing.assert_allclose(drawn.get_xydata(), [[0, 0.2], [1, 0.7]])
    assert drawn.get_color() == CLUSTER_COLOURS[0]
    (band,) = accuracy.collections
    assert band.get_label() == "DAG-ACFL band"
    corners = {(x, round(y, 6)) for x, y in band.get_paths()[0].vertices}
    assert corners == {(0.0, 0.1), (0.0, 0.3), (1.0, 0.5), (1.0, 0.9)}
    np.testing.assert_allclose(line(loss, "DAG-ACFL").get_ydata(), [0.8, 0.3])
    assert (tmp_path / "curves.png").read_bytes().startswith(PNG)


def test_each_method_has_a_line_and_its_name_beside_the_end_of_it(tmp_path: Path) -> None:
    series = [Series(f"method {place}", (run(0.1, 0.5 + place / 100),), place) for place in range(10)]
    accuracy, _ = draw_curves(series, tmp_path / "curves.png").axes
    assert words(accuracy) == [each.name for each in series]
    assert not accuracy.collections  # one seed has no band
    looks = {(line(accuracy, each.name).get_color(), line(accuracy, each.name).get_linestyle()) for each in series}
    assert len(looks) == 10
    heights = [text.get_position()[1] for text in accuracy.texts]
    assert heights == sorted(heights)
    assert 0 <= heights[0] <= heights[-1] <= 1


def test_rounds_before_the_first_that_was_asked_for_are_left_out(tmp_path: Path) -> None:
    series = Series("a", (run(0.1, 0.5, 0.6),), 0)
    accuracy, _ = draw_curves([series], tmp_path / "curves.png", first_round=1).axes
    assert list(line(accuracy, "a").get_xdata()) == [1, 2]


def test_rounds_that_one_seed_has_not_are_left_out() -> None:
    band = over_seeds(Series("a", (run(0.1, None, 0.5, 0.9), run(0.3, 0.4, 0.7)), 0), "accuracy")
    assert band is not None
    assert band.across.tolist() == [0, 2]
    np.testing.assert_allclose(band.mean, [0.2, 0.6])


def test_over_virtual_time_values_between_rounds_are_interpolated() -> None:
    slow, fast = run(0.0, 0.4, step_s=2.0), run(0.1, 0.2, 0.3, step_s=1.0)  # at 2, 4 s and at 1, 2, 3 s
    band = over_seeds(Series("a", (slow, fast), 0), "accuracy", over="virtual_time_s")
    assert band is not None
    assert band.across.tolist() == [2, 3]
    np.testing.assert_allclose(band.low, [0.0, 0.2])
    np.testing.assert_allclose(band.high, [0.2, 0.3])


def test_seeds_without_a_round_in_common_have_no_line() -> None:
    assert over_seeds(Series("a", (run(0.1, 0.2), run(0.3, first=5)), 0), "accuracy") is None
    assert over_seeds(Series("a", (run(0.1), run(None)), 0), "accuracy") is None
    assert over_seeds(Series("a", (), 0), "accuracy") is None
    assert over_seeds(Series("a", (run(math.nan, math.inf), run(0.1, 0.2)), 0), "accuracy") is None


def test_diverged_loss_breaks_the_line_and_not_the_picture(tmp_path: Path) -> None:
    records = with_figures(run(0.5, 0.5, 0.1), "loss", 1.0, math.inf, 2.0)
    _, loss = draw_curves([Series("a", (records,), 0)], tmp_path / "curves.png").axes
    np.testing.assert_array_equal(line(loss, "a").get_ydata(), [1.0, np.nan, 2.0])
    all_gone = with_figures(run(0.1, 0.1), "loss", math.nan, math.nan)
    draw_curves([Series("a", (all_gone,), 0)], tmp_path / "curves.png")


def test_single_evaluation_is_a_dot(tmp_path: Path) -> None:
    accuracy, _ = draw_curves([Series("a", (run(0.5),), 0)], tmp_path / "curves.png").axes
    assert line(accuracy, "a").get_marker() == "o"


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    nothing = [Series("a", (run(None),), 0)]
    for draw, figure in (
        (draw_curves, "accuracy"),
        (draw_communities, "communities"),
        (draw_satisfaction, "satisfaction"),
        (draw_misclassified, "misclassified"),
        (draw_worst_client, "worst"),
    ):
        with pytest.raises(SimulationError, match=figure):
            draw(nothing, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_communities_stand_below_modularity_with_the_true_clusters_as_a_line(tmp_path: Path) -> None:
    records = with_figures(with_figures(run(0.1, 0.2), "modularity", 0.2, 0.6), "communities", 7, 3)
    figure = draw_communities([Series("type I", (records,), 0)], tmp_path / "c.png", true_clusters=3)
    quality, count = figure.axes
    assert list(line(quality, "type I").get_ydata()) == [0.2, 0.6]
    assert list(line(count, "type I").get_ydata()) == [7, 3]
    assert set(line(count, "true clusters").get_ydata()) == {3}
    assert all(float(tick).is_integer() for tick in count.get_yticks())
    assert (tmp_path / "c.png").read_bytes().startswith(PNG)


def test_groups_without_a_graph_have_communities_and_no_modularity(tmp_path: Path) -> None:
    records = with_figures(run(0.1, 0.2), "communities", 2, 2)
    quality, count = draw_communities([Series("IFCA", (records,), 0)], tmp_path / "c.png").axes
    assert words(quality) == []
    assert words(count) == ["IFCA"]


def test_satisfaction_has_its_mean_and_the_least_of_all_seeds(tmp_path: Path) -> None:
    runs = tuple(
        with_figures(with_figures(run(0.1, 0.2), "satisfaction", mean, 1.0), "satisfaction_min", least, 1.0)
        for mean, least in ((0.8, 0.2), (0.6, 0.4))
    )
    (axes,) = draw_satisfaction([Series("robust", runs, 1)], tmp_path / "s.png").axes
    np.testing.assert_allclose(line(axes, "robust").get_ydata(), [0.7, 1.0])
    np.testing.assert_allclose(line(axes, "robust minimum").get_ydata(), [0.2, 1.0])
    assert line(axes, "robust minimum").get_color() == CLUSTER_COLOURS[1]


def test_no_misclassified_clients_are_a_line_at_zero_above_the_edge(tmp_path: Path) -> None:
    records = with_figures(run(0.1, 0.2, 0.3), "misclassified", 0, 0, 0)
    (axes,) = draw_misclassified([Series("a", (records,), 0)], tmp_path / "m.png").axes
    assert list(line(axes, "a").get_ydata()) == [0, 0, 0]
    low, high = axes.get_ylim()
    assert low < 0
    assert high > 1
    assert all(float(tick).is_integer() for tick in axes.get_yticks())


def test_worst_client_is_drawn_over_the_virtual_clock(tmp_path: Path) -> None:
    records = with_figures(run(0.5, 0.6, 0.7, step_s=20.0), "worst", 0.0, 0.25, 0.5)
    series = [Series("FedBuff", (records,), 1)]
    (axes,) = draw_worst_client(series, tmp_path / "w.png", over="virtual_time_s").axes
    np.testing.assert_allclose(line(axes, "FedBuff").get_xydata(), [[20, 0.0], [40, 0.25], [60, 0.5]])
    assert line(axes, "FedBuff").get_color() == CLUSTER_COLOURS[1]
    assert axes.get_xlabel() == "virtual time in seconds"
    assert (tmp_path / "w.png").read_bytes().startswith(PNG)


SIMILARITIES = np.array([0.9, 0.8, 0.3, 0.2])


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


@pytest.mark.parametrize("count", [1, 4, 7, 10, 33])
def test_tips_are_counted_in_whole_numbers(tmp_path: Path, count: int) -> None:
    descending = np.linspace(0.9, 0.1, count)
    _, heat, _ = draw_similarities(descending, np.zeros(count, np.int64), tmp_path / "s.png").axes
    (axes,) = draw_change_points(descending, np.zeros(count), tmp_path / "c.png").axes
    for ticks in (heat.get_xticks(), axes.get_xticks()):
        assert len(ticks)
        assert all(float(tick).is_integer() for tick in ticks)


def test_change_points_are_bars_below_the_line_of_similarities(tmp_path: Path) -> None:
    figure = draw_change_points(SIMILARITIES, np.array([0.0, 0.1, 0.9]), tmp_path / "c.png", threshold=0.5, cut=2)
    (axes,) = figure.axes
    assert [round(bar.get_height(), 3) for bar in axes.patches] == [0.0, 0.1, 0.9]
    np.testing.assert_array_equal(line(axes, "similarity").get_ydata(), SIMILARITIES)
    assert set(line(axes, "α = 0.5").get_ydata()) == {0.5}
    assert set(line(axes, "the first 2 were taken").get_xdata()) == {1.5}
    assert (tmp_path / "c.png").read_bytes().startswith(PNG)


def test_negative_similarities_are_seen(tmp_path: Path) -> None:
    figure = draw_change_points(np.array([0.5, -0.5]), np.zeros(2), tmp_path / "c.png")
    assert figure.axes[0].get_ylim()[0] < -0.5


def test_sequences_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.png"
    with pytest.raises(ValueError, match="descend"):
        draw_similarities(SIMILARITIES[::-1], np.zeros(4, np.int64), path)
    with pytest.raises(ValueError, match="at least one"):
        draw_change_points(np.array([]), np.array([]), path)
    with pytest.raises(ValueError, match="3 clusters for 4"):
        draw_similarities(SIMILARITIES, np.zeros(3, np.int64), path)
    with pytest.raises(ValueError, match="5 probabilities for 4"):
        draw_change_points(SIMILARITIES, np.zeros(5), path)
    assert not path.exists()


def test_titles_do_not_leave_the_picture(tmp_path: Path) -> None:
    three = tuple(run(0.1, 0.2) for _ in range(3))
    two_and_one = [Series("CIFAR10(type II)-CNN", three, 0), Series("b", three[:1], 1)]
    figures: list[Figure] = [draw_curves(two_and_one, tmp_path / "a.png")]
    full = [
        replace(each, modularity=0.1, communities=2, satisfaction=1.0, satisfaction_min=1.0, misclassified=0, worst=0.1)
        for each in three[0]
    ]
    everything = [Series("CIFAR10(type II)-CNN", (full, full), 0), Series("b", (full,), 1)]
    figures.append(draw_communities(everything, tmp_path / "a.png", true_clusters=3))
    without_graph = Series("IFCA", tuple([replace(each, modularity=None) for each in full] for _ in range(3)), 2)
    figures.append(draw_communities([*everything, without_graph], tmp_path / "a.png", true_clusters=10))
    figures.append(draw_satisfaction(everything, tmp_path / "a.png"))
    figures.append(draw_misclassified(everything, tmp_path / "a.png"))
    figures.append(draw_satisfaction(everything, tmp_path / "a.png", over="virtual_time_s"))
    figures.append(draw_worst_client(everything, tmp_path / "a.png", over="virtual_time_s"))
    for figure in figures:
        for text in [*figure.texts, *(each for axes in figure.axes for each in axes.texts)]:
            box = text.get_window_extent(figure.canvas.get_renderer())  # type: ignore[attr-defined]
            assert 0 <= box.x0 < box.x1 <= figure.bbox.x1, text.get_text()
            assert 0 <= box.y0 < box.y1 <= figure.bbox.y1, text.get_text()


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0, 0.5))
def test_names_are_apart_in_order_and_inside(heights: list[float], gap: float) -> None:
    placed = spread(heights, gap=gap)
    room = min(gap, 1 / max(len(heights) - 1, 1))
    ascending = sorted(placed)
    assert all(high - low >= room - 1e-9 for low, high in pairwise(ascending))
    assert all(-1e-9 <= height <= 1 + 1e-9 for height in placed)
    for (below, placed_below), (above, placed_above) in pairwise(sorted(zip(heights, placed, strict=True))):
        assert below == above or placed_below <= placed_above + 1e-9


def test_names_that_are_apart_already_stay_where_they_are() -> None:
    assert spread([0.9, 0.1, 0.5], gap=0.2) == [0.9, 0.1, 0.5]
    np.testing.assert_allclose(spread([0.5, 0.5], gap=0.2), [0.6, 0.4])
    assert spread([], gap=0.2) == []
