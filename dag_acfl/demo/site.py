"""What the demo's worker processes do: one client with its own key, data and state; the two baselines; a listener.

The client is the product's own: ``Participant`` with ``TorchTrainer``, against the servers over HTTP.
"""

import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from dag_acfl.demo.baselines import fedavg, local_only
from dag_acfl.demo.events import (
    Arrival,
    BaselineDone,
    BaselineStep,
    Failed,
    Finished,
    FirstModel,
    Joined,
    Observed,
    Published,
)
from dag_acfl.demo.processes import end_with_parent
from dag_acfl.demo.task import DemoTask
from fl_client.client import LedgerClient
from fl_client.participant import Participant, StepReport
from fl_client.state import ParticipantState
from fl_client.training.protocol import Trainer
from fl_core.models import decode_model
from fl_core.types import TxId

BEGIN: Final = "begin"
"""The order that everybody is there: nobody gets ahead because its process was the first to start."""
FINISH: Final = "finish"
"""The order that everybody has published: select once more and measure."""
_LISTEN_AT_MOST_S: Final = 10.0
_MOVES_EVERY: Final = 5
_NICENESS: Final = 19
"""Whoever trains steps back behind the servers, which it would not share a machine with: sixteen trainings on two
cores would leave each server a tenth of one, and every figure of theirs would be one of the scheduler.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Which client to be, what it learns, and the folder of its key and state.

    Attributes:
        urls: All servers, in the order in which everybody numbers them.
        order: The servers in this client's order of preference.
        moves_to: Its order from the middle on, if that is another one.
    """

    client: int
    task: DemoTask
    folder: Path
    urls: tuple[str, ...]
    order: tuple[int, ...]
    moves_to: tuple[int, ...] | None = None


def place_of(client: int, *, task: DemoTask, urls: tuple[str, ...], folder: Path) -> Place:
    """Spread clients over the servers, each with all of them in an order of its own; every fifth client moves.

    Five is coprime to four clusters: of sixteen clients four move, one of each.
    """
    count = len(urls)
    orders = list(permutations(range(count)))
    order = orders[(client * len(orders) // count + client // count) % len(orders)]
    moves = count > 1 and client % _MOVES_EVERY == 0
    onward = 1 + client // _MOVES_EVERY % max(1, count - 1)
    return Place(client, task, folder, urls, order, (*order[onward:], *order[:onward]) if moves else None)


def run_site(events: Connection, orders: Connection, site: Place) -> None:
    """When all are there, publish ``task.transactions`` times; when all have, measure a last selection."""
    client, task = site.client, site.task
    os.nice(_NICENESS)
    received = end_with_parent(orders)
    try:
        trainer = task.trainer(task.clients()[client], client=client)
        with ParticipantState(site.folder) as state:
            events.send(Joined(client, state.author))
            received.get()
            started = time.monotonic()
            last: StepReport | None = None
            server = site.order[0]

            def tell(report: StepReport) -> None:
                nonlocal last, server
                last = report
                if report.server is not None:
                    server = site.urls.index(report.server)
                events.send(_published(client, report, server, time.monotonic() - started))

            for order, steps, is_last in _stays(site):
                with LedgerClient([site.urls[each] for each in order], key=state.key) as sdk:
                    participant = Participant(sdk, trainer, state)
                    participant.run(steps, on_step=tell)
                    if participant.stopped or last is None:
                        return
                    if is_last:
                        received.get()
                        events.send(_finish(client, sdk, trainer, last))
    except Exception as error:  # noqa: BLE001 (the seam: whatever it is, the parent must hear of it)
        _tell_failure(events, f"client {client + 1}", error)


def _stays(site: Place) -> list[tuple[tuple[int, ...], int, bool]]:
    """Servers in order, how many transactions to publish with them, and whether that is all: a client that moves
    does so once it has made half.
    """
    total = site.task.transactions
    if site.moves_to is None or total < 2:
        return [(site.order, total, True)]
    return [(site.order, total // 2, False), (site.moves_to, total - total // 2, True)]


def _published(client: int, report: StepReport, server: int, elapsed_s: float) -> Published:
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
        server=server,
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
        os.nice(_NICENESS)

        def progress(name: str, done: int, total: int) -> None:
            events.send(BaselineStep(name, done, total))

        alone = local_only(trainers, first, epochs=task.total_epochs, progress=progress)
        events.send(BaselineDone(alone.name, tuple(round(each, 6) for each in alone.accuracies)))
        averaged = fedavg(trainers, first, epochs=task.total_epochs, epochs_per_round=task.epochs, progress=progress)
        events.send(BaselineDone(averaged.name, tuple(round(each, 6) for each in averaged.accuracies)))
    except Exception as error:  # noqa: BLE001 (as above)
        _tell_failure(events, "baselines", error)


def run_listener(events: Connection, orders: Connection, urls: Sequence[str], transactions: int) -> None:
    """Listen to every server's event stream until each has shown as many transactions; tell when each was shown.

    One process and one clock for all servers, so that what listening itself takes does not count. After the order
    ``FINISH`` it waits a few seconds for what has not come, and no longer: a figure may be missing, the demo goes on.
    """
    received = end_with_parent(orders)
    seen: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
    try:
        for server, url in enumerate(urls):
            threading.Thread(target=_listen, args=(server, url, seen), daemon=True).start()
        while received.get() != FINISH:
            continue
        arrivals: list[Arrival] = []
        until = time.monotonic() + _LISTEN_AT_MOST_S
        while len(arrivals) < transactions * len(urls) and (left := until - time.monotonic()) > 0:
            try:
                arrivals.append(seen.get(timeout=left))
            except queue.Empty:
                break
        events.send(Observed(tuple(arrivals)))
    except Exception as error:  # noqa: BLE001 (as above)
        _tell_failure(events, "the listener", error)


def _listen(server: int, url: str, seen: "queue.SimpleQueue[Arrival]") -> None:
    with LedgerClient(url) as client:
        for event in client.events():
            seen.put(Arrival(event.transaction.id, server, time.monotonic()))


def _tell_failure(events: Connection, who: str, error: Exception) -> None:
    message = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    try:
        events.send(Failed(who, message))
    except OSError:
        return  # nobody listens any more, which is why it failed
