"""What attackers did to honest clients: losses against the same run without them, backdoors, averages and refusals.

    python -m experiments.attacks.report                   # all experiments of this folder
    python -m experiments.attacks.report one_in_nine       # one of them

Where ``build/simulations`` has finished runs of an experiment, their ``summary.csv`` (a row for each run) is written
anew into ``experiments/results/attacks/<experiment>/``; then ``report.md`` is made of it.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean

import pandas as pd

from experiments.reporting import Played, refuse_fewer, update_reports
from fl_simulator.config.experiment import read_experiment
from fl_simulator.report import RUN, interval, mean_and_spread, to_markdown
from fl_simulator.run.folder import ENVIRONMENT
from fl_simulator.run.record import RunLabel

HERE = Path(__file__).resolve().parent
EXPERIMENTS = (
    "undisturbed",
    "one_in_nine",
    "a_fifth",
    "two_fifths",
    "plain_means",
    "skewed",
    "small_clusters",
    "refusing",
    "quarantine",
    "trim_share",
    "as_its_paper",
    "peers",
    "mnist",
)
NOBODY = "nobody"
"""The setting without an attacker, perhaps behind the population's name and a colon."""
LAST = ("accuracy", "attacked", "backdoor", "cluster_mean", "updates_refused", "attacks_refused", "averages_refused")
"""What counts at the end of a run."""
MEAN = ("averaged", "own_model")
"""What counts over a whole run."""
SAID = {
    "accuracy": "accuracy",
    "cluster_mean": "with the mean of the true cluster's newest",
    "behind": "behind that",
    "averaged": "models in an average",
    "own_model": "own model kept",
}
"""Columns of the table of runs that nobody attacks."""
SHOWN = {"places behave": "seats filled by honest clients"}
"""What tables call a setting."""
BESIDE = {"peers": ("one_in_nine", "rounds", "DAG-ACFL, open")}
"""Whose runs, of which method, stand beside an experiment's of the same population, attacks and seeds, and as what."""
MOMENTS = (0, 1, 3)
"""Publications of each client since a quarantine, an evaluation each, that are told of."""


def refresh(played: Played) -> None:
    """Write a row for each finished run that is there."""
    experiment, rounds, folder = played.experiment, played.rounds, played.kept
    runs = rounds.groupby(list(RUN), sort=False)
    last, whole = runs.last(), runs.mean(numeric_only=True)
    table = last[[each for each in LAST if each in last]].join(whole[list(MEAN)])
    since = {run.label: run.scenario.attack.places.quarantined_after for run in experiment.runs if run.scenario.attack}
    if any(since.values()):
        table = table.drop(columns=["attacked", "backdoor"]).join(moments(rounds, since))
    folders = {tuple(getattr(run.label, each) for each in RUN): run.label.folder_name for run in experiment.runs}
    table["commit"] = [
        json.loads((played.runs / folders[key] / ENVIRONMENT).read_text("utf-8"))["commit"][:7] for key in table.index
    ]
    refuse_fewer(table, folder)
    folder.mkdir(parents=True, exist_ok=True)
    table.round(4).reset_index().drop(columns="participation").to_csv(folder / "summary.csv", index=False)


def moments(rounds: pd.DataFrame, since: Mapping[RunLabel, float]) -> pd.DataFrame:
    """Of each run a column for each figure and moment, such as ``backdoor_3``."""
    rows, played = {}, rounds[rounds.accuracy.notna()].groupby(list(RUN))
    for label, quarantined_after in since.items():
        key = tuple(getattr(label, each) for each in RUN)
        if key not in played.groups:
            continue
        mine = played.get_group(key)
        later = mine.iloc[int((mine.virtual_time_s <= quarantined_after).sum()) - 1 :]
        rows[key] = {
            f"{figure}_{moment}": later[figure].iloc[moment]
            for figure in ("attacked", "backdoor")
            for moment in MOMENTS
            if moment < len(later)
        }
    found = pd.DataFrame.from_dict(rows, orient="index")
    found.index = pd.MultiIndex.from_tuples(found.index, names=list(RUN))
    return found


def after_quarantine(runs: pd.DataFrame) -> pd.DataFrame:
    """Backdoors and accuracy lost before a quarantine and after, by how often each client has published since."""
    table = {}
    for moment in MOMENTS:
        then = lost(runs.assign(attacked=runs[f"attacked_{moment}"]))
        when = "when quarantined" if moment == 0 else f"after {moment}"
        for figure, said in ((f"backdoor_{moment}", "backdoor"), ("lost", "lost")):
            cells = then.groupby(["setting", "method"], sort=False)[figure].apply(mean_and_worst)
            table[f"{said}, {when}"] = cells
    ordered = pd.DataFrame(table).reset_index().rename(columns={"setting": "attack", "method": "rules and timing"})
    return ordered[sorted(ordered, key=lambda each: each.startswith(("backdoor", "lost")) + each.startswith("lost"))]


def tables(folder: Path) -> list[str]:
    """Markdown of an experiment's committed CSV file."""
    runs = pd.read_csv(folder / "summary.csv", dtype={"commit": str})
    if folder.name in BESIDE:
        runs = pd.concat([runs, runs_beside(folder, set(runs.setting))], ignore_index=True)
    commits = ", ".join(sorted(runs.commit.astype(str).unique()))
    seeds = ", ".join(map(str, sorted(runs.seed.unique())))
    title = read_experiment(HERE / f"{folder.name}.toml").title
    cells = (
        "Cells: mean ± standard deviation over seeds (how many); of losses and backdoors, mean, its 95 % interval and "
        "(the worst run)."
    )
    parts = [f"{title}. Seeds {seeds}; {len(runs)} runs at {commits}. {cells}"]
    if "attacked_0" in runs:
        said = "by how often each client has published since (one after another: in the mean)."
        return [*parts, f"**After quarantine**, {said}", to_markdown(after_quarantine(runs))]
    if runs.cluster_mean.notna().any():
        parts += ["**Nobody attacks.**", to_markdown(undisturbed(runs))]
    if folder.name in BESIDE:
        parts += [
            "**Accuracy** of honest clients.",
            to_markdown(by_method(runs, "attacked", partial(mean_and_spread, digits=3))),
        ]
    if not is_undisturbed(runs.setting).all():
        parts += [
            "**Accuracy lost** by honest clients of attacked clusters, beside the run with the attackers' seats empty.",
            to_markdown(by_method(lost(runs), "lost")),
        ]
    if "backdoor" in runs and runs.backdoor.notna().any():
        parts += [
            "**Backdoors**: share of triggered test images that are called as the attacker wants.",
            to_markdown(by_method(runs.dropna(subset="backdoor"), "backdoor")),
        ]
    return [*parts, "**What selections came to**, honest clients', over the whole run.", to_markdown(selections(runs))]


def runs_beside(folder: Path, settings: set[str]) -> pd.DataFrame:
    """Another experiment's runs of these settings, under the name that they have beside this one's."""
    name, method, shown = BESIDE[folder.name]
    others = pd.read_csv(folder.parent / name / "summary.csv", dtype={"commit": str})
    return others[(others.method == method) & others.setting.isin(settings)].assign(method=shown)


def mean_and_worst(values: pd.Series) -> str:
    """``0.040 [0.012, 0.068] (0.060)``: mean, its 95 % interval, and what attackers did most in one run; or a dash."""
    known = values.dropna().tolist()
    if not known:
        return "-"
    more = f" {interval(known, 3)} ({max(known):.3f})" if len(known) > 1 else ""
    return f"{fmean(known):.3f}{more}"


def is_undisturbed(settings: pd.Series) -> pd.Series:
    return settings.str.rpartition(": ")[2] == NOBODY


def undisturbed(runs: pd.DataFrame) -> pd.DataFrame:
    """Beside the FedAvg of the true clusters' newest models, in the same run."""
    alone = runs[is_undisturbed(runs.setting)].assign(behind=lambda each: each.cluster_mean - each.accuracy)
    rows = [
        {"setting": setting.rpartition(": ")[0] or setting, "timing": method}
        | {said: mean_and_spread(mine[each], 3) for each, said in SAID.items()}
        for (setting, method), mine in alone.groupby(["setting", "method"], sort=False)
        if mine.cluster_mean.notna().any()
    ]
    return pd.DataFrame(rows)


def lost(runs: pd.DataFrame) -> pd.DataFrame:
    """Each attacked run with what it lost against the one of its seed, method and population that nobody attacks."""
    same = ["population", "method", "seed"]
    runs = runs.assign(population=runs.setting.str.rpartition(": ")[0])
    alone = runs[is_undisturbed(runs.setting)].set_index(same).attacked
    attacked = runs[~is_undisturbed(runs.setting)].set_index(same)
    attacked["lost"] = alone.reindex(attacked.index).to_numpy() - attacked.attacked
    return attacked.reset_index()


def by_method(runs: pd.DataFrame, column: str, cell: Callable[[pd.Series], str] = mean_and_worst) -> pd.DataFrame:
    """Attacks down, methods across."""
    rows = []
    for setting, mine in runs.groupby("setting", sort=False):
        cells = {method: cell(mine[mine.method == method][column]) for method in runs.method.unique()}
        rows.append({"attack": SHOWN.get(setting, setting), **cells})
    return pd.DataFrame(rows)


def selections(runs: pd.DataFrame) -> pd.DataFrame:
    """Models in an average, own models kept, updates refused: of each method, over all attacks."""
    rows = []
    for method, mine in runs.dropna(subset="averaged").groupby("method", sort=False):
        rows.append(
            {
                "timing": method,
                "models in an average, least and most": f"{mine.averaged.min():.1f} to {mine.averaged.max():.1f}",
                "own model kept, most": f"{mine.own_model.max():.3f}",
                "honest updates refused": int(mine.updates_refused.sum()),
                "attackers' updates refused": int(mine.attacks_refused.sum()),
            }
            | ({"averages refused by clients": int(mine.averages_refused.sum())} if "averages_refused" in mine else {})
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    update_reports(HERE.name, EXPERIMENTS, refresh=refresh, tables=tables)
