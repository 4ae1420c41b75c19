"""Several virtual ledger servers, what clients publish on them, and how long it travels.

Time is a number that the caller gives: rounds or seconds. A transaction is on its own server at once and on another
one after that pair's delay; what overtakes its parents waits for them, as on a real server.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fl_core.aggregation import ArraySource, build_aggregator
from fl_core.aggregation.model import aggregate_values
from fl_core.dag.building import build_genesis, build_update
from fl_core.dag.genesis import Genesis
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import AuthorKind
from fl_core.models import model_norm
from fl_core.selection import SelectionRequest
from fl_core.types import AuthorId, TxId, Vector32
from fl_simulator.errors import SimulationError
from fl_simulator.ledgers.record import Publication, Record, model_digest
from fl_simulator.ledgers.replica import Replica
from fl_simulator.run.processes import usable_cores
from fl_simulator.seeds import Seeds

Delay = Callable[[int, int], float]
"""Time from one server to another; may draw."""

_MOST_SIGNING_THREADS: Final = 4
"""Only SHA-256 releases the interpreter's lock, so more do not help."""
_MS: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """What a client wants to publish.

    Attributes:
        client: Its number.
        vector: The trained model, shape ``(P,)``; must not change afterwards.
        parents: What it was aggregated from, ascending.
        num_examples: What it was trained on.
    """

    client: int
    vector: Vector32
    parents: tuple[TxId, ...]
    num_examples: int


class VirtualServers:
    """All servers of one run.

    Args:
        genesis: The rules.
        initial: The genesis model, shape ``(P,)``.
        seeds: Decides the keys of servers and clients.
        num_clients: How many clients there are.
        count: How many servers; client c calls on server ``c % count`` until it is moved.
        delay: Time between two servers; None: none.
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
    ) -> None:
        self.genesis = genesis
        self._keys = [_key(seeds, "client key", client) for client in range(num_clients)]
        self._server_keys = [_key(seeds, "server key", server) for server in range(count)]
        self.authors = tuple(AuthorKind.ED25519.author(public_key_of(key)) for key in self._keys)
        self._client_of = {author: client for client, author in enumerate(self.authors)}
        self._delay = delay
        self._aggregator = build_aggregator(genesis.aggregator.name, genesis.aggregator.params)
        first = self._genesis_transaction(initial.copy())
        self.record = Record(genesis, [first])
        self.replicas = [Replica(genesis, first) for _ in range(count)]
        self._homes = [client % count for client in range(num_clients)]
        self._newest: dict[int, TxId] = {}
        self._sequence = [0] * num_clients
        self._travelling: list[tuple[float, int, int, TxId]] = []  # (arrival, order, server, transaction)
        self._sent = 0
        self._arrivals: list[list[TxId]] = [[] for _ in range(count)]
        self._signers = ThreadPoolExecutor(min(_MOST_SIGNING_THREADS, usable_cores()), "signing")

    def _genesis_transaction(self, initial: Vector32) -> Publication:
        key, digest = self._server_keys[0], model_digest(self.genesis.layout, initial)
        unsigned = build_genesis(self.genesis, key=key, model_digest=digest, created_at_ms=0)
        transaction = unsigned.issue(key, author_signature=unsigned.sign_as_author(key))
        return Publication(transaction, initial, model_norm(initial))

    def _sealed(self, drafts: Sequence[Draft], *, now: float) -> Iterator[Publication]:
        """What drafts become, in order: hashed, signed, measured."""
        numbers = self._sequence.copy()
        numbered: list[tuple[Draft, int]] = []
        for draft in drafts:
            numbered.append((draft, numbers[draft.client]))
            numbers[draft.client] += 1
        return self._signers.map(lambda each: self._publication(*each, now=now), numbered)

    def _publication(self, draft: Draft, sequence: int, *, now: float) -> Publication:
        layout, key = self.genesis.layout, self._keys[draft.client]
        unsigned = build_update(
            ledger=self.id,
            author=self.authors[draft.client],
            sequence=sequence,
            created_at_ms=int(now * _MS),
            num_examples=draft.num_examples,
            model_digest=model_digest(layout, draft.vector),
            model_size=layout.nbytes,
            parents=draft.parents,
        )
        issuer = self._server_keys[self.server_of(draft.client)]
        transaction = unsigned.issue(issuer, author_signature=unsigned.sign_as_author(key))
        return Publication(transaction, draft.vector, model_norm(draft.vector))

    @property
    def id(self) -> TxId:
        """The ledger's id."""
        return self.replicas[0].ledger.id

    def server_of(self, client: int) -> int:
        """The server on which a client calls."""
        return self._homes[client]

    def move(self, client: int, server: int) -> None:
        """Let a client call on another server from now on."""
        self._homes[client] = server

    def client_of(self, author: AuthorId) -> int | None:
        """Which client an author is; None for genesis's."""
        return self._client_of.get(author)

    def newest(self, client: int) -> Vector32 | None:
        """The model that a client published last; None before its first."""
        newest = self._newest.get(client)
        return None if newest is None else self.record.vector(newest)

    def questions(self, asking: Mapping[int, Vector32]) -> dict[int, SelectionRequest]:
        """What the servers ask the selector for clients, each compared by a model, shape ``(P,)``."""
        found: dict[int, SelectionRequest] = {}
        for server, replica in enumerate(self.replicas):
            mine = [client for client in asking if self.server_of(client) == server]
            if mine:
                authors = [self.authors[client] for client in mine]
                answers = replica.questions(authors, [asking[client] for client in mine])
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
            num_examples=[self.record.transaction(each).header.num_examples for each in ordered],
            genesis_model=ArraySource(self.record.vector(self.id)),
        )

    def publish(self, drafts: Sequence[Draft], *, now: float) -> list[TxId]:
        """Put transactions on their clients' servers, in order, and on their way to the others.

        Raises:
            SimulationError: A model is not finite: its training diverged.
            TransactionError, ModelNormError: The ledger's rules refuse one.
        """
        published: list[TxId] = []
        for draft, publication in zip(drafts, self._sealed(drafts, now=now), strict=True):
            if not np.isfinite(publication.norm):
                raise SimulationError(
                    f"the model of client {draft.client} is not finite: its training diverged; lower learning_rate"
                )
            server, transaction = self.server_of(draft.client), publication.transaction
            self._arrive(server, publication)
            self.record.add(publication)
            self._sequence[draft.client] += 1
            self._newest[draft.client] = transaction.id
            self._send(transaction.id, server, now)
            published.append(transaction.id)
        self.advance(now)
        return published

    def _arrive(self, server: int, publication: Publication) -> None:
        self.replicas[server].admit(publication)
        self._arrivals[server].append(publication.transaction.id)

    def _send(self, transaction: TxId, origin: int, now: float) -> None:
        for server in range(len(self.replicas)):
            if server != origin:
                delay = 0.0 if self._delay is None else self._delay(origin, server)
                heapq.heappush(self._travelling, (now + delay, self._sent, server, transaction))
                self._sent += 1

    def advance(self, now: float) -> int:
        """Deliver what arrives until ``now``, inclusive; how much that was."""
        delivered = 0
        while self._travelling and self._travelling[0][0] <= now:
            _, _, server, transaction = heapq.heappop(self._travelling)
            self._arrive(server, self.record.publication(transaction))
            delivered += 1
        return delivered

    def prune(self, *, keep: Iterable[TxId] = ()) -> None:
        """Drop the models that nobody can be given any more: not a tip on offer, not an author's newest.

        Args:
            keep: Transactions that keep their models all the same, where selection looks at more than tips.
        """
        wanted = set(self._newest.values()).union(keep, *(replica.wanted() for replica in self.replicas))
        self.record.keep_only(wanted | {transaction for _, _, _, transaction in self._travelling})

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays of which ``restore`` makes equal servers."""
        place = {transaction: index for index, transaction in enumerate(self.record)}
        arrivals = [[place[each] for each in those] for those in self._arrivals]
        return {
            **self.record.state(),
            "arrivals": np.array([each for those in arrivals for each in those], dtype=np.int64),
            "arrival_ends": np.cumsum([len(those) for those in arrivals]),
            "travelling": np.array(
                [(when, order, server, place[each]) for when, order, server, each in self._travelling], dtype=np.float64
            ).reshape(-1, 4),
            "sent": np.array([self._sent]),
            "homes": np.array(self._homes, dtype=np.int64),
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
        first = self.record.publication(order[0])
        self.replicas = [Replica(self.genesis, first) for _ in self.replicas]
        ends = state["arrival_ends"].tolist()
        self._arrivals = [
            [order[index] for index in state["arrivals"][start:end].tolist()]
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        for replica, arrivals in zip(self.replicas, self._arrivals, strict=True):
            replica.replay(arrivals, self.record)
        self._travelling = [
            (float(when), int(number), int(server), order[int(index)])
            for when, number, server, index in state["travelling"]
        ]
        heapq.heapify(self._travelling)
        self._sent = int(state["sent"][0])
        self._homes = state["homes"].tolist()

    def close(self) -> None:
        """End the threads."""
        self._signers.shutdown()


def _key(seeds: Seeds, kind: str, number: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seeds.generator(kind, number).bytes(32))
