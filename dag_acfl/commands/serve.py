"""``dag-acfl serve``: one ledger server, until SIGTERM or Ctrl-C."""

import gc
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

_NETWORK, _LIMITS, _TLS = "Network", "Limits", "TLS"


def serve(
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for database, key and temporary files. Default: ./dag-acfl-data."),
    ] = None,
    database_url: Annotated[
        str | None, typer.Option(help="sqlite:///… or postgresql+psycopg://…. Default: SQLite in the folder.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. Default: info.")] = None,
    log_format: Annotated[str | None, typer.Option(help="json, console or auto. Default: auto.")] = None,
    docs: Annotated[
        bool | None, typer.Option("--docs/--no-docs", help="Serve /docs and /openapi.json. Default: yes.")
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the settings in force as TOML, and stop.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on. Default: 127.0.0.1.", rich_help_panel=_NETWORK),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port; 0 lets the system choose. Default: 8900.", rich_help_panel=_NETWORK),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network whose X-Forwarded-… headers are believed. Repeatable.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Another server of the ledger, as NAME=URL#KEY (see: dag-acfl keys peer). Repeatable.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    overlay: Annotated[
        Literal["complete", "ring", "small-world"] | None,
        typer.Option(
            help="Which of the peers to gossip with: all (complete), or its neighbours in a graph over many servers.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    peers_ca_file: Annotated[
        Path | None,
        typer.Option(
            help="PEM of the authority behind the peers' certificates. Default: the system's.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    require_token: Annotated[
        list[str] | None,
        typer.Option(
            help="Answer writes, reads or metrics only with a bearer token (see: dag-acfl tokens). Repeatable.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    drain_s: Annotated[
        int | None,
        typer.Option(help="Seconds for requests to end after SIGTERM. Default: 10.", rich_help_panel=_NETWORK),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate chain.", rich_help_panel=_TLS)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file with the private key.", rich_help_panel=_TLS)] = None,
    worker_threads: Annotated[
        int | None,
        typer.Option(help="Threads for database and model work. Default: 8.", rich_help_panel=_LIMITS),
    ] = None,
    cache_bytes: Annotated[
        int | None,
        typer.Option(help="Memory for recently used models. Default: 96 MiB.", rich_help_panel=_LIMITS),
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(help="Most open connections. Default: 800.", rich_help_panel=_LIMITS)
    ] = None,
    max_concurrent_requests: Annotated[
        int | None, typer.Option(help="Most requests in progress. Default: 128.", rich_help_panel=_LIMITS)
    ] = None,
) -> None:
    """Serve a ledger over HTTP.

    Each setting is looked for here, then in the environment (DAG_ACFL_PORT), in .env, in
    dag-acfl.toml; --print-config shows the outcome. The ledger itself is made once, with: dag-acfl ledger init

    Example: dag-acfl serve --data-dir site-a --port 8901
    """
    use_one_blas_thread()
    from ledger_server.settings import describe, load_settings  # noqa: PLC0415

    settings = load_settings(
        data_dir=data_dir,
        database_url=database_url,
        host=host,
        port=port,
        log_level=log_level,
        log_format=log_format,
        docs_enabled=docs,
        drain_s=drain_s,
        trusted_proxies=tuple(trusted_proxy) if trusted_proxy else None,
        peers=tuple(peer) if peer else None,
        overlay=overlay,
        peers_ca_file=peers_ca_file,
        auth=_given(required_for=tuple(require_token) if require_token else None),
        worker_threads=worker_threads,
        tls=_given(certificate=tls_certificate, key=tls_key),
        cache=_given(model_bytes=cache_bytes),
        http=_given(
            max_connections=max_connections,
            max_concurrent_requests=max_concurrent_requests,
        ),
    )
    if print_config:
        typer.echo(describe(settings), nl=False)
        return

    from ledger_server.admin.store_source import require_ledger  # noqa: PLC0415

    require_ledger(settings)
    from ledger_server.app import create_app  # noqa: PLC0415 (half a second that --print-config need not wait)
    from ledger_server.http.serve import serve as run  # noqa: PLC0415
    from ledger_server.logs import configure_logging  # noqa: PLC0415

    configure_logging(settings.log_level, settings.log_format)
    app = create_app(settings)
    gc.freeze()  # the ledger is here to stay: looking through a million transactions for cycles would take seconds
    run(app, settings)


def use_one_blas_thread() -> None:
    """Let BLAS use one thread, unless the environment says otherwise; to be called before NumPy is imported.

    By default even a product of 0.4 MB is split between all cores, whose threads then spin at a barrier. While requests
    keep the cores busy, a selection takes 20 ms instead of 2 (measured): a server's parallelism is its requests.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(name, "1")


def _given(**options: Any) -> dict[str, Any] | None:
    """A group's options that were given; None when none was, so that environment and file decide."""
    return {name: value for name, value in options.items() if value is not None} or None
