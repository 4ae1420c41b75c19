"""``dag-acfl ledger view``: a ledger from a file, or a simulation's results, in the console."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.ledger.copying import copying
from dag_acfl.commands.options import number_of
from dag_acfl.process import use_one_blas_thread, use_one_malloc_arena
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fl_core.wire import v1
    from ledger_server.settings import Settings


def view(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="A bundle (*.dagacfl) that `ledger export` or the demo has written, or its folder; or a "
            "simulation's results, or the folder of one of its runs.",
        ),
    ],
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of this machine; 0: any free one.")] = 0,
) -> None:
    """Look at a ledger from a file: who learnt from whom and why, in the browser, until Ctrl-C.

    It is proven first. Then the console of a ledger server is served from a copy in a temporary folder, to this machine
    alone and by a key of that moment; no other server is spoken to, and the file stays as it is.

    Of a simulation's results it shows the curves of all runs beside one another, and the ledger of the run that you
    name, or of the first that left one.

    Example: dag-acfl ledger view results/demo/ledger.dagacfl

    Example: dag-acfl ledger view results/simulations/digits
    """
    use_one_blas_thread()
    use_one_malloc_arena()
    from ledger_server.app import create_console  # noqa: PLC0415
    from ledger_server.http.serve import serve  # noqa: PLC0415
    from ledger_server.logs import configure_logging  # noqa: PLC0415
    from ledger_server.settings import load_settings  # noqa: PLC0415

    bundle, folders = _found(what)
    _source(what, bundle, folders, ledger=None)  # a damaged run is said here, not in the browser
    with tempfile.TemporaryDirectory(prefix="dag-acfl-view-") as folder:
        copy = Path(folder)
        settings = load_settings(
            data_dir=copy,
            database_url=f"sqlite:///{copy / 'ledger.sqlite3'}",
            blobs={"store": "database"},
            host="127.0.0.1",
            port=port,
            peers=(),
            log_level="warning",
            console_enabled=True,
        )
        configure_logging(settings.log_level)
        if bundle is None:
            app = create_console(settings, lambda: _source(what, None, folders, ledger=None))
        else:
            app = _ledger_app(bundle, settings, what, folders)
        typer.echo("open the address below in a browser; Ctrl-C ends it", err=True)
        serve(app, settings)


def _found(what: Path) -> tuple[Path | None, list[Path]]:
    """The bundle that is to be shown, None where no run left one, and the runs beside one another."""
    from fl_simulator.run.folder import LABEL, LEDGER  # noqa: PLC0415
    from fl_simulator.run.results import printable, runs_in  # noqa: PLC0415

    if not what.is_dir():
        return what, []
    bundles = sorted(each for each in what.glob("*.dagacfl") if each.is_file())  # a pipe never ends
    if bundles and not (what / LABEL).is_file() and not any(what.glob(f"*/{LABEL}")):  # as the demo leaves it
        if len(bundles) > 1:
            raise ParameterError(f"{what} holds {len(bundles)} ledgers; name one of them, such as {bundles[0]}")
        return bundles[0], []
    folders = runs_in(what)
    named = [what.resolve()] if (what / LABEL).is_file() else folders
    bundle = next((each / LEDGER for each in named if (each / LEDGER).is_file()), None)
    if bundle is None:
        typer.echo("no ledger is here yet: the console shows the curves alone", err=True)
    else:
        named_as = printable(bundle.parent.name)
        typer.echo(f"{number_of(len(folders), 'run')}; the ledger is that of {named_as}", err=True)
    return bundle, folders


def _ledger_app(bundle: Path, settings: "Settings", what: Path, folders: list[Path]) -> "FastAPI":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    from fl_simulator.run.offers import Offers  # noqa: PLC0415
    from ledger_server.admin.bundle import Bundle  # noqa: PLC0415
    from ledger_server.admin.importing import import_bundle  # noqa: PLC0415
    from ledger_server.app import create_app  # noqa: PLC0415

    with Bundle(bundle) as source, copying(verify=True) as (show, check):
        assert check is not None, "verify"
        check(source)
        import_bundle(source, settings, progress=show, now_ms=time.time_ns() // 1_000_000, to_view=True)
        ledger = source.ledger
        offers = Offers(bundle.parent, (each for _, each in source.transactions())) if folders else None
    return create_app(
        settings,
        key=Ed25519PrivateKey.generate(),
        alone=True,
        source=lambda: _source(what, bundle, folders, ledger=ledger),
        offered=offers.of if offers else lambda _: None,
    )


def _source(what: Path, bundle: Path | None, folders: list[Path], *, ledger: str | None) -> "v1.ViewSourceOut":
    """What the console is told; runs are read anew each time, as some may go on."""
    from fl_core.wire import v1  # noqa: PLC0415
    from fl_simulator.run.results import printable, shown_runs  # noqa: PLC0415
    from ledger_server.api.console import page_digest  # noqa: PLC0415

    shown = what if folders or bundle is None else bundle
    return v1.ViewSourceOut(
        kind="simulation" if folders else "file",
        ledger=ledger,
        page=page_digest(),
        name=printable(shown.resolve().name),
        run=printable(bundle.parent.name) if folders and bundle is not None else "",
        runs=shown_runs(folders),
    )
