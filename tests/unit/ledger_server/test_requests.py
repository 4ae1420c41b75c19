import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import Request

from fl_core.errors import ModelUnknownError
from fl_core.wire import v1
from ledger_server.api.requests import (
    Cursors,
    KnownQuery,
    Received,
    body_of,
    declared_bytes,
    measured,
    media_type,
    parse_json,
)
from ledger_server.http.problems import Problem
from ledger_server.publishing import LedgerService

KEY = "0123456789abcdef" + 48 * "0"


def request(*, query: bytes = b"", body: Sequence[bytes] = (), **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def stream() -> AsyncIterator[bytes]:
        for piece in body:
            yield piece

    made = Request({"type": "http", "query_string": query, "headers": raw, "method": "POST", "path": "/"})
    made.stream = stream  # type: ignore[method-assign, assignment]
    return made


def refusal(error: "pytest.ExceptionInfo[Problem]") -> tuple[int, str]:
    return error.value.status, error.value.code


def cursors() -> Cursors:
    return Cursors(cast("LedgerService", SimpleNamespace(epoch=KEY)))


@given(st.integers(0, 10**18 - 1))
def test_a_cursor_comes_back_as_the_arrival_it_was_made_of(arrival: int) -> None:
    assert cursors().decode(cursors().encode(arrival)) == arrival


def test_no_cursor_begins_before_genesis() -> None:
    assert cursors().decode(None) == -1


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        ("", (422, "query-invalid")),
        ("5", (422, "query-invalid")),
        (KEY[:16], (422, "query-invalid")),
        (f"{KEY[:16]}-", (422, "query-invalid")),
        (f"{KEY[:16]}--1", (422, "query-invalid")),
        (f"{KEY[:16]}-1 ", (422, "query-invalid")),
        (f"{KEY[:16]}-1_0", (422, "query-invalid")),
        (f"{KEY[:16]}-٣", (422, "query-invalid")),
        (f"{KEY[:16]}-{10**18}", (422, "query-invalid")),
        (f"{KEY[:15]}-1", (422, "query-invalid")),
        (f"{KEY[:15]}x-1", (410, "cursor-unknown")),
        (f"{'f' * 16}-1", (410, "cursor-unknown")),
    ],
)
def test_what_is_no_cursor_of_this_server_is_refused(cursor: str, expected: tuple[int, str]) -> None:
    with pytest.raises(Problem) as refused:
        cursors().decode(cursor)
    assert refusal(refused) == expected


@pytest.mark.parametrize("query", [b"", b"limit=3", b"after=x&limit=3", b"limit="])
def test_known_parameters_once_each_pass(query: bytes) -> None:
    asyncio.run(KnownQuery("after", "limit")(request(query=query)))


@pytest.mark.parametrize("query", [b"limit=1&limit=1", b"Limit=1", b"more=1", b"%00=1", b"after=1&after="])
def test_unknown_and_doubled_parameters_are_refused(query: bytes) -> None:
    with pytest.raises(Problem) as refused:
        asyncio.run(KnownQuery("after", "limit")(request(query=query)))
    assert refusal(refused) == (422, "query-invalid")


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("", 0), ("0", 0), ("7", 7), ("100", 10), ("-1", 0), ("1e3", 0), ("9" * 18, 10), ("9" * 19, 0), ("²", 0)],
)
def test_a_declared_size_is_believed_up_to_the_limit(stated: str, expected: int) -> None:
    asked = request(content_length=stated) if stated else request()
    assert declared_bytes(asked, limit=10) == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("application/json", "application/json"),
        ("Application/JSON; charset=UTF-8", "application/json"),
        (f'{v1.MODEL_MEDIA_TYPE}; charset="utf-8"', v1.MODEL_MEDIA_TYPE),
        ("", ""),
    ],
)
def test_a_media_type_is_compared_without_case_and_parameters(stated: str, expected: str) -> None:
    assert media_type(request(content_type=stated)) == expected


def test_another_charset_is_not_read() -> None:
    with pytest.raises(Problem) as refused:
        media_type(request(content_type="application/json; charset=utf-16"))
    assert refused.value.status == 415


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 200))
def test_a_body_is_its_pieces_whatever_was_declared(pieces: list[bytes], declared: int) -> None:
    received = Received(declared)
    for piece in pieces:
        received.add(memoryview(piece))
    assert len(received) == sum(map(len, pieces))
    assert bytes(received.take()) == b"".join(pieces)
    assert (len(received), bytes(received.take())) == (0, b"")


def test_a_body_over_the_limit_is_refused_at_the_first_byte_too_many() -> None:
    assert bytes(asyncio.run(body_of(request(body=[b"ab", b"cd"]), limit=4))) == b"abcd"
    with pytest.raises(Problem) as refused:
        asyncio.run(body_of(request(body=[b"ab", b"cde", b"never read"]), limit=4))
    assert refusal(refused) == (413, "body-too-large")


@pytest.mark.parametrize(
    ("body", "expected", "where"),
    [
        (b"{}", "request-invalid", "transaction"),
        (b'{"transaction": 5}', "request-invalid", "transaction"),
        (b'{"transaction": "%s", "more": 1}' % (64 * b"a"), "request-invalid", "more"),
        (b"[]", "request-invalid", "body"),
    ],
)
def test_a_message_that_is_not_as_described_says_where(body: bytes, expected: str, where: str) -> None:
    with pytest.raises(Problem) as refused:
        parse_json(body, v1.SelectionRequest)
    assert refused.value.code == expected
    assert [error["where"] for error in refused.value.extensions["errors"]] == [where]


def test_work_is_counted_by_its_outcome_and_always_timed() -> None:
    registry = CollectorRegistry()
    outcomes = Counter("outcomes", "", ["outcome"], registry=registry)
    duration_s = Histogram("duration", "", registry=registry)
    for created in (True, True, False):
        with measured(outcomes, duration_s) as outcome:
            outcome(created)
    with pytest.raises(ModelUnknownError), measured(outcomes, duration_s):
        raise ModelUnknownError("no")
    with pytest.raises(Problem), measured(outcomes, duration_s):
        raise Problem(422, "request-invalid")
    counted = {
        code: registry.get_sample_value("outcomes_total", {"outcome": code})
        for code in ("created", "known", "model-unknown", "request-invalid")
    }
    assert counted == {"created": 2, "known": 1, "model-unknown": 1, "request-invalid": 1}
    assert registry.get_sample_value("duration_count") == 5
