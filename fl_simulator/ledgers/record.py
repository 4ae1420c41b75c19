"""Everything that was published in a run, in order, with the models that are still needed.

A run publishes more models than memory holds (18,000 of 0.4 MB in DAG-ACFL's setting), and needs few of them: those
that can be offered, and each author's newest. The rest are dropped as ``ledger prune`` drops them: headers, ids and
signatures of all transactions stay, so ``dag-acfl ledger verify`` accepts what ``Record`` exports.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fl_core.dag.figures import Figures, decode_figures
from fl_core.dag.genesis import Genesis
from fl_core.dag.receipt import RECEIPT_BYTES, decode_receipt
from fl_core.dag.signature import SIGNATURE_BYTES
from fl_core.dag.transaction import Transaction
from fl_core.models import ModelLayout, encode_flat
from fl_core.types import Digest, TxId, Vector32, digest_of


@dataclass(frozen=True, slots=True, eq=False)
class RecordedUpdate:
    """A transaction with its model's values, shape ``(P,)``, and their figures."""

    transaction: Transaction
    vector: Vector32
    figures: Figures


def model_digest(layout: ModelLayout, vector: Vector32) -> Digest:
    """SHA-256 of the model's file, without making the file.

    Args:
        layout: float32 throughout.
        vector: Shape ``(P,)``, contiguous.
    """
    digest = hashlib.sha256(layout.prefix)
    digest.update(vector.data)  # lets go of the GIL: several models can be hashed at once
    return Digest(digest.hexdigest())


class Record:
    """The journal of a run; also the ``LedgerSource`` from which a bundle is written.

    Args:
        genesis: The rules.
        updates: The genesis transaction with the initial model, which is kept for ever, and more.
    """

    def __init__(self, genesis: Genesis, updates: Iterable[RecordedUpdate] = ()) -> None:
        self._genesis = genesis
        self._transactions: dict[TxId, Transaction] = {}  # in order
        self._figures: dict[TxId, Figures] = {}
        self._vectors: dict[TxId, Vector32] = {}
        self._evidence: dict[Digest, bytes] = {}
        self._information_bytes = 0
        self._by_digest: dict[Digest, TxId] | None = None
        for update in updates:
            self.add(update)

    def __len__(self) -> int:
        return len(self._transactions)

    def __iter__(self) -> Iterator[TxId]:
        return iter(self._transactions)

    def add(self, update: RecordedUpdate) -> None:
        self._append(update.transaction, update.figures)
        self._vectors[update.transaction.id] = update.vector

    def keep_evidence(self, encoded: bytes) -> None:
        self._evidence[digest_of(encoded)] = encoded

    def _append(self, transaction: Transaction, figures: Figures) -> None:
        self._transactions[transaction.id] = transaction
        self._figures[transaction.id] = figures
        self._information_bytes += information_bytes(transaction)
        self._by_digest = None

    def vector(self, transaction: TxId) -> Vector32:
        """A model that is kept.

        Raises:
            KeyError: It was dropped, or was never here.
        """
        return self._vectors[transaction]

    def get(self, transaction: TxId) -> Vector32 | None:
        return self._vectors.get(transaction)

    def update(self, transaction: TxId) -> RecordedUpdate:
        """A transaction whose model is kept; ``KeyError`` otherwise."""
        return RecordedUpdate(self._transactions[transaction], self._vectors[transaction], self._figures[transaction])

    def keep_only(self, wanted: Collection[TxId]) -> None:
        """Drop the models of all transactions but these and genesis."""
        for identity in [each for each in self._vectors if each not in wanted and each != self.ledger]:
            del self._vectors[identity]
        self._by_digest = None

    @property
    def ledger_bytes(self) -> int:
        """Size of all transactions with their models, as if none had been dropped: L of [DAG-ACFL Eq. 10]."""
        return self._information_bytes + len(self) * self._genesis.layout.nbytes

    @property
    def newest_information_bytes(self) -> int:
        """``information_bytes`` of the newest transaction."""
        return information_bytes(next(reversed(self._transactions.values())))

    # What a bundle is written from: ``fl_core.verify.LedgerSource``.

    @property
    def ledger(self) -> TxId:
        """The ledger's id: the genesis transaction's."""
        return next(iter(self._transactions))

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        return iter(self._transactions.items())

    def attachment(self, digest: Digest) -> bytes | None:
        """The genesis document, or a selection's evidence, which a simulation does not keep."""
        return self._genesis.document if digest == self._genesis.digest else self._evidence.get(digest)

    def figures(self, transaction: str) -> bytes | None:
        return self._figures[TxId(transaction)].encode()

    def model_size(self, digest: Digest) -> int | None:
        """Size of a model's file, while the model is kept."""
        return self._genesis.layout.nbytes if digest in self._kept else None

    def read_model(self, digest: Digest, start: int, stop: int) -> bytes:
        return encode_flat(self._genesis.layout, self._vectors[self._kept[digest]])[start:stop]

    @property
    def pruned(self) -> int:
        """How many models were dropped."""
        return len(self) - len(self._vectors)

    def is_pruned(self, digest: Digest) -> bool:
        """Whatever is not kept was dropped: nothing else is ever missing."""
        return digest not in self._kept

    @property
    def is_archive(self) -> bool:
        """See ``LedgerSource``: all of it is here."""
        return False

    def is_archived(self, _: Digest) -> bool:
        """See ``LedgerSource``."""
        return False

    def acts(self) -> bytes:
        """See ``LedgerSource``: nobody decides anything in a simulation."""
        return b""

    def checkpoints(self) -> Sequence[bytes]:
        """See ``LedgerSource``: nobody joins."""
        return ()

    @property
    def _kept(self) -> Mapping[Digest, TxId]:
        if self._by_digest is None:
            self._by_digest = {self._transactions[each].header.model_digest: each for each in self._vectors}
        return self._by_digest

    # What a checkpoint keeps.

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays of which ``restore`` makes the same record."""
        transactions = self._transactions.values()
        headers = [each.header_bytes for each in transactions]
        signatures = b"".join(each.author_signature or b"" for each in transactions)
        receipts = b"".join(each.receipt.encode() for each in transactions)
        figures = [self._figures[each].encode() for each in self]
        kept = [place for place, each in enumerate(self) if each in self._vectors]
        return {
            "headers": np.frombuffer(b"".join(headers), dtype=np.uint8),
            "header_ends": np.cumsum([len(each) for each in headers]),
            "signatures": np.frombuffer(signatures, dtype=np.uint8).reshape(-1, SIGNATURE_BYTES),
            "receipts": np.frombuffer(receipts, dtype=np.uint8).reshape(-1, RECEIPT_BYTES),
            "figures": np.frombuffer(b"".join(figures), dtype=np.uint8),
            "figure_ends": np.cumsum([len(each) for each in figures]),
            "kept": np.array(kept, dtype=np.int64),
            "models": np.stack([self._vectors[each] for each in self if each in self._vectors]),
        }

    @classmethod
    def restore(cls, genesis: Genesis, state: Mapping[str, NDArray[Any]]) -> Self:
        record = cls(genesis)
        headers, ends = state["headers"].tobytes(), state["header_ends"].tolist()
        figures, figure_ends = state["figures"].tobytes(), state["figure_ends"].tolist()
        encoded = [figures[start:end] for start, end in zip([0, *figure_ends], figure_ends, strict=False)]
        columns = zip([0, *ends], ends, state["signatures"], state["receipts"], encoded, strict=False)
        for start, end, signature, receipt, found in columns:
            transaction = Transaction(
                header_bytes=headers[start:end],
                author_signature=signature.tobytes(),
                receipt=decode_receipt(receipt.tobytes()),
            )
            record._append(transaction, decode_figures(found))
        order = list(record)
        for place, model in zip(state["kept"].tolist(), state["models"], strict=True):
            record._vectors[order[place]] = model.copy()
        return record

    def figures_of(self, transaction: TxId) -> Figures:
        """The figures of a transaction's model, kept or not."""
        return self._figures[transaction]

    def transaction(self, transaction: TxId) -> Transaction:
        return self._transactions[transaction]


def information_bytes(transaction: Transaction) -> int:
    """Size of a transaction without its model: header, id and signatures; |σ| of [DAG-ACFL Eq. 8]."""
    return len(transaction.header_bytes) + len(transaction.author_signature or b"") + RECEIPT_BYTES + 32
