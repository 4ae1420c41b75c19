"""Transactions between servers as bytes: exact headers, signatures and attachments, nothing in digits.

    answer       = u16 number of transactions, transaction*, u16 number of ids, 32 bytes each
    announcement = answer, u16 number of models, each u32 length and bytes
    transaction = u32 length, header, u8 flags, [64 bytes author's signature], 112 bytes receipt,
                  [u32 length, attachment]
    flags       = 1 an author's signature follows, 2 an attachment follows

Big-endian. The ids of an answer are unknown to its sender; those of an announcement are of transactions that are too
large to be announced whole. A header repeats what no other field says, so its id is computed, not sent.
"""

import struct
from collections.abc import Sequence
from typing import Final

from fl_core.dag.encoding import Reader
from fl_core.dag.receipt import RECEIPT_BYTES, decode_receipt
from fl_core.dag.signature import SIGNATURE_BYTES
from fl_core.dag.transaction import Transaction
from fl_core.errors import GossipFrameError, TransactionError
from fl_core.models import Buffer
from fl_core.sync.messages import (
    MAX_ANNOUNCED_MODEL_BYTES,
    MAX_ATTACHMENT_BYTES,
    MAX_HEADER_BYTES,
    MAX_IDS_PER_CALL,
    Announcement,
    TransactionBundle,
    Transactions,
)
from fl_core.types import TxId

TRANSACTIONS_MEDIA_TYPE: Final = "application/vnd.dag-acfl.transactions"
_HAS_AUTHOR, _HAS_ATTACHMENT = 1, 2
_COUNT: Final = struct.Struct(">H")
LENGTH: Final = struct.Struct(">I")
"""What precedes a header, an attachment, or a model among several."""
NOT_HERE: Final = 0
PRUNED: Final = 0xFFFF_FFFF
"""Instead of the length of a model that a server does not have, or has pruned."""
MAX_TOGETHER_BYTES: Final = 4 << 20
"""Models in one answer."""


def encode_transactions(bundles: Sequence[TransactionBundle], ids: Sequence[TxId]) -> bytes:
    """Bundles and ids as they travel, in an answer or an announcement."""
    parts = [_COUNT.pack(len(bundles))]
    for bundle in bundles:
        transaction, attachment = bundle.transaction, bundle.attachment
        author = transaction.author_signature
        flags = _HAS_AUTHOR * (author is not None) | _HAS_ATTACHMENT * (attachment is not None)
        parts += [
            LENGTH.pack(len(transaction.header_bytes)),
            transaction.header_bytes,
            bytes([flags]),
            author or b"",
            transaction.receipt.encode(),
        ]
        if attachment is not None:
            parts += [LENGTH.pack(len(attachment)), attachment]
    parts.append(_COUNT.pack(len(ids)))
    parts += [bytes.fromhex(each) for each in ids]
    return b"".join(parts)


def decode_transactions(data: bytes) -> Transactions:
    """An answer to ``GetTransactions`` as it came; headers are parsed, nothing is verified.

    Raises:
        GossipFrameError: Not of this form, or beyond a bound.
    """
    reader = _Reader(data)
    bundles, ids = reader.transactions()
    reader.end()
    return Transactions(bundles, ids)


def encode_announcement(announcement: Announcement) -> bytes:
    """An announcement as it travels."""
    parts: list[Buffer] = [encode_transactions(announcement.bundles, announcement.ids)]
    parts.append(_COUNT.pack(len(announcement.models)))
    for model in announcement.models:
        parts += [LENGTH.pack(len(model)), model]
    return b"".join(parts)


def decode_announcement(data: Buffer) -> Announcement:
    """An announcement as it came; headers are parsed, nothing is verified.

    Raises:
        GossipFrameError: Not of this form, or beyond a bound.
    """
    reader = _Reader(data)
    bundles, ids = reader.transactions()
    models = tuple(reader.block(MAX_ANNOUNCED_MODEL_BYTES) for _ in range(reader.count(MAX_IDS_PER_CALL)))
    reader.end()
    return Announcement(bundles, ids, models)


class _Reader(Reader):
    def __init__(self, data: Buffer) -> None:
        super().__init__(bytes(data), error=GossipFrameError, what="the message")

    def transactions(self) -> tuple[tuple[TransactionBundle, ...], tuple[TxId, ...]]:
        bundles = tuple(self.transaction() for _ in range(self.count(MAX_IDS_PER_CALL)))
        return bundles, tuple(TxId(self.hex_id()) for _ in range(self.count(MAX_IDS_PER_CALL)))

    def block(self, limit: int) -> bytes:
        size: int = LENGTH.unpack(self.take(LENGTH.size))[0]
        if size > limit:
            raise GossipFrameError(f"{size} bytes where {limit} is the bound")
        return self.take(size)

    def transaction(self) -> TransactionBundle:
        header = self.block(MAX_HEADER_BYTES)
        flags = self.take(1)[0]
        if flags & ~(_HAS_AUTHOR | _HAS_ATTACHMENT):
            raise GossipFrameError(f"no flags {flags}")
        author = self.take(SIGNATURE_BYTES) if flags & _HAS_AUTHOR else None
        receipt_bytes = self.take(RECEIPT_BYTES)
        attachment = self.block(MAX_ATTACHMENT_BYTES) if flags & _HAS_ATTACHMENT else None
        try:
            transaction = Transaction(header, author, decode_receipt(receipt_bytes))
            transaction.header  # noqa: B018 -- parsed here, so that a malformed one is this answer's fault
        except TransactionError as error:
            raise GossipFrameError(f"a header or receipt cannot be read: {error}") from error
        return TransactionBundle(transaction, attachment)
