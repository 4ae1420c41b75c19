"""Checkpoints: a member's signed statement of what stands at a horizon. One kind, for joining, start-up, archiving.

A horizon cuts a ledger into updates above it, which are exchanged and held, and updates below it, which the checkpoint
stands for. What lies below is closed under parents and named by its number, its sum and its digest; entries say what
is needed of the updates that can still be chosen, above or below. A ledger above a checkpoint is closed when every
parent is above too, or among those below. The canonical bytes are one layout (big-endian):

    offset  size  field
    0       8     magic "dagckpt" 0x01 (the version)
    8       32    ledger id
    40      32    the member's public key
    72      8     created at, milliseconds since 1970 UTC: information, never used
    80      8     horizon, in ledger time (milliseconds since 1970 UTC)
    88      8     number of updates below, genesis included
    96      32    sum of their ids, modulo 2^256: ids and sum are little-endian numbers, as in a summary
    128     32    SHA-256 of their ids, ascending
    160     8     version of the member list
    168     2     number of receipts, then 32 bytes id and 112 bytes receipt each: every member's newest; by issuer
    …       4     number of acts in effect, then 8 bytes number and 32 bytes id each; ascending
    …       4     number of entries, then each, ascending by id:
                      32 id, 8 depth, 1 author kind, 32 author, 8 sequence, 8 number of examples, figures
                      (``fl_core.dag.figures``)

``id = SHA-256("dag-acfl/checkpoint-id/v1" 0x00 ‖ checkpoint)``; a checkpoint travels with the member's signature of
its id, 64 bytes, behind it.
"""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.acts import MAX_ACTS
from fl_core.dag.author import AUTHOR_KINDS, split_author
from fl_core.dag.encoding import MAX_INTEGER, Reader
from fl_core.dag.figures import Figures, read_figures
from fl_core.dag.receipt import RECEIPT_BYTES, Receipt, decode_receipt
from fl_core.dag.signature import SIGNATURE_BYTES, Role, public_key_of, sign, verify
from fl_core.errors import CheckpointMalformedError, SignatureError
from fl_core.types import AuthorId, Digest, PublicKey, TxId, digest_of, is_hex_id

MAGIC: Final = b"dagckpt\x01"
ID_DOMAIN: Final = b"dag-acfl/checkpoint-id/v1\x00"
MAX_CHECKPOINT_BYTES: Final = 1 << 26
MAX_RECEIPTS: Final = 4096
MAX_ENTRIES: Final = 200_000
"""Updates of one ledger that can still be chosen."""
_MODULUS: Final = 2**256
_FIXED: Final = struct.Struct(">8s32s32sQQQ32s32sQ")
_ENTRY: Final = struct.Struct(">32sQB32sQQ")
_ACT: Final = struct.Struct(">Q32s")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a checkpoint says of an update that can still be chosen."""

    id: TxId
    depth: int
    author: AuthorId
    sequence: int
    num_examples: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class Below:
    """Updates below a horizon: their number, the sum of their ids (64 digits), and the digest of the ids."""

    count: int
    total: str
    digest: Digest


def below(ids: Iterable[TxId]) -> Below:
    """What a checkpoint says of these updates, in any order, each once."""
    ordered = sorted(ids)
    parts = [bytes.fromhex(each) for each in ordered]
    total = sum(int.from_bytes(part, "little") for part in parts) % _MODULUS
    return Below(len(ordered), total.to_bytes(32, "little").hex(), digest_of(b"".join(parts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """See the module docstring. Lists are strictly ascending, as they are encoded.

    Attributes:
        receipts: Each with the id of its update; by the issuer's key.
        acts: Number and id of each act in effect.

    Raises:
        CheckpointMalformedError: A field is out of range, or a list is not in order.
    """

    ledger: TxId
    member: PublicKey
    created_at_ms: int
    horizon_ms: int
    below: Below
    members_version: int
    receipts: tuple[tuple[TxId, Receipt], ...]
    acts: tuple[tuple[int, TxId], ...]
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        ids = (self.ledger, self.member, self.below.total, self.below.digest, *(id_ for _, id_ in self.acts))
        ids += (*(id_ for id_, _ in self.receipts), *(each.id for each in self.entries))
        if not all(map(is_hex_id, ids)):
            raise CheckpointMalformedError("ids, keys and digests are 64 lowercase hexadecimal digits")
        numbers = [self.created_at_ms, self.horizon_ms, self.below.count, self.members_version]
        numbers += [number for number, _ in self.acts]
        for each in self.entries:
            numbers += [each.depth, each.sequence, each.num_examples]
        if min(numbers) < 0 or max(numbers) > MAX_INTEGER:
            raise CheckpointMalformedError("numbers are between 0 and 2^63 - 1")
        if len(self.receipts) > MAX_RECEIPTS:
            raise CheckpointMalformedError(f"{len(self.receipts)} receipts; at most {MAX_RECEIPTS}")
        issuers = [receipt.issuer for _, receipt in self.receipts]
        for listed in (issuers, list(self.acts), [each.id for each in self.entries]):
            if any(a >= b for a, b in pairwise(listed)):  # type: ignore[operator] # each list is of one type
                raise CheckpointMalformedError("receipts, acts and entries are strictly ascending")

    def encode(self) -> bytes:
        fixed = _FIXED.pack(
            MAGIC,
            bytes.fromhex(self.ledger),
            bytes.fromhex(self.member),
            self.created_at_ms,
            self.horizon_ms,
            self.below.count,
            bytes.fromhex(self.below.total),
            bytes.fromhex(self.below.digest),
            self.members_version,
        )
        parts = [fixed, struct.pack(">H", len(self.receipts))]
        parts += [bytes.fromhex(id_) + receipt.encode() for id_, receipt in self.receipts]
        parts.append(struct.pack(">I", len(self.acts)))
        parts += [_ACT.pack(number, bytes.fromhex(id_)) for number, id_ in self.acts]
        parts.append(struct.pack(">I", len(self.entries)))
        for each in self.entries:
            kind, author = split_author(each.author)
            fields = (bytes.fromhex(each.id), each.depth, kind, bytes.fromhex(author))
            parts += [_ENTRY.pack(*fields, each.sequence, each.num_examples), each.figures.encode()]
        return b"".join(parts)

    @property
    def id(self) -> Digest:
        """What the member signs."""
        return Digest(hashlib.sha256(ID_DOMAIN + self.encode()).hexdigest())


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Read canonical bytes back.

    Raises:
        CheckpointMalformedError: The bytes are not the encoding of a checkpoint.
    """
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise CheckpointMalformedError(f"a checkpoint has at most {MAX_CHECKPOINT_BYTES} bytes")
    reader = Reader(data, error=CheckpointMalformedError, what="a checkpoint")
    ledger, member, created, horizon, count, total, digest, version = reader.fixed(_FIXED, magic=MAGIC)
    try:
        receipts = tuple(
            (TxId(reader.hex_id()), decode_receipt(reader.take(RECEIPT_BYTES)))
            for _ in range(reader.count(MAX_RECEIPTS))
        )
    except SignatureError as error:
        raise CheckpointMalformedError(f"a checkpoint's receipt: {error}") from error
    acts = tuple((reader.number(), TxId(reader.hex_id())) for _ in range(reader.count(MAX_ACTS, size=4)))
    entries = tuple(_read_entry(reader) for _ in range(reader.count(MAX_ENTRIES, size=4)))
    reader.end()
    return Checkpoint(
        ledger=TxId(ledger.hex()),
        member=PublicKey(member.hex()),
        created_at_ms=created,
        horizon_ms=horizon,
        below=Below(count, total.hex(), Digest(digest.hex())),
        members_version=version,
        receipts=receipts,
        acts=acts,
        entries=entries,
    )


def _read_entry(reader: Reader) -> Entry:
    id_, depth, kind, author, sequence, num_examples = _ENTRY.unpack(reader.take(_ENTRY.size))
    if kind not in AUTHOR_KINDS:
        raise CheckpointMalformedError(f"unknown author kind {kind}")
    named = AUTHOR_KINDS[kind].author(author.hex())
    return Entry(TxId(id_.hex()), depth, named, sequence, num_examples, read_figures(reader))


def sign_checkpoint(checkpoint: Checkpoint, key: Ed25519PrivateKey) -> bytes:
    """The checkpoint as it travels: canonical bytes ‖ the member's signature."""
    assert checkpoint.member == public_key_of(key), "a member signs its own checkpoint"
    return checkpoint.encode() + sign(key, checkpoint.id, role=Role.CHECKPOINT)


def open_checkpoint(data: bytes, *, maker: PublicKey | None = None) -> Checkpoint:
    """Read what ``sign_checkpoint`` made, and check the signatures in it; whether the member is one is the caller's.

    Nothing is read of its lists before the member's signature has been checked on the bytes.

    Args:
        data: Canonical bytes ‖ signature.
        maker: Who must have made it; None: anybody.

    Raises:
        CheckpointMalformedError: The bytes are not the encoding of a checkpoint.
        SignatureError: The member's signature, or that of a receipt, does not verify.
    """
    encoded, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    fields = Reader(encoded, error=CheckpointMalformedError, what="a checkpoint").fixed(_FIXED, magic=MAGIC)
    member = PublicKey(fields[1].hex())
    if maker not in (None, member):
        raise CheckpointMalformedError("the checkpoint is another server's")
    verify(member, hashlib.sha256(ID_DOMAIN + encoded).hexdigest(), signature, role=Role.CHECKPOINT)
    checkpoint = decode_checkpoint(encoded)
    for transaction, receipt in checkpoint.receipts:
        receipt.verify(transaction)
    return checkpoint
