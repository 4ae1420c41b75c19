"""``dag-acfl try``: a person's own client file, from servers to figures, on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dag_acfl.commands.options import scalars
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from dag_acfl.trial.run import Trial

Port: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_527,
        help="Port of the first server, the others follow; 0: any free ones. Default: 8900 if free, else any.",
    ),
]
KeepServing: TypeAlias = Annotated[bool, typer.Option("--keep-serving", help="Leave the servers running until Ctrl-C.")]


def try_(
    file: Annotated[Path, typer.Argument(help="The client's Python file (see: dag-acfl client init).")],
    *,
    sites: Annotated[
        int, typer.Option(min=2, max=64, help="Clients: trainer(site=0), trainer(site=1) and on, each a process.")
    ] = 4,
    updates: Annotated[int, typer.Option(min=1, max=1000, help="That each client publishes.")] = 10,
    epochs: Annotated[int, typer.Option(min=1, help="Local epochs before each update, and before joining.")] = 3,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Further argument for trainer(), the same at all sites. Repeatable."),
    ] = None,
    servers: Annotated[int, typer.Option(min=1, max=9, help="Ledger servers, which gossip.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for results; files of an earlier trial there are replaced.")] = Path(
        "results/try"
    ),
    port: Port = None,
    keep_serving: KeepServing = False,
) -> None:
    """Try your own model and data: a ledger, its servers and a client for each site, each a process of this machine.

    In the end: what learning alone, FedAvg and sharing by similarity came to on each site's own test data, with the
    same number of epochs, which sites share, and what that buys. The rules are those of dag-acfl ledger init.

    Example: dag-acfl try my_client.py --sites 6
    """
    from dag_acfl.trial.run import Trial  # noqa: PLC0415

    require("matplotlib")
    show(
        Trial(
            name="dag-acfl try",
            file=file,
            sites=sites,
            settings=scalars(set_ or [], option="--set"),
            updates=updates,
            epochs=epochs,
            out=out,
            servers=servers,
            port=port,
            keep_serving=keep_serving,
        )
    )


def require(*packages: str) -> None:
    """Refuse to begin without these."""
    from importlib.util import find_spec  # noqa: PLC0415

    if missing := [name for name in packages if find_spec(name) is None]:
        raise ParameterError(f"this needs {' and '.join(missing)}; in a clone of the repository: pip install '.[demo]'")


def show(trial: "Trial") -> None:
    """Run a trial before a person's eyes; Ctrl-C ends it with a word."""
    from rich.console import Console  # noqa: PLC0415

    from dag_acfl.trial.run import RUN, run_trial  # noqa: PLC0415

    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=110)
    try:
        run_trial(trial, console)
    except KeyboardInterrupt:
        where = trial.out / RUN
        typer.echo(f"\nstopped; all processes have ended. The ledger so far and the logs are in {where}", err=True)
        raise typer.Exit(130) from None
