"""Several virtual ledger servers, what clients publish on them, and how long it travels.

Time is a number that the caller gives: rounds or seconds. A transaction is on its own server at once and on another
one after that pair's delay; what overtakes its parents waits for them, as on a real server.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fl_core.aggregation import AGGREGATORS, ArraySource
from fl_core.aggregation.model import aggregate_values, shares_of
from fl_core.dag.acts import Act, ActKind, acts_in_effect, sign_act
from fl_core.dag.author import AuthorKind
from fl_core.dag.author_list import AuthorList
from fl_core.dag.building import build_genesis, build_update
from fl_core.dag.figures import Figures, step_from
from fl_core.dag.genesis import Genesis
from fl_core.dag.signature import public_key_of
from fl_core.dag.steps import shortened
from fl_core.dag.transaction import Transaction
from fl_core.errors import ModelNormError, StepTooLongError, TransactionError
from fl_core.models import model_norm
from fl_core.node import LedgerNode
from fl_core.selection import SelectionRequest
from fl_core.step_coding import round_step
from fl_core.trust.quarantine import decisions, quarantine_of
from fl_core.types import AuthorId, Digest, TxId, Vector32
from fl_simulator.errors import SimulationError
from fl_simulator.ledgers.record import Record, RecordedUpdate, model_digest
from fl_simulator.ledgers.server import VirtualServer
from fl_simulator.run.processes import usable_cores
from fl_simulator.seeds import Seeds

Delay = Callable[[int, int], float]
"""Time from one server to another; may draw."""

_MOST_THREADS: Final = 4
"""For hashing and signing. Only SHA-256 releases the GIL, so more would wait for it."""
_MS: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class LocalUpdate:
    """What a client wants to publish.

    Attributes:
        client: Its number.
        vector: The trained model, shape ``(P,)``; must not change afterwards.
        parents: What it was aggregated from, ascending.
        num_examples: What it was trained on.
        start: Digest of the model that training began from.
    """

    client: int
    vector: Vector32
    parents: tuple[TxId, ...]
    num_examples: int
    start: Digest


class VirtualServers:
    """All servers of one run.

    Args:
        genesis: The rules.
        initial: The genesis model, shape ``(P,)``.
        seeds: Decides the keys of servers and clients.
        num_clients: How many clients there are.
        count: How many servers; client c calls on server ``c % count`` until it is moved.
        delay: Time between two servers; None: none.
        round_steps: Whether clients round what they publish (``fl_core.step_coding.round_step``).
    """

    def __init__(
        self,
        genesis: Genesis,
        initial: Vector32,
        *,
        seeds: Seeds,
        num_clients: int,
        count: int = 1,
        delay: Delay | None = None,
        round_steps: bool = False,
    ) -> None:
        self.genesis, self._round_steps = genesis, round_steps
        self._keys = [_client_key(seeds, client) for client in range(num_clients)]
        self._server_keys = [_key(seeds, "server key", server) for server in range(count)]
        self.authors: tuple[AuthorId, ...] = tuple(map(_author, self._keys))
        self._client_of = {author: client for client, author in enumerate(self.authors)}
        self._delay = delay
        self._aggregator = AGGREGATORS.build(genesis.aggregator.name, genesis.aggregator.params)
        first = self._genesis_transaction(initial.copy())
        self.id: TxId = first.transaction.id
        self.record: Record = Record(genesis, [first])
        self._servers = [VirtualServer(genesis, first) for _ in range(count)]
        self._homes = [client % count for client in range(num_clients)]
        self._newest: dict[int, TxId] = {}
        self.quarantined: frozenset[int] = frozenset()
        """Whose authors the servers have quarantined."""
        self._sequence = [0] * num_clients
        self._travelling: list[tuple[float, int, int, TxId]] = []  # (arrival, order, server, transaction)
        self._sent = 0
        self.refused: NDArray[np.int64] = np.zeros(num_clients, dtype=np.int64)
        """Of each client, how many of its updates the ledger's rules refused."""
        self._threads = ThreadPoolExecutor(min(_MOST_THREADS, usable_cores()), "signing")

    def _genesis_transaction(self, initial: Vector32) -> RecordedUpdate:
        key, digest = self._server_keys[0], model_digest(self.genesis.layout, initial)
        unsigned = build_genesis(self.genesis, key=key, model_digest=digest, created_at_ms=0)
        transaction = unsigned.issue(key, author_signature=unsigned.sign_as_author(key), received_at_ms=0)
        return RecordedUpdate(transaction, initial, Figures(model_norm(initial)))

    def _sign(self, update: LocalUpdate, *, now: float) -> Transaction:
        """Hash and sign what a client publishes on its server."""
        layout, key, now_ms = self.genesis.layout, self._keys[update.client], int(now * _MS)
        unsigned = build_update(
            ledger=self.id,
            author=self.authors[update.client],
            sequence=self._sequence[update.client],
            created_at_ms=now_ms,
            num_examples=update.num_examples,
            start=update.start,
            model_digest=model_digest(layout, update.vector),
            model_size=layout.nbytes,
            parents=update.parents,
        )
        issuer = self._server_keys[self.server_of(update.client)]
        return unsigned.issue(issuer, author_signature=unsigned.sign_as_author(key), received_at_ms=now_ms)

    @property
    def nodes(self) -> list[LedgerNode]:
        return [server.node for server in self._servers]

    def server_of(self, client: int) -> int:
        return self._homes[client]

    def move(self, client: int, server: int) -> None:
        """Let a client call on another server from now on."""
        self._homes[client] = server

    def client_of(self, author: AuthorId) -> int | None:
        """Which client an author is; None for genesis's."""
        return self._client_of.get(author)

    def newest(self, client: int) -> Vector32 | None:
        """The model by which a client is compared, as ``newest_transaction`` says; None before its first."""
        newest = self.newest_transaction(client)
        return None if newest is None else self.record.vector(newest)

    def newest_transaction(self, client: int) -> TxId | None:
        """The transaction that a client published last, or what it is led back to; None before its first.

        That is its last one that is not withheld on its server, or genesis, from which it begins anew.
        """
        newest, node = self._newest.get(client), self._servers[self.server_of(client)].node
        published = None if newest is None else node.graph.get(newest)
        return newest if published is None else node.compared_for(published).id

    def is_led_back(self, client: int) -> bool:
        """Whether what the client published last is withheld on its server."""
        return self.newest_transaction(client) != self._newest.get(client)

    def quarantine(self, clients: Iterable[int]) -> None:
        """Let an act of all servers, for each of these clients, quarantine its author; at once, everywhere."""
        self.quarantined = frozenset(clients)
        signed = [
            sign_act(
                Act(
                    ledger=self.id,
                    number=1,
                    created_at_ms=0,
                    kind=ActKind.QUARANTINE,
                    subject=self.authors[client],
                    details={"reason": "an attacker"},
                ),
                *self._server_keys,
            )
            for client in sorted(self.quarantined)
        ]
        founders = [public_key_of(key) for key in self._server_keys]
        effect = acts_in_effect(signed, founders=founders, threshold=self.genesis.threshold)
        for server in self._servers:
            server.node.go_by(effect, AuthorList(), quarantine_of(decisions(signed, effect), AuthorList()))

    def questions(self, asking: Mapping[int, Vector32]) -> dict[int, SelectionRequest]:
        """What the servers ask the selector for clients, each compared by a model, shape ``(P,)``."""
        found: dict[int, SelectionRequest] = {}
        for number, server in enumerate(self._servers):
            mine = [client for client in asking if self.server_of(client) == number]
            if mine:
                authors = [None if self.newest_transaction(each) == self.id else self.authors[each] for each in mine]
                answers = server.questions(authors, [asking[client] for client in mine], self.record)
                found.update(zip(mine, answers, strict=True))
        return found

    def aggregate(self, parents: Sequence[TxId]) -> Vector32:
        """The mean of some transactions' models, as a server computes it; one model comes back as it is."""
        if len(parents) == 1:
            return self.record.vector(parents[0])
        ordered = sorted(parents)
        return aggregate_values(
            self.genesis,
            self._aggregator,
            [ArraySource(self.record.vector(each)) for each in ordered],
            num_examples=self._counts(ordered),
        )

    def _within_bound(self, update: LocalUpdate, averages: dict[tuple[TxId, ...], Vector32]) -> LocalUpdate:
        """The update, its step shortened as a client shortens it that is told its bound (``fl_core.dag.steps``)."""
        ledger = self._servers[self.server_of(update.client)].node.ledger
        is_known = all(parent in ledger for parent in update.parents)
        if not (self.genesis.bounds.limit_steps and is_known and np.isfinite(update.vector).all()):
            return update
        if update.parents not in averages:
            averages[update.parents] = self.aggregate(update.parents)
        bound = ledger.step_bound(self.authors[update.client], update.parents)
        vector = shortened(update.vector, averages[update.parents], bound, layout=self.genesis.layout)
        return replace(update, vector=vector)

    def _rounded(self, update: LocalUpdate, averages: dict[tuple[TxId, ...], Vector32]) -> LocalUpdate:
        """The update, rounded as a client does that wants to send little."""
        if not (self._round_steps and np.isfinite(update.vector).all()):
            return update
        if update.parents not in averages:
            averages[update.parents] = self.aggregate(update.parents)
        return replace(update, vector=round_step(self.genesis.layout, update.vector, averages[update.parents]))

    def _figures(self, update: LocalUpdate, averages: dict[tuple[TxId, ...], Vector32]) -> Figures:
        """What is recorded of an update; its step only where the ledger bounds steps, as the average is made again."""
        parents = update.parents
        shares = shares_of(self.genesis, self._aggregator, self._counts(parents))
        if not self.genesis.bounds.limit_steps:
            return Figures(model_norm(update.vector), None, shares)
        if parents not in averages:
            averages[parents] = self.aggregate(parents)
        step = step_from(averages[parents], update.vector, layout=self.genesis.layout)
        return Figures(model_norm(update.vector), step, shares)

    def _counts(self, transactions: Sequence[TxId]) -> list[int]:
        return [self.record.transaction(each).header.num_examples for each in transactions]

    def digests(self, models: Iterable[Vector32]) -> list[Digest]:
        """What headers call these models, each of shape ``(P,)``."""
        return list(self._threads.map(lambda model: model_digest(self.genesis.layout, model), models))

    def publish(self, updates: Sequence[LocalUpdate], *, now: float) -> list[TxId]:
        """Put transactions of different clients on their servers, in order, and on their way to the others.

        What the ledger's rules refuse is left out, and counted as ``refused``: its author goes on with its newest.

        Raises:
            SimulationError: A model is not finite: its training diverged.
        """
        published: list[TxId] = []
        averages: dict[tuple[TxId, ...], Vector32] = {}
        updates = [self._within_bound(self._rounded(update, averages), averages) for update in updates]
        signed = self._threads.map(lambda update: self._sign(update, now=now), updates)
        for update, transaction in zip(updates, signed, strict=True):
            if not np.isfinite(update.vector).all():
                raise SimulationError(
                    f"the model of client {update.client} is not finite: its training diverged; lower learning_rate"
                )
            origin, figures = self.server_of(update.client), self._figures(update, averages)
            try:
                self._servers[origin].receive(transaction, update.vector, figures)
            except (TransactionError, ModelNormError, StepTooLongError):
                self.refused[update.client] += 1
                continue
            self.record.add(RecordedUpdate(transaction, update.vector, figures))
            self._sequence[update.client] += 1
            self._newest[update.client] = transaction.id
            for server in range(len(self._servers)):
                if server != origin:
                    delay = 0.0 if self._delay is None else self._delay(origin, server)
                    heapq.heappush(self._travelling, (now + delay, self._sent, server, transaction.id))
                    self._sent += 1
            published.append(transaction.id)
        self.advance(now)
        return published

    def advance(self, now: float) -> int:
        """Deliver what arrives until ``now``, inclusive; how much that was."""
        delivered = 0
        while self._travelling and self._travelling[0][0] <= now:
            _, _, server, transaction = heapq.heappop(self._travelling)
            self._deliver(self._servers[server], transaction)
            delivered += 1
        return delivered

    def _deliver(self, server: VirtualServer, transaction: TxId) -> None:
        record = self.record
        server.receive(record.transaction(transaction), record.get(transaction), record.figures_of(transaction))

    def prune(self, *, keep: Iterable[TxId] = ()) -> None:
        """Drop the models that nobody can be given any more: not a tip on offer, not an author's newest.

        Args:
            keep: Transactions that keep their models all the same, where selection looks at more than tips.
        """
        wanted = set(self._newest.values()).union(keep, *(server.wanted() for server in self._servers))
        self.record.keep_only(wanted | {transaction for _, _, _, transaction in self._travelling})

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays of which ``restore`` makes equal servers."""
        place = {transaction: index for index, transaction in enumerate(self.record)}
        arrivals = [[place[each] for each in server.arrivals] for server in self._servers]
        return {
            **self.record.state(),
            "arrivals": np.array([each for those in arrivals for each in those], dtype=np.int64),
            "arrival_ends": np.cumsum([len(those) for those in arrivals]),
            "travelling": np.array(
                [(when, order, server, place[each]) for when, order, server, each in self._travelling], dtype=np.float64
            ).reshape(-1, 4),
            "sent": np.array([self._sent]),
            "refused": self.refused.copy(),
            "homes": np.array(self._homes, dtype=np.int64),
            "quarantined": np.array(sorted(self.quarantined), dtype=np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become the servers whose state this is.

        Every server takes in again what it had, in its order: the graph and who can be offered follow from that.
        """
        self.record = Record.restore(self.genesis, state)
        order = list(self.record)
        for transaction in order[1:]:
            header = self.record.transaction(transaction).header
            client = self._client_of[header.author]
            self._newest[client] = transaction
            self._sequence[client] = header.sequence + 1
        first = self.record.update(order[0])
        self._servers = [VirtualServer(self.genesis, first) for _ in self._servers]
        ends = state["arrival_ends"].tolist()
        for server, start, end in zip(self._servers, [0, *ends], ends, strict=False):
            for index in state["arrivals"][start:end].tolist():
                self._deliver(server, order[index])
        self._travelling = [
            (float(when), int(number), int(server), order[int(index)])
            for when, number, server, index in state["travelling"]
        ]
        heapq.heapify(self._travelling)
        self._sent = int(state["sent"][0])
        self.refused = state["refused"].copy()
        self._homes = state["homes"].tolist()
        if len(state["quarantined"]):
            self.quarantine(state["quarantined"].tolist())

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)


def _key(seeds: Seeds, kind: str, number: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seeds.generator(kind, number).bytes(32))


def _client_key(seeds: Seeds, client: int) -> Ed25519PrivateKey:
    return _key(seeds, "client key", client)


def _author(key: Ed25519PrivateKey) -> AuthorId:
    return AuthorKind.ED25519.author(public_key_of(key))


def author_of(seeds: Seeds, client: int) -> AuthorId:
    """As whom a client of the run with these seeds publishes."""
    return _author(_client_key(seeds, client))
