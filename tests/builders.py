"""Small builders: a ledger of a few numbers, keys from seeds, transactions without a server.

A model here is one layer of three weights and a bias, so that every expected number fits in a head.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from cachetools import LRUCache
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fl_core.dag.author import AuthorKind, author_of_secret
from fl_core.dag.building import UnsignedTransaction, build_genesis, build_update
from fl_core.dag.figures import Figures
from fl_core.dag.genesis import NO_BOUND, Bounds, Component, Genesis, compare_layers
from fl_core.dag.graph import Node
from fl_core.dag.receipt import Receipt
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Header, Transaction
from fl_core.ledger import Admitted
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat, model_norm
from fl_core.node import LedgerNode
from fl_core.types import AuthorId, Digest, JsonScalar, TxId, digest_of

LAYOUT = ModelLayout.of([TensorSpec("fc.weight", "F32", (1, 3)), TensorSpec("fc.bias", "F32", (1,))])
CREATED_AT_MS = 1_700_000_000_000
WIDE = {"max_first_step": 1e4, "max_step_growth": 1e6, "max_layer_growth": NO_BOUND}
"""Bounds for models of a few numbers, which nobody trained: a step upon (1, 1, 1, 1) may be 20,000 long."""
START = Digest("57" * 32)
"""The model that training began from, where a test does not care."""


def key_from_seed(seed: int) -> Ed25519PrivateKey:
    """The same key for the same seed."""
    return Ed25519PrivateKey.from_private_bytes(seed.to_bytes(32, "big"))


def author_of(key: Ed25519PrivateKey) -> AuthorId:
    """The author that signs with this key."""
    return AuthorKind.ED25519.author(public_key_of(key))


def write_key(key: Ed25519PrivateKey, file: Path) -> str:
    """Keep a key as commands read it, for its owner alone; the file's name."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with open(file, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        opened.write(pem)
    return str(file)


ISSUER = key_from_seed(1)


def model(*values: float, layout: ModelLayout = LAYOUT) -> bytes:
    """A model file: the given values first, the rest zeros."""
    vector = np.zeros(layout.num_parameters, np.float32)
    vector[: len(values)] = values
    return encode_flat(layout, vector)


def make_genesis(
    *,
    layout: ModelLayout = LAYOUT,
    name: str = "test",
    selector: str = "top-k",
    selector_params: Mapping[str, JsonScalar] | None = None,
    compared: Sequence[str] | None = None,
    candidates: str = "tips",
    freshness_s: int = 200,
    examples_factor: int = 1_000_000,
    authors: str = "open",
    keys_only: bool = False,
    **bounds: Any,
) -> Genesis:
    """Rules for a test ledger."""
    return Genesis(
        name=name,
        layout=layout,
        comparison=compare_layers(compared or [tensor.name for tensor in layout.tensors]),
        selector=Component(selector, selector_params or {}),
        aggregator=Component("fedavg"),
        weights=Component("examples", {"factor": examples_factor}),
        candidates=Component(candidates),
        freshness=Component("time", {"window_s": freshness_s}),
        authors=Component(authors, {"keys_only": keys_only}),
        training={"epochs": 1, "initial_epochs": 2},
        bounds=Bounds(**{**WIDE, **bounds}),
    )


def genesis_transaction(genesis: Genesis, model_bytes: bytes, *, key: Ed25519PrivateKey = ISSUER) -> Transaction:
    """The first transaction of a ledger."""
    unsigned = build_genesis(genesis, key=key, model_digest=digest_of(model_bytes), created_at_ms=CREATED_AT_MS)
    return unsigned.issue(key, author_signature=unsigned.sign_as_author(key), received_at_ms=CREATED_AT_MS)


def seal(
    header: Header, *, author_key: Ed25519PrivateKey | None = None, issuer: Ed25519PrivateKey = ISSUER
) -> Transaction:
    """Encode a header and sign it."""
    unsigned = UnsignedTransaction.of(header)
    signature = unsigned.sign_as_author(author_key) if author_key else None
    return unsigned.issue(issuer, author_signature=signature, received_at_ms=CREATED_AT_MS)


_NUMBERS = count(1)
_SECRETS: dict[str, str] = {}


def new_secret() -> str:
    """The secret of an author who has not published before; ``secret_of`` finds it again."""
    return known_secret(f"{next(_NUMBERS):064x}")


def known_secret(secret: str) -> str:
    """This secret, which ``secret_of`` finds again."""
    _SECRETS[author_of_secret(secret)] = secret
    return secret


def secret_of(author: str) -> str:
    """The secret of an author that a test has named; of others, none that anybody has."""
    return _SECRETS.get(author, "0" * 64)


def unreceipted(transaction: Transaction) -> Transaction:
    """The same with a receipt that its server did not sign."""
    return replace(transaction, receipt=replace(transaction.receipt, signature=bytes(64)))


def receipt_of(content: Mapping[str, Any]) -> Receipt:
    """A receipt as the API shows it."""
    signature = bytes.fromhex(content["signature"])
    return Receipt(content["issuer"], content["received_at_ms"], content["members_version"], signature)


def transaction_of(content: Mapping[str, Any]) -> Transaction:
    """A transaction as the API shows it."""
    signature = content["author_signature"]
    author_signature = None if signature is None else bytes.fromhex(signature)
    return Transaction(bytes.fromhex(content["header"]), author_signature, receipt_of(content["receipt"]))


class FewNodes:
    """Nodes of which three are in memory, as a server has them; a list stands for its journal, which is read anew."""

    def __init__(self) -> None:
        self._journal: list[Node] = []
        self._lately: LRUCache[TxId, Node] = LRUCache(3)

    def add(self, node: Node) -> None:
        self._journal.append(node)
        self._lately[node.id] = node

    def get(self, transaction: TxId) -> Node | None:
        if transaction not in self._lately:
            found = [replace(node) for node in self._journal if node.id == transaction]
            self._lately.update((node.id, node) for node in found)
        return self._lately.get(transaction)

    def __contains__(self, transaction: TxId, /) -> bool:
        return self.get(transaction) is not None

    def look_up(self, transactions: Iterable[TxId]) -> None:
        pass

    def __iter__(self) -> Iterator[Node]:
        return map(replace, self._journal)


@dataclass
class TinyLedger:
    """A ledger in memory with its models, for tests that need a few transactions; its graph forgets nearly all of them.

    tiny = TinyLedger()
    a = tiny.publish("ann", [tiny.genesis_id], model(1, 2, 3))
    """

    genesis: Genesis = field(default_factory=make_genesis)
    genesis_model: bytes = field(default_factory=lambda: model(1, 1, 1, 1))
    now_s: float = 0
    """Seconds since genesis, by the clock of whoever issues receipts."""

    def __post_init__(self) -> None:
        self.genesis_transaction = genesis_transaction(self.genesis, self.genesis_model)
        self.transactions: dict[TxId, Transaction] = {self.genesis_transaction.id: self.genesis_transaction}
        self.models: dict[Digest, bytes] = {digest_of(self.genesis_model): self.genesis_model}
        self.attachments: dict[Digest, bytes] = {self.genesis.digest: self.genesis.document}
        start = flat(self.genesis.layout, self.genesis_model)
        self.node = LedgerNode(self.genesis, self.genesis_transaction, start, nodes=FewNodes())
        self.ledger = self.node.ledger
        self._keys: dict[str, Ed25519PrivateKey] = {}

    @property
    def genesis_id(self) -> TxId:
        return self.genesis_transaction.id

    def norm(self, model_bytes: bytes) -> float:
        return model_norm(flat(self.genesis.layout, model_bytes))

    def key(self, name: str) -> Ed25519PrivateKey:
        """The key of the author called ``name``."""
        return self._keys.setdefault(name, key_from_seed(1000 + len(self._keys)))

    def author(self, name: str) -> AuthorId:
        return author_of(self.key(name))

    def draft(
        self,
        name: str,
        parents: Sequence[TxId],
        model_bytes: bytes,
        *,
        num_examples: int = 1,
        sequence: int | None = None,
        metrics: Mapping[str, float] | None = None,
        attachment: bytes | None = None,
        start: Digest = START,
        issuer: Ed25519PrivateKey = ISSUER,
    ) -> Transaction:
        """A signed transaction that has not been admitted."""
        newest = self.ledger.graph.newest_of(self.author(name))
        following = 0 if newest is None else newest.sequence + 1
        unsigned = build_update(
            ledger=self.genesis_id,
            author=self.author(name),
            sequence=following if sequence is None else sequence,
            created_at_ms=CREATED_AT_MS,
            num_examples=num_examples,
            start=start,
            model_digest=digest_of(model_bytes),
            model_size=len(model_bytes),
            parents=tuple(sorted(parents)),
            evidence=None if attachment is None else digest_of(attachment),
            metrics=metrics,
        )
        signature = unsigned.sign_as_author(self.key(name))
        received_at_ms = CREATED_AT_MS + int(1000 * self.now_s)
        return unsigned.issue(issuer, author_signature=signature, received_at_ms=received_at_ms)

    def publish(self, name: str, parents: Sequence[TxId], model_bytes: bytes, *, num_examples: int = 1) -> TxId:
        """Draft and admit a transaction; it must not wait."""
        transaction = self.draft(name, parents, model_bytes, num_examples=num_examples)
        answer = self.node.admit(transaction, None, figures=Figures(self.norm(model_bytes)))
        assert isinstance(answer, Admitted), answer
        self.transactions[transaction.id] = transaction
        self.models[digest_of(model_bytes)] = model_bytes
        return transaction.id
