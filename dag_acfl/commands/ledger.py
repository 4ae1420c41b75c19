"""``dag-acfl ledger``: make a ledger, look at one, prove one, take one along."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dag_acfl.commands.options import (
    DatabaseUrl,
    DataDir,
    Token,
    TokenFile,
    scalars,
    settings_for,
    token_of,
)
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fl_core.verify import Finding, LedgerSource, VerifyProgress
    from ledger_server.admin.backup import Check, Progress

app = typer.Typer(help="Make, join, inspect, verify, export, back up and restore ledgers.", no_args_is_help=True)

_SELECTION, _POLICY = "Selection and training", "Bounds that every server enforces"

Target = Annotated[
    str | None,
    typer.Argument(
        help="A bundle (*.dagacfl), a data folder, a database URL, or a live server (http://…). "
        "Default: the ledger that `dag-acfl serve` would serve here.",
    ),
]


@app.command()
def init(
    *,
    name: Annotated[str, typer.Option("--name", help="What people call the ledger.")],
    model: Annotated[Path | None, typer.Option("--model", help="Initial model: a safetensors file.")] = None,
    client: Annotated[
        Path | None,
        typer.Option("--client", help="Or a client's Python file: the model of its trainer() is taken."),
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    similarity_layers: Annotated[
        str | None,
        typer.Option(
            help="Tensors that are compared, separated by commas, or all. Default: the last layer.",
            rich_help_panel=_SELECTION,
        ),
    ] = None,
    selector: Annotated[
        str,
        typer.Option(
            help="How tips are chosen: beast, least-squares, largest-gap or top-k.", rich_help_panel=_SELECTION
        ),
    ] = "beast",
    selector_set: Annotated[
        list[str] | None,
        typer.Option(help="A parameter of the selector, such as alpha=0.5. Repeatable.", rich_help_panel=_SELECTION),
    ] = None,
    aggregator: Annotated[
        str,
        typer.Option(
            help="How models are averaged: fedavg, median, trimmed-mean, krum or multi-krum.",
            rich_help_panel=_SELECTION,
        ),
    ] = "fedavg",
    aggregator_set: Annotated[
        list[str] | None,
        typer.Option(
            help="A parameter of the aggregator, such as byzantine=2. Repeatable.", rich_help_panel=_SELECTION
        ),
    ] = None,
    training_set: Annotated[
        list[str] | None,
        typer.Option(
            help="A hint for clients: epochs=1 (E), initial_epochs=2 (E′), learning_rate=0.1 … Repeatable.",
            rich_help_panel=_SELECTION,
        ),
    ] = None,
    max_parents: Annotated[
        int | None, typer.Option(help="Most tips in one average. Default: 64.", rich_help_panel=_POLICY)
    ] = None,
    max_candidates: Annotated[
        int | None, typer.Option(help="Most tips compared at once. Default: 1000.", rich_help_panel=_POLICY)
    ] = None,
    freshness_window: Annotated[
        int,
        typer.Option(help="Generations for which a tip is offered.", rich_help_panel=_POLICY),
    ] = 200,
    num_examples_cap: Annotated[
        int,
        typer.Option(help="Most examples that a model's weight may claim.", rich_help_panel=_POLICY),
    ] = 10_000,
    max_norm: Annotated[
        float | None,
        typer.Option(
            help="Largest norm of a model. Default: 1,000 times the initial model's.", rich_help_panel=_POLICY
        ),
    ] = None,
    max_step_growth: Annotated[
        float | None,
        typer.Option(help="Largest ratio to the parents' median norm. Default: 10.", rich_help_panel=_POLICY),
    ] = None,
    growth_rule: Annotated[
        str,
        typer.Option(
            help="What happens to a model beyond --max-step-growth: refuse, or clip its update in averages.",
            rich_help_panel=_POLICY,
        ),
    ] = "refuse",
    max_abs_value: Annotated[
        float | None, typer.Option(help="Largest magnitude of one value. Default: 1e38.", rich_help_panel=_POLICY)
    ] = None,
    require_author_signature: Annotated[
        bool, typer.Option(help="Refuse clients without a key.", rich_help_panel=_POLICY)
    ] = False,
) -> None:
    """Make a new ledger: rules and initial model, for good.

    Example: dag-acfl ledger init --name pilot --client my_client.py --training-set epochs=2
    """
    from fl_core.aggregation import AGGREGATORS  # noqa: PLC0415
    from fl_core.dag.genesis import Bounds, Component, Genesis, Member, compare_layers  # noqa: PLC0415
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from fl_core.models import encode_model, flat, model_norm  # noqa: PLC0415
    from fl_core.selection import SELECTORS  # noqa: PLC0415
    from ledger_server.founding import create_ledger  # noqa: PLC0415
    from ledger_server.keys import KEY_FILE, load_or_create_key  # noqa: PLC0415
    from ledger_server.store import open_store  # noqa: PLC0415

    arrays, layout = _initial_model(model, client)
    bounds = {
        "max_parents": max_parents,
        "max_candidates": max_candidates,
        "max_norm": max_norm,
        "max_step_growth": max_step_growth,
        "max_abs_value": max_abs_value,
    }
    given: dict[str, Any] = {key: value for key, value in bounds.items() if value is not None}
    first = encode_model(layout, arrays)
    norm = model_norm(flat(layout, first))
    if max_norm is None and norm > 0:
        given["max_norm"] = 1000 * norm
    compared = set(_compared(similarity_layers, list(arrays)))
    settings = settings_for(data_dir, database_url)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    key = load_or_create_key(settings.data_dir / KEY_FILE)
    genesis = Genesis(
        name=name,
        layout=layout,
        comparison=compare_layers(tensor.name for tensor in layout.tensors if tensor.name in compared),
        selector=Component(selector, scalars(selector_set or [], option="--selector-set")),
        aggregator=Component(aggregator, scalars(aggregator_set or [], option="--aggregator-set")),
        training={
            "epochs": 1,
            "initial_epochs": 1,
            **scalars(training_set or [], option="--training-set"),
        },
        weights=Component("examples", {"cap": num_examples_cap}),
        freshness=Component("generations", {"window": freshness_window}),
        authors=Component("open", {"keys_only": require_author_signature}),
        members=(Member(public_key_of(key), "founder"),),
        bounds=Bounds(growth_rule=growth_rule, **given),
    )
    SELECTORS.build(genesis.selector.name, genesis.selector.params)
    AGGREGATORS.build(genesis.aggregator.name, genesis.aggregator.params)

    with open_store(
        settings.resolved_database_url, data_dir=settings.data_dir, blobs=settings.blobs.store, s3=settings.blobs.s3
    ) as store:
        transaction = create_ledger(store, genesis, first, key=key, now_ms=time.time_ns() // 1_000_000)
    typer.echo(f"ledger {genesis.name!r} is made: {transaction.id}")
    typer.echo(f"  model     {layout.num_parameters:,} parameters, {layout.nbytes:,} bytes")
    typer.echo(f"  compared  {', '.join(genesis.compared)}")
    typer.echo(f"  selector  {genesis.selector.name}, aggregator {genesis.aggregator.name}")
    where = "" if data_dir is None else f" --data-dir {data_dir}"
    typer.echo(f"serve it with: dag-acfl serve{where}")


@app.command()
def join(
    source: Annotated[str, typer.Argument(help="Where the ledger is: a live server, a bundle, a data folder.")],
    *,
    expected: Annotated[
        str | None, typer.Option("--ledger", help="Id that it must have, from somebody you trust. Default: any.")
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
) -> None:
    """Make a further server of a ledger: take its rules and initial model, proven, into an empty database.

    Where the same ledger is already, nothing happens.

    Example: dag-acfl ledger join https://ledger.hospital-a.example --data-dir site-b
    """
    from dag_acfl.sources import open_source  # noqa: PLC0415
    from ledger_server.admin.join import take_genesis  # noqa: PLC0415
    from ledger_server.store import open_store  # noqa: PLC0415

    settings = settings_for(data_dir, database_url)
    with open_source(source, token=token_of(token, token_file)) as there:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        place = settings.resolved_database_url
        with open_store(place, data_dir=settings.data_dir, blobs=settings.blobs.store, s3=settings.blobs.s3) as store:
            ledger, is_new = take_genesis(there, store, expected=expected, now_ms=time.time_ns() // 1_000_000)
    typer.echo(f"ledger {ledger} is {'joined' if is_new else 'here already'}")
    if is_new and expected is None:
        typer.echo("compare this id with the one that the ledger's other servers show", err=True)


def _initial_model(model: Path | None, client: Path | None) -> "tuple[dict[str, NDArray[np.float32]], Any]":
    """The arrays in the order in which the model defines them, and their layout."""
    from fl_core.models import decode_any_order, read_layout  # noqa: PLC0415

    if (model is None) == (client is None):
        raise ParameterError("name the initial model by either --model FILE or --client FILE")
    if model is not None:
        data = model.read_bytes()
        return decode_any_order(data), read_layout(data)
    from fl_client.scaffold import load_user_module  # noqa: PLC0415

    assert client is not None, "one of the two was given"
    trainer = load_user_module(client).trainer()
    return trainer.initial_arrays(), trainer.layout()


def _compared(chosen: str | None, names: list[str]) -> list[str]:
    """The tensors to compare; by default those of the last module (DAG-ACFL, III-D: the last layer)."""
    if chosen == "all":
        return sorted(names)
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    # A file's order says nothing about the model's, so modules are ordered by name, numbers by their value.
    last = max((name.rpartition(".")[0] for name in names), key=_natural)
    return [name for name in names if name.rpartition(".")[0] == last]


def _natural(name: str) -> list[tuple[int, int, str]]:
    pieces = re.split(r"(\d+)", name)
    return [(1, int(piece), "") if piece.isdigit() else (0, 0, piece) for piece in pieces if piece]


@app.command()
def inspect(
    target: Target = None,
    *,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Summarise a ledger: rules, transactions, tips, authors, clusters, sizes.

    Example: dag-acfl ledger inspect results/demo/ledger.dagacfl
    """
    from dag_acfl.sources import open_source  # noqa: PLC0415
    from dag_acfl.summary import print_summary, summarise  # noqa: PLC0415

    with open_source(target, data_dir=data_dir, database_url=database_url, token=token_of(token, token_file)) as source:
        summary = summarise(source)
    if as_json:
        typer.echo(json.dumps(summary.as_json(), indent=2))
    else:
        print_summary(summary)


@app.command()
def verify(
    target: Target = None,
    *,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove a ledger: ids, signatures, parents, models, evidence, and every average recomputed.

    What was pruned is no fault: all but those models, and the averages made of them, is proven, and they are counted.

    Exit code 1 when a fault is found; warnings leave it 0.

    Example: dag-acfl ledger verify http://127.0.0.1:8900
    """
    from dag_acfl.sources import open_source  # noqa: PLC0415
    from fl_core.verify import VerifyProgress  # noqa: PLC0415

    done = VerifyProgress(0, 0, 0, 0)
    with open_source(target, data_dir=data_dir, database_url=database_url, token=token_of(token, token_file)) as source:
        ledger = source.ledger
        findings, done = _verified(source, quiet=as_json)
    faults = [finding for finding in findings if not finding.kind.is_warning]
    if as_json:
        report = {
            "ledger": ledger,
            "sound": not faults,
            "transactions": done.checked,
            "models": done.models,
            "aggregates": done.aggregates,
            "pruned": done.pruned,
            "unprovable": done.unprovable,
            "findings": [
                {
                    "kind": finding.kind.value,
                    "warning": finding.kind.is_warning,
                    "transaction": finding.transaction,
                    "message": finding.message,
                }
                for finding in findings
            ],
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        for finding in findings:
            _print_finding(finding)
        counts = f"{done.checked} transactions, {done.models} models, {done.aggregates} averages recomputed"
        if done.pruned:
            counts += f", {done.pruned} models pruned, {done.unprovable} averages of pruned models not recomputed"
        warnings = len(findings) - len(faults)
        noted = f", {warnings} warning{'s' * (warnings != 1)}" if warnings else ""
        if faults:
            typer.secho(f"{len(faults)} fault{'s' * (len(faults) != 1)}{noted} in {counts}", fg="red", bold=True)
        else:
            typer.secho(f"sound: {counts}{noted}", fg="green", bold=True)
    if faults:
        raise typer.Exit(1)


def _verified(source: "LedgerSource", *, quiet: bool) -> "tuple[list[Finding], VerifyProgress]":
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from fl_core.verify import VerifyProgress, verify  # noqa: PLC0415

    last = VerifyProgress(0, 0, 0, 0)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("verifying", total=source.count)

        def show(progress: VerifyProgress) -> None:
            nonlocal last
            last = progress
            bar.update(task, completed=progress.checked, total=progress.total)

        findings = list(verify(source, progress=show))
    return findings, last


def _print_finding(finding: "Finding") -> None:
    word, colour = ("warning", "yellow") if finding.kind.is_warning else ("fault", "red")
    typer.secho(f"{word}: {finding.kind}", fg=colour, nl=False)
    typer.echo(f"  {finding.transaction or 'the ledger'}: {finding.message}")


@app.command()
def export(
    out: Annotated[Path, typer.Argument(help="File to write, by custom *.dagacfl.")],
    target: Target = None,
    *,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
) -> None:
    """Write a whole ledger into one file that can be verified anywhere, offline.

    Example: dag-acfl ledger export pilot.dagacfl http://127.0.0.1:8900
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from dag_acfl.sources import open_source  # noqa: PLC0415
    from ledger_server.admin.bundle import write_bundle  # noqa: PLC0415

    console = Console(stderr=True)
    with (
        open_source(target, data_dir=data_dir, database_url=database_url, token=token_of(token, token_file)) as source,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("exporting", total=None)
        count = write_bundle(source, out, progress=lambda done, total: bar.update(task, completed=done, total=total))
    typer.echo(f"{count} transactions, {out.stat().st_size:,} bytes in {out}")


@app.command()
def prune(
    *,
    keep_generations: Annotated[
        int, typer.Option(help="Keep all models of this many of the deepest generations, at least 1.", min=1)
    ],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Also rewrite the database, so that its file shrinks; stop the server for that."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Drop models that nobody can be offered any more; headers, signatures and evidence stay, and so does the proof.

    Kept are genesis, each author's newest, every tip that can still be approved, and the last generations. What is
    dropped is gone for good: take a backup, or export, first. The server may go on serving meanwhile; it prunes by
    itself with the setting prune.keep_generations. Interrupted: run it again.

    Example: dag-acfl ledger prune --keep-generations 200 --dry-run
    """
    from ledger_server.pruning import prune as drop  # noqa: PLC0415
    from ledger_server.pruning import snapshot_of  # noqa: PLC0415
    from ledger_server.store import open_store  # noqa: PLC0415

    if compact and dry_run:
        raise ParameterError("--compact changes the database, --dry-run nothing; choose one of them")
    settings = settings_for(data_dir, database_url)
    from ledger_server.admin.store_source import require_ledger  # noqa: PLC0415

    require_ledger(settings)
    url = settings.resolved_database_url
    with open_store(url, data_dir=settings.data_dir, blobs=settings.blobs.store, s3=settings.blobs.s3) as store:
        before = store.storage_bytes()
        snapshot = snapshot_of(store, keep_generations=keep_generations)
        with _bar("looking" if dry_run else "pruning", quiet=as_json) as show:
            report = drop(store, snapshot, now_ms=lambda: time.time_ns() // 1_000_000, dry_run=dry_run, progress=show)
        if compact:
            store.compact()
        after, reusable = store.storage_bytes(), store.reusable_bytes()
    if as_json:
        content = {**asdict(report), "dry_run": dry_run, "storage_bytes_before": before, "storage_bytes": after}
        typer.echo(json.dumps({**content, "reusable_bytes": reusable}, indent=2))
        return
    went = "would go" if dry_run else "pruned"
    typer.echo(f"{report.models:,} models, {report.nbytes:,} bytes {went}; {report.held:,} models stay")
    typer.echo(f"  transactions  {report.transactions:,}, of which {report.kept:,} keep their model by the rule")
    if not dry_run:
        typer.echo(f"  storage       {before:,} bytes before, {after:,} now")
        if reusable and reusable > after // 10 and not compact:
            typer.echo(f"  of them       {reusable:,} free for new models; --compact gives them back to the disk")


@contextmanager
def _bar(what: str, *, quiet: bool) -> "Iterator[Callable[[int, int], None]]":
    """A progress bar on a terminal, and what to tell it."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


Verify = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Prove the copy, every average included, before it gets its name.")
]


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="Folder to make; an existing one is never written over.")],
    *,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    verify: Verify = True,
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Copy the server's private key too; keep such a backup as secret as it.")
    ] = False,
) -> None:
    """Copy a server's ledger while it serves: database, models, and a proof that the copy is sound.

    Models in a bucket (`blobs.s3_url`) are proven there and stay there; models in a directory become hard links where
    the backup lies on the same disk. For SQLite; PostgreSQL copies itself, and this command says how to call it.

    Example: dag-acfl ledger backup /backup/pilot-monday --data-dir site-a
    """
    from ledger_server.admin.backup import backup as copy  # noqa: PLC0415

    settings = settings_for(data_dir, database_url)
    from ledger_server.admin.store_source import require_ledger  # noqa: PLC0415

    require_ledger(settings)
    with _copying() as (show, check):
        made = copy(settings, target, with_key=with_key, check=check if verify else None, progress=show)
    typer.echo(f"{made.transactions} transactions in {target}" + ("" if verify else ", not verified"))
    if made.missing:
        typer.secho(f"{made.missing} of {made.models} models are gone, as in the original", fg="red")
    if made.place == "s3":
        typer.echo(f"{made.models} models stay in {settings.blobs.s3}: keep its versions", err=True)
    typer.echo(f"put it back with: dag-acfl ledger restore {target} --data-dir FOLDER", err=True)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="Folder that `dag-acfl ledger backup` made.")],
    *,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    verify: Verify = True,
) -> None:
    """Put a backup into a data folder that holds no ledger yet, proven before a server can see it.

    Example: dag-acfl ledger restore /backup/pilot-monday --data-dir site-a
    """
    from ledger_server.admin.backup import restore as copy  # noqa: PLC0415
    from ledger_server.keys import KEY_FILE  # noqa: PLC0415

    settings = settings_for(data_dir, database_url)
    with _copying() as (show, check):
        made = copy(settings, source, check=check if verify else None, progress=show)
    typer.echo(f"{made.transactions} transactions in {settings.data_dir}" + ("" if verify else ", not verified"))
    if not (settings.data_dir / KEY_FILE).exists():
        typer.echo("the backup has no server key: a new one is made, and the peers need: dag-acfl keys peer", err=True)


@contextmanager
def _copying() -> "Iterator[tuple[Progress, Check]]":
    """A bar for a copy's progress, and the proof that a copy must pass."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    from ledger_server.admin.backup import BackupError  # noqa: PLC0415

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")

        def show(doing: str, done: int, whole: int) -> None:
            bar.update(task, description=doing, completed=done, total=whole)

        def check(source: "LedgerSource") -> None:
            bar.stop()  # the proof has a bar of its own
            findings, done = _verified(source, quiet=False)
            faults = [finding for finding in findings if not finding.kind.is_warning]
            for finding in faults:
                _print_finding(finding)
            if faults:
                raise BackupError(
                    f"the ledger has {len(faults)} fault{'s' * (len(faults) != 1)}, so the copy gets no name; "
                    "with --no-verify it does, as it is"
                )
            typer.secho(f"sound: {done.models} models, {done.aggregates} averages recomputed", fg="green")

        yield show, check
