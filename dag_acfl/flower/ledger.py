"""A ledger in memory, for one program that hears all clients: it asks, averages, signs and publishes for each of them.

The same core as a server's (``fl_core.node``), so that what comes of it is a ledger like any other. Models lie in a
temporary folder and are mapped, because a run publishes more of them than memory holds.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dag_acfl.commands.ledger.init import FirstModel, rules_of
from fl_core.aggregation import AGGREGATORS, ArraySource
from fl_core.aggregation.model import aggregate_model
from fl_core.dag.author import AuthorKind
from fl_core.dag.building import UnsignedTransaction, build_genesis, build_update
from fl_core.dag.figures import Figures, step_from
from fl_core.dag.genesis import Member
from fl_core.dag.graph import Node
from fl_core.dag.signature import public_key_of
from fl_core.dag.steps import shortened
from fl_core.models import check_model, encode_flat, flat, model_norm
from fl_core.node import LedgerNode, VectorsMissing
from fl_core.selection import SELECTORS
from fl_core.types import AuthorId, Digest, TxId, Vector32, digest_of
from fl_simulator.ledgers.record import Record, RecordedUpdate


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What a client trains from.

    Attributes:
        model: The model's canonical bytes.
        digest: Of these.
        parents: The updates whose average it is; genesis where the client has published nothing.
        evidence: The selection that chose them; None without one.
    """

    model: bytes
    digest: Digest
    parents: tuple[TxId, ...]
    evidence: bytes | None = None


class LocalLedger:
    """A ledger whose server and clients' keys are this process's; not safe for concurrent use.

    Attributes:
        key: The founder's: the server's that may go on with this ledger.
        record: All that was published, as ``write_bundle`` takes it.
    """

    def __init__(self, table: Mapping[str, Any], first: FirstModel) -> None:
        self.key = Ed25519PrivateKey.generate()
        # The nodes are those that Flower lets in, and FedAvg's place is taken: so as FedAvg averages.
        table = {"aggregator": {"name": "fedavg"}, "weights": {"name": "examples"}, **table}
        self.genesis = rules_of(table, first, founders=(Member(public_key_of(self.key), "founder"),))
        self._folder = TemporaryDirectory(prefix="dag-acfl-")
        self._keys: dict[int, Ed25519PrivateKey] = {}
        self._starts: dict[int, Start] = {}
        self._averages: dict[tuple[TxId, ...], bytes] = {}
        self._selector = SELECTORS.build(self.genesis.selector.name, self.genesis.selector.params)
        self._aggregator = AGGREGATORS.build(self.genesis.aggregator.name, self.genesis.aggregator.params)
        digest = digest_of(first.encoded)
        unsigned = build_genesis(self.genesis, key=self.key, model_digest=digest, created_at_ms=_now_ms())
        genesis = self._recorded(unsigned, self.key, first.encoded)
        self.node = LedgerNode(self.genesis, genesis.transaction, genesis.vector)
        self.record = Record(self.genesis, [genesis])

    def start_of(self, client: int) -> Start:
        """What a client is given on the ledger as it is now; the genesis model where it has published nothing."""
        newest = self._newest_of(client)
        if newest is None:
            first = self.node.graph.genesis
            return Start(self._model(first.id), first.model_digest, (first.id,))
        if client not in self._starts:
            self._starts[client] = self._selected(newest)
        return self._starts[client]

    def publish(
        self,
        client: int,
        start: Start,
        model: bytes,
        *,
        num_examples: int,
        metrics: Mapping[str, float],
        noise_std: float = 0.0,
    ) -> None:
        """Add what a client has trained.

        Args:
            client: Its number; a new one is given a key.
            start: What it was given to train from.
            model: Canonical bytes.
            num_examples: What it was trained on.
            metrics: Such as a header takes.
            noise_std: Of the noise in each of the model's values.

        Raises:
            ModelError, TransactionError: The ledger's rules refuse it; nothing has changed.
        """
        key = self._keys.setdefault(client, Ed25519PrivateKey.generate())
        newest, layout = self._newest_of(client), self.genesis.layout
        trained = check_model(layout, model, max_abs=self.genesis.bounds.max_abs_value)
        average = flat(layout, self._average(start.parents))
        bound = self.node.ledger.step_bound(_author(key), start.parents)
        model = encode_flat(layout, shortened(trained, average, bound, layout=layout))
        unsigned = build_update(
            ledger=self.node.id,
            author=_author(key),
            sequence=0 if newest is None else newest.sequence + 1,
            created_at_ms=_now_ms(),
            num_examples=num_examples,
            start=start.digest,
            model_digest=digest_of(model),
            model_size=len(model),
            parents=start.parents,
            evidence=None if start.evidence is None else digest_of(start.evidence),
            metrics=metrics,
            noise_std=noise_std,
        )
        update = self._recorded(unsigned, key, model)
        step = step_from(average, update.vector, layout=layout)
        update = replace(update, figures=Figures(update.figures.norm, step, self.node.shares(start.parents)))
        self.node.admit(update.transaction, self.node.compared(update.vector), figures=update.figures, slack=0.0)
        self.record.add(update)
        if start.evidence is not None:
            self.record.keep_evidence(start.evidence)
        self._starts.clear()
        self._averages.clear()

    @property
    def client_of(self) -> dict[AuthorId, int]:
        """Which client an author is."""
        return {_author(key): client for client, key in self._keys.items()}

    def _newest_of(self, client: int) -> Node | None:
        key = self._keys.get(client)
        return None if key is None else self.node.graph.newest_of(_author(key))

    def _selected(self, newest: Node) -> Start:
        vector = self.node.compared(self.record.vector(newest.id))
        while isinstance(
            request := self.node.question(newest.author, vector, noise_std=newest.noise_std), VectorsMissing
        ):
            for each in request.transactions:
                self.node.bring(each, self.node.compared(self.record.vector(each)))
        selection = self._selector.choose(request)
        parents = self.node.parents_to_average(selection)
        model = self._average(parents) if parents else self._model(newest.id)
        evidence = self.node.evidence(
            selection,
            selector=self._selector,
            author=newest.author,
            reference=newest.id,
            reference_model=newest.model_digest,
            aggregate=digest_of(model),
        )
        return Start(model, digest_of(model), selection.parents, evidence.encode())

    def _average(self, parents: tuple[TxId, ...]) -> bytes:
        """The canonical bytes of the average; clients of one cluster share it."""
        if len(parents) == 1:
            return self._model(parents[0])
        if parents not in self._averages:
            self._averages[parents] = aggregate_model(
                self.genesis,
                self._aggregator,
                [ArraySource(self.record.vector(each)) for each in parents],
                num_examples=[each.num_examples for each in self.node.nodes_of(parents)],
            )
        return self._averages[parents]

    def _model(self, transaction: TxId) -> bytes:
        return encode_flat(self.genesis.layout, self.record.vector(transaction))

    def _recorded(self, unsigned: UnsignedTransaction, author: Ed25519PrivateKey, model: bytes) -> RecordedUpdate:
        """Check a model, sign for its author and for the server, and put it into the folder."""
        vector = check_model(self.genesis.layout, model, max_abs=self.genesis.bounds.max_abs_value)
        signature = unsigned.sign_as_author(author)
        transaction = unsigned.issue(self.key, author_signature=signature, received_at_ms=_now_ms())
        file = Path(self._folder.name) / unsigned.id
        vector.tofile(file)
        mapped: Vector32 = np.asarray(np.memmap(file, np.float32, "r"))
        return RecordedUpdate(transaction, mapped, Figures(model_norm(vector)))


def _author(key: Ed25519PrivateKey) -> AuthorId:
    return AuthorKind.ED25519.author(public_key_of(key))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
