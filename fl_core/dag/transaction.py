"""A transaction: an immutable header whose bytes are its identity, and the signatures beside it.

The header is one fixed binary layout (big-endian, no optional parts), so that every language can
build it and nobody has to agree on how to print a number:

    offset  size  field
    0       8     magic "dagacfl" 0x01 (the version)
    8       32    ledger id (the id of the genesis transaction; zeros in genesis itself)
    40      1     kind: 0 genesis, 1 site
    41      1     author kind: 0 anonymous, 1 Ed25519 key
    42      32    author
    74      8     sequence: the author's own count, from 0
    82      8     created at, milliseconds since 1970 UTC: information, never used for order
    90      8     number of training examples
    98      32    SHA-256 of the model's safetensors bytes
    130     8     size of those bytes
    138     32    SHA-256 of the attachment: genesis document or selection evidence; zeros for none
    170     2     number of parents, then 32 bytes each, strictly ascending
    …       2     number of metrics, then each: 1 byte length, ASCII name, 8 bytes IEEE-754 double;
                  names strictly ascending

``id = SHA-256("dag-acfl/transaction/v1" 0x00 ‖ header)``. Decoding accepts exactly what encoding
produces and nothing else, so that one transaction has one id.
"""

import hashlib
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from typing import Final

from fl_core.dag.signature import Role, verify
from fl_core.errors import HeaderMalformedError, ParentsError, SignatureError, TransactionInvalidError
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId, is_hex_id

MAGIC: Final = b"dagacfl\x01"
ID_DOMAIN: Final = b"dag-acfl/transaction/v1\x00"
MAX_INTEGER: Final = 2**63 - 1
"""Sequence numbers, sizes, counts and times stay below 2^63, so that every database can hold them."""
MAX_METRICS: Final = 32
MAX_PARENTS: Final = 1024
"""What the encoding allows; the ledger's policy sets the real bound."""

_FIXED: Final = struct.Struct(">8s32sBB32sQQQ32sQ32sH")
_COUNT: Final = struct.Struct(">H")
_DOUBLE: Final = struct.Struct(">d")
_METRIC_NAME: Final = re.compile(r"[a-z0-9_.-]{1,64}")


class Kind(IntEnum):
    """What a transaction is in the DAG."""

    GENESIS = 0
    SITE = 1


class AuthorKind(IntEnum):
    """What stands behind an author id, and the prefix that shows it in text."""

    ANONYMOUS = 0
    """A random name: enough to count an author once, no proof of who it is."""
    ED25519 = 1
    """A public key; the author's signature is required."""

    @property
    def prefix(self) -> str:
        """What an ``AuthorId`` of this kind begins with."""
        return ("anon:", "key:")[self]

    def author(self, hex_id: str) -> AuthorId:
        """The author id of 64 hexadecimal digits (a public key, or a random name)."""
        return AuthorId(self.prefix + hex_id)


_AUTHOR_KINDS: Final = {kind.prefix: kind for kind in AuthorKind}
_KINDS: Final = {int(kind): kind for kind in Kind}
_AUTHOR_PREFIXES: Final = {int(kind): kind.prefix for kind in AuthorKind}


def split_author(author: str) -> tuple[AuthorKind, str]:
    """An author id's kind and its 64 hexadecimal digits.

    Raises:
        TransactionInvalidError: ``author`` is not an author id.
    """
    prefix, colon, hex_id = author.partition(":")
    kind = _AUTHOR_KINDS.get(prefix + colon)
    if kind is not None and is_hex_id(hex_id):
        return kind, hex_id
    raise TransactionInvalidError("an author is key: or anon: and 64 lowercase hexadecimal digits")


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
    model_digest: Digest
    model_size: int
    attachment_digest: Digest
    parents: tuple[TxId, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        split_author(self.author)
        if not all(map(is_hex_id, (self.ledger, self.model_digest, self.attachment_digest))):
            raise TransactionInvalidError(
                "ledger, model_digest and attachment_digest must be 64 lowercase hexadecimal digits"
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
        for name, value in zip(_HEADER_FIELDS, values, strict=True):
            object.__setattr__(header, name, value)
        header._check_values()
        return header

    def _check_values(self) -> None:
        numbers = (self.sequence, self.created_at_ms, self.num_examples, self.model_size)
        if min(numbers) < 0 or max(numbers) > MAX_INTEGER:
            raise TransactionInvalidError(
                f"sequence, created_at_ms, num_examples and model_size must be between 0 and 2^63 - 1, not {numbers}"
            )
        self._check_parents()
        self._check_metrics()

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
        if len(self.metrics) > MAX_METRICS:
            raise TransactionInvalidError(f"{len(self.metrics)} metrics; at most {MAX_METRICS}")
        for name, value in self.metrics.items():
            if _METRIC_NAME.fullmatch(name) is None:
                raise TransactionInvalidError(f"metric name {name!r} must match [a-z0-9_.-]{{1,64}}")
            if not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0):
                raise TransactionInvalidError(f"metric {name!r} must be finite and not -0.0")

    def encode(self) -> bytes:
        """The canonical bytes."""
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
            bytes.fromhex(self.model_digest),
            self.model_size,
            bytes.fromhex(self.attachment_digest),
            len(self.parents),
        )
        parents = b"".join(map(bytes.fromhex, self.parents))
        return b"".join([fixed, parents, _COUNT.pack(len(self.metrics)), *self._encoded_metrics()])

    def _encoded_metrics(self) -> Iterator[bytes]:
        for name in sorted(self.metrics):
            yield bytes([len(name)]) + name.encode("ascii") + _DOUBLE.pack(self.metrics[name])


_HEADER_FIELDS: Final = tuple(each.name for each in fields(Header))


def decode_header(data: bytes) -> Header:
    """Read canonical bytes back.

    Raises:
        HeaderMalformedError: The bytes are truncated, too long, of another version, or not canonical.
        TransactionInvalidError, ParentsError: A field is out of range.
    """
    reader = _Reader(data)
    magic, ledger, kind, author_kind, author, *rest = _FIXED.unpack(reader.take(_FIXED.size))
    sequence, created_at_ms, num_examples, model, model_size, attachment, n_parents = rest
    if magic != MAGIC:
        raise HeaderMalformedError(f"a header starts with {MAGIC.hex()}, this one with {magic.hex()}")
    if kind not in _KINDS or author_kind not in _AUTHOR_PREFIXES:
        raise HeaderMalformedError(f"unknown kind {kind} or author kind {author_kind}")
    parents = tuple(TxId(reader.take(32).hex()) for _ in range(min(n_parents, MAX_PARENTS + 1)))
    (n_metrics,) = _COUNT.unpack(reader.take(_COUNT.size))
    metrics: dict[str, float] = {}
    latest = ""
    for _ in range(min(n_metrics, MAX_METRICS + 1)):
        name = reader.take(reader.take(1)[0]).decode("latin-1")
        if name <= latest and metrics:
            raise HeaderMalformedError("metrics must be strictly ascending by name")
        (metrics[name],) = _DOUBLE.unpack(reader.take(_DOUBLE.size))
        latest = name
    header = Header._of_bytes(  # noqa: SLF001 -- the other half of this class
        ledger.hex(),
        _KINDS[kind],
        _AUTHOR_PREFIXES[author_kind] + author.hex(),
        sequence,
        created_at_ms,
        num_examples,
        model.hex(),
        model_size,
        attachment.hex(),
        parents,
        metrics,
    )
    # Every other field has one encoding only; ``Header`` refuses what could have two (-0.0, names beyond ASCII).
    if reader.rest:
        raise HeaderMalformedError(f"{reader.rest} bytes follow the header's end")
    return header


class _Reader:
    """Takes bytes from the front; running out is a malformed header, not an IndexError."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def rest(self) -> int:
        """Number of bytes not taken yet."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise HeaderMalformedError(f"the header ends after {len(self._data)} bytes, inside a field")
        self._at += size
        return piece


def transaction_id(header_bytes: bytes) -> TxId:
    """The identity of canonical header bytes."""
    return TxId(hashlib.sha256(ID_DOMAIN + header_bytes).hexdigest())


@dataclass(frozen=True)
class Transaction:
    """A header's exact bytes with the signatures that vouch for it.

    ``issuer`` is the server that admitted the transaction first. Two servers may admit the same
    transaction independently; the signatures are therefore not part of the identity.
    """

    header_bytes: bytes
    author_signature: bytes | None
    issuer: PublicKey
    issuer_signature: bytes

    @cached_property
    def id(self) -> TxId:
        """SHA-256 of the domain tag and the stored exact bytes."""
        return transaction_id(self.header_bytes)

    @cached_property
    def header(self) -> Header:
        """The decoded header; raises as ``decode_header`` does."""
        return decode_header(self.header_bytes)

    def verify_signatures(self) -> None:
        """Check the issuer's signature and, for an author with a key, the author's.

        Raises:
            SignatureError: One does not verify, or an author with a key did not sign.
        """
        verify(self.issuer, self.id, self.issuer_signature, role=Role.ISSUER)
        verify_author(self.header, self.id, self.author_signature)


def verify_author(header: Header, transaction: TxId, signature: bytes | None) -> None:
    """An author with a key signs; an anonymous author cannot.

    Raises:
        SignatureError: The signature is missing, superfluous, or does not verify.
    """
    kind, hex_id = split_author(header.author)
    if kind is AuthorKind.ED25519:
        verify(PublicKey(hex_id), transaction, signature or b"", role=Role.AUTHOR)
    elif signature is not None:
        raise SignatureError("an anonymous author has no key to sign with; name the key as author")
