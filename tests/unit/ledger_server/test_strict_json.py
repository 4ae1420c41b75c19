import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger_server.http.problems import Problem
from ledger_server.http.strict_json import MAX_BYTES, MAX_DEPTH, loads

REFUSED: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 400),
    "blank": (b"  ", 400),
    "truncated": (b'{"a": 1', 400),
    "two values": (b"{} {}", 400),
    "trailing comma": (b"[1,]", 400),
    "single quotes": (b"{'a': 1}", 400),
    "comment": (b"{} // x", 400),
    "not UTF-8": (b'"\xff"', 400),
    "overlong UTF-8": (b'"\xc0\xaf"', 400),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), 400),
    "byte order mark": (b"\xef\xbb\xbf{}", 400),
    "raw control character": (b'"a\nb"', 400),
    "NaN": (b"NaN", 400),
    "Infinity": (b'{"a": Infinity}', 400),
    "minus Infinity": (b"[-Infinity]", 400),
    "1e400": (b"1e400", 422),
    "-1e400": (b'{"a": [-1e400]}', 422),
    "2^63": (b"9223372036854775808", 422),
    "-2^63-1": (b"-9223372036854775809", 422),
    "5,000 digits": (b"1" * 5000, 422),
    "lone high surrogate": (rb'"\ud800"', 422),
    "lone low surrogate as a key": (rb'{"\udc00": 1}', 422),
    "NUL": (rb'"a\u0000b"', 422),
    "escape": (rb'"\u001b[31m"', 422),
    "C1 control": ('"\x85"'.encode(), 422),
    "right-to-left override": ('"\u202etxt"'.encode(), 422),
    "isolate": (rb'["\u2066"]', 422),
    "line separator": (rb'"\u2028"', 422),
    "key twice": (b'{"a": 1, "a": 1}', 422),
    "key twice, one escaped": (rb'{"a": 1, "\u0061": 2}', 422),
    "key twice, deep": (b'[{"x": {"a": 1, "a": 2}}]', 422),
    "17 levels": (b"[" * 17 + b"]" * 17, 422),
    "900 levels": (b"[" * 900 + b"]" * 900, 422),
    "30,000 levels": (b"[" * 30_000 + b"]" * 30_000, 422),
    "30,000 objects": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 422),
    "too long": (b" " * MAX_BYTES + b"1", 413),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_bodies_are_refused(case: str) -> None:
    body, status = REFUSED[case]
    with pytest.raises(Problem) as refused:
        loads(body)
    assert refused.value.status == status
    assert refused.value.code == {400: "json-malformed", 413: "body-too-large", 422: "json-refused"}[status]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"null", None),
        (b" [] ", []),
        (b"-9223372036854775808", -(2**63)),
        (b"9223372036854775807", 2**63 - 1),
        (b"1.5e300", 1.5e300),
        (b"-0.0", -0.0),
        (rb'"\ud83d\ude00"', "😀"),
        ('"Zürich – 東京"'.encode(), "Zürich – 東京"),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, None),
    ],
)
def test_good_bodies_are_read(body: bytes, value: object) -> None:
    read = loads(body)
    if value is not None:
        assert read == value
        assert type(read) is type(value)


text = st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(values)
def test_what_it_takes_it_reads_as_the_standard_library_does(value: Any) -> None:
    body = json.dumps(value).encode()
    try:
        assert loads(body) == value
    except Problem as problem:
        assert "levels" in problem.detail  # noqa: PT017 -- only depth can be wrong with these


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_problem(body: bytes) -> None:
    try:
        value = loads(body)
    except Problem as problem:
        assert problem.status in (400, 422)  # noqa: PT017 -- either outcome is right
    else:
        assert not (isinstance(value, float) and not math.isfinite(value))
