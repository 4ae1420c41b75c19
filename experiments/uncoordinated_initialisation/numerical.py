"""The numerical part of uncoordinated initialisation: no training, only graphs, averages and noise.

* Figure 5 (c): σ_an and σ_ap of the numerical model on random 32-regular graphs of 256 nodes.
* Figure 6: what averaging does to parameters, as a picture.
* Figure 8 (a, b): how ||v_steady|| shrinks with the number of nodes, by families of graphs, and the exponents.
* Figure 8 (c): ||v_steady|| of an Erdős-Rényi graph of 2,048 nodes that is rewired to other assortativities.
* Section 4.5: rounds until σ_an is flat, beside the mixing time of the walk.
* Section 4.4: how far estimates of the gain are off, by what a node knows.

Writes ``numerical.json``, ``numerical.md`` and pictures into ``experiments/results/uncoordinated_initialisation/``.
What [Gain] reports is in ``reported/numerical.csv``; its figures have no numbers beside them.

    python -m experiments.uncoordinated_initialisation.numerical         some minutes on one core
    python -m experiments.uncoordinated_initialisation.numerical --draw  pictures of what there is
"""

import argparse
import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.uncoordinated_initialisation.estimates import gain_by_degrees, gain_by_family, gain_by_size
from experiments.uncoordinated_initialisation.mixing_time import mixing_time, spectral_gap
from experiments.uncoordinated_initialisation.numerical_model import early_stage, stabilisation_time
from experiments.uncoordinated_initialisation.numerical_pictures import draw_all
from experiments.uncoordinated_initialisation.numerical_sizes import (
    CURVE,
    ESTIMATED,
    EXPONENT_SEEDS,
    GAMMAS,
    MEAN_DEGREE,
    MIXING,
    MOST_ROUNDS,
    REWIRED,
    SIGMA_NOISE,
    SIZES,
)
from experiments.uncoordinated_initialisation.push_sum import estimate_num_nodes
from experiments.uncoordinated_initialisation.rewiring import assortativity, rewire
from fl_core.types import JsonScalar
from fl_simulator.graphs.gain.steady_state import averaging_matrix, gain, power_iteration
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import MixingMatrix
from fl_simulator.graphs.topology import build_graph
from fl_simulator.report import half_interval

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE.parent / "results" / "uncoordinated_initialisation"
REPORTED: Final = HERE / "reported" / "numerical.csv"

Params = dict[str, JsonScalar]
FAMILIES: Final[dict[str, Callable[[int], Params]]] = {
    "k-regular": lambda _: {"k": MEAN_DEGREE},
    "erdos-renyi": lambda n: {"p": MEAN_DEGREE / (n - 1)},
    "barabasi-albert": lambda _: {"m": MEAN_DEGREE // 2},
}
WALKED: Final[dict[str, Callable[[int], Params]]] = {
    "complete": lambda _: {},
    "k-regular": lambda _: {"k": 8},
    "erdos-renyi": lambda n: {"p": 8 / (n - 1)},
    "barabasi-albert": lambda _: {"m": 4},
    "torus": lambda _: {"dimensions": 2},
}


def drawn(name: str, params: Params, *, count: int, seed: int) -> Graph:
    """One graph of a family; another seed, another graph."""
    return build_graph(name, params, count=count, rng=np.random.default_rng([count, seed]))


def summary(values: Sequence[float]) -> dict[str, float]:
    """Mean over seeds, half of its 95 % confidence interval, least and greatest."""
    array = np.array(values, dtype=np.float64)
    half = half_interval(array.tolist())
    return {"mean": float(array.mean()), "ci95": half, "min": float(array.min()), "max": float(array.max())}


def slope(across: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Exponent and factor of the power that fits best, by least squares of logarithms."""
    exponent, level = np.polyfit(np.log(across), np.log(values), 1)
    return float(exponent), float(np.exp(level))


def curves(step: Callable[[], None]) -> dict[str, Any]:
    """Figure 5 (c), without the gain and with it."""
    found: dict[str, Any] = {**CURVE, "sigma_noise": SIGMA_NOISE}
    for name in ("He", "gain"):
        played = []
        for seed in range(CURVE["seeds"]):
            graph = drawn("k-regular", {"k": CURVE["degree"]}, count=CURVE["nodes"], seed=seed)
            played.append(
                early_stage(
                    averaging_matrix(graph),
                    num_parameters=CURVE["parameters"],
                    rounds=CURVE["rounds"],
                    sigma_init=gain(averaging_matrix(graph)) if name == "gain" else 1.0,
                    sigma_noise=SIGMA_NOISE,
                    rng=np.random.default_rng([5, seed]),
                )
            )
            step()
        found[name] = {
            "sigma_an": [summary(values) for values in np.array([each for each, _ in played]).T],
            "sigma_ap": [summary(values) for values in np.array([each for _, each in played]).T],
        }
    found["predicted_sigma_ap"] = 1 / gain(averaging_matrix(graph))
    return found


def exponents(step: Callable[[], None]) -> list[dict[str, Any]]:
    """Figure 8 (a, b): ||v_steady|| by the number of nodes, and n^-α fitted to it."""
    families = [(name, params, None) for name, params in FAMILIES.items()]
    families += [("configuration", (lambda _, each=gamma: {"gamma": each}), gamma) for gamma in GAMMAS]
    found = []
    for name, params, gamma in families:
        norms: dict[int, list[float]] = {}
        for count in SIZES:
            norms[count] = []
            for seed in range(EXPONENT_SEEDS):
                graph = drawn(name, params(count), count=count, seed=seed)
                norms[count].append(1 / gain(averaging_matrix(graph)))
                step()
        by_seed = [slope(SIZES, [norms[count][seed] for count in SIZES])[0] for seed in range(EXPONENT_SEEDS)]
        flat = [(count, norm) for count, each in norms.items() for norm in each]
        falling, factor = slope([count for count, _ in flat], [norm for _, norm in flat])
        found.append(
            {
                "family": name,
                "gamma": gamma,
                "norms": {str(count): summary(each) for count, each in norms.items()},
                "exponent": -falling,
                "gain_factor": 1 / factor,
                "exponent_by_seed": summary([-each for each in by_seed]),
            }
        )
    return found


def rewired(step: Callable[[], None]) -> list[dict[str, Any]]:
    """Figure 8 (c): norms by power iteration from the uniform vector: detailed balance would read degrees alone."""
    count = REWIRED["nodes"]
    rows: list[dict[str, Any]] = []
    for target in REWIRED["targets"]:
        reached, norms, before = [], [], []
        for seed in range(REWIRED["seeds"]):
            graph = drawn("erdos-renyi", {"p": MEAN_DEGREE / (count - 1)}, count=count, seed=seed)
            other = rewire(graph, target=target, rng=np.random.default_rng([8, seed]))
            reached.append(assortativity(other))
            norms.append(float(np.linalg.norm(power_iteration(averaging_matrix(other)))))
            before.append(float(np.linalg.norm(power_iteration(averaging_matrix(graph)))))
            step()
        rows.append(
            {
                "target": target,
                "assortativity": summary(reached),
                "norm": summary(norms),
                "largest_change": max(abs(a / b - 1) for a, b in zip(norms, before, strict=True)),
            }
        )
    return rows


def walks(step: Callable[[], None]) -> list[dict[str, Any]]:
    """Section 4.5: stabilisation of σ_an, mixing time (1/4) and spectral gap."""
    rows = []
    for name, params in WALKED.items():
        for count in MIXING["nodes"]:
            rounds, mixing, gaps = [], [], []
            for seed in range(MIXING["seeds"]):
                matrix = averaging_matrix(drawn(name, params(count), count=count, seed=seed))
                mixing.append(mixing_time(matrix))
                gaps.append(spectral_gap(matrix))
                rounds.append(rounds_until_flat(matrix, seed=seed))
                step()
            rows.append(
                {
                    "family": name,
                    "nodes": count,
                    "stabilisation": summary(rounds),
                    "mixing_time": summary(mixing),
                    "spectral_gap": summary(gaps),
                }
            )
    return rows


def rounds_until_flat(matrix: MixingMatrix, *, seed: int) -> int:
    """Rounds until σ_an is flat, of the shortest run that tells: 32 rounds, twice as many, and so on.

    Raises:
        RuntimeError: No run of up to ``MOST_ROUNDS`` tells.
    """
    rounds = 32
    while rounds <= MOST_ROUNDS:
        sigma_an, _ = early_stage(
            matrix,
            num_parameters=MIXING["parameters"],
            rounds=rounds,
            sigma_noise=SIGMA_NOISE,
            rng=np.random.default_rng([45, seed]),
        )
        flat = stabilisation_time(sigma_an)
        if flat is not None:
            return flat
        rounds *= 2
    raise RuntimeError(
        f"seed {seed}, {matrix.num_nodes} nodes: σ_an is not flat within {MOST_ROUNDS:,} rounds; let MOST_ROUNDS in "
        "numerical_sizes.py be greater"
    )


def by_gossip(graph: Graph, rng: np.random.Generator, *, rounds: int) -> list[float]:
    """Each node's gain, of the number of nodes that it has from push-sum."""
    return [gain_by_size(nodes) for nodes in estimate_num_nodes(graph, rounds=rounds, rng=rng).tolist()]


def by_poll(graph: Graph, rng: np.random.Generator, *, sample: int) -> list[float]:
    """The gain of the number of nodes and some polled degrees."""
    polled = rng.choice(graph.degrees.astype(np.float64), sample, replace=False)
    return [gain_by_degrees(graph.num_nodes, polled)]


def estimates(step: Callable[[], None]) -> list[dict[str, Any]]:
    """Section 4.4: gain estimated / gain, over seeds and, with gossip, over nodes."""
    count = ESTIMATED["nodes"]
    graphs: dict[str, Params] = {
        "k-regular": {"k": 16},
        "erdos-renyi": {"p": 16 / (count - 1)},
        "barabasi-albert": {"m": 8},
        "configuration": {"gamma": 2.5},
    }
    rows = []
    for name, params in graphs.items():
        rules: list[tuple[str, Callable[[Graph, np.random.Generator], list[float]]]]
        rules = [("n", lambda _graph, _rng: [gain_by_size(count)])]
        rules += [(f"n by {t} rounds of push-sum", partial(by_gossip, rounds=t)) for t in (10, 20, 40, 80)]
        rules += [(f"n and {sample} degrees", partial(by_poll, sample=sample)) for sample in (8, 32, 128)]
        with_factor, without = gain_by_family(count, name), gain_by_family(count, name, factor=1.0)
        rules += [("n and the family", lambda _graph, _rng, each=with_factor: [each])]
        rules += [("n and the family, no factor", lambda _graph, _rng, each=without: [each])]
        graphs_drawn = [drawn(name, params, count=count, seed=seed) for seed in range(ESTIMATED["seeds"])]
        for what, rule in rules:
            ratios: list[float] = []
            for seed, graph in enumerate(graphs_drawn):
                exact = gain(averaging_matrix(graph))
                ratios += [each / exact for each in rule(graph, np.random.default_rng([44, seed]))]
                step()
            rows.append({"family": name, "known": what, "estimate_over_exact": summary(ratios)})
    return rows


PARTS: Final[dict[str, Callable[[Callable[[], None]], Any]]] = {
    "curves": curves,
    "exponents": exponents,
    "rewired": rewired,
    "walks": walks,
    "estimates": estimates,
}
STEPS: Final = {
    "curves": 2 * CURVE["seeds"],
    "exponents": (len(FAMILIES) + len(GAMMAS)) * len(SIZES) * EXPONENT_SEEDS,
    "rewired": len(REWIRED["targets"]) * REWIRED["seeds"],
    "walks": len(WALKED) * len(MIXING["nodes"]) * MIXING["seeds"],
    "estimates": 4 * 10 * ESTIMATED["seeds"],
}


def reported(found: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """What [Gain] reports beside what came out: quantity, where, reported, ours."""
    ours = measured(found)
    with REPORTED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield row["quantity"], row["where"], row["reported"], ours[row["key"]]


def measured(found: dict[str, Any]) -> dict[str, str]:
    """Ours, by the keys of ``reported/numerical.csv``."""
    last = {name: found["curves"]["He"][name][-1]["mean"] for name in ("sigma_an", "sigma_ap")}
    alpha = {(row["family"], row["gamma"]): row["exponent"] for row in found["exponents"]}
    heavy = [alpha["configuration", gamma] for gamma in GAMMAS]
    by_family = {name: [row for row in found["walks"] if row["family"] == name] for name in WALKED}

    def grows(name: str, x: Callable[[float], float]) -> str:
        """Rounds until σ_an is flat, and the mixing time, each as a power of x(n)."""
        across = [x(row["nodes"]) for row in by_family[name]]
        flat, walk = (
            slope(across, [row[what]["mean"] for row in by_family[name]])[0]
            for what in ("stabilisation", "mixing_time")
        )
        return f"σ_an: power {flat:.2f}; mixing time: power {walk:.2f}"

    return {
        "sigma-ap-factor": f"{last['sigma_ap']:.4f} (1/√256 = {1 / 16})",
        "sigma-an-noise": f"{last['sigma_an'] / SIGMA_NOISE:.3f} σ_noise",
        "exponent-k-regular": f"{alpha['k-regular', None]:.4f}",
        "exponent-erdos-renyi": f"{alpha['erdos-renyi', None]:.4f}",
        "exponent-barabasi-albert": f"{alpha['barabasi-albert', None]:.3f}",
        "exponent-configuration": ", ".join(f"{a:.3f} (γ = {g:g})" for g, a in zip(GAMMAS, heavy, strict=True)),
        "assortativity": f"largest relative change {max(row['largest_change'] for row in found['rewired']):.1e}",
        "mixing-torus": grows("torus", lambda n: n) + " of n",
        "mixing-k-regular": grows("k-regular", math.log) + " of log n",
        "mixing-erdos-renyi": grows("erdos-renyi", math.log) + " of log n",
    }


def table(found: dict[str, Any]) -> str:
    """The report in Markdown."""
    lines = ["# Uncoordinated initialisation: the numerical model", ""]
    lines += ["Made by `python -m experiments.uncoordinated_initialisation.numerical`.", ""]
    lines += ["| quantity | where | paper | here |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in reported(found)]
    lines += ["", "## Exponents (Fig. 8 a, b)", ""]
    lines += [f"`||v_steady|| = n^-α / factor`, n = {SIZES[0]} to {SIZES[-1]}, {EXPONENT_SEEDS} seeds.", ""]
    lines += ["| family | γ | α | ± 95 % | factor of the gain |", "|---|---|---|---|---|"]
    for row in found["exponents"]:
        gamma = "" if row["gamma"] is None else f"{row['gamma']:g}"
        spread = row["exponent_by_seed"]["ci95"]
        lines += [f"| {row['family']} | {gamma} | {row['exponent']:.4f} | {spread:.4f} | {row['gain_factor']:.3f} |"]
    lines += ["", "## Rounds until σ_an is flat, and mixing time (Sec. 4.5)", ""]
    lines += [
        "| family | n | σ_an flat (min to max) | mixing time | 1 / gap | σ_an flat · gap |",
        "|---|---|---|---|---|---|",
    ]
    multiples = []
    for row in found["walks"]:
        flat, walk = row["stabilisation"], row["mixing_time"]["mean"]
        rounds = f"{flat['mean']:.1f} ({flat['min']:.0f} to {flat['max']:.0f})"
        relaxation = 1 / row["spectral_gap"]["mean"]
        cells = (row["family"], row["nodes"], rounds, f"{walk:.1f}", f"{relaxation:.2f}")
        times = flat["mean"] / relaxation
        lines += [f"| {' | '.join(map(str, cells))} | {times:.2f} |"]
        if row["family"] != "complete":
            multiples.append(times)
    lines += [
        "",
        f"σ_an is flat after {min(multiples):.1f} to {max(multiples):.1f} times 1 / gap wherever the graph is",
    ]
    lines += ["not complete: it falls by the gap, and the start from which a walk mixes worst does not matter to it."]
    lines += ["", f"## Estimates of the gain, n = {ESTIMATED['nodes']} (Sec. 4.4)", ""]
    lines += ["| family | a node knows | estimate / gain, mean (min to max) |", "|---|---|---|"]
    for row in found["estimates"]:
        ratio = row["estimate_over_exact"]
        lines += [
            f"| {row['family']} | {row['known']} | {ratio['mean']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f}) |"
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="play nothing: report and pictures of what there is")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to play; others are kept (all for a table)"
    )
    options = parser.parse_args()
    file = RESULTS / "numerical.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    if not options.draw:
        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn()) as bars:
            tasks = {name: bars.add_task(name, total=STEPS[name]) for name in options.only}
            for name in options.only:
                found[name] = PARTS[name](lambda task=tasks[name]: bars.advance(task))
    RESULTS.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if found.keys() >= PARTS.keys():
        (RESULTS / "numerical.md").write_text(table(found), encoding="utf-8")
    draw_all(found, RESULTS)


if __name__ == "__main__":
    main()
