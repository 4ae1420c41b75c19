"""``dag-acfl serve``: one ledger server, until SIGTERM or Ctrl-C."""

import gc
import logging
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dag_acfl.commands.options import DataDir
from dag_acfl.process import use_one_blas_thread, use_one_malloc_arena
from dag_acfl.tracing import export_traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from socket import socket

    from ledger_server.settings import Settings

logger: logging.Logger = logging.getLogger(__name__)


def serve(
    *,
    data_dir: DataDir = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 lets the system choose. Default: 8900.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that serve the ledger together, on this machine. Default: 1.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="Where another member is, as NAME=URL#KEY (see: dag-acfl keys peer). Repeatable."),
    ] = None,
    require_token: Annotated[
        list[str] | None,
        typer.Option(
            help="Answer writes, reads or metrics only to bearers of a token (see: dag-acfl tokens). Repeatable."
        ),
    ] = None,
    public: Annotated[
        bool | None,
        typer.Option(
            "--public",
            help="Let everybody who reaches the server read and write. Without it, one that is not on loopback asks "
            "for tokens.",
        ),
    ] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file with the certificate chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file with the private key.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. Default: info.")] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the settings in force as TOML, and stop.")
    ] = False,
) -> None:
    """Serve a ledger over HTTP.

    These are the settings that a person types. All of them, and the others, are also looked for in the environment
    (DAG_ACFL_PORT), in .env and in dag-acfl.toml; --print-config shows the outcome and docs/settings.md lists them.
    The ledger itself is made once, with: dag-acfl ledger init

    Example: dag-acfl serve --data-dir site-a --port 8901
    """
    use_one_blas_thread()
    use_one_malloc_arena()
    from ledger_server.settings import describe, load_settings  # noqa: PLC0415

    settings = load_settings(
        data_dir=data_dir,
        host=host,
        port=port,
        workers=workers,
        log_level=log_level,
        public=public,
        peers=tuple(peer) if peer else None,
        auth=_given(required_for=tuple(require_token) if require_token else None),
        tls=_given(certificate=tls_certificate, key=tls_key),
    )
    if print_config:
        typer.echo(describe(settings), nl=False)
        return

    from ledger_server.admin.doctor import check_access  # noqa: PLC0415
    from ledger_server.admin.store_source import require_ledger  # noqa: PLC0415
    from ledger_server.logs import configure_logging  # noqa: PLC0415

    require_ledger(settings)
    configure_logging(settings.log_level)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # of a terminal that is closed; nohup's is left alone
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    access = check_access(settings)
    if access.state != "ok":
        logger.warning("%s; %s", access.message, access.fix)
    if settings.workers == 1:
        serve_alone(settings)
        return
    from ledger_server.http.workers import serve_together  # noqa: PLC0415
    from ledger_server.serving_key import serving_key  # noqa: PLC0415
    from ledger_server.store import open_store_of  # noqa: PLC0415

    with open_store_of(settings, upgrade=True) as store:  # once, by one process
        serving_key(store, settings)
    serve_together(serve_alone, settings)


def serve_alone(
    settings: "Settings",
    *,
    listening: "socket | None" = None,
    on_alive: "Callable[[], None] | None" = None,
) -> None:
    """Serve in this process until a signal, as one of several where a socket is given."""
    with _nothing_collected():
        from ledger_server.app import create_app  # noqa: PLC0415 (half a second that --print-config need not wait)
        from ledger_server.election import place_in  # noqa: PLC0415
        from ledger_server.http.serve import serve as run  # noqa: PLC0415
        from ledger_server.logs import configure_logging  # noqa: PLC0415

        configure_logging(settings.log_level)
        export_traces()
    with place_in(settings.data_dir) as place:  # before anything in it is opened: a server that starts clears up
        with _nothing_collected():
            app = create_app(settings, place=place)
        superseded: list[Exception] = []

        def end(reason: Exception) -> None:
            if not superseded:
                superseded.append(reason)
                signal.raise_signal(signal.SIGTERM)

        app.state.following.on_superseded = end
        run(app, settings, listening=listening, on_alive=on_alive)
    for reason in superseded:
        raise reason


@contextmanager
def _nothing_collected() -> "Iterator[None]":
    """What the block makes is here to stay: looking through all of it for cycles is a sixth of a start's time."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _given(**options: Any) -> dict[str, Any] | None:
    """A group's options that were given; None when none was, so that environment and file decide."""
    return {name: value for name, value in options.items() if value is not None} or None
