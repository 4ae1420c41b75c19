"""``dag-acfl ledger view``: a whole ledger from a file, in the console."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from dag_acfl.commands.ledger.copying import copying
from dag_acfl.commands.serve import use_one_blas_thread


def view(
    bundle: Annotated[Path, typer.Argument(help="A bundle (*.dagacfl) that `ledger export` or the demo has written.")],
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of this machine; 0: any free one.")] = 0,
) -> None:
    """Look at a ledger from a file: who learnt from whom and why, in the browser, until Ctrl-C.

    It is proven first. Then the console of a ledger server is served from a copy in a temporary folder, to this machine
    alone and by a key of that moment; no other server is spoken to, and the file stays as it is.

    Example: dag-acfl ledger view results/demo/ledger.dagacfl
    """
    use_one_blas_thread()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    from ledger_server.admin.bundle import Bundle  # noqa: PLC0415
    from ledger_server.admin.importing import import_bundle  # noqa: PLC0415
    from ledger_server.app import create_app  # noqa: PLC0415
    from ledger_server.http.serve import serve  # noqa: PLC0415
    from ledger_server.logs import configure_logging  # noqa: PLC0415
    from ledger_server.settings import load_settings  # noqa: PLC0415

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
        with Bundle(bundle) as source, copying(verify=True) as (show, check):
            assert check is not None, "verify"
            check(source)
            import_bundle(source, settings, progress=show, now_ms=time.time_ns() // 1_000_000, with_key=False)
        configure_logging(settings.log_level)
        typer.echo("open the address below in a browser; Ctrl-C ends it", err=True)
        serve(create_app(settings, key=Ed25519PrivateKey.generate(), alone=True), settings)
