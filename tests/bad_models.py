"""Files that are no model of the test ledger, each with the error that names its fault."""

import json
import struct
from collections.abc import Callable

from fl_core.errors import (
    ModelError,
    ModelLayoutError,
    ModelMalformedError,
    ModelNotCanonicalError,
    ModelTooLargeError,
)
from fl_core.models import MAX_HEADER_BYTES


def file_of(header: object, body: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


GOOD = {
    "fc.bias": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    "fc.weight": {"dtype": "F32", "shape": [1, 3], "data_offsets": [4, 16]},
}
BODY = b"\x00" * 16


def changed(name: str, **fields: object) -> dict[str, dict[str, object]]:
    return {**GOOD, name: {**GOOD[name], **fields}}


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


REFUSED: list[tuple[str, Callable[[], bytes], type[ModelError]]] = [
    ("empty", lambda: b"", ModelMalformedError),
    ("seven bytes", lambda: b"\x00" * 7, ModelMalformedError),
    ("length word of zero", lambda: b"\x00" * 8, ModelMalformedError),
    ("length 2^64-1", lambda: b"\xff" * 8 + BODY, ModelTooLargeError),
    ("length 2^63", lambda: struct.pack("<Q", 2**63) + BODY, ModelTooLargeError),
    ("length beyond the file", lambda: struct.pack("<Q", 1000) + b"{}", ModelMalformedError),
    ("header over 1 MiB", lambda: struct.pack("<Q", MAX_HEADER_BYTES + 1) + b" " * (MAX_HEADER_BYTES + 1), ModelTooLargeError),
    (
        "5,000 tensors",
        lambda: file_of({f"t{i}": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(5000)}, b"\x00" * 20000),
        ModelTooLargeError,
    ),
    ("not UTF-8", lambda: file_of(b"\xff\xfe{}"), ModelMalformedError),
    ("not JSON", lambda: file_of(b"{nope}"), ModelMalformedError),
    ("a list", lambda: file_of([]), ModelMalformedError),
    ("null", lambda: file_of(None), ModelMalformedError),
    ("100,000 deep", lambda: file_of(nested(100_000)), ModelMalformedError),
    ("no tensors", lambda: file_of({}), ModelLayoutError),
    ("overlap", lambda: file_of(changed("fc.weight", data_offsets=[0, 12]), BODY), ModelMalformedError),
    ("hole", lambda: file_of(changed("fc.weight", data_offsets=[8, 20]), BODY + b"\x00" * 4), ModelMalformedError),
    ("reversed offsets", lambda: file_of(changed("fc.weight", data_offsets=[16, 4]), BODY), ModelMalformedError),
    ("offsets past the end", lambda: file_of(GOOD, BODY[:-1]), ModelMalformedError),
    ("trailing bytes", lambda: file_of(GOOD, BODY + b"PK\x03\x04"), ModelMalformedError),
    ("negative shape", lambda: file_of(changed("fc.bias", shape=[-1]), BODY), ModelMalformedError),
    ("float shape", lambda: file_of(changed("fc.bias", shape=[1.0]), BODY), ModelMalformedError),
    ("boolean shape", lambda: file_of(changed("fc.bias", shape=[True]), BODY), ModelMalformedError),
    ("overflowing shape", lambda: file_of(changed("fc.bias", shape=[2**32, 2**32]), BODY), ModelMalformedError),
    ("shape [0, 2^62]", lambda: file_of(changed("fc.bias", shape=[0, 2**62], data_offsets=[0, 0]), BODY), ModelLayoutError),
    ("rank 9", lambda: file_of(changed("fc.bias", shape=[1] * 9), BODY), ModelLayoutError),
    ("unknown dtype", lambda: file_of(changed("fc.bias", dtype="X9"), BODY), ModelLayoutError),
    ("F64", lambda: file_of(changed("fc.bias", dtype="F64"), BODY), ModelLayoutError),
    ("F8", lambda: file_of(changed("fc.bias", dtype="F8_E4M3"), BODY), ModelLayoutError),
    ("BF16 where genesis says F32", lambda: file_of({**changed("fc.bias", dtype="BF16", shape=[2])}, BODY), ModelLayoutError),
    ("another shape", lambda: file_of(changed("fc.weight", shape=[3, 1]), BODY), ModelLayoutError),
    ("a tensor missing", lambda: file_of({"fc.bias": GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("a tensor too many", lambda: file_of({**GOOD, "z": {"dtype": "F32", "shape": [1], "data_offsets": [16, 20]}}, BODY + b"\x00" * 4), ModelLayoutError),
    ("a key twice", lambda: file_of(b'{"a":1,"a":1}'), ModelMalformedError),
    ("an unknown field", lambda: file_of(changed("fc.bias", extra=1), BODY), ModelMalformedError),
    ("dtype a number", lambda: file_of(changed("fc.bias", dtype=32), BODY), ModelMalformedError),
    ("NaN in the header", lambda: file_of(b'{"a":NaN}'), ModelMalformedError),
    ("padding spaces", lambda: file_of(json.dumps(GOOD, separators=(",", ":")).encode() + b" " * 64, BODY), ModelNotCanonicalError),
    ("spaces in the JSON", lambda: file_of(GOOD, BODY), ModelNotCanonicalError),
    ("metadata", lambda: file_of({"__metadata__": {"format": "pt"}, **GOOD}, BODY), ModelNotCanonicalError),
    ("tensor name empty", lambda: file_of({"": GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("tensor name climbs", lambda: file_of({"../../etc/passwd": GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("tensor name with NUL", lambda: file_of({"a\0b": GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("tensor name of 300 bytes", lambda: file_of({"n" * 300: GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("a pickle", lambda: b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtins", ModelError),
    ("a zip", lambda: b"PK\x03\x04" + b"\x00" * 200, ModelError),
    ("GGUF", lambda: b"GGUF\x03\x00\x00\x00" + b"\x00" * 200, ModelError),
]  # fmt: skip
