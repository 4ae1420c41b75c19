"""Pictures of the numerical part: Figures 5 (c), 6 and 8, and stabilisation beside mixing time."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from experiments.uncoordinated_initialisation.numerical_sizes import EXPONENT_SEEDS, MIXING, REWIRED
from fl_simulator.graphs.gain.steady_state import averaging_matrix
from fl_simulator.graphs.topology import build_graph
from fl_simulator.plots.style import CLUSTER_COLOURS, DPI, FAINT, SOFT, new_figure, set_titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES: Final = {
    "k-regular": "k-regular",
    "erdos-renyi": "Erdős–Rényi",
    "barabasi-albert": "Barabási–Albert",
    "configuration": "configuration model",
    "torus": "torus",
    "complete": "complete",
}
SIZE: Final = (8.6, 4.8)
COMPRESSED: Final = {"nodes": 8, "parameters": 4, "rounds": 8}
"""Of Figure 6, which shows what averaging does and measures nothing."""


def draw_all(found: dict[str, Any], folder: Path) -> None:
    """One picture for each part that there is, and Figure 6, which needs none."""
    draw_compression(folder)
    drawers = {"curves": [draw_curves], "exponents": [draw_families, draw_tails], "rewired": [draw_rewired]}
    for part, made in {**drawers, "walks": [draw_stabilisation, draw_against_mixing]}.items():
        for draw in made if part in found else ():
            draw(found[part], folder)


def draw_curves(curves: dict[str, Any], folder: Path) -> None:
    """Figure 5 (c)."""
    figure, axes = new_figure(width=SIZE[0], height=SIZE[1])
    for name, dashes in (("He", "-"), ("gain", (0, (4, 1.5)))):
        for spread, colour in (("sigma_an", CLUSTER_COLOURS[0]), ("sigma_ap", CLUSTER_COLOURS[1])):
            letters = {"sigma_an": "σ_an, across nodes", "sigma_ap": "σ_ap, within a node"}[spread]
            label = letters if name == "He" else f"{letters}, gain"
            _band(
                axes, range(len(curves[name][spread])), curves[name][spread], label=label, colour=colour, dashes=dashes
            )
    for level, text in ((curves["predicted_sigma_ap"], "‖v_steady‖"), (curves["sigma_noise"], "σ_noise")):
        axes.axhline(level, color=SOFT, linewidth=0.8, linestyle=":")
        axes.annotate(text, (curves["rounds"], level), (0, 3), textcoords="offset points", ha="right", color=SOFT)
    axes.set_yscale("log")
    _finish(
        figure,
        axes,
        folder / "numerical_5c.png",
        title="Averaging compresses parameters (Fig. 5c)",
        subtitle=f"Numerical model, {curves['degree']}-regular, n = {curves['nodes']}, σ_init = 1, "
        f"{curves['seeds']} seeds, 95 % intervals",
        across="round",
        up="standard deviation",
    )


def draw_compression(folder: Path) -> None:
    """Figure 6: each node's parameters as colours, over rounds of averaging alone."""
    rng, nodes = np.random.default_rng(3), COMPRESSED["nodes"]
    graph = build_graph("k-regular", {"k": 3}, count=nodes, rng=rng)
    averages = averaging_matrix(graph).dense()
    states = [rng.uniform(-1, 1, (nodes, COMPRESSED["parameters"]))]
    for _ in range(COMPRESSED["rounds"]):
        states.append(averages @ states[-1])
    figure, axes = new_figure(width=SIZE[0], height=SIZE[1])
    columns = np.concatenate([np.pad(each, ((0, 0), (0, 1)), constant_values=np.nan) for each in states], axis=1)
    axes.imshow(columns, cmap="coolwarm", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    width = COMPRESSED["parameters"] + 1
    axes.set_xticks([place * width + width / 2 - 1 for place in range(len(states))], map(str, range(len(states))))
    axes.set_yticks(range(nodes))
    axes.set_xlabel("after so many rounds: four parameters", color=SOFT)
    axes.set_ylabel("node", color=SOFT)
    figure.subplots_adjust(left=0.08, right=0.97, top=0.84, bottom=0.12)
    set_titles(
        figure,
        title="Averaging compresses parameters (Fig. 6)",
        subtitle=f"Colours: values from -1 to 1; {nodes} nodes with three neighbours each, no training",
    )
    figure.savefig(folder / "numerical_6.png", dpi=DPI, facecolor="white")


def draw_families(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Figure 8 (a)."""
    _draw_norms(
        [(NAMES[row["family"]], row) for row in rows if row["gamma"] is None],
        folder / "numerical_8a.png",
        title="‖v_steady‖ by family (Fig. 8a)",
    )


def draw_tails(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Figure 8 (b)."""
    _draw_norms(
        [(f"γ = {row['gamma']:g}", row) for row in rows if row["gamma"] is not None],
        folder / "numerical_8b.png",
        title="‖v_steady‖ of heavy tails, p(k) ~ k^-γ (Fig. 8b)",
    )


def draw_rewired(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Figure 8 (c)."""
    figure, axes = new_figure(width=SIZE[0], height=SIZE[1])
    _band(
        axes,
        [row["assortativity"]["mean"] for row in rows],
        [row["norm"] for row in rows],
        label="‖v_steady‖",
        colour=CLUSTER_COLOURS[0],
    )
    middle = float(np.mean([row["norm"]["mean"] for row in rows]))
    axes.set_ylim(0, 1.6 * middle)
    axes.axhline(REWIRED["nodes"] ** -0.5, color=SOFT, linewidth=0.8, linestyle=":", label="1/√n")
    _finish(
        figure,
        axes,
        folder / "numerical_8c.png",
        title="Assortativity leaves ‖v_steady‖ alone (Fig. 8c)",
        subtitle=f"Erdős–Rényi, n = {REWIRED['nodes']:,}, rewired with all degrees kept; power iteration",
        across="degree assortativity ρ",
        up="‖v_steady‖",
    )


def draw_stabilisation(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Rounds until σ_an is flat, by the number of nodes."""
    figure, axes = new_figure(width=SIZE[0], height=SIZE[1])
    for place, (name, each) in enumerate(_by_family(rows)):
        _band(
            axes,
            [row["nodes"] for row in each],
            [row["stabilisation"] for row in each],
            label=f"{name}, σ_an flat",
            colour=CLUSTER_COLOURS[place],
        )
        axes.plot(
            [row["nodes"] for row in each],
            [row["mixing_time"]["mean"] for row in each],
            color=CLUSTER_COLOURS[place],
            linestyle=(0, (1, 1.2)),
            label=f"{name}, mixing time",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _finish(
        figure,
        axes,
        folder / "numerical_stabilisation.png",
        title="Rounds until σ_an is flat (Sec. 4.5)",
        subtitle=f"Dotted: mixing time of the walk (1/4). {MIXING['seeds']} seeds, 95 % intervals",
        across="nodes",
        up="rounds",
    )


def draw_against_mixing(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """The same rounds over the mixing time."""
    fewest, *_, most = MIXING["nodes"]
    figure, axes = new_figure(width=SIZE[0], height=SIZE[1])
    for place, (name, each) in enumerate(_by_family(rows)):
        axes.plot(
            [row["mixing_time"]["mean"] for row in each],
            [row["stabilisation"]["mean"] for row in each],
            "o-",
            markersize=4,
            color=CLUSTER_COLOURS[place],
            label=name,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    _finish(
        figure,
        axes,
        folder / "numerical_mixing.png",
        title="Stabilisation of σ_an against the mixing time (Sec. 4.5)",
        subtitle=f"One point for each number of nodes, {fewest} to {most:,}; means over {MIXING['seeds']} seeds",
        across="mixing time in rounds",
        up="rounds until σ_an is flat",
    )


def _draw_norms(lines: Sequence[tuple[str, dict[str, Any]]], path: Path, *, title: str) -> None:
    figure, axes = new_figure(width=SIZE[0], height=SIZE[1])
    for place, (name, row) in enumerate(lines):
        nodes = [int(count) for count in row["norms"]]
        label = f"{name}, α = {row['exponent']:.3f}"
        _band(axes, nodes, list(row["norms"].values()), label=label, colour=CLUSTER_COLOURS[place])
    axes.plot(nodes, np.array(nodes) ** -0.5, color=SOFT, linewidth=0.8, linestyle=":", label="1/√n")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis(lambda value, _: f"{value:g}")
    _finish(
        figure,
        axes,
        path,
        title=title,
        subtitle=f"Means over {EXPONENT_SEEDS} graphs, 95 % intervals; α fitted",
        across="nodes",
        up="‖v_steady‖",
    )


def _band(
    axes: "Axes",
    across: Sequence[float],
    values: Sequence[dict[str, float]],
    *,
    label: str,
    colour: str,
    dashes: Any = "-",
) -> None:
    """A line of means with its interval."""
    mean, half = (np.array([each[part] for each in values]) for part in ("mean", "ci95"))
    axes.plot(across, mean, color=colour, linestyle=dashes, label=label, linewidth=1.6)
    axes.fill_between(across, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)


def _by_family(rows: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    families = dict.fromkeys(row["family"] for row in rows)
    return [(NAMES[family], [row for row in rows if row["family"] == family]) for family in families]


def _finish(figure: "Figure", axes: "Axes", path: Path, *, title: str, subtitle: str, across: str, up: str) -> None:
    axes.set_xlabel(across, color=SOFT)
    axes.set_ylabel(up, color=SOFT)
    axes.grid(visible=True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=SOFT, loc="center left", bbox_to_anchor=(1.01, 0.5))
    axes.tick_params(which="both", colors=SOFT, length=0, labelsize=9)
    figure.subplots_adjust(left=0.11, right=0.68, top=0.84, bottom=0.12)
    set_titles(figure, title=title, subtitle=subtitle)
    figure.savefig(path, dpi=DPI, facecolor="white")
