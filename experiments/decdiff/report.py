"""[DecDiff] Tables II to IV and Figures 1 and 4 to 6: what was measured beside what the paper reports.

    python -m experiments.decdiff.report                         # all experiments of this folder
    python -m experiments.decdiff.report table_2_mnist_small     # one of them

Where ``build/simulations`` has finished runs of an experiment, their ``summary.csv`` (a row for each run),
``curves.csv`` and pictures are written anew into ``experiments/results/decdiff/<experiment>/``; then ``report.md`` is
made of the CSV files that are there.
"""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from experiments.label_pictures import draw_label_distribution
from experiments.reporting import (
    COMPARED_BY,
    Played,
    describe_runs,
    difference_table,
    graph_table,
    keep_results,
    moments_table,
    node_table,
    read_clients,
    read_graph_facts,
    read_reported,
    update_reports,
)
from fl_simulator.report import (
    RUN,
    accuracy_table,
    draw_curves,
    mean_and_spread,
    paired_differences,
    to_markdown,
)
from fl_simulator.run.prepare import build_population

HERE = Path(__file__).resolve().parent
TEACHER = "virtual_teacher"
DISRUPTION = "disruption"
SECONDS = "fashion_seconds"
EXPERIMENTS = (
    "table_2_mnist_small",
    "table_2_fashion_small",
    "learning_rate",
    "unit_pixels",
    DISRUPTION,
    TEACHER,
    SECONDS,
    "table_2_mnist",
    "table_2_fashion",
    "table_2_emnist",
)
BASELINE, REFERENCE = "DecHetero", "Centralised"
"""Whose accuracy is the zero of Table III, and the whole of Table IV."""
SOFTENED = {f"{method}, β {beta}": method for method in ("DecDiff", "DecHetero") for beta in ("0.95", "0.9")}
"""Methods with the virtual teacher, and the same without."""
TAUGHT = {"DecDiff+VT": "DecDiff", "DecDiff+VT, by tensor": "DecDiff, by tensor"}
"""The same in the paper's tables."""
FIRST_ROUNDS = (1, 2, 3, 5, 10, 20, 40)
EPOCHS_IN_ALL = (50, 100, 200, 400)
"""Local epochs of a node in all after which the virtual teacher's runs are compared."""
SHARES = (50, 80, 90, 95)
TIMES = (
    f"**Characteristic times.** Rounds to a share of {REFERENCE}'s final accuracy, looked at every second round: mean "
    "of the seeds that came there (how many); a dash: none did. Below: [DecDiff] Table IV."
)
REPORTED_ROUNDS = 1000


def reported_accuracy() -> pd.DataFrame:
    """Tables II and III together; DecDiff without the virtual teacher is in Table III only."""
    both = pd.concat([read_reported(HERE, "table_2"), read_reported(HERE, "table_3")])
    return both.drop_duplicates(["setting", "participation", "method"])


def rounds_to_shares(rounds: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Rounds until a run first had each of ``SHARES`` per cent of the reference's final accuracy (Table IV)."""
    final = summary[summary.method == REFERENCE].groupby("setting").accuracy.mean()
    judged = rounds.dropna(subset="accuracy")
    target = judged.setting.map(final)
    columns = {
        f"rounds_to_{share}": judged[judged.accuracy >= share / 100 * target].groupby(list(RUN))["round"].min() + 1
        for share in SHARES
    }
    return pd.DataFrame(columns)


def refresh(played: Played) -> None:
    """Write the tables and pictures of the runs that are there."""
    experiment, rounds, summary = played.experiment, played.rounds, played.summary
    runs, folder, name = played.runs, played.kept, played.kept.name
    facts = read_graph_facts(played).join(rounds_to_shares(rounds, summary))
    keep_results(rounds, summary.join(facts, on=list(RUN)), folder)
    if name == SECONDS:
        return
    if name == TEACHER:
        draw_teacher(summary, folder / "gain.png")
        return
    for place, (setting, mine) in enumerate(rounds.groupby("setting", sort=False), start=1):
        figures = ("accuracy", "worst_client", "loss")
        draw_curves(mine, folder / f"curves-{place}.png", figures=figures, title=f"{setting}: nodes")
    draw_nodes(read_clients(runs, experiment), folder / "nodes.png")
    if name.startswith("table_2"):
        first = experiment.runs[0]
        draw_label_distribution(build_population(first.scenario), folder / "labels.png", title=first.label.setting)


def draw_teacher(summary: pd.DataFrame, path: Path) -> None:
    """What the virtual teacher adds, over the local epochs between two averages: the mean, and all seeds' range."""
    values = summary.pivot_table("accuracy_last_5", index=["setting", "seed"], columns="method", sort=False)
    added = pd.DataFrame({method: 100 * (values[method] - values[other]) for method, other in SOFTENED.items()})
    by_setting = added.groupby(level="setting", sort=False)
    axes = by_setting.mean().plot(marker="o", figsize=(9, 4.2), grid=True)
    for line, method in zip(axes.get_lines(), SOFTENED, strict=True):
        low, high = by_setting[method].min(), by_setting[method].max()
        axes.fill_between(range(len(low)), low, high, color=line.get_color(), alpha=0.12, lw=0)
    axes.axhline(0, color="black", lw=0.8)
    axes.set(xlabel="local epochs between two averages, at 1,000 in all", ylabel="points of accuracy added")
    axes.set_title(f"Mean of {summary.seed.nunique()} seeds; band: lowest to highest.", loc="left", fontsize="medium")
    axes.figure.tight_layout()
    axes.figure.savefig(path, dpi=160)


def draw_nodes(clients: pd.DataFrame, path: Path) -> None:
    """Every node's accuracy at the end, a column of dots for each method (Fig. 6)."""
    axes = clients.plot.scatter(x="method", y="accuracy", s=6, alpha=0.5, figsize=(9, 4.5), rot=20)
    axes.set_ylabel("accuracy of each node")
    axes.figure.tight_layout()
    axes.figure.savefig(path, dpi=160)


def tables(folder: Path) -> list[str]:
    """Markdown of an experiment's committed CSV files."""
    name = folder.name
    summary = pd.read_csv(folder / "summary.csv")
    if name == TEACHER:
        return teacher_tables(summary, pd.read_csv(folder / "curves.csv"))
    if name == SECONDS:
        return ["Seconds of a round.", to_markdown(summary[["method", *summary.filter(like="seconds_")]], digits=1)]
    paper = reported_accuracy() if name.startswith("table_2") else None
    taught = {method: other for method, other in TAUGHT.items() if {method, other} <= set(summary.method)}
    parts = [
        f"{describe_runs(summary)} Each run's value is the mean over its nodes."
        + (f" Below it: [DecDiff] Tables II and III, after {REPORTED_ROUNDS:,} rounds." if paper is not None else ""),
        to_markdown(accuracy_table(summary, paper)),
        *moments_table(summary),
        *difference_table(summary, BASELINE),
        *(teacher_adds(summary, taught) if len(set(summary.seed)) > 1 else []),
        *node_table(summary),
    ]
    if paper is not None:
        parts += [
            f"**Gains** in points above {BASELINE}, beside [DecDiff] Table III.",
            to_markdown(gains(summary, paper), digits=1),
            TIMES,
            to_markdown(times(summary)),
        ]
    if name == DISRUPTION:
        parts += ["**The first rounds.** Means over seeds.", to_markdown(first_rounds(folder), digits=4)]
    parts += [
        "**Graphs.** Edges of a node, messages that it sends in a round, Gini index of nodes' label counts.",
        to_markdown(graph_table(summary).dropna().reset_index()),
    ]
    return parts


def first_rounds(folder: Path) -> pd.DataFrame:
    """Accuracy after the first training, the first averages and some that follow: methods down, rounds across."""
    curves = pd.read_csv(folder / "curves.csv")
    curves["round"] += 1
    shown = curves[curves["round"].isin(FIRST_ROUNDS)]
    table = shown.pivot_table("accuracy", index="method", columns="round", sort=False)
    return table.rename(columns="after {}".format).reset_index()


def teacher_tables(summary: pd.DataFrame, curves: pd.DataFrame) -> list[str]:
    """What the virtual teacher adds, by the local epochs between two averages, at the end and on the way."""
    return [
        f"{describe_runs(summary, 'Mean of the last five evaluations')} Each run's value is the mean over its nodes.",
        to_markdown(accuracy_table(summary, column="accuracy_last_5")),
        *teacher_adds(summary, SOFTENED),
        "**The same on the way**, in one evaluation each, by the epochs that a node has trained for in all.",
        to_markdown(adds_on_the_way(curves)),
    ]


def adds_on_the_way(curves: pd.DataFrame) -> pd.DataFrame:
    """What the virtual teacher adds after ``EPOCHS_IN_ALL`` local epochs, at each number between two averages."""
    epochs = curves.setting.str.removeprefix("E = ").astype(int)
    totals = (curves["round"] + 1) * epochs
    by_total = []
    for total in EPOCHS_IN_ALL:
        table = paired_differences(curves[totals == total], SOFTENED, column="accuracy").drop(columns="against")
        table.insert(0, "epochs in all", total)
        by_total.append(table)
    return pd.concat(by_total)


def teacher_adds(summary: pd.DataFrame, pairs: Mapping[str, str]) -> list[str]:
    """Paragraphs: what each method with the virtual teacher gains over the one without."""
    column, words = COMPARED_BY
    return [
        f"**What the virtual teacher adds** on the same seeds, {words}: mean, its 95 % confidence interval, how many.",
        to_markdown(paired_differences(summary, pairs, column=column)),
    ]


def gains(summary: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Points of accuracy above the baseline's."""
    heads = {"accuracy": "last round", "accuracy_last_5": "last five evaluations", "best_accuracy": "best round"}
    means = summary.groupby(["setting", "method"], sort=False)[list(heads)].mean().rename(columns=heads)
    gained = 100 * (means - means.xs(BASELINE, level="method").reindex(means.index, level="setting"))
    beside = paper.set_index(["setting", "method"]).accuracy
    gained["reported"] = 100 * (beside - beside.xs(BASELINE, level="method").reindex(beside.index, level="setting"))
    return gained.reset_index()


def times(summary: pd.DataFrame) -> pd.DataFrame:
    """Table IV: ours, and the reported ones below."""
    beside = read_reported(HERE, "table_4").set_index(["setting", "method"])
    rows = []
    for (setting, method), runs in summary.groupby(["setting", "method"], sort=False):
        row = {"setting": setting, "method": method}
        for share in SHARES:
            told = beside[f"{share / 100:g}"].get((setting, method)) if (setting, method) in beside.index else None
            ours = mean_and_spread(runs[f"rounds_to_{share}"], digits=0)
            row[f"{share} %"] = ours + ("" if told is None or pd.isna(told) else f"<br>{told:.1f}")
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    update_reports(HERE.name, EXPERIMENTS, refresh=refresh, tables=tables)
