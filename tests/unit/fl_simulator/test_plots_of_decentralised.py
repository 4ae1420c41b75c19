"""The pictures of decentralised systems, read back from what was drawn."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fl_simulator.errors import SimulationError
from fl_simulator.plots import (
    NodeSeries,
    Series,
    draw_changes,
    draw_collapse,
    draw_deviations,
    draw_node_accuracy,
    draw_node_curves,
    draw_trajectories,
)
from fl_simulator.plots.nodes import nodes_over_rounds, strip
from fl_simulator.plots.style import CLUSTER_COLOURS
from fl_simulator.plots.trajectories import least_loss, place_of
from fl_simulator.run.record import ClientFigures, RoundRecord

PNG = b"\x89PNG\r\n\x1a\n"


def run(*losses: float | None) -> list[RoundRecord]:
    return [
        RoundRecord(round=number, virtual_time_s=number + 1.0, participants=2, up_bytes=0, down_bytes=0, loss=loss)
        for number, loss in enumerate(losses)
    ]


def nodes(*accuracies: Sequence[float], rounds: Sequence[int] | None = None) -> ClientFigures:
    """Nodes with these accuracies at each evaluated round, loss 2 minus each."""
    accuracy = np.array(accuracies, np.float32)
    return ClientFigures(accuracy, 2 - accuracy, np.array(range(len(accuracies)) if rounds is None else rounds))


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [each for each in axes.lines if each.get_label() == label]
    return found


def test_nodes_over_rounds_are_averaged_and_the_extremes_are_any_seeds() -> None:
    band = nodes_over_rounds([nodes([0.1, 0.3], [0.5, 0.7]), nodes([0.2, 0.2], [0.2, 1.0])], "accuracy")
    assert band is not None
    np.testing.assert_allclose(band.mean, [0.2, 0.6], rtol=1e-6)
    np.testing.assert_allclose(band.low, [0.1, 0.2], rtol=1e-6)
    np.testing.assert_allclose(band.high, [0.3, 1.0], rtol=1e-6)


def test_nodes_are_drawn_at_rounds_that_all_seeds_have_and_of_nodes_that_were_judged() -> None:
    first = nodes([0.1, 0.1], [0.4, np.nan], [0.9, 0.9], rounds=[4, 9, 14])
    second = nodes([0.2, 0.6], rounds=[9])
    band = nodes_over_rounds([first, second], "accuracy")
    assert band is not None
    assert band.across.tolist() == [9]
    np.testing.assert_allclose([band.mean[0], band.low[0], band.high[0]], [0.4, 0.2, 0.6], rtol=1e-6)
    assert nodes_over_rounds([first, nodes([0.5, 0.5], rounds=[5])], "accuracy") is None
    assert nodes_over_rounds([nodes([np.nan, np.nan])], "accuracy") is None
    assert nodes_over_rounds([], "accuracy") is None


def test_node_curves_have_a_bold_mean_between_thin_extremes(tmp_path: Path) -> None:
    series = NodeSeries(Series("ring", (), 2), (nodes([0.1, 0.5], [0.6, 1.0]),))
    accuracy, loss = draw_node_curves([series], tmp_path / "n.png").axes
    mean, least, greatest = (line(accuracy, f"ring{word}") for word in ("", " least", " greatest"))
    np.testing.assert_allclose(mean.get_ydata(), [0.3, 0.8], rtol=1e-6)
    np.testing.assert_allclose(least.get_ydata(), [0.1, 0.6], rtol=1e-6)
    np.testing.assert_allclose(greatest.get_ydata(), [0.5, 1.0], rtol=1e-6)
    assert mean.get_linewidth() > 2 * least.get_linewidth()
    assert {each.get_color() for each in (mean, least, greatest)} == {CLUSTER_COLOURS[2]}
    np.testing.assert_allclose(line(loss, "ring").get_ydata(), [1.7, 1.2], rtol=1e-6)
    assert loss.get_yscale() == "log"
    assert (tmp_path / "n.png").read_bytes().startswith(PNG)


def test_lines_below_the_axis_have_no_name_beside_it(tmp_path: Path) -> None:
    series = [
        NodeSeries(Series(name, (), place), (nodes([0.1, 0.1], [final, final]),))
        for place, (name, final) in enumerate((("good", 0.9), ("bad", 0.5)))
    ]
    accuracy, loss = draw_node_curves(series, tmp_path / "n.png", lowest=0.8).axes
    assert accuracy.get_ylim()[0] == 0.8
    assert [text.get_text() for text in accuracy.texts] == ["good"]
    assert [text.get_text() for text in loss.texts] == ["good", "bad"]


def test_axis_that_would_begin_above_everything_begins_below_it(tmp_path: Path) -> None:
    series = [NodeSeries(Series("early", (), 0), (nodes([0.1, 0.2], [0.3, 0.4]),))]
    accuracy, _ = draw_node_curves(series, tmp_path / "n.png", lowest=0.85).axes
    (strip_axes,) = draw_node_accuracy(series, tmp_path / "a.png", lowest=0.85).axes
    for axes in (accuracy, strip_axes):
        low, high = axes.get_ylim()
        assert low < 0.3
        assert high > 0.4


def test_each_node_is_a_dot_at_its_last_accuracy(tmp_path: Path) -> None:
    series = [
        NodeSeries(Series("CFA", (), 0), (nodes([0.0, 0.0, 0.0], [0.5, 0.75, np.nan]), nodes([0.25, 0.25, 1.0]))),
        NodeSeries(Series("FED", (), 1), (nodes([0.875, 0.875]),)),
    ]
    (axes,) = draw_node_accuracy(series, tmp_path / "a.png").axes
    cfa, fed = axes.collections
    assert (cfa.get_label(), fed.get_label()) == ("CFA", "FED")
    np.testing.assert_allclose(np.asarray(cfa.get_offsets())[:, 1], [0.25, 0.25, 0.5, 0.75, 1.0])
    assert np.abs(np.asarray(cfa.get_offsets())[:, 0]).max() < 0.5
    assert np.abs(np.asarray(fed.get_offsets())[:, 0] - 1).max() < 0.5
    assert [label.get_text() for label in axes.get_xticklabels()] == ["CFA", "FED"]


def test_dots_of_one_strip_stand_apart() -> None:
    offsets = strip(np.zeros(50))
    assert np.abs(offsets).max() <= 0.32
    assert np.diff(np.sort(offsets)).min() > 0.32 / 100  # fifty evenly spread ones would be .64 / 50 apart


def test_settings_have_colours_and_methods_have_dashes(tmp_path: Path) -> None:
    series = [
        Series(f"n = {size}, {method}", (run(2.3, 1.0),), place_of(setting, way))
        for way, method in enumerate(("gain", "He"))
        for setting, size in enumerate((8, 16))
    ]
    (axes,) = draw_trajectories(series, tmp_path / "t.png").axes
    gain_8, gain_16, he_8, he_16 = (line(axes, each.name) for each in series)
    assert gain_8.get_color() == he_8.get_color() != gain_16.get_color() == he_16.get_color()
    assert gain_8.get_linestyle() == gain_16.get_linestyle() == "-"
    assert he_8.get_linestyle() == he_16.get_linestyle() == "--"
    assert axes.get_yscale() == "log"


def test_batches_go_across_where_a_round_has_a_number_of_them(tmp_path: Path) -> None:
    series = [Series("1 epoch", (run(2.0, 1.0),), 0), Series("2 epochs", (run(2.0, 1.0),), 1)]
    (axes,) = draw_trajectories(series, tmp_path / "t.png", batches={"1 epoch": 5, "2 epochs": 10}).axes
    assert list(line(axes, "1 epoch").get_xdata()) == [5, 10]
    assert list(line(axes, "2 epochs").get_xdata()) == [10, 20]
    assert "batches" in axes.get_xlabel()


def test_least_loss_of_a_central_system_is_a_line_across(tmp_path: Path) -> None:
    central = Series("k = 4", (run(2.0, 0.5, 0.75), run(1.0, 0.25, None)), 3)
    assert least_loss(central) == 0.375
    assert least_loss(Series("none", (run(None), run(1.0)), 0)) is None
    series = [Series("k = 4", (run(20.0, 1.0),), 3)]
    (axes,) = draw_trajectories(series, tmp_path / "t.png", limits=[(0.375, central)], highest=3.0).axes
    assert list(line(axes, "k = 4 limit").get_ydata()) == [0.375, 0.375]
    assert axes.get_ylim()[1] == 3.0


def test_curves_that_scale_with_n_become_one(tmp_path: Path) -> None:
    series = [(Series("n = 4", (run(*[2.0] * 3, *[1.0] * 5),), 0), 4), (Series("n = 2", (run(2.0, 1.0, 1.0),), 1), 2)]
    (axes,) = draw_collapse(series, tmp_path / "c.png", exponent=1.0, threshold=1.5).axes
    np.testing.assert_allclose(line(axes, "n = 4").get_xdata(), [0.25, 0.5, 0.75, 1.0, 1.25, 1.5])
    np.testing.assert_allclose(line(axes, "n = 2").get_xdata(), [0.5, 1.0, 1.5])  # where the first of them ends
    assert list(line(axes, "threshold").get_ydata()) == [1.5, 1.5]
    assert axes.get_xlabel() == "rounds / n^1.00"
    with pytest.raises(SimulationError, match="exponent of nan"):
        draw_collapse(series, tmp_path / "c.png", exponent=float("nan"))


def with_figures(**figures: Sequence[float]) -> tuple[Sequence[RoundRecord], ...]:
    rounds = zip(*figures.values(), strict=True)
    return (
        [
            RoundRecord(
                round=number,
                virtual_time_s=number + 1.0,
                participants=2,
                up_bytes=0,
                down_bytes=0,
                **dict(zip(figures, values, strict=True)),
            )
            for number, values in enumerate(rounds)
        ],
    )


def test_deviations_across_nodes_stand_above_those_across_parameters(tmp_path: Path) -> None:
    series = Series("He", with_figures(sigma_an=[0.1, 0.01], sigma_ap=[0.2, 0.05]), 0)
    across_nodes, across_parameters = draw_deviations([series], tmp_path / "d.png").axes
    assert list(line(across_nodes, "He").get_ydata()) == [0.1, 0.01]
    assert list(line(across_parameters, "He").get_ydata()) == [0.2, 0.05]
    assert across_nodes.get_yscale() == across_parameters.get_yscale() == "log"


def test_spread_that_is_always_zero_has_no_logarithm_and_is_drawn(tmp_path: Path) -> None:
    series = Series("one node", with_figures(sigma_an=[0.0, 0.0], sigma_ap=[0.2, 0.05]), 0)
    across_nodes, across_parameters = draw_deviations([series], tmp_path / "d.png").axes
    assert list(line(across_nodes, "one node").get_ydata()) == [0.0, 0.0]
    assert (across_nodes.get_yscale(), across_parameters.get_yscale()) == ("linear", "log")


def test_changes_have_aggregation_training_total_and_the_cosine(tmp_path: Path) -> None:
    figures = with_figures(
        change_by_aggregation=[10.0, 0.1],
        change_by_training=[0.5, 0.2],
        change_in_total=[10.1, 0.3],
        change_cosine=[0.0, -0.5],
    )
    magnitude, cosine = draw_changes([Series("He", figures, 0)], tmp_path / "c.png").axes
    assert list(line(magnitude, "He").get_ydata()) == [10.0, 0.1]
    assert list(line(magnitude, "He training").get_ydata()) == [0.5, 0.2]
    assert list(line(magnitude, "He total").get_ydata()) == [10.1, 0.3]
    assert list(line(cosine, "He").get_ydata()) == [0.0, -0.5]


def test_names_on_an_axis_of_logarithms_stand_at_their_lines_ends(tmp_path: Path) -> None:
    series = [Series(f"ends at {end:g}", (run(100.0, end),), place) for place, end in enumerate((1.0, 10.0, 100.0))]
    (axes,) = draw_trajectories(series, tmp_path / "t.png").axes
    heights = [text.get_position()[1] for text in axes.texts]
    low, high = np.log10(axes.get_ylim())
    np.testing.assert_allclose(heights, [(place - low) / (high - low) for place in (0, 1, 2)], atol=0.03)


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    none = [Series("a", (run(None),), 0)]
    for draw, why in (
        (draw_trajectories, "loss"),
        (draw_deviations, "sigma_an"),
        (draw_changes, "change_by_aggregation"),
    ):
        with pytest.raises(SimulationError, match=why):
            draw(none, tmp_path / "none.png")
    for draw_nodes in (draw_node_curves, draw_node_accuracy):
        with pytest.raises(SimulationError, match="nodes' accuracy"):
            draw_nodes([NodeSeries(none[0], ())], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
