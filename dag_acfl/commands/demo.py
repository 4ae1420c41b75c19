"""``dag-acfl demo``: see it work, in 40 seconds, on this machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dag_acfl.commands.trial import Port, require, show


def demo(
    *,
    clients: Annotated[int, typer.Option(min=2, max=23, help="Clients; 4 clusters, so multiples of 4 are best.")] = 16,
    updates: Annotated[int, typer.Option(min=1, max=1000, help="That each client publishes.")] = 14,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Decides data, first model, order of samples.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for results; files of an earlier demo there are replaced.")] = Path(
        "results/demo"
    ),
    servers: Annotated[
        int, typer.Option(min=1, max=9, help="Ledger servers, each with a database and a key, that gossip.")
    ] = 3,
    port: Port = None,
    kill_server: Annotated[
        bool, typer.Option("--kill-server", help="kill -9 a server in the middle; start it again later.")
    ] = False,
    keep_serving: Annotated[
        bool | None,
        typer.Option(
            "--keep-serving/--no-keep-serving",
            help="Leave the servers, and the console that shows the ledger, running until Ctrl-C. Default: where a "
            "person is at the terminal.",
        ),
    ] = None,
) -> None:
    """Real clients learn together through real servers, each a process, over HTTP on this machine.

    Digits hang four ways in four groups of clients that do not know of each other. Compared, on the same data
    and with the same number of epochs: learning alone, FedAvg, and DAG-ACFL. No network needed.

    The servers are peers and keep one ledger by gossip; clients are spread over them, and some move in the middle.
    While they learn, and after it, each server shows the ledger in the browser, under the address that is printed.

    Example: dag-acfl demo --seed 1 --out results/demo-1
    """
    require("torch", "matplotlib")
    if kill_server and servers < 2:
        raise typer.BadParameter("there must be another server to go on with", param_hint="--kill-server")

    from dag_acfl.trial import demo_client  # noqa: PLC0415
    from dag_acfl.trial.run import Trial  # noqa: PLC0415

    show(
        Trial(
            name="dag-acfl demo",
            file=Path(demo_client.__file__),
            sites=clients,
            settings={"count": clients, "seed": seed},
            updates=updates,
            epochs=demo_client.EPOCHS,
            out=out,
            servers=servers,
            port=port,
            keep_serving=sys.stdin.isatty() and sys.stdout.isatty() if keep_serving is None else keep_serving,
            kill_server=kill_server,
            kinds=[f"{angle}°" for angle in demo_client.ANGLES],
        )
    )
