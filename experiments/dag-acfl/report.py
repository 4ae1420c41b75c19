"""[DAG-ACFL] Tables II to IV, Figures 4 to 6 and 8 to 10, and what we add to them: joining, selectors, time, scale.

    python -m experiments.dag-acfl.report               # all experiments of this folder
    python -m experiments.dag-acfl.report table_2_lr    # one of them

Where ``build/simulations`` has finished runs of an experiment, ``summary.csv`` (a row for each run), ``methods.csv``
(clusters and machine, a row for each method), ``curves.csv`` and pictures are written anew into
``experiments/results/dag-acfl/<experiment>/``; then ``report.md`` is made of the CSV files that are there.
"""

from pathlib import Path

import pandas as pd

from experiments.label_pictures import draw_label_distribution
from experiments.reporting import (
    Played,
    describe_runs,
    difference_table,
    keep_results,
    moments_table,
    read_run_facts,
    update_reports,
)
from experiments.selection_pictures import draw_change_points, draw_similarities, read_choices
from fl_simulator.report import (
    CURVES,
    RUN,
    accuracy_table,
    draw_curves,
    mean_and_interval,
    mean_and_spread,
    methods_by_settings,
    paired_differences,
    to_markdown,
)
from fl_simulator.run.prepare import build_population

HERE = Path(__file__).resolve().parent
SHOWN = {
    "table_2_lr": ("First training counted", "Worst client", "Fewer participants"),
    "table_2_mlp_type_ii": ("First training counted", "Worst client", "Fewer participants", "Costs"),
    "table_2_mlp_type_i": ("First training counted", "Worst client", "Fewer participants"),
    "all_images": (),
    "joining": ("Found groups",),
    "selectors": ("Found groups", "This machine"),
    "scale": ("This machine",),
    "cnn_mnist_scaled": ("Fewer participants", "Found groups"),
    "cnn_cifar_scaled": ("Fewer participants", "Found groups"),
    "table_2_mnist_cnn": ("Found groups",),
    "table_2_cifar_cnn": ("Found groups",),
    "asynchronous": ("Virtual time",),
}
"""Experiments, and the tables that each shows after that of accuracies."""
EXPERIMENTS = tuple(SHOWN)
PARTLY = ["setting", "participation", "method"]
COSTS_OF = ("MNIST(type II)-MLP", 1.0)
REPORTED = HERE / "reported" / "table_2.csv"
OURS = "DAG-ACFL"
TRAIN_FIRST = (OURS, "FlexCFL", "FeSEM (k-means)")
"""How methods of Table II begin that train each client once before its first round."""
CURVES_OF: dict[str, dict[int, tuple[str, ...]]] = {
    "table_2_mlp_type_ii": {
        2: ("Fedavg", "FeSEM", "FlexCFL(2)", "CFL", "SDAGFL", "DAG-ACFL (as ledger init)", OURS),
    },
    "cnn_mnist_scaled": dict.fromkeys((1, 2, 3), ()),
    "cnn_cifar_scaled": dict.fromkeys((1, 2, 3, 4), ()),
    "asynchronous": {
        1: ("FedAvg", "FlexCFL", "FedBuff", "oracle", "FedBuff in true clusters", "DAG-ACFL (as ledger init)", OURS),
    },
}
"""Pictures of curves on the page, by experiment and number of a setting and participation: which methods; none: all."""
LABELS_OF = ("table_2_lr", "cnn_mnist_scaled")
"""Experiments whose labels are on the page (Fig. 6)."""
SELECTION_OF = ("table_2_mlp_type_ii", "mnist-type-ii-mlp-0.5-dag-acfl-seed-0")
"""The run of which a selection is on the page (Fig. 4 and 5)."""
BASELINES = {"joining": "genesis, robust", "selectors": "robust"}
"""The method that all others are compared with, where that is not ``OURS``."""


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    experiment, rounds, runs, folder = played.experiment, played.rounds, played.runs, played.kept
    timed = "results" in rounds
    facts = read_run_facts(runs, experiment)
    more = facts[["pixels"]].join(timing(rounds, played.summary)) if timed else facts[["pixels"]]
    keep_results(rounds, played.summary.join(more, on=list(RUN)), folder)
    methods(rounds).to_csv(folder / "methods.csv", index=False)
    facts = facts.reset_index().drop_duplicates(PARTLY)
    if "formula_round_bytes" in facts:
        facts.dropna(subset="formula_round_bytes").drop(columns="seed").to_csv(folder / "costs.csv", index=False)
    draw_shown_curves(rounds, folder)
    if folder.name in LABELS_OF:
        last = experiment.runs[-1]
        draw_label_distribution(build_population(last.scenario), folder / "labels.png", title=last.label.setting)
    if folder.name == SELECTION_OF[0]:
        draw_selection(runs / SELECTION_OF[1], folder)


def draw_shown_curves(rounds: pd.DataFrame, folder: Path) -> None:
    """The pictures of ``CURVES_OF``; rounds may be ``curves.csv``. The last method lies above the others."""
    rounds = rounds.rename(columns={"satisfaction": "mr"})
    figures = ["mr" if each == "satisfaction" else each for each in CURVES]
    over = "virtual_time_s" if folder.name == "asynchronous" else "round"
    chosen = CURVES_OF.get(folder.name, {})
    for place, ((setting, share), mine) in enumerate(rounds.groupby(PARTLY[:2], sort=False), start=1):
        if place not in chosen:
            continue
        names = chosen[place] or mine.method.unique()
        shown = pd.concat([mine[mine.method == name] for name in names])
        title = f"{setting}, participation {share:g}"
        draw_curves(shown, folder / f"curves-{place}.png", figures=figures, over=over, title=title)


def draw_selection(run: Path, folder: Path) -> None:
    """What the client that was offered most saw in the last round (Fig. 4), and the change points in it (Fig. 5)."""
    kept = read_choices(run)
    if kept is None:
        return
    choice, clusters = max(kept[0], key=lambda each: len(each.offered)), kept[1]
    place, cut, authors = f"{folder}/{run.name}", len(choice.taken), clusters[choice.offered]
    draw_similarities(choice.similarities, authors, Path(f"{place}-similarities.png"), cut=cut)
    draw_change_points(choice.update_similarities, choice.probabilities, Path(f"{place}-change-points.png"), cut=cut)


def methods(rounds: pd.DataFrame) -> pd.DataFrame:
    """Which groups were found and what a round took of the machine, over all seeds of a method.

    The first half of a run is warm-up: the worst is looked for in the second.
    """
    rows = []
    for key, mine in rounds.groupby(PARTLY, sort=False):
        by_seed = mine.groupby("seed")
        late = mine[mine["round"] >= by_seed["round"].transform("max") / 2]
        row = dict(zip(PARTLY, key, strict=True))
        last = by_seed.last()
        if "misclassified" in mine and mine.misclassified.notna().any():
            row["communities"] = " ".join(f"{each:.0f}" for each in last.communities)
            row["misclassified"] = late.misclassified.max()
            row["converged_after"] = max(converged_after(run) for _, run in by_seed)
            row["modularity"] = last.modularity.mean() if "modularity" in last else None
        if "satisfaction" in mine and mine.satisfaction.notna().any():
            row["satisfaction"] = late.groupby("seed").satisfaction.mean().mean()
            row["satisfaction_min"] = late.satisfaction_min.min()
            row["cross_cluster_max"] = late.cross_cluster_rate.max()
        if "transactions" in mine and mine.transactions.notna().any():
            seconds = [column for column in mine.columns if column.startswith("seconds_")]
            row["seconds"] = mine[seconds].sum(axis=1).median()
            row |= mine[seconds].median().to_dict()
            row |= last[["tips", "transactions"]].mean().to_dict()
            row |= mine[["up_bytes", "down_bytes", "between_servers_bytes"]].mean().to_dict()
            row["peak_memory_bytes"] = mine.peak_memory_bytes.max()
        rows.append(row)
    return pd.DataFrame(rows)


def converged_after(run: pd.DataFrame) -> float:
    """Rounds after which nobody was misclassified at any evaluation; infinite where somebody was at the last."""
    judged = run.dropna(subset="misclassified")
    wrong = judged[judged.misclassified > 0]
    clean = judged[judged["round"] > wrong["round"].max()] if len(wrong) else judged
    return clean["round"].min() + 1 if len(clean) else float("inf")


def timing(rounds: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Of runs in virtual time: when 95 % of their own final accuracy was there, and of the best method's."""
    bounds = summary.method.str.casefold().str.contains("oracle|centralised|in true clusters")
    best = summary[~bounds].groupby(["setting", "participation", "method"]).accuracy.mean().groupby(level=0).max()
    rows = {}
    for key, run in rounds.groupby(list(RUN)):
        judged = run.dropna(subset="accuracy")
        is_late = run["round"] >= run["round"].max() / 2
        rows[key] = {
            "own_95_s": judged[judged.accuracy >= 0.95 * judged.accuracy.iloc[-1]].virtual_time_s.min(),
            "best_95_s": judged[judged.accuracy >= 0.95 * best[key[0]]].virtual_time_s.min(),
            "results": run.results.sum(),
            "lost": run.lost.sum(),
            "worst_client_low": run[is_late].worst_client.min(),
            "cross_cluster_early_max": run[~is_late].cross_cluster_rate.max(),
            "cross_cluster_max": run[is_late].cross_cluster_rate.max(),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(list(RUN)).add_prefix("run_")


def tables(folder: Path) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    summary = pd.read_csv(folder / "summary.csv")
    baseline = BASELINES.get(folder.name, OURS)
    paper = pd.read_csv(REPORTED, comment="#")
    paper = paper[paper.setting.isin(summary.setting) & paper.method.isin(summary.method)]
    parts = [
        f"{describe_runs(summary)} Each run's value is the mean over its clients."
        + (" Below it: [DAG-ACFL] Table II, 200 rounds." if len(paper) else ""),
        to_markdown(accuracy_table(summary, paper)),
        *moments_table(summary),
        *(difference_table(summary, baseline) if baseline in set(summary.method) else []),
    ]
    for shown in SHOWN[folder.name]:
        parts += [TABLES[shown][0], to_markdown(TABLES[shown][1](folder))]
    return parts


def first_training_counted(folder: Path) -> pd.DataFrame:
    """How far methods that do not train before their first round are from ours an evaluation, so epochs, earlier."""
    summary, curves = (pd.read_csv(folder / f"{name}.csv") for name in ("summary", "curves"))
    earlier = curves[curves.method == OURS].groupby(list(RUN)).accuracy.agg(lambda each: each.iloc[-6:-1].mean())
    compared = summary.set_index(list(RUN))[["accuracy_last_5"]]
    compared.loc[earlier.index, "accuracy_last_5"] = earlier
    methods = [each for each in summary.method.unique() if not each.startswith(TRAIN_FIRST)]
    return paired_differences(compared.reset_index(), dict.fromkeys(methods, OURS)).drop(columns="against")


def fewer_participants(folder: Path) -> pd.DataFrame:
    """What half of the clients instead of all bring the methods that [DAG-ACFL] reports to gain by it."""
    summary = pd.read_csv(folder / "summary.csv")
    summary = summary[summary.method.str.startswith(("IFCA", "FeSEM"))]
    rows = []
    for (setting, method), runs in summary.groupby(["setting", "method"], sort=False):
        by_seed = runs.pivot_table("accuracy_last_5", index="seed", columns="participation").reindex(columns=[0.5, 1.0])
        gained = (by_seed[0.5] - by_seed[1.0]).dropna()
        row = {
            "setting": setting,
            "method": method,
            **{f"seed {seed}": f"{each:+.4f}" for seed, each in gained.items()},
        }
        row["mean"] = mean_and_interval(gained.tolist(), 4)
        index = runs[runs.participation == 0.5].sort_values("seed").adjusted_rand
        row["adjusted Rand index with half"] = ", ".join(f"{each:.2f}" for each in index.round(2) + 0.0)
        rows.append(row)
    return pd.DataFrame(rows)


def costs(folder: Path) -> pd.DataFrame:
    """Tables III and IV in one setting of Table II."""
    table = pd.read_csv(folder / "costs.csv")
    table = table[(table.setting == COSTS_OF[0]) & (table.participation == COSTS_OF[1])]

    def megabytes(column: str) -> pd.Series:
        return (table[column] / 1e6).map("{:,.1f}".format).where(table[column].notna(), "-")

    return pd.DataFrame(
        {
            "method": table.method,
            "a round, Table III": table.communication,
            "= MB": megabytes("formula_round_bytes"),
            "each transfer once": megabytes("expected_round_bytes"),
            "measured": megabytes("measured_round_bytes"),
            "client, Table IV": table.client_storage + " = " + megabytes("formula_client_bytes"),
            "server, Table IV": (table.server_storage + " = " + megabytes("formula_server_bytes")).fillna("-"),
        }
    )


def worst_clients(folder: Path) -> pd.DataFrame:
    """Of each method the least accurate client of any seed, and how like the superclasses its groups are."""

    def cell(_setting: str, _share: float, _method: str, runs: pd.DataFrame) -> str:
        return f"{runs.worst_client.min():.3f}" + (f" / {index:.2f}" if pd.notna(index := rand_index(runs)) else "")

    return methods_by_settings(pd.read_csv(folder / "summary.csv"), cell)


def rand_index(runs: pd.DataFrame) -> float:
    """Mean over seeds; a mean that rounds to nought has no sign."""
    return round(float(runs.adjusted_rand.mean()), 3) + 0.0


def found_groups(folder: Path) -> pd.DataFrame:
    columns = ["modularity", "communities", "adjusted_rand", "satisfaction", "satisfaction_min", "cross_cluster_max"]
    table = pd.read_csv(folder / "methods.csv", dtype={"communities": str})
    summary = pd.read_csv(folder / "summary.csv")
    indices = {key: rand_index(runs) for key, runs in summary.groupby(PARTLY)}
    table["adjusted_rand"] = [indices[key] for key in zip(*(table[name] for name in PARTLY), strict=True)]
    table = table.dropna(subset="misclassified")
    for column in ("misclassified", "converged_after"):
        table[column] = table[column].map(lambda each: "-" if pd.isna(each) or each == float("inf") else f"{each:.0f}")
    table["participation"] = table.participation.map("{:g}".format)
    table = table[[*PARTLY, *(name for name in columns if name in table), "misclassified", "converged_after"]]
    return table.rename(
        columns={
            "communities": "found groups",
            "adjusted_rand": "adjusted Rand index",
            "satisfaction": "mr",
            "satisfaction_min": "least mr",
            "cross_cluster_max": "foreign",
        }
    )


def machine(folder: Path) -> pd.DataFrame:
    table = pd.read_csv(folder / "methods.csv").dropna(subset="seconds")
    shown = table[[*PARTLY, "seconds"]].assign(participation=table.participation.map("{:g}".format))
    for work in ("training", "selection", "similarity", "ledger"):
        shown[work] = table[f"seconds_{work}"]
    shown["tips"], shown["transactions"] = (table[name].map("{:,.0f}".format) for name in ("tips", "transactions"))
    for name in ("up", "down", "between_servers"):
        shown[f"{name.replace('_', ' ')}, MB"] = table[f"{name}_bytes"] / 1e6
    shown["memory, MB"] = (table.peak_memory_bytes / 1e6).map("{:,.0f}".format).where(table.peak_memory_bytes > 0, "-")
    return shown


def virtual_time(folder: Path) -> pd.DataFrame:
    summary = pd.read_csv(folder / "summary.csv")
    rows = []
    for (setting, method), runs in summary.groupby(["setting", "method"], sort=False):
        never = runs.run_best_95_s.isna().all()
        rows.append(
            {
                "setting": setting,
                "method": method,
                "own 95 %, s": mean_and_spread(runs.run_own_95_s, 0),
                "best's 95 %, s": "never" if never else mean_and_spread(runs.run_best_95_s, 0),
                "results": mean_and_spread(runs.run_results, 0),
                "lost": mean_and_spread(runs.run_lost, 0),
                "worst client": mean_and_spread(runs.worst_client),
                "its lowest": mean_and_spread(runs.run_worst_client_low),
                "foreign, first half": mean_and_spread(runs.run_cross_cluster_early_max, 3),
                "second half": mean_and_spread(runs.run_cross_cluster_max, 3),
            }
        )
    return pd.DataFrame(rows)


TABLES = {
    "First training counted": (
        f"""**First training counted**: the same differences from {OURS} an evaluation earlier, of methods that do not
train before their first round.""",
        first_training_counted,
    ),
    "Worst client": (
        """**Worst client**: accuracy of the least accurate client at the end, in the worst seed / adjusted Rand index
of the found groups, mean over seeds.""",
        worst_clients,
    ),
    "Fewer participants": (
        """**Fewer participants**: accuracy (mean of the last five evaluations) with half of the clients in a round less
that with all, of each seed, and the mean with its 95 % confidence interval; adjusted Rand index with half, of each
seed.""",
        fewer_participants,
    ),
    "Costs": (
        f"""**Costs.** MB of a round and at the end: formulas of [DAG-ACFL] Tables III and IV, and as measured, in
{COSTS_OF[0]} with everybody taking part.""",
        costs,
    ),
    "Found groups": (
        """**Found groups.** After the last round: modularity, how many groups each seed has, adjusted Rand index (mean
over seeds). In the second half of the rounds: mr in the mean and least of any selection; *foreign*: the greatest share
of a round's selections that took a model of another superclass; the most misclassified clients. `converged_after`:
rounds after which nobody was misclassified, the latest seed's.""",
        found_groups,
    ),
    "This machine": (
        """**This machine.** Methods on a ledger: median seconds of a round and of its parts; tips and transactions at
the end; MB of a round; the most memory of any seed's process.""",
        machine,
    ),
    "Virtual time": (
        """**Virtual time.** Seconds until accuracy first was 95 % of the run's own final one, and of the best method's
(upper bounds aside); results taken, trainings lost; the least accurate client at the end, and at its lowest in the
second half; *foreign*: the greatest share of an interval's selections that took a model of another superclass, in the
first half and in the second.""",
        virtual_time,
    ),
}

if __name__ == "__main__":
    update_reports(HERE.name, EXPERIMENTS, refresh=refresh, tables=tables)
