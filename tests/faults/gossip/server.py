"""A ledger server without HTTP: an ``fl_core`` ledger over a journal, with a gossip node, in virtual time.

It does with each effect what a real server must: asks and tells go over the network, an admission is checked,
written, and only then made visible. A crash forgets everything but the disk; what was under way in the life
before never comes back (``_later``).
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.admission import NORM_SLACK, check_header, check_payload, check_publication
from fl_core.dag.building import UnsignedTransaction
from fl_core.dag.checkpoint import sign_checkpoint
from fl_core.dag.figures import Figures
from fl_core.dag.graph import Node
from fl_core.dag.receipt import Receipt
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Header, Transaction
from fl_core.errors import CheckpointRefusedError, DagAcflError, ModelNormError, TransactionError
from fl_core.joining import LedgerState, ServedCheckpoint, check_checkpoint, make_checkpoint
from fl_core.ledger import AlreadyKnown, WaitingForParents
from fl_core.models import flat, model_norm
from fl_core.node import LedgerNode
from fl_core.retention import Retention
from fl_core.selection.evidence import parse_evidence
from fl_core.selection.parents import check_parents
from fl_core.sync.act_set import ActSet
from fl_core.sync.effects import (
    Admit,
    Announce,
    DiscardModel,
    Effect,
    Failure,
    Incident,
    LogIncident,
    SaveCursor,
    SendRequest,
)
from fl_core.sync.items import ItemSet
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Announcement,
    CheckpointAnswer,
    GetCheckpoint,
    GetModel,
    ModelComplete,
    ModelCorrupt,
    ModelUnknown,
    Peer,
    Request,
    Response,
    TransactionBundle,
)
from fl_core.sync.node import GossipNode
from fl_core.sync.responder import Responder
from fl_core.sync.summary import StateSummary
from fl_core.types import PublicKey, TxId, digest_of
from tests.builders import CREATED_AT_MS, TinyLedger
from tests.faults.gossip.disk import Disk, Entry
from tests.faults.gossip.network import Clock, Network

TICK_S = 0.5
CHUNKS = 3


class Party(Protocol):
    """Whoever sits at the end of a link: a server, or something that pretends to be one."""

    name: Peer

    @property
    def stalls(self) -> bool:
        """Whether a model that it has not gets no answer, rather than a 404."""

    def serve(self, request: Request, asker: Peer) -> Response | None:
        """The answer to anything but a blob; None for silence."""

    def blob(self, request: GetModel) -> bytes | None:
        """The whole model as this party would serve it; None when it has none."""

    def has_pruned(self, request: GetModel) -> bool:
        """Whether it says that it dropped a model that ``blob`` does not have."""

    def told(self, peer: Peer, announcement: Announcement) -> None:
        """An announcement came."""

    def started(self) -> None:
        """The simulation begins."""


@lru_cache(maxsize=4096)
def _signatures_hold(header: bytes, author: bytes | None, receipt: Receipt) -> None:
    """Checking is a pure function of bytes, and five servers check the same ones."""
    Transaction(header, author, receipt).verify_signatures()


class Server:
    """One honest server; late answers are honest too, silence is for the others.

    Args:
        key: Its key.
        start: The ledger that all begin with.
        peers: The others' names.
        clock: Virtual time.
        network: How messages travel.
        rng: Every draw of this server.
        limits: Its bounds.
        parties: Everybody by name; filled by the world.
        relay: Whether ``peers`` are not all servers there are.
    """

    def __init__(
        self,
        key: Ed25519PrivateKey,
        start: TinyLedger,
        *,
        peers: tuple[Peer, ...],
        clock: Clock,
        network: Network,
        rng: random.Random,
        limits: GossipLimits,
        parties: dict[Peer, Party],
        relay: bool = False,
    ) -> None:
        self.key, self.name, self.start, self.peers = key, PublicKey(public_key_of(key)), start, peers
        self.clock, self.network, self.rng, self.limits, self.parties = clock, network, rng, limits, parties
        self.disk = Disk(epoch=rng.randbytes(16).hex())
        genesis = TransactionBundle(start.genesis_transaction, start.genesis.document)
        self.disk.append(Entry(genesis, start.genesis_model, start.norm(start.genesis_model)))
        self.relay = relay
        self.is_up, self.life = False, 0
        self._admissions: list[Admit] = []
        """Those of one list whose turn comes after the one at hand."""
        self.notices: Counter[tuple[Peer, Incident]] = Counter()
        self.bytes_fetched = 0
        self.published = 0
        self.is_writing = 0
        self.changed: Callable[[Server], None] = lambda server: None
        """Told after every change of what this server holds: where the invariants are checked."""

    # -- life and death

    def started(self) -> None:
        """Come up from what the disk holds."""
        self.is_up = True
        self.life += 1
        self._admissions = []
        first, *rest = self.disk.entries
        genesis = self.start.genesis
        self.replica = LedgerNode(genesis, first.bundle.transaction, flat(genesis.layout, self.start.genesis_model))
        self.ledger = self.replica.ledger
        for entry in rest:
            known = entry.bundle.transaction
            node = self.ledger.place(
                known.id, known.header, recorded=Figures(entry.norm).encode(), receipt=known.receipt
            )
            assert isinstance(node, Node), "the journal is ancestor-closed"
            self.replica.restore(node)
        self.items = ItemSet()
        for node in self.ledger:
            self.items.add(node.depth, node.id)
        self.acts = ActSet(self.ledger.id)
        self._write_free_s = self.clock.now_s
        self.responder = Responder(self.disk, self.items, self.acts, summary=self.summary)
        self.node = GossipNode(
            self.ledger,
            self.items,
            acts=self.acts,
            summary=self.summary,
            peers=self.peers,
            models=self.disk,
            check=self.check,
            rng=self.rng,
            now_s=self.clock.now_s,
            cursors=self.disk.cursors,
            checkpoints=self.disk.checkpoints.values(),
            relay=self.relay,
            limits=self.limits,
        )
        self.changed(self)
        self._tick()

    def crash(self) -> None:
        """Forget everything but the disk."""
        self.is_up = False
        self.life += 1
        self.is_writing = 0
        self.disk.crash(self.rng)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Something that this life of the server will do."""
        life = self.life
        self.clock.after(delay_s, lambda: action() if self.life == life else None)

    def _tick(self) -> None:
        self.do([])
        self._later(TICK_S, self._tick)

    # -- what the node wants done

    def do(self, effects: list[Effect]) -> None:
        """Do them, then ask the node what is due."""
        admits: list[Admit] = []
        for effect in [*effects, *self.node.poll(self.clock.now_s)]:
            if isinstance(effect, Admit):
                admits.append(effect)
            else:
                self._perform(effect)
        if admits:
            first, *self._admissions = admits
            self._admit(first)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendRequest(request=GetModel()):
                self._fetch(effect)
            case SendRequest():
                self._request(effect)
            case Announce(peer, announcement, _):
                self.network.send(self.name, peer, lambda: self.parties[peer].told(self.name, announcement))
            case DiscardModel(digest):
                self.disk.incoming.pop(digest, None)
            case SaveCursor(peer, cursor):
                self.disk.cursors[peer] = cursor
            case LogIncident(peer, incident):
                self.notices[peer, incident] += 1
                bound = 2 * len(self.peers) * self.limits.pending_per_peer
                assert len(self.node.inbound.pending) <= bound, "what waits is bounded"

    def _request(self, ask: SendRequest) -> None:
        """There and back; on either way it may get lost."""
        peer, life = ask.peer, self.life

        def arrive() -> None:
            response = self.parties[peer].serve(ask.request, self.name)
            if response is not None:
                self.network.send(peer, self.name, lambda: back(response))

        def back(response: Response) -> None:
            if self.life != life:
                return
            effects: list[Effect] = []
            try:
                if isinstance(response, CheckpointAnswer):
                    self._go_by(response.served)
            except CheckpointRefusedError:  # an answer that was on its way for longer than the one after it
                effects = self.node.failed(ask, self.clock.now_s, kind=Failure.REFUSED)
            else:
                effects = self.node.answered(ask, response, self.clock.now_s)
            self.do(effects)

        self.network.send(self.name, peer, arrive)

    def _go_by(self, served: ServedCheckpoint) -> None:
        member = served.checkpoint.member
        earlier = self.disk.checkpoints.get(member)
        check_checkpoint(
            served,
            ledger=self.ledger.id,
            members=self.peers,
            acts=(),
            earlier=None if earlier is None else earlier.checkpoint,
        )
        self.disk.checkpoints[member] = served

    def _fetch(self, ask: SendRequest) -> None:
        """A model comes in a few pieces, in order, until the connection breaks."""
        peer, life = ask.peer, self.life
        assert isinstance(ask.request, GetModel)
        request = ask.request

        def arrive() -> None:
            data = self.parties[peer].blob(request)
            if data is None and self.parties[peer].stalls:
                return
            self.clock.after(self.network.delay_s(), lambda: begin(data))

        def begin(data: bytes | None) -> None:
            if self.life != life or (peer, self.name) in self.network.cut:
                return
            if data is None:
                is_pruned = self.parties[peer].has_pruned(request)
                self.do(self.node.answered(ask, ModelUnknown(is_pruned), self.clock.now_s))
            else:
                receive(ask, data, request.start)

        def receive(current: SendRequest, data: bytes, start: int) -> None:
            if self.life != life or (peer, self.name) in self.network.cut:
                return None
            if self.rng.random() < self.network.loss:
                return self._broke(current)
            moved = self.node.model_progress(current, self.clock.now_s)
            incoming = self.disk.incoming.setdefault(request.digest, bytearray())
            if moved is None or len(incoming) != start:
                return None
            piece = data[start : start + max(1, request.size // CHUNKS)]
            incoming += piece
            self.bytes_fetched += len(piece)
            following = start + len(piece)
            if following < request.size:
                return self.clock.after(self.network.delay_s(), lambda: receive(moved, data, following))
            return self._arrived(moved, request)

        self.network.send(self.name, peer, arrive)

    def _broke(self, ask: SendRequest) -> None:
        """A connection that breaks is noticed at once half of the time, at the deadline otherwise."""
        if self.rng.random() < 0.5:
            self.do(self.node.failed(ask, self.clock.now_s, kind=Failure.UNREACHABLE))

    def _arrived(self, ask: SendRequest, request: GetModel) -> None:
        if digest_of(self.disk.incoming[request.digest]) == request.digest:
            return self.do(self.node.answered(ask, ModelComplete(), self.clock.now_s))
        del self.disk.incoming[request.digest]
        return self.do(self.node.answered(ask, ModelCorrupt(), self.clock.now_s))

    def _admit(self, effect: Admit) -> None:
        transaction = effect.bundle.transaction
        model = self.disk.model(transaction.header.model_digest) if effect.norm is None else None
        assert (model is None) == (effect.norm is not None), "an admission comes with its model, or a norm"
        try:
            entry, answer = self._review(effect.bundle, model, slack=NORM_SLACK, norm=effect.norm)
        except DagAcflError as error:
            is_to_blame = not (isinstance(error, ModelNormError) and error.bound < self.start.genesis.bounds.max_norm)
            reason = str(error)
            return self._settled(
                lambda: self.node.refused(effect.id, self.clock.now_s, reason=reason, is_to_blame=is_to_blame)
            )

        def deferred() -> list[Effect]:
            self.node.deferred(effect.id, self.clock.now_s)
            return []

        if isinstance(answer, WaitingForParents):  # one before it did not come in
            return self._settled(deferred)
        return self._append(
            entry,
            shown=lambda: self._settled(lambda: self.node.admitted(effect.id, self.clock.now_s)),
            failed=lambda: self._settled(deferred),
        )

    def _settled(self, report: Callable[[], list[Effect]]) -> None:
        """An admission has ended: the next of those that go together is its turn."""
        following, self._admissions = self._admissions, []
        self.do(report())
        if following:
            first, *self._admissions = following
            self._admit(first)

    # -- the ledger

    def check(self, transaction: Transaction) -> None:
        """Header and signatures."""
        check_header(transaction.header, genesis=self.start.genesis, ledger=self.ledger.id)
        _signatures_hold(
            transaction.header_bytes,
            transaction.author_signature,
            transaction.receipt,
        )

    def _review(
        self, bundle: TransactionBundle, model: bytes | None, *, slack: float, norm: float | None = None
    ) -> tuple[Entry, object]:
        self.check(bundle.transaction)
        header = bundle.transaction.header
        check_parents(header, None if bundle.attachment is None else parse_evidence(bundle.attachment))
        if norm is not None:
            slack = math.inf
        else:
            assert model is not None, "a norm comes in its place"
            vector = check_payload(header, genesis=self.start.genesis, model=model, attachment=bundle.attachment)
            norm = model_norm(vector)
        return Entry(bundle, model, norm), self.ledger.review(
            bundle.transaction.id, header, figures=Figures(norm), slack=slack
        )

    def _append(self, entry: Entry, *, shown: Callable[[], None], failed: Callable[[], None]) -> None:
        """One writer at a time: durable, then visible, then ``shown``. A crash may come before each."""
        self.is_writing += 1
        self._write_free_s = max(self._write_free_s, self.clock.now_s) + 0.002 + 0.03 * self.rng.random() ** 2

        def write() -> None:
            if self.disk.is_full:
                self.is_writing -= 1
                return failed()
            if entry.id not in self.disk:
                self.disk.append(entry)
            return self._later(0.02 * self.rng.random() ** 2, show)

        def show() -> None:
            self._show(entry)
            shown()

        self._later(self._write_free_s - self.clock.now_s, write)

    def _show(self, entry: Entry) -> None:
        answer = self.replica.admit(entry.bundle.transaction, None, figures=Figures(entry.norm), slack=math.inf)
        assert not isinstance(answer, WaitingForParents), "reviewed before"
        self.is_writing -= 1
        self.changed(self)

    def publish(
        self, header: Header, signature: bytes, model: bytes, evidence: bytes, acknowledged: Callable[[], None]
    ) -> bool:
        """A client publishes. False when the server is down or a rule refuses it; a full disk never answers."""
        if not self.is_up:
            return False
        unsigned = UnsignedTransaction.of(header)
        transaction = unsigned.issue(self.key, author_signature=signature, received_at_ms=CREATED_AT_MS)
        try:
            bundle = TransactionBundle(transaction, evidence)
            entry, answer = self._review(bundle, model, slack=0.0)
            if isinstance(answer, WaitingForParents):
                return False
            if not isinstance(answer, AlreadyKnown):
                check_publication(
                    transaction.header,
                    node=answer.node,
                    graph=self.ledger.graph,
                    genesis=self.start.genesis,
                )
        except TransactionError:
            return False

        def shown() -> None:
            acknowledged()
            self.published += 1
            self.do(self.node.published(bundle, self.clock.now_s))

        self._append(entry, shown=shown, failed=lambda: None)
        return True

    def summary(self) -> StateSummary:
        """What is here. Unsigned: who sent it is known here, and signing is tested by itself."""
        return StateSummary(
            ledger=self.ledger.id,
            server=self.name,
            epoch=self.disk.epoch,
            count=len(self.ledger),
            tips_digest=digest_of(b"".join(map(bytes.fromhex, self.tips()))),
            set_sum=self.items.total_sum,
            acts_digest=self.acts.digest,
            created_at_ms=CREATED_AT_MS,
        )

    # -- what others ask

    def serve(self, request: Request, asker: Peer) -> Response | None:
        """As any server answers; silence while it is down."""
        if not self.is_up or asker not in self.peers or self.node.is_banned(asker):
            return None
        self.node.heard(asker)
        return (
            CheckpointAnswer(self._checkpoint())
            if isinstance(request, GetCheckpoint)
            else self.responder.answer(request)
        )

    def _checkpoint(self) -> ServedCheckpoint:
        received = {entry.id: entry.bundle.transaction.receipt for entry in self.disk.entries}
        pruned = [place for place, node in enumerate(self.ledger) if node.model_digest in self.disk.pruned]
        state = LedgerState(
            ledger=self.ledger.id,
            arrivals=[(node.id, received[node.id]) for node in self.ledger],
            below=1 + max(pruned, default=-1),
            eligible=self.replica.nodes_of([*(self._retention().singled_out - {self.ledger.id})]),
            members_version=0,
            acts=(),
        )
        checkpoint, ids = make_checkpoint(state, member=self.name, now_ms=CREATED_AT_MS)
        return ServedCheckpoint.of(sign_checkpoint(checkpoint, self.key), ids)

    def _retention(self) -> Retention:
        return Retention.of(self.ledger.graph, self.ledger.genesis, keep_ms=0, offering=self.replica.offering)

    def prune(self) -> None:
        """Drop the models that the ledger's retention lets go."""
        retention = self._retention()
        kept = {node.model_digest for node in self.ledger if retention.keeps(node)}
        self.disk.prune({node.model_digest for node in self.ledger} - kept)

    def has_pruned(self, request: GetModel) -> bool:
        """Whether it says that it dropped the model."""
        return request.digest in self.disk.pruned

    @property
    def stalls(self) -> bool:
        """A server that is down says nothing."""
        return not self.is_up

    def blob(self, request: GetModel) -> bytes | None:
        """A model of a visible transaction."""
        return self.disk.model(request.digest) if self.is_up else None

    def told(self, peer: Peer, announcement: Announcement) -> None:
        """An announcement came."""
        if self.is_up and peer in self.peers:
            self.do(self.node.announced(peer, announcement, self.clock.now_s))

    def has_model(self, transaction: TxId) -> bool:
        """Whether a visible transaction's model is here; a server that joins may offer what lost it long ago."""
        bundle = self.disk.bundle(transaction)
        return bundle is not None and self.disk.model(bundle.transaction.header.model_digest) is not None

    def model_of(self, transaction: TxId) -> bytes:
        """The model of a visible transaction."""
        bundle = self.disk.bundle(transaction)
        assert bundle is not None, "visible means on the disk"
        model = self.disk.model(bundle.transaction.header.model_digest)
        assert model is not None, "a row has its model"
        return model

    def tips(self) -> tuple[TxId, ...]:
        """What nobody approves."""
        return self.ledger.graph.tips()
