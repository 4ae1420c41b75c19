"""JSON bodies, read strictly: one meaning per body, and nothing that a database or a log would choke on.

    loads(b'{"parents": []}')  →  {"parents": []}

What is no JSON (bad syntax, not UTF-8, a byte order mark, NaN) is 400 ``json-malformed``. What is JSON but
not ours is 422 ``json-refused``: a key twice, a number beyond float64 or 64 bits, control or direction-changing
characters, lone surrogates, more than 16 levels. Whether the value is the message that a route wants is the
route's question.
"""

import json
import math
import re
from typing import Any, Final

from fl_core.types import JsonValue
from ledger_server.http.problems import Problem

MAX_BYTES: Final = 65_536
MAX_DEPTH: Final = 16

_INT64: Final = 1 << 63
_MAX_INT_DIGITS: Final = 20
"""Sign and 19 digits; longer ones are refused unread, for reading digits takes quadratic time."""

_REFUSED_CHARACTERS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


def loads(body: bytes | bytearray | memoryview) -> JsonValue:
    """The value of a JSON body of at most ``MAX_BYTES``.

    Raises:
        Problem: 413 for its size, 400 for what is no JSON, 422 for JSON that is refused.
    """
    if len(body) > MAX_BYTES:
        raise Problem("body-too-large", f"a JSON body has at most {MAX_BYTES} bytes")
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        raise _malformed("the body is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise _malformed("the body begins with a byte order mark")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise _too_deep() from None
    _check(value)
    checked: JsonValue = value
    return checked


def _malformed(detail: str) -> Problem:
    return Problem("json-malformed", detail)


def _refused(detail: str) -> Problem:
    return Problem("json-refused", detail)


def _too_deep() -> Problem:
    return _refused(f"the body nests deeper than {MAX_DEPTH} levels")


def _constant(name: str) -> Any:
    raise _malformed(f"{name} is not JSON")


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= _MAX_INT_DIGITS else _INT64
    if not -_INT64 <= value < _INT64:
        raise _refused("an integer is beyond 64 bits")
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _refused("a number is beyond the range of float64")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _refused("an object names a key twice")
    return members


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_number
)


def _check(value: Any) -> None:
    """Depth and characters, level by level; without recursion, for the depth is the sender's."""
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, dict | list):
                if depth == MAX_DEPTH:
                    raise _too_deep()
                if isinstance(item, dict):
                    for key in item:
                        _check_text(key)
                    below.extend(item.values())
                else:
                    below.extend(item)
        level = below


def _check_text(text: str) -> None:
    if _REFUSED_CHARACTERS.search(text):
        raise _refused("a string holds a control, surrogate or direction-changing character")
