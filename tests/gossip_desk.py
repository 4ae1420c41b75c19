"""A gossip node on a table: a test is its peers, its models, its journal and its clock, and sees its effects."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from fl_core.dag.figures import Figures
from fl_core.dag.transaction import Transaction
from fl_core.joining import ServedCheckpoint
from fl_core.sync.act_set import ActSet
from fl_core.sync.effects import (
    Admit,
    Effect,
    Incident,
    LogIncident,
    SendRequest,
)
from fl_core.sync.items import ItemSet
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Announcement,
    Changes,
    GetChanges,
    GetModel,
    GetSummary,
    GetTransactions,
    ModelComplete,
    Peer,
    Request,
    Response,
    SummaryAnswer,
    TransactionBundle,
    Transactions,
)
from fl_core.sync.node import GossipNode
from fl_core.sync.summary import StateSummary
from fl_core.types import Digest, TxId, digest_of
from tests.builders import TinyLedger, model

ANN, BOB = Peer("a" * 64), Peer("b" * 64)
E = TypeVar("E", bound=Effect)


@dataclass
class Blobs:
    """A blob store that is told what it holds."""

    complete: set[Digest] = field(default_factory=set)
    partial: dict[Digest, int] = field(default_factory=dict)

    def is_complete(self, digest: Digest) -> bool:
        return digest in self.complete

    def bytes_held(self, digest: Digest) -> int:
        return self.partial.get(digest, 0)


class Desk:
    """A node over an empty ledger, and a peer's ledger (``there``) with what may come from it."""

    def __init__(
        self,
        *,
        relay: bool = False,
        limits: GossipLimits | None = None,
        audits: bool = False,
        checkpoints: Sequence[ServedCheckpoint] = (),
    ) -> None:
        self.there = TinyLedger()
        self.here = TinyLedger()
        self.ledger = self.here.ledger
        self.items = ItemSet()
        self.items.add(0, self.ledger.id)
        self.acts = ActSet(self.ledger.id)
        self.blobs = Blobs()
        self.now_s = 0.0
        self.requests: list[SendRequest] = []
        self.admits: list[Admit] = []
        # Without audits, a test sees only what it is about.
        limits = limits or GossipLimits(comparison_interval_s=60.0 if audits else 1e9)
        self.node = GossipNode(
            self.ledger,
            self.items,
            acts=self.acts,
            summary=lambda: self.summary(len(self.ledger)),
            peers=[ANN, BOB],
            models=self.blobs,
            check=Transaction.verify_signatures,
            rng=random.Random(1),
            now_s=0.0,
            checkpoints=checkpoints,
            relay=relay,
            limits=limits,
        )
        for ask in self.asks(GetChanges):
            self.answer(ask, Changes((), "e.1", more=False))

    def summary(
        self, count: int, *, epoch: str = "0" * 32, server: Peer = ANN, acts_digest: Digest | None = None
    ) -> StateSummary:
        return StateSummary(
            ledger=self.ledger.id,
            server=server,
            epoch=epoch,
            count=count,
            tips_digest=digest_of(count.to_bytes(8, "big")),
            set_sum=digest_of(count.to_bytes(9, "big")),
            acts_digest=acts_digest or self.acts.digest,
            created_at_ms=0,
        )

    def write(self, name: str, parents: Sequence[TxId], value: float) -> TxId:
        """A transaction in the peer's ledger."""
        return self.there.publish(name, parents, model(1.0, value))

    def bundle(self, transaction: TxId) -> TransactionBundle:
        return TransactionBundle(self.there.transactions[transaction])

    def model_of(self, transaction: TxId) -> Digest:
        return self.there.transactions[transaction].header.model_digest

    def then(self, effects: list[Effect]) -> list[Effect]:
        """What a call led to, and what can be admitted after it."""
        return [*effects, *self.node.inbound.next_admissions(self.now_s)]

    def announce(self, transaction: TxId, peer: Peer = ANN) -> list[Effect]:
        """By its id, as one that is too large to be announced whole."""
        return self.then(self.node.announced(peer, Announcement(ids=(transaction,)), self.now_s))

    def announce_whole(self, transaction: TxId, peer: Peer = ANN) -> list[Effect]:
        return self.then(self.node.announced(peer, Announcement.of(self.bundle(transaction)), self.now_s))

    def poll(self) -> list[Effect]:
        effects = self.node.poll(self.now_s)
        self.requests += [effect for effect in effects if isinstance(effect, SendRequest)]
        return effects

    def asks(self, kind: type[Request]) -> list[SendRequest]:
        return [
            effect for effect in self.poll() if isinstance(effect, SendRequest) and isinstance(effect.request, kind)
        ]

    def ask(self, kind: type[Request]) -> SendRequest:
        (only,) = self.asks(kind)
        return only

    def answer(self, ask: SendRequest, response: Response) -> list[Effect]:
        effects = self.then(self.node.answered(ask, response, self.now_s))
        self.admits += [effect for effect in effects if isinstance(effect, Admit)]
        return effects

    def fetch(self, transaction: TxId) -> list[Effect]:
        """Have a grounded transaction's model come in."""
        ask = self.ask(GetModel)
        assert ask.request == GetModel(self.model_of(transaction), 0, self.there.genesis.layout.nbytes)
        self.blobs.complete.add(self.model_of(transaction))
        return self.answer(ask, ModelComplete())

    def serve(self, transactions: Sequence[TxId], peer: Peer = ANN) -> list[Effect]:
        """A peer announces and serves transactions, without their models."""
        for transaction in transactions:
            self.announce(transaction, peer)
        ask = self.ask(GetTransactions)
        assert ask.peer == peer
        return self.answer(ask, Transactions(tuple(map(self.bundle, transactions))))

    def audit(self, peer: Peer) -> SendRequest:
        """Let time pass, without news, until a peer is asked for its summary."""
        for _ in range(100):
            self.now_s += 2.0
            for effect in self.poll():
                if isinstance(effect, SendRequest) and isinstance(effect.request, GetChanges):
                    self.answer(effect, Changes((), "e.1", more=False))
                elif isinstance(effect, SendRequest) and isinstance(effect.request, GetSummary):
                    if effect.peer == peer:
                        return effect
                    self.answer(effect, SummaryAnswer(self.summary(len(self.ledger), server=effect.peer)))
        pytest.fail("no audit in 200 s")

    def admit(self, effect: Admit) -> list[Effect]:
        norm = 1.0
        self.here.node.admit(effect.bundle.transaction, None, figures=Figures(norm))
        return self.then(self.node.admitted(effect.id, self.now_s))

    def admit_without_model(self, effect: Admit) -> list[Effect]:
        assert effect.norm is not None
        self.here.node.admit(effect.bundle.transaction, None, figures=Figures(effect.norm), slack=math.inf)
        return self.then(self.node.admitted(effect.id, self.now_s))


def only(effects: Sequence[Effect], kind: type[E]) -> E:
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


def incidents(effects: Sequence[Effect]) -> list[tuple[Peer, Incident]]:
    return [(effect.peer, effect.incident) for effect in effects if isinstance(effect, LogIncident)]
