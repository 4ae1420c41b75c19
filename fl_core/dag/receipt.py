"""Receipts: a server's signed word that it received an update, when, and under which list of members.

    offset  size  field
    0       32    the server's public key
    32      8     received at, milliseconds since 1970 UTC, by the server's clock
    40      8     version of the member list that the server goes by: how many acts have changed it (0: the founders)
    48      64    Ed25519 signature of "dag-acfl/receipt/v1" 0x00 ‖ id ‖ received at ‖ version

A receipt stands beside a header, so the id is not repeated in it. Two servers that receive one update independently
both sign one; each is a receipt of the same update.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.encoding import MAX_INTEGER
from fl_core.dag.signature import SIGNATURE_BYTES, Role, public_key_of, sign, verify
from fl_core.errors import SignatureError
from fl_core.types import PublicKey, TxId

RECEIPT_BYTES: Final = 112
RECEIVED_AT: Final = slice(0, 40)
"""Where a receipt says whose it is and when the update was received: for who reads that of many."""
_SIGNED: Final = struct.Struct(">QQ")
_LAYOUT: Final = struct.Struct(">32sQQ64s")


@dataclass(frozen=True, slots=True)
class Receipt:
    """See the module docstring.

    Raises:
        SignatureError: A number is out of range, or the signature has another length.
    """

    issuer: PublicKey
    received_at_ms: int
    members_version: int
    signature: bytes

    def __post_init__(self) -> None:
        if not (0 <= self.received_at_ms <= MAX_INTEGER and 0 <= self.members_version <= MAX_INTEGER):
            raise SignatureError("a receipt's time and version are between 0 and 2^63 - 1")
        if len(self.signature) != SIGNATURE_BYTES:
            raise SignatureError(f"a receipt's signature has {SIGNATURE_BYTES} bytes, not {len(self.signature)}")

    def encode(self) -> bytes:
        """The canonical bytes, ``RECEIPT_BYTES`` long."""
        return _LAYOUT.pack(bytes.fromhex(self.issuer), self.received_at_ms, self.members_version, self.signature)

    def verify(self, transaction: TxId) -> None:
        """Check that the server signed this for ``transaction``; whether it is a member is the caller's to ask.

        Raises:
            SignatureError: It did not.
        """
        signed = _SIGNED.pack(self.received_at_ms, self.members_version)
        verify(self.issuer, transaction, self.signature, role=Role.RECEIPT, then=signed)


def issue_receipt(
    key: Ed25519PrivateKey, transaction: TxId, *, received_at_ms: int, members_version: int = 0
) -> Receipt:
    signed = _SIGNED.pack(received_at_ms, members_version)
    signature = sign(key, transaction, role=Role.RECEIPT, then=signed)
    return Receipt(public_key_of(key), received_at_ms, members_version, signature)


def decode_receipt(data: bytes) -> Receipt:
    """Read canonical bytes back; the signature is not verified.

    Raises:
        SignatureError: The bytes have another length, or a number is out of range.
    """
    if len(data) != RECEIPT_BYTES:
        raise SignatureError(f"a receipt has {RECEIPT_BYTES} bytes, this one {len(data)}")
    issuer, received_at_ms, version, signature = _LAYOUT.unpack(data)
    return Receipt(PublicKey(issuer.hex()), received_at_ms, version, signature)


def ledger_time_ms(newest: Iterable[int]) -> int:
    """Ledger time: the lower median of the members' newest receipts, 0 without any; milliseconds since 1970 UTC.

    Args:
        newest: ``received_at_ms`` of every member's newest receipt, 0 of one that has issued none.
    """
    times = sorted(newest)
    return times[(len(times) - 1) // 2] if times else 0
