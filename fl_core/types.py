"""The words that every module shares: identifiers as hexadecimal text, and array shapes.

Identifiers are 64 lowercase hexadecimal digits everywhere in Python and JSON; only the canonical
header (``fl_core.dag.transaction``) holds them as 32 raw bytes.
"""

import hashlib
import re
from typing import Final, NewType, TypeAlias

import numpy as np
from numpy.typing import NDArray

TxId = NewType("TxId", str)
"""SHA-256 of a transaction's domain tag and header."""

Digest = NewType("Digest", str)
"""SHA-256 of a model's safetensors bytes, or of an attachment's bytes."""

PublicKey = NewType("PublicKey", str)
"""An Ed25519 public key: 64 hexadecimal digits."""

AuthorId = NewType("AuthorId", str)
"""``key:<public key>``, or ``hash:<digest of a secret>`` for an author without a key (``fl_core.dag.author``).

The prefix keeps the two apart: nobody can pass for a key's author by naming its bytes without signing.
"""

JsonScalar: TypeAlias = str | int | float | bool
JsonValue: TypeAlias = "JsonScalar | list[JsonValue] | dict[str, JsonValue] | None"

Vector32: TypeAlias = NDArray[np.float32]
"""Shape ``(p,)``: a model, or the part of it that is compared."""

Vector64: TypeAlias = NDArray[np.float64]
Matrix32: TypeAlias = NDArray[np.float32]
"""Shape ``(n, d)``: one row per candidate."""

HEX_ID: Final = re.compile(r"[0-9a-f]{64}")
ZERO_ID: Final = "0" * 64


def is_hex_id(text: str) -> bool:
    """Whether ``text`` is 64 lowercase hexadecimal digits (ASCII only)."""
    return HEX_ID.fullmatch(text) is not None


def digest_of(data: bytes | bytearray | memoryview) -> Digest:
    """SHA-256 of ``data``, as 64 hexadecimal digits."""
    return Digest(hashlib.sha256(data).hexdigest())
