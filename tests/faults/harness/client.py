"""One client of a study as a process of its own: the real SDK, and a trainer of a few numbers.

``EVENTS`` in its folder says what it attempted, what was acknowledged and by which server (its URL), as
``history.History`` has it.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fl_client import LedgerClient, Participant, ParticipantState
from fl_client.client import Published
from fl_core.dag.transaction import Header, transaction_id
from fl_core.models import Buffer
from tests.tiny_trainer import TinyTrainer

EVENTS = "events.jsonl"


class NotingClient(LedgerClient):
    """A client that writes down what it is about to send, and what was acknowledged."""

    events: Path

    def note(self, event: str, **fields: Any) -> None:
        """A line; what is written is there when the process is killed."""
        with self.events.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, "at_s": round(time.monotonic(), 6), **fields}) + "\n")

    def publish_header(self, header: Header, model: Buffer, *, coded: bool = False) -> Published:
        """As the SDK's."""
        identity = transaction_id(header.encode())
        self.note("attempt", transaction=identity)
        published = super().publish_header(header, model, coded=coded)
        self.note("acknowledged", transaction=identity, server=published.server)
        return published


def take_part(folder: Path, urls: Sequence[str], target: float, training_s: float) -> int:
    """Train and publish until SIGTERM.

    Args:
        folder: For the client's state and ``EVENTS``.
        urls: Servers.
        target: Where the trainer's weights want to be.
        training_s: What a training takes.
    """
    trainer = TinyTrainer(target, during=lambda: time.sleep(training_s))
    with ParticipantState(folder) as state, NotingClient(urls, key=state.key) as client:
        client.events = folder / EVENTS
        Participant(client, trainer, state).run(
            on_step=lambda step: client.note("step", transaction=step.transaction, server=step.server)
        )
    return 0
