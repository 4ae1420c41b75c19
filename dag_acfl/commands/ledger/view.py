"""``dag-acfl ledger view``: a whole ledger from a file, in the console."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from dag_acfl.commands.options import progress_bar
from dag_acfl.commands.serve import serve_alone, use_one_blas_thread


def view(
    bundle: Annotated[Path, typer.Argument(help="A bundle (*.dagacfl) that `ledger export` or the demo has written.")],
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of this machine; 0: any free one.")] = 0,
) -> None:
    """Look at a ledger from a file: who learnt from whom and why, in the browser, until Ctrl-C.

    The console of a ledger server is served from a copy in a temporary folder, to this machine alone; nothing is sent
    anywhere, and the file stays as it is.

    Example: dag-acfl ledger view results/demo/ledger.dagacfl
    """
    use_one_blas_thread()
    from ledger_server.admin.bundle import Bundle  # noqa: PLC0415
    from ledger_server.admin.importing import import_bundle  # noqa: PLC0415
    from ledger_server.settings import load_settings  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="dag-acfl-view-") as folder:
        copy = Path(folder)
        settings = load_settings(
            data_dir=copy,
            database_url=f"sqlite:///{copy / 'ledger.sqlite3'}",
            blobs={"store": "database"},
            host="127.0.0.1",
            port=port,
            log_level="warning",
            console_enabled=True,
        )
        with Bundle(bundle) as source, progress_bar() as show:
            import_bundle(
                source,
                settings,
                progress=lambda doing, done, whole: show(done, whole, doing),
                now_ms=time.time_ns() // 1_000_000,
            )
        typer.echo("open the address below in a browser; Ctrl-C ends it", err=True)
        serve_alone(settings)
