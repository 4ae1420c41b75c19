"""What a server holds, in one signed line: two of them say whether two ledgers are equal.

The canonical bytes have one fixed layout (big-endian):

    offset  size  field
    0       8     magic "dagstat" 0x01 (the version)
    8       32    ledger id
    40      32    the server's public key
    72      16    epoch of its journal
    88      8     number of transactions, genesis included
    96      32    SHA-256 of the tips' ids, ascending
    128     32    sum of all ids (``ItemSet.total_sum``)
    160     32    digest of the acts (``fl_core.dag.acts.acts_digest``)
    192     8     created at, milliseconds since 1970 UTC: information, never compared

A ledger holds every ancestor of what it holds, so equal tips are equal ledgers: the digest is the proof. Count and
sum tell a broken index from a real difference, and the count shows a history that went backwards.

Signed is, in the role ``Role.SUMMARY``, the SHA-256 of these bytes; a summary travels with the 64 bytes of the
signature behind it.
"""

import struct
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.encoding import MAX_INTEGER
from fl_core.dag.signature import SIGNATURE_BYTES, Role, sign, verify
from fl_core.errors import GossipFrameError
from fl_core.types import Digest, PublicKey, TxId, digest_of

MAGIC: Final = b"dagstat\x01"
_LAYOUT: Final = struct.Struct(">8s32s32s16sQ32s32s32sQ")
SUMMARY_BYTES: Final = _LAYOUT.size
_HEX_DIGITS: Final = {"ledger": 64, "server": 64, "epoch": 32, "tips_digest": 64, "set_sum": 64, "acts_digest": 64}
_INTEGERS: Final = ("count", "created_at_ms")


@dataclass(frozen=True, slots=True)
class StateSummary:
    """See the module's docstring; identifiers are lowercase hexadecimal. Fields are checked when it is encoded.

    ``epoch`` is 16 random bytes drawn when the server's journal was made: a new journal may hold less than an old one.
    """

    ledger: TxId
    server: PublicKey
    epoch: str
    count: int
    tips_digest: Digest
    set_sum: str
    acts_digest: Digest
    created_at_ms: int

    def encode(self) -> bytes:
        """The canonical bytes, ``SUMMARY_BYTES`` long.

        Raises:
            GossipFrameError: A field is out of range.
        """
        for name, digits in _HEX_DIGITS.items():
            text = getattr(self, name)
            if len(text) != digits or not set(text) <= set("0123456789abcdef"):
                raise GossipFrameError(f"{name} must be {digits} lowercase hexadecimal digits")
        for name in _INTEGERS:
            if not 0 <= getattr(self, name) <= MAX_INTEGER:
                raise GossipFrameError(f"{name} must be between 0 and 2^63 - 1, not {getattr(self, name)}")
        return _LAYOUT.pack(
            MAGIC,
            bytes.fromhex(self.ledger),
            bytes.fromhex(self.server),
            bytes.fromhex(self.epoch),
            self.count,
            bytes.fromhex(self.tips_digest),
            bytes.fromhex(self.set_sum),
            bytes.fromhex(self.acts_digest),
            self.created_at_ms,
        )


def sign_summary(summary: StateSummary, key: Ed25519PrivateKey) -> bytes:
    """The summary as it travels: canonical bytes ‖ the server's signature.

    Raises:
        GossipFrameError: A field is out of range.
    """
    encoded = summary.encode()
    return encoded + sign(key, digest_of(encoded), role=Role.SUMMARY)


def open_summary(data: bytes) -> StateSummary:
    """Read what ``sign_summary`` made, and check the signature; whether the right server made it is the caller's.

    Raises:
        GossipFrameError: The bytes have another length or version, or a field is out of range.
        SignatureError: The key is weak, or the signature is not of this key and summary.
    """
    if len(data) != SUMMARY_BYTES + SIGNATURE_BYTES:
        raise GossipFrameError(f"a signed summary has {SUMMARY_BYTES + SIGNATURE_BYTES} bytes, this one {len(data)}")
    encoded, signature = data[:SUMMARY_BYTES], data[SUMMARY_BYTES:]
    magic, ledger, server, epoch, count, tips_digest, set_sum, acts_digest, created_at_ms = _LAYOUT.unpack(encoded)
    if magic != MAGIC:
        raise GossipFrameError(f"a summary starts with {MAGIC.hex()}, this one with {magic.hex()}")
    if max(count, created_at_ms) > MAX_INTEGER:
        raise GossipFrameError("count and created_at_ms must be below 2^63")
    verify(PublicKey(server.hex()), digest_of(encoded), signature, role=Role.SUMMARY)
    return StateSummary(
        TxId(ledger.hex()),
        PublicKey(server.hex()),
        epoch.hex(),
        count,
        Digest(tips_digest.hex()),
        set_sum.hex(),
        Digest(acts_digest.hex()),
        created_at_ms,
    )


def same_ledger_state(a: StateSummary, b: StateSummary) -> bool:
    """Whether both say that they hold the same transactions of the same ledger."""
    return (a.ledger, a.count, a.tips_digest, a.set_sum) == (b.ledger, b.count, b.tips_digest, b.set_sum)


def is_rollback(earlier: StateSummary, later: StateSummary) -> bool:
    """Whether one journal shows less than before: it only ever grows, so its disk went back in time.

    A server that began a new journal has a new epoch and rolls nothing back.
    """
    same_journal = (earlier.ledger, earlier.server, earlier.epoch) == (later.ledger, later.server, later.epoch)
    return same_journal and later.count < earlier.count
