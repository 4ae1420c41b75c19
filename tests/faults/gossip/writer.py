"""A client that roams: it publishes at a random server each time, and sends the same bytes again elsewhere
when no answer came.
"""

import random
from dataclasses import dataclass

import numpy as np

from fl_core.dag.building import build_update
from fl_core.dag.transaction import Header, transaction_id
from fl_core.models import encode_flat, flat
from fl_core.selection.evidence import Evidence
from fl_core.selection.protocol import Selection
from fl_core.types import TxId, digest_of
from tests.builders import CREATED_AT_MS, START, author_of, key_from_seed
from tests.faults.gossip.invariants import History
from tests.faults.gossip.network import Clock
from tests.faults.gossip.server import Server

ANSWER_S = 2.0
TRIES = 4
LOST_ANSWERS = 0.05


@dataclass
class Draft:
    """What is being published, until it is acknowledged."""

    header: Header
    signature: bytes
    model: bytes
    evidence: bytes
    tries: int = 0

    @property
    def id(self) -> TxId:
        return transaction_id(self.header.encode())


class Writer:
    """One author.

    Args:
        number: Gives the key.
        servers: Where to publish.
        clock: Virtual time.
        rng: Every draw.
        history: Where attempts and acknowledgements are noted.
        until_s: When it stops.
        pause_s: Mean time between publications.
    """

    def __init__(
        self,
        number: int,
        servers: list[Server],
        *,
        clock: Clock,
        rng: random.Random,
        history: History,
        until_s: float,
        pause_s: float,
    ) -> None:
        self.key = key_from_seed(5000 + number)
        self.servers, self.clock, self.rng, self.history = servers, clock, rng, history
        self.until_s, self.pause_s = until_s, pause_s
        self.sequence = 0
        self.draft: Draft | None = None

    def act(self) -> None:
        """Publish something new, or the unanswered again; then rest."""
        if self.clock.now_s > self.until_s:
            return
        server = self.rng.choice(self.servers)
        if self.draft is None or self.draft.tries >= TRIES:
            self.draft = self._train(server) if server.is_up else None
        if self.draft is not None:
            self._send(self.draft, server)
        self.clock.after(self.pause_s * (0.2 + 1.6 * self.rng.random()) + ANSWER_S * (self.draft is not None), self.act)

    def _send(self, draft: Draft, server: Server) -> None:
        draft.tries += 1
        self.history.attempted.add(draft.id)

        def acknowledged() -> None:
            if self.rng.random() < LOST_ANSWERS:
                return
            self.history.acknowledge(draft.id, server.name)
            if self.draft is draft:
                self.draft = None

        server.publish(draft.header, draft.signature, draft.model, draft.evidence, acknowledged)

    def _train(self, server: Server) -> Draft:
        """Average a few of those offered, drawn instead of compared, and move a little."""
        offered = [each.transaction for each in server.replica.candidate_rule.candidates(None)]
        held = [each for each in offered if server.has_model(each)] or [server.ledger.id]
        parents = tuple(sorted(self.rng.sample(held, min(len(held), self.rng.randint(1, 3)))))
        layout = server.start.genesis.layout
        models = [flat(layout, server.model_of(parent)) for parent in parents]
        noise = np.array([self.rng.gauss(0, 0.1) for _ in range(layout.num_parameters)], np.float32)
        data = encode_flat(layout, np.mean(models, axis=0, dtype=np.float64).astype(np.float32) + noise)
        evidence = Evidence(
            ledger=server.ledger.id,
            author=author_of(self.key),
            reference=None,
            reference_model=START,
            selector="drawn",
            params={},
            selection=Selection(parents, "parents", "drawn", len(parents), ()),
            aggregate=START,
            aggregate_size=len(data),
        ).encode()
        unsigned = build_update(
            ledger=server.ledger.id,
            author=author_of(self.key),
            sequence=self.sequence,
            created_at_ms=CREATED_AT_MS,
            num_examples=self.rng.randint(1, 100),
            start=START,
            model_digest=digest_of(data),
            model_size=len(data),
            parents=parents,
            evidence=digest_of(evidence),
        )
        self.sequence += 1
        return Draft(unsigned.header, unsigned.sign_as_author(self.key), data, evidence)
