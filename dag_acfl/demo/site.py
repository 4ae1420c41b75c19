"""What the demo's worker processes do: one client with its own key, data and state; or the two baselines.

The client is the product's own: ``Participant`` with ``TorchTrainer``, against the server over HTTP.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from dag_acfl.commands.options import quiet_retries
from dag_acfl.demo.baselines import fedavg, local_only
from dag_acfl.demo.events import BaselineDone, BaselineStep, Failed, Finished, FirstModel, Joined, Published
from dag_acfl.demo.processes import end_with_parent
from dag_acfl.demo.task import DemoTask
from fl_client.client import LedgerClient
from fl_client.participant import Participant, StepReport
from fl_client.state import ParticipantState
from fl_client.training.protocol import Trainer
from fl_core.types import TxId
from fl_core.weights import decode_model

BEGIN: Final = "begin"
"""The order that everybody is there: nobody gets ahead because its process was the first to start."""
FINISH: Final = "finish"
"""The order that everybody has published: select once more and measure."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which client to be, what it learns, its server, and the folder of its key and state."""

    client: int
    task: DemoTask
    url: str
    folder: Path


def run_site(events: Connection, orders: Connection, site: Place) -> None:
    """When all are there, publish ``task.transactions`` times; when all have, measure a last selection."""
    client, task = site.client, site.task
    quiet_retries()
    received = end_with_parent(orders)
    try:
        trainer = task.trainer(task.clients()[client], client=client)
        with ParticipantState(site.folder) as state, LedgerClient(site.url, key=state.key) as sdk:
            events.send(Joined(client, state.author))
            received.get()
            started = time.monotonic()
            last: StepReport | None = None

            def tell(report: StepReport) -> None:
                nonlocal last
                last = report
                events.send(_published(client, report, time.monotonic() - started))

            participant = Participant(sdk, trainer, state)
            participant.run(task.transactions, on_step=tell)
            if participant.stopped or last is None:
                return
            received.get()
            events.send(_finish(client, sdk, trainer, last))
    except Exception as error:  # noqa: BLE001 (the seam: whatever it is, the parent must hear of it)
        _tell_failure(events, f"client {client + 1}", error)


def _published(client: int, report: StepReport, elapsed_s: float) -> Published:
    return Published(
        client=client,
        number=report.sequence + 1,
        transaction=report.transaction,
        approved=report.parents,
        source=report.source or "",
        rule=report.rule or "",
        accuracy=_rounded(report.metrics_before),
        trained_accuracy=_rounded(report.metrics_after),
        sent_bytes=report.bytes_sent,
        received_bytes=report.bytes_received,
        elapsed_s=round(elapsed_s, 3),
    )


def _finish(client: int, sdk: LedgerClient, trainer: Trainer, last: StepReport) -> Finished:
    """The paper's figure: the aggregate that the client is given in the end, on the client's own test data."""
    selection = sdk.select(transaction=TxId(last.transaction))
    model = sdk.download(selection.aggregate.digest)
    measured = trainer.evaluate(decode_model(sdk.genesis().genesis.layout, model))
    return Finished(client, selection.rule, _rounded(measured), _rounded(last.metrics_after))


def _rounded(metrics: Mapping[str, float]) -> float:
    """Accuracy as a person writes it; it is a ratio of small counts that has been through float32."""
    return round(metrics["accuracy"], 6)


def run_baselines(events: Connection, orders: Connection, task: DemoTask) -> None:
    """Make the first model; when told to, train alone and by FedAvg with everybody's data."""
    received = end_with_parent(orders)
    try:
        trainers = task.trainers()
        first = trainers[0].initial_arrays()
        events.send(FirstModel(first))
        received.get()

        def progress(name: str, done: int, total: int) -> None:
            events.send(BaselineStep(name, done, total))

        alone = local_only(trainers, first, epochs=task.total_epochs, progress=progress)
        events.send(BaselineDone(alone.name, tuple(round(each, 6) for each in alone.accuracies)))
        averaged = fedavg(trainers, first, epochs=task.total_epochs, epochs_per_round=task.epochs, progress=progress)
        events.send(BaselineDone(averaged.name, tuple(round(each, 6) for each in averaged.accuracies)))
    except Exception as error:  # noqa: BLE001 (as above)
        _tell_failure(events, "baselines", error)


def _tell_failure(events: Connection, who: str, error: Exception) -> None:
    message = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    try:
        events.send(Failed(who, message))
    except OSError:
        return  # nobody listens any more, which is why it failed
