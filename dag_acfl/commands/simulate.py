"""``dag-acfl simulate``: run an experiment's table on this machine, and report what came of it."""

import csv
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dag_acfl.commands.options import as_called, find_own_parts
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_simulator.config.experiment import Experiment, PlannedRun

EXPERIMENTS = Path("experiments")
"""Of a clone of the repository."""
RESULTS = Path("results/simulations")


def simulate(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="An experiment or a scenario, TOML; see experiments/ and docs/simulator.md."
        ),
    ] = None,
    *,
    client: Annotated[
        Path | None,
        typer.Option(help="Instead of FILE: a client's Python file, alone, with FedAvg and with DAG-ACFL, 20 rounds."),
    ] = None,
    flower_app: Annotated[
        Path | None,
        typer.Option("--flower-app", metavar="APPDIR", help="Or a Flower app's folder; a round is one train message."),
    ] = None,
    sites: Annotated[
        int | None,
        typer.Option(
            min=2, max=10_000, help="With --client: trainer(site=0) and on; with --flower-app: partitions. Default: 8."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of all experiments' results; each has a folder in it.")] = RESULTS,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, help="Runs at a time. Default: one for each core.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only runs whose name fits, such as '*-lr-1-*seed-0'; names: --list. May be said several times."
        ),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Instead of the file's value, such as run.rounds=20; client.set.NAME is for trainer(), or the app's.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Play runs on the nodes of a Ray cluster: auto, or ray://host:10001. Needs the extra ray on each.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew; without it, finished runs stay and others go on.")
    ] = False,
    list_runs: Annotated[
        bool,
        typer.Option("--list", help="Name the runs and where they stand; without FILE, the experiments. Play none."),
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Play none: write tables and curves of finished runs.")
    ] = False,
) -> None:
    """Many clients in virtual time on this machine, with the ledger, selection and aggregation of the servers.

    A run keeps its scenario, a row for each round, a checkpoint and its ledger in a folder. Ctrl-C stops after the
    round; the same command goes on. The same seed gives the same figures. When all runs are there, so is their report.

    Example: dag-acfl simulate experiments/digits.toml

    Example: dag-acfl simulate experiments/dag-acfl/table_2_lr.toml --only '*-lr-1-*' --set run.rounds=20

    Example: dag-acfl simulate experiments/dag-acfl/table_2_lr.toml --report

    Example: dag-acfl simulate --client my_client.py --sites 60 --set run.rounds=10

    Example: dag-acfl simulate --flower-app quickstart --sites 90
    """
    from fnmatch import fnmatchcase  # noqa: PLC0415

    from fl_simulator.config.experiment import client_experiment, overrides_of, read_experiment  # noqa: PLC0415

    if list_runs and file is None and client is None and flower_app is None and EXPERIMENTS.is_dir():
        _list_experiments()
        return
    if [file, client, flower_app].count(None) != 2:
        raise ParameterError(
            "name either an experiment's FILE (experiments/ has some), --client my_client.py or --flower-app APPDIR"
        )
    option, client = ("--client", client) if flower_app is None else ("--flower-app", _app_folder(flower_app))
    if sites is not None and client is None:
        raise ParameterError("--sites is for --client; an experiment's FILE says how many clients there are")
    find_own_parts()
    overrides = overrides_of(change or ())
    if client is not None:
        experiment = client_experiment(client, sites=sites or 8, overrides=overrides)
        what = [option, str(client), "--sites", str(sites or 8)]
    else:
        assert file is not None, "one of the two was given"
        experiment, what = read_experiment(file, overrides=overrides), [str(file)]
    folder = out / experiment.name
    settings = [word for each in change or () for word in ("--set", each)]
    elsewhere = [] if out == RESULTS else ["--out", str(out)]
    command = shlex.join(["dag-acfl", "simulate", *what, *settings, *elsewhere])
    if report:
        _report(experiment, folder, command)
        return
    wanted = [
        run
        for run in experiment.runs
        if not only or any(fnmatchcase(run.label.folder_name, pattern) for pattern in only)
    ]
    if not wanted:
        names = ", ".join(run.label.folder_name for run in experiment.runs[:3])
        raise typer.BadParameter(f"no run has such a name; they are called {names} …", param_hint="--only")
    if list_runs:
        _list(wanted, folder)
        return
    _play(experiment, wanted, folder, jobs=jobs, ray=ray, overwrite=overwrite)
    if only:
        typer.echo(f"compare: {command} --report", err=True)
    else:
        _report(experiment, folder, command)
    if client is not None and not only:
        _tell_gain(experiment, folder)
    shown = folder / wanted[0].label.folder_name if len(wanted) == 1 else folder
    typer.echo(
        as_called(f"who learnt from whom, in a browser: dag-acfl ledger view {shlex.quote(str(shown))}"), err=True
    )


def _app_folder(folder: Path) -> Path:
    if not (folder / "pyproject.toml").is_file():
        raise ParameterError(f"--flower-app {folder}: no folder of a Flower app, which has a pyproject.toml")
    return folder


def _tell_gain(experiment: "Experiment", folder: Path) -> None:
    """What sharing buys each site of a client's file, and where the models are."""
    from dag_acfl.trial.figures import gain_figures, method_figures, told_gain  # noqa: PLC0415
    from fl_simulator.run.folder import CLIENTS, LEDGER, is_finished, read_rounds  # noqa: PLC0415

    of = {run.scenario.strategy.name: folder / run.label.folder_name for run in experiment.runs}
    if not all(map(is_finished, of.values())):
        return
    found = []
    for name in ("local-only", "dag-acfl"):
        with (of[name] / CLIENTS).open(newline="") as file:
            found.append(method_figures(name, [float(row["accuracy"]) for row in csv.DictReader(file)]))
    alone, ours = found
    last = read_rounds(of["dag-acfl"])[-1]
    typer.echo(f"DAG-ACFL finds {last.communities} groups of sites (modularity {last.modularity:.2f}); sharing buys")
    typer.echo(told_gain(gain_figures(ours, alone, figure="accuracy"), len(ours["values"])))
    ledger = shlex.quote(str(of["dag-acfl"] / LEDGER))
    typer.echo(as_called(f"a group's model: dag-acfl ledger export-model --cluster 1 {ledger}"))


def _list_experiments() -> None:
    for path in sorted(EXPERIMENTS.rglob("*.toml")):
        try:
            title = tomllib.loads(path.read_text("utf-8")).get("title", "")
        except (OSError, ValueError) as error:
            title = f"cannot be read: {error}"
        typer.echo(f"{path!s:<64} {title}".rstrip())


def _list(runs: "list[PlannedRun]", folder: Path) -> None:
    from fl_simulator.run.folder import SCENARIO, is_finished, read_rounds  # noqa: PLC0415

    for run in runs:
        path = folder / run.label.folder_name
        state = "not begun"
        if (path / SCENARIO).is_file():
            counted = "rounds" if run.scenario.asynchronous is None else "evaluations"
            done = f"{len(read_rounds(path))} of {run.label.rounds} {counted}"
            state = "finished" if is_finished(path) else done
        typer.echo(f"{run.label.folder_name:<60} {state}")


def _play(
    experiment: "Experiment",
    runs: "list[PlannedRun]",
    folder: Path,
    *,
    jobs: int | None,
    ray: str | None,
    overwrite: bool,
) -> None:
    from rich.console import Console  # noqa: PLC0415

    from dag_acfl.progress_view import ProgressView  # noqa: PLC0415
    from fl_simulator.run.on_ray import play_on_ray  # noqa: PLC0415
    from fl_simulator.run.parallel import play_all  # noqa: PLC0415
    from fl_simulator.run.processes import usable_cores  # noqa: PLC0415
    from ledger_server.admin.bundle import write_bundle  # noqa: PLC0415

    view = ProgressView(experiment, runs, folder, Console(stderr=True))
    try:
        with view:
            options: dict[str, Any] = {
                "overwrite": overwrite,
                "write_ledger": write_bundle,
                "on_event": view.on_event,
            }
            folders = [folder / run.label.folder_name for run in runs]
            if ray is None:
                play_all(runs, folders, jobs=jobs or usable_cores(), **options)
            else:
                play_on_ray(runs, folders, address=ray, jobs=jobs, **options)
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from None
    if view.failed:
        raise typer.Exit(1)


def _report(experiment: "Experiment", folder: Path, command: str) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from fl_simulator.errors import ReportExtraMissingError  # noqa: PLC0415
    from fl_simulator.report import missing_runs, write_report  # noqa: PLC0415

    try:
        table, written = write_report(experiment, folder)
    except ReportExtraMissingError as error:
        typer.echo(f"no report: {error}", err=True)
        return
    if written:
        shown = Table(*map(str, table.columns))
        for row in table.itertuples(index=False):
            shown.add_row(*row)
        typer.echo(f"{experiment.title}: test accuracy, mean ± standard deviation over seeds (how many)")
        Console().print(shown)
        names = ", ".join(path.name for path in written)
        typer.echo(f"{written[0].parent}: {names}", err=True)
    missing = missing_runs(experiment, folder)
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        typer.echo(f"missing: {listed}; play them with: {command}", err=True)
