"""Ed25519 signatures over ids, with the checks that OpenSSL leaves out.

What is signed is a domain tag and the 32 bytes of an id (a receipt adds two numbers), so that an author's signature
can never pass for a server's, nor either for a signature of another protocol.
"""

from enum import Enum
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fl_core.errors import SignatureError
from fl_core.types import PublicKey, is_hex_id

SIGNATURE_BYTES: Final = 64


class Role(Enum):
    """Who signs; the value is the domain tag that precedes the id."""

    AUTHOR = b"dag-acfl/author/v1\x00"
    SELECTION = b"dag-acfl/selection/v1\x00"
    """A server, of the evidence of a selection that it made; the id is the selection's."""
    ASKER = b"dag-acfl/asker/v1\x00"
    """An author that asks what is left of its own selection's average without a parent; the id is the selection's."""
    SUMMARY = b"dag-acfl/summary/v1\x00"
    """A server, of what it holds; the id is the SHA-256 of the summary (``fl_core.sync.summary``)."""
    RECEIPT = b"dag-acfl/receipt/v1\x00"
    """A server, of an update that it received (``fl_core.dag.receipt``)."""
    ACT = b"dag-acfl/act-signature/v1\x00"
    """A member, or an author that rotates its own key; the id is the act's (``fl_core.dag.acts``)."""
    CHECKPOINT = b"dag-acfl/checkpoint/v1\x00"
    """A member; the id is the checkpoint's (``fl_core.dag.checkpoint``)."""


_P: Final = 2**255 - 19
_D: Final = -121665 * pow(121666, -1, _P) % _P


def _y_has_small_order(y: int) -> bool:
    """Whether a point with this y coordinate lies in the torsion subgroup of order 8.

    y = 1 (order 1), -1 (order 2), 0 (order 4), and the two y with d·y^4 + 2·y^2 - 1 = 0 (order 8).
    """
    y %= _P
    return y in (0, 1, _P - 1) or (_D * pow(y, 4, _P) + 2 * y * y - 1) % _P == 0


def is_weak_key(public_key: PublicKey) -> bool:
    """Whether the key is a small-order point or a non-canonical encoding.

    OpenSSL loads such keys, and for them a forged signature (S = 0) verifies for many messages.
    """
    y = int.from_bytes(bytes.fromhex(public_key), "little") & (2**255 - 1)
    return y >= _P or _y_has_small_order(y)


@lru_cache(maxsize=1024)
def loaded_key(public_key: PublicKey) -> Ed25519PublicKey:
    """What verifies signatures of a key. Loading one takes half as long as a verification, and servers' keys recur.

    Raises:
        SignatureError: The key is malformed or weak.
    """
    if not is_hex_id(public_key):
        raise SignatureError("a public key is 64 lowercase hexadecimal digits (32 bytes)")
    if is_weak_key(public_key):
        raise SignatureError(f"public key {public_key[:16]}… is a small-order or non-canonical point")
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))


def public_key_of(private_key: Ed25519PrivateKey) -> PublicKey:
    """The public key as 64 hexadecimal digits."""
    return PublicKey(private_key.public_key().public_bytes_raw().hex())


def sign(private_key: Ed25519PrivateKey, identity: str, *, role: Role, then: bytes = b"") -> bytes:
    """Sign an id, and the bytes ``then`` behind it, in one role. Returns 64 bytes."""
    return private_key.sign(role.value + bytes.fromhex(identity) + then)


def verify(public_key: PublicKey, identity: str, signature: bytes, *, role: Role, then: bytes = b"") -> None:
    """Check one signature of ``sign``.

    Raises:
        SignatureError: The key is malformed or weak, or the signature is not of this key, id and role.
    """
    key = loaded_key(public_key)
    if len(signature) != SIGNATURE_BYTES:
        raise SignatureError(f"an Ed25519 signature has {SIGNATURE_BYTES} bytes, this one {len(signature)}")
    try:
        key.verify(signature, role.value + bytes.fromhex(identity) + then)
    except InvalidSignature as error:
        who = role.name.lower().replace("_", " ")
        raise SignatureError(f"the {who}'s signature does not verify for {identity[:16]}…") from error
