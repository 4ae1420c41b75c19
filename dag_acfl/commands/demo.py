"""``dag-acfl demo``: see it work, in a minute, on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from fl_core.errors import ParameterError


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
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_527,
            help="Port of the first server, the others follow; 0: any free ones. Default: 8900 if free, else any.",
        ),
    ] = None,
    kill_server: Annotated[
        bool, typer.Option("--kill-server", help="kill -9 a server in the middle; start it again later.")
    ] = False,
    keep_serving: Annotated[
        bool, typer.Option("--keep-serving", help="Leave the servers running until Ctrl-C.")
    ] = False,
) -> None:
    """Real clients learn together through real servers, each a process, over HTTP on this machine.

    Digits hang four ways in four groups of clients that do not know of each other. Compared, on the same data
    and with the same number of epochs: learning alone, FedAvg, and DAG-ACFL. No network needed.

    The servers are peers and keep one ledger by gossip; clients are spread over them, and some move in the middle.

    Example: dag-acfl demo --seed 1 --out results/demo-1
    """
    from importlib.util import find_spec  # noqa: PLC0415

    missing = [name for name in ("torch", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ParameterError(f"the demo needs {' and '.join(missing)}; run: pip install 'dag-acfl[demo]'")

    if kill_server and servers < 2:
        raise typer.BadParameter("there must be another server to go on with", param_hint="--kill-server")

    from rich.console import Console  # noqa: PLC0415

    from dag_acfl.demo.run import RUN, DemoOptions, run_demo  # noqa: PLC0415

    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=110)
    try:
        run_demo(DemoOptions(out, clients, updates, seed, servers, port, keep_serving, kill_server), console)
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; all processes have ended. The ledger so far and the logs are in {out / RUN}", err=True)
        raise typer.Exit(130) from None
