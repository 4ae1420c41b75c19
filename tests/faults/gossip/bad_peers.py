"""Peers that do not keep to the protocol, each in its own way. None may get anything into a ledger."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.building import build_update
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Transaction
from fl_core.sync.messages import (
    Announcement,
    Changes,
    GetChanges,
    GetModel,
    GetTransactions,
    Peer,
    ReconcileAnswer,
    ReconcileFrame,
    Request,
    Response,
    TransactionBundle,
    Transactions,
)
from fl_core.types import PublicKey, TxId, digest_of
from tests.builders import CREATED_AT_MS, TinyLedger, author_of
from tests.faults.gossip.network import Clock, Network

if TYPE_CHECKING:
    from tests.faults.gossip.server import Server


class BadPeer:
    """Announces once a second to everybody; the rest is the kind's.

    Args:
        key: Its key: peers know it, so it is let in.
        start: The ledger that all begin with.
        victims: The honest servers; a bad peer knows all that they hold.
        clock: Virtual time.
        network: How messages travel.
        rng: Every draw.
    """

    stalls = False
    """Whether a model that is asked for gets no answer, rather than a 404."""

    def __init__(
        self,
        key: Ed25519PrivateKey,
        start: TinyLedger,
        *,
        victims: Sequence["Server"],
        clock: Clock,
        network: Network,
        rng: random.Random,
    ) -> None:
        self.key, self.name, self.start = key, PublicKey(public_key_of(key)), start
        self.victims, self.clock, self.network, self.rng = victims, clock, network, rng

    def started(self) -> None:
        """Begin to announce."""
        for victim in self.victims:
            announcement = self.announcement()
            if announcement is not None:
                self._tell(victim, announcement)
        self.clock.after(1.0, self.started)

    def _tell(self, victim: "Server", announcement: Announcement) -> None:
        self.network.send(self.name, victim.name, lambda: victim.told(self.name, announcement))

    def announcement(self) -> Announcement | None:
        """What it claims to hold now."""
        return None

    def serve(self, request: Request, asker: Peer) -> Response | None:
        """What it answers."""
        return None

    def blob(self, request: GetModel) -> bytes | None:
        """The model that it serves."""
        return None

    def has_pruned(self, request: GetModel) -> bool:
        """Whether it says that it pruned a model that it does not serve."""
        return False

    def told(self, peer: Peer, announcement: Announcement) -> None:
        """It does not care."""

    def made_up(self, parents: Sequence[TxId], sequence: int) -> Transaction:
        """A transaction that is right in itself, over parents of its choice."""
        unsigned = build_update(
            ledger=self.start.genesis_id,
            author=author_of(self.key),
            sequence=sequence,
            created_at_ms=CREATED_AT_MS,
            num_examples=1,
            start=digest_of(self.start.genesis_model),
            model_digest=digest_of(self.start.genesis_model),
            model_size=len(self.start.genesis_model),
            parents=tuple(sorted(parents)),
        )
        return unsigned.issue(
            self.key, author_signature=unsigned.sign_as_author(self.key), received_at_ms=CREATED_AT_MS
        )

    def random_id(self) -> TxId:
        """An id that nothing hashes to."""
        return TxId(self.rng.randbytes(32).hex())

    def claim(self, transaction: TxId) -> Announcement:
        """An announcement, by id, of something that there may or may not be."""
        return Announcement(ids=(transaction,))


class Mutator(BadPeer):
    """Serves honest transactions with one bit changed somewhere."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.mutants: dict[TxId, TransactionBundle] = {}

    def announcement(self) -> Announcement | None:
        victim = self.rng.choice(self.victims)
        honest = self.rng.choice(victim.disk.entries).bundle
        mutant = mutated(honest, self.rng)
        self.mutants[mutant.id] = mutant
        return self.rng.choice([Announcement.of(mutant), self.claim(mutant.id)])

    def serve(self, request: Request, asker: Peer) -> Response | None:
        match request:
            case GetChanges():
                return Changes(tuple(self.mutants), f"mutants.{len(self.mutants)}", more=False)
            case GetTransactions(ids):
                return Transactions(tuple(self.mutants[identity] for identity in ids if identity in self.mutants))
        return None

    def blob(self, request: GetModel) -> bytes | None:
        return self.rng.randbytes(request.size)


class Silent(BadPeer):
    """Advertises what all the world has, and more, and never serves any of it."""

    stalls = True

    def announcement(self) -> Announcement | None:
        victim = self.rng.choice(self.victims)
        entry = self.rng.choice(victim.disk.entries)
        return self.claim(self.rng.choice([self.random_id(), entry.id]))

    def serve(self, request: Request, asker: Peer) -> Response | None:
        if isinstance(request, GetChanges):
            ids = [entry.id for victim in self.victims for entry in victim.disk.entries]
            return Changes(tuple(dict.fromkeys(ids))[:1000], f"silent.{self.rng.random()}", more=False)
        return None


class ModelHider(Silent):
    """Serves every transaction faster than anybody, and never its model."""

    def serve(self, request: Request, asker: Peer) -> Response | None:
        if isinstance(request, GetTransactions):
            held = [victim.disk.bundle(identity) for identity in request.ids for victim in self.victims]
            found = {bundle.transaction.id: bundle for bundle in held if bundle is not None}
            return Transactions(tuple(found.values()))
        return super().serve(request, asker)


class Pretender(ModelHider):
    """The same, and says that it has pruned every model, for which it has no checkpoint."""

    stalls = False

    def has_pruned(self, request: GetModel) -> bool:
        return True


class Withholder(BadPeer):
    """Serves children, whose parents it says it does not know."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.children: dict[TxId, TransactionBundle] = {}

    def announcement(self) -> Announcement | None:
        child = self.made_up([self.random_id()], sequence=len(self.children))
        self.children[child.id] = TransactionBundle(child)
        return Announcement.of(self.children[child.id])

    def serve(self, request: Request, asker: Peer) -> Response | None:
        match request:
            case GetChanges():
                return Changes((), "withholder", more=False)
            case GetTransactions(ids):
                found = tuple(self.children[identity] for identity in ids if identity in self.children)
                return Transactions(found, tuple(identity for identity in ids if identity not in self.children))
        return None


class EndlessChain(BadPeer):
    """Serves ancestors of ancestors, as far back as anybody asks, and none of them leads to genesis."""

    length = 400

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.chain: dict[TxId, TransactionBundle] = {}
        tip = self.random_id()
        for sequence in range(self.length):
            transaction = self.made_up([tip], sequence)
            tip = transaction.id
            self.chain[tip] = TransactionBundle(transaction)
        self.tip = tip

    def announcement(self) -> Announcement | None:
        return Announcement.of(self.chain[self.tip])

    def serve(self, request: Request, asker: Peer) -> Response | None:
        match request:
            case GetChanges():
                return Changes((), "chain", more=False)
            case GetTransactions(ids):
                return Transactions(tuple(self.chain[identity] for identity in ids if identity in self.chain))
        return None


class Babbler(BadPeer):
    """Answers everything, with nonsense of the right kind."""

    def announcement(self) -> Announcement | None:
        return self.claim(self.random_id())

    def serve(self, request: Request, asker: Peer) -> Response | None:
        match request:
            case GetChanges():
                return Changes(tuple(self.random_id() for _ in range(50)), f"{self.rng.random()}", more=True)
            case ReconcileFrame():
                return ReconcileAnswer(self.rng.randbytes(self.rng.randrange(200)))
            case GetTransactions(ids):
                return self.rng.choice([Transactions(()), Transactions((), ids), ReconcileAnswer(b"")])
        return None


def mutated(honest: TransactionBundle, rng: random.Random) -> TransactionBundle:
    """The same with one bit changed: in the header, or in one of the signatures."""
    transaction = honest.transaction
    header, author, receipt = transaction.header_bytes, transaction.author_signature, transaction.receipt
    match rng.randrange(3):
        case 0:
            header = flipped(header, rng)
        case 1 if author is not None:
            author = flipped(author, rng)
        case _:
            receipt = replace(receipt, signature=flipped(receipt.signature, rng))
    return TransactionBundle(Transaction(header, author, receipt), honest.attachment)


def flipped(data: bytes, rng: random.Random) -> bytes:
    """One bit changed."""
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


BAD_PEERS: dict[str, Callable[..., BadPeer]] = {
    "mutator": Mutator,
    "silent": Silent,
    "model-hider": ModelHider,
    "pretender": Pretender,
    "withholder": Withholder,
    "endless-chain": EndlessChain,
    "babbler": Babbler,
}
