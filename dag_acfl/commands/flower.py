"""``dag-acfl client flower``: a Flower app takes part in a ledger, as it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.models import STATE_SUFFIX
from dag_acfl.commands.options import NodeConfig, RunConfig, retries_shown
from dag_acfl.commands.taking_part import Participation, participation_options, take_part
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_client.client import LedgerClient
    from fl_client.state import ParticipantState
    from fl_client.training.protocol import Trainer


@participation_options
def flower(
    app: Annotated[Path, typer.Argument(metavar="APPDIR", help="The app's folder, with its pyproject.toml.")],
    *,
    node_config: NodeConfig = "",
    run_config: RunConfig = "",
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the key, the last transaction and Context.state. Default: APPDIR-PARTITION-state, here."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="What the app calls its accuracy or loss, where it is unusual: accuracy=top_1. Repeatable."),
    ] = None,
    how: Participation,
) -> None:
    """Take part with a Flower app's ClientApp, unchanged: one train message, one update, and again.

    The ledger is one that ledger init --flower-app has founded with the same app: its genesis says what the ServerApp
    sends. Ctrl-C ends it after a clean save; the next run goes on where it stopped, with what Context.state held.

    Example: dag-acfl client flower quickstart --node-config "partition-id=0 num-partitions=8"
    """
    from fl_client.integrations.flower import FlowerApp, FlowerTrainer, Opening  # noqa: PLC0415
    from fl_core.types import digest_of  # noqa: PLC0415

    names = dict(each.split("=", 1) for each in metric or [] if "=" in each)
    if len(names) != len(metric or []) or names.keys() - {"accuracy", "loss"}:
        raise ParameterError("--metric must be accuracy=NAME or loss=NAME, NAME being what the app calls it")
    flower_app = FlowerApp(app, node_config=node_config, run_config=run_config)
    with retries_shown() as show:
        show(f"loading {app}")
        flower_app.client_app()  # what is wrong with it is said before anything is written
    partition = flower_app.node_config.get("partition-id")
    name = app.resolve().name if partition is None else f"{app.resolve().name}-{partition}"
    folder = state or Path(f"{name}{STATE_SUFFIX}")

    def trainer_for(client: "LedgerClient", kept: "ParticipantState") -> "Trainer":
        opening = Opening.of_hints(client.genesis().genesis.training)
        node_id = int(digest_of(kept.author.encode())[:15], 16)
        return FlowerTrainer(flower_app, opening, folder=folder, node_id=node_id, metrics=names)

    take_part(trainer_for, folder, how)
