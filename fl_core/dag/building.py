"""Make transactions: the one place that builds a header, gives it its id and signs it.

A client builds an update's header and signs its id; the server builds the same header from what the client sent, so
that both agree on the id, and adds its own signature. Simulated clients and servers do the same with keys from seeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.author import AuthorKind
from fl_core.dag.genesis import Genesis
from fl_core.dag.receipt import issue_receipt
from fl_core.dag.signature import Role, public_key_of, sign
from fl_core.dag.transaction import Header, Kind, Transaction, transaction_id
from fl_core.types import ZERO_ID, AuthorId, Digest, TxId


@dataclass(frozen=True, slots=True)
class UnsignedTransaction:
    """A header with its canonical bytes and the id that follows from them."""

    header: Header
    header_bytes: bytes
    id: TxId

    @classmethod
    def of(cls, header: Header) -> Self:
        """Encode and identify a header."""
        encoded = header.encode()
        return cls(header, encoded, transaction_id(encoded))

    def sign_as_author(self, key: Ed25519PrivateKey) -> bytes:
        """The author's signature of the id, 64 bytes."""
        return sign(key, self.id, role=Role.AUTHOR)

    def issue(
        self, key: Ed25519PrivateKey, *, author_signature: bytes | None, received_at_ms: int, members_version: int = 0
    ) -> Transaction:
        """The transaction as the server with this key admits it, with its receipt.

        Args:
            key: The issuing server's.
            author_signature: None for an author without a key.
            received_at_ms: By the server's clock, milliseconds since 1970 UTC.
            members_version: Of the member list that the server goes by.
        """
        receipt = issue_receipt(key, self.id, received_at_ms=received_at_ms, members_version=members_version)
        transaction = Transaction(self.header_bytes, author_signature, receipt)
        # Both are cached properties that would decode and hash the bytes that were made of them just now.
        vars(transaction).update(id=self.id, header=self.header)
        return transaction


def build_update(
    *,
    ledger: TxId,
    author: AuthorId,
    sequence: int,
    created_at_ms: int,
    num_examples: int,
    start: Digest,
    model_digest: Digest,
    model_size: int,
    parents: tuple[TxId, ...],
    evidence: Digest | None = None,
    noise_std: float = 0.0,
    metrics: Mapping[str, float] | None = None,
    extensions: Mapping[str, bytes] | None = None,
) -> UnsignedTransaction:
    """The transaction of a trained model; fields as in ``Header``.

    ``start`` is the model that training began from: the aggregate, the author's own, or a merge of both. ``evidence``
    is the id of the selection that chose the parents; None without one.

    Raises:
        TransactionError: A field is out of range.
    """
    return UnsignedTransaction.of(
        Header(
            ledger=ledger,
            kind=Kind.UPDATE,
            author=author,
            sequence=sequence,
            created_at_ms=created_at_ms,
            num_examples=num_examples,
            start=start,
            model_digest=model_digest,
            model_size=model_size,
            attachment_digest=Digest(ZERO_ID) if evidence is None else evidence,
            parents=parents,
            noise_std=noise_std,
            metrics=metrics or {},
            extensions=extensions or {},
        )
    )


def build_genesis(
    genesis: Genesis, *, key: Ed25519PrivateKey, model_digest: Digest, created_at_ms: int
) -> UnsignedTransaction:
    """The first transaction of a ledger; the author is its founder, whose key also issues it."""
    return UnsignedTransaction.of(
        Header(
            ledger=TxId(ZERO_ID),
            kind=Kind.GENESIS,
            author=AuthorKind.ED25519.author(public_key_of(key)),
            sequence=0,
            created_at_ms=created_at_ms,
            num_examples=0,
            start=Digest(ZERO_ID),
            model_digest=model_digest,
            model_size=genesis.layout.nbytes,
            attachment_digest=genesis.digest,
            parents=(),
        )
    )
