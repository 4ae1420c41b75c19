"""A transaction: an immutable header whose bytes are its identity, and the signatures beside it.

The header is one fixed binary layout (big-endian, no optional parts), so that every language can
build it and nobody has to agree on how to print a number:

    offset  size  field
    0       8     magic "dagacfl" 0x01 (the version)
    8       32    ledger id (the id of the genesis transaction; zeros in genesis itself)
    40      1     kind: 0 genesis, 1 update
    41      1     author kind: 0 the digest of a secret, 1 an Ed25519 key
    42      32    author
    74      8     sequence: the author's own count, from 0
    82      8     created at, milliseconds since 1970 UTC: the author's, information, never used
    90      8     number of training examples
    98      8     standard deviation of the noise that the author added to each value, a double; 0 for none
    106     32    start: SHA-256 of the model that training began from; zeros in genesis
    138     32    SHA-256 of the model's safetensors bytes
    170     8     size of those bytes
    178     32    SHA-256 of the attachment: genesis document or selection evidence; zeros for none
    210     2     number of parents, then 32 bytes each, strictly ascending
    …       2     number of metrics, then each: 1 byte length, ASCII name, 8 bytes IEEE-754 double;
                  names strictly ascending; those that begin with "_" are the system's
    …       2     number of extensions, then each: 1 byte length, ASCII name, 2 bytes length, value;
                  names strictly ascending

``id = SHA-256("dag-acfl/transaction/v1" 0x00 ‖ header)``. Decoding accepts exactly what encoding
produces and nothing else, so that one transaction has one id.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from typing import Final

from fl_core.dag.author import AUTHOR_KINDS, AuthorKind, split_author
from fl_core.dag.encoding import MAX_INTEGER, NAME, Reader, check_map, encode_map, is_canonical_double
from fl_core.dag.receipt import Receipt
from fl_core.dag.signature import Role, verify
from fl_core.errors import (
    HeaderMalformedError,
    ParentsError,
    SignatureError,
    SignatureRequiredError,
    TransactionInvalidError,
)
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId, is_hex_id

MAGIC: Final = b"dagacfl\x01"
ID_DOMAIN: Final = b"dag-acfl/transaction/v1\x00"
MAX_METRICS: Final = 32
"""Metrics of the author's own; as many again may be the system's."""
MAX_PARENTS: Final = 1024
"""What the encoding allows; the ledger's bounds set the real one."""

AUTHOR_AT: Final = slice(41, 74)
"""Where a header says who its author is: for who reads that of many."""

_FIXED: Final = struct.Struct(">8s32sBB32sQQQd32s32sQ32sH")
_COUNT: Final = struct.Struct(">H")
_DOUBLE: Final = struct.Struct(">d")


class Kind(IntEnum):
    """What a transaction is in the DAG."""

    GENESIS = 0
    UPDATE = 1


_KINDS: Final = {int(kind): kind for kind in Kind}
_AUTHOR_PREFIXES: Final = {number: kind.prefix for number, kind in AUTHOR_KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The signed content of a transaction; see the module docstring for each field's encoding.

    Raises:
        TransactionInvalidError: A field is out of range.
        ParentsError: Parents are unsorted, doubled, too many, or at odds with the kind.
    """

    ledger: TxId
    kind: Kind
    author: AuthorId
    sequence: int
    created_at_ms: int
    num_examples: int
    start: Digest
    model_digest: Digest
    model_size: int
    attachment_digest: Digest
    parents: tuple[TxId, ...]
    noise_std: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    extensions: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        split_author(self.author)
        if not all(map(is_hex_id, (self.ledger, self.start, self.model_digest, self.attachment_digest))):
            raise TransactionInvalidError(
                "ledger, start, model_digest and attachment_digest must be 64 lowercase hexadecimal digits"
            )
        if not all(map(is_hex_id, self.parents)):
            raise ParentsError("a parent is 64 lowercase hexadecimal digits")
        self._check_values()

    @classmethod
    def _of_bytes(cls, *values: object) -> "Header":
        """A header whose names were bytes a moment ago, and so have their form; all fields, in order.

        A server that starts decodes every header of its journal; checking the form of names is a third of that.
        """
        header = object.__new__(cls)
        for put, value in zip(_PUT_FIELDS, values, strict=True):
            put(header, value)
        header._check_values()
        return header

    def _check_values(self) -> None:
        numbers = (self.sequence, self.created_at_ms, self.num_examples, self.model_size)
        if min(numbers) < 0 or max(numbers) > MAX_INTEGER:
            raise TransactionInvalidError(
                f"sequence, created_at_ms, num_examples and model_size must be between 0 and 2^63 - 1, not {numbers}"
            )
        if not is_canonical_double(self.noise_std) or self.noise_std < 0:
            raise TransactionInvalidError(f"noise_std must be finite and at least 0, not {self.noise_std}")
        self._check_parents()
        if (self.start == ZERO_ID) != (self.kind is Kind.GENESIS):
            raise TransactionInvalidError("every update names the model that its training began from as start")
        self._check_metrics()
        check_map(self.extensions, error=TransactionInvalidError, what="the header's extensions")

    def _check_parents(self) -> None:
        if self.kind is Kind.GENESIS:
            if self.parents or self.ledger != ZERO_ID:
                raise ParentsError("genesis has no parents and names no ledger")
            return
        if not self.parents:
            raise ParentsError("a transaction approves at least one parent")
        if len(self.parents) > MAX_PARENTS:
            raise ParentsError(f"{len(self.parents)} parents; the format allows {MAX_PARENTS}")
        if sorted(set(self.parents)) != list(self.parents):
            raise ParentsError("parents must be strictly ascending, none named twice")

    def _check_metrics(self) -> None:
        own = sum(not name.startswith("_") for name in self.metrics)
        if max(own, len(self.metrics) - own) > MAX_METRICS:
            raise TransactionInvalidError(f"{own} metrics; at most {MAX_METRICS}, and as many of the system's")
        for name, value in self.metrics.items():
            if NAME.fullmatch(name) is None:
                raise TransactionInvalidError(f"metric name {name!r} must match {NAME.pattern}")
            if not is_canonical_double(value):
                raise TransactionInvalidError(f"metric {name!r} must be finite and not -0.0")

    def encode(self) -> bytes:
        author_kind, author = split_author(self.author)
        fixed = _FIXED.pack(
            MAGIC,
            bytes.fromhex(self.ledger),
            self.kind,
            author_kind,
            bytes.fromhex(author),
            self.sequence,
            self.created_at_ms,
            self.num_examples,
            self.noise_std,
            bytes.fromhex(self.start),
            bytes.fromhex(self.model_digest),
            self.model_size,
            bytes.fromhex(self.attachment_digest),
            len(self.parents),
        )
        parts = [fixed, *map(bytes.fromhex, self.parents), _COUNT.pack(len(self.metrics))]
        for name in sorted(self.metrics):
            parts += [bytes([len(name)]), name.encode("ascii"), _DOUBLE.pack(self.metrics[name])]
        parts.append(encode_map(self.extensions))
        return b"".join(parts)


_PUT_FIELDS: Final = tuple(Header.__dict__[each.name].__set__ for each in fields(Header))
"""Of the slots themselves: ``object.__setattr__`` takes three times as long."""


def decode_header(data: bytes) -> Header:
    """Read canonical bytes back.

    Raises:
        HeaderMalformedError: The bytes are truncated, too long, of another version, or not canonical.
        TransactionInvalidError, ParentsError: A field is out of range.
    """
    reader = Reader(data, error=HeaderMalformedError, what="a header")
    ledger, kind, author_kind, author, *rest = reader.fixed(_FIXED, magic=MAGIC)
    sequence, created_at_ms, num_examples, noise_std, start, model, model_size, attachment, n_parents = rest
    if kind not in _KINDS or author_kind not in _AUTHOR_PREFIXES:
        raise HeaderMalformedError(f"unknown kind {kind} or author kind {author_kind}")
    named = reader.take(32 * min(n_parents, MAX_PARENTS + 1)).hex()
    parents = tuple([TxId(named[at : at + 64]) for at in range(0, len(named), 64)])
    metrics: dict[str, float] = {
        name: _DOUBLE.unpack(reader.take(_DOUBLE.size))[0] for name in reader.names(2 * MAX_METRICS)
    }
    extensions = reader.map()
    reader.end()
    # Every other field has one encoding only; ``Header`` refuses what could have two (-0.0, names beyond ASCII).
    return Header._of_bytes(  # noqa: SLF001 -- the other half of this class
        ledger.hex(),
        _KINDS[kind],
        _AUTHOR_PREFIXES[author_kind] + author.hex(),
        sequence,
        created_at_ms,
        num_examples,
        start.hex(),
        model.hex(),
        model_size,
        attachment.hex(),
        parents,
        noise_std,
        metrics,
        extensions,
    )


def author_of_bytes(data: bytes) -> AuthorId:
    """The author of what a header, which was decoded once, has at ``AUTHOR_AT``."""
    return AuthorId(_AUTHOR_PREFIXES[data[0]] + data[1:].hex())


def transaction_id(header_bytes: bytes) -> TxId:
    """The identity of canonical header bytes."""
    return TxId(hashlib.sha256(ID_DOMAIN + header_bytes).hexdigest())


@dataclass(frozen=True)
class Transaction:
    """A header's exact bytes with the signatures that vouch for it.

    ``receipt`` is of the server that received it first. Two servers may receive the same transaction
    independently; signatures and receipts are therefore not part of the identity.
    """

    header_bytes: bytes
    author_signature: bytes | None
    receipt: Receipt

    @cached_property
    def id(self) -> TxId:
        """SHA-256 of the domain tag and the stored exact bytes."""
        return transaction_id(self.header_bytes)

    @cached_property
    def header(self) -> Header:
        """The decoded header; raises as ``decode_header`` does."""
        return decode_header(self.header_bytes)

    def verify_signatures(self, *, keys_only: bool = False) -> None:
        """Check the receipt and, for an author with a key, the author's signature; raises as ``verify_author``."""
        verify_author(self.header, self.id, self.author_signature, keys_only=keys_only)
        self.receipt.verify(self.id)


def verify_author(header: Header, transaction: TxId, signature: bytes | None, *, keys_only: bool = False) -> None:
    """An author with a key signs; one with a secret cannot, and servers vouch for it.

    Args:
        header: Of the transaction.
        transaction: Its id.
        signature: The author's; None for an author without a key.
        keys_only: The ledger admits authors with a key only.

    Raises:
        SignatureRequiredError: The ledger asks for a key and the author has none.
        SignatureError: The signature is missing, superfluous, or does not verify.
    """
    kind, hex_id = split_author(header.author)
    if keys_only and kind is AuthorKind.SECRET:
        raise SignatureRequiredError(
            "this ledger admits signed transactions only; send author (an Ed25519 key) and signature"
        )
    if kind is AuthorKind.ED25519:
        verify(PublicKey(hex_id), transaction, signature or b"", role=Role.AUTHOR)
    elif signature is not None:
        raise SignatureError("an author with a secret has no key to sign with; name the key as author")
