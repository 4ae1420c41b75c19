"""One client of a study as a process of its own: the real SDK, and a trainer of a few numbers.

    python -m tests.faults.harness.client FOLDER --target 1.5 --training-s 0.5 URL URL URL

Trains and publishes until SIGTERM. ``FOLDER/events.jsonl`` says what it attempted, what was acknowledged and by which
server (its URL), as ``history.History`` has it.
"""

import argparse
import json
import sys
import time
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

    def publish_header(self, header: Header, model: Buffer) -> Published:
        """As the SDK's."""
        identity = transaction_id(header.encode())
        self.note("attempt", transaction=identity)
        published = super().publish_header(header, model)
        self.note("acknowledged", transaction=identity, server=published.server)
        return published


def main() -> int:
    """Take part until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--training-s", type=float, required=True)
    options = parser.parse_args()
    trainer = TinyTrainer(options.target, during=lambda: time.sleep(options.training_s))
    with ParticipantState(options.folder) as state, NotingClient(options.urls, key=state.key) as client:
        client.events = options.folder / EVENTS
        Participant(client, trainer, state).run(
            on_step=lambda step: client.note("step", transaction=step.transaction, server=step.server)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
