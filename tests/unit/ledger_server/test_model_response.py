import asyncio
import base64
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from fl_core.types import digest_of
from fl_core.wire import v1
from ledger_server.api.model_response import bytes_response
from ledger_server.http.problems import Problem

DATA = bytes(range(10))
DIGEST = digest_of(DATA)
ETAG = f'"{DIGEST}"'


def ask(headers: Mapping[str, str], *, method: str = "GET", data: bytes = DATA) -> tuple[int, dict[str, str], bytes]:
    """Status, header fields and body of the answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("the answer needs nothing of the request's body")

    response = bytes_response(digest_of(data), data, method=method, request_headers=headers)
    asyncio.run(response({"type": "http", "method": method, "headers": []}, receive, send))
    fields = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    return sent[0]["status"], fields, b"".join(bytes(message.get("body", b"")) for message in sent[1:])


@pytest.mark.parametrize(
    ("wanted", "status", "start", "stop"),
    [
        ("bytes=0-0", 206, 0, 1),
        ("bytes=0-9", 206, 0, 10),
        ("bytes=3-5", 206, 3, 6),
        ("bytes=9-9", 206, 9, 10),
        ("bytes=9-", 206, 9, 10),
        ("bytes=0-", 206, 0, 10),
        ("bytes=4-99", 206, 4, 10),
        ("bytes=-1", 206, 9, 10),
        ("bytes=-10", 206, 0, 10),
        ("bytes=-99", 206, 0, 10),
        (" bytes=3-5 ", 206, 3, 6),
        ("bytes=-", 200, 0, 10),
        ("bytes=5-3", 200, 0, 10),
        ("bytes=0-1,3-4", 200, 0, 10),
        ("bytes=a-b", 200, 0, 10),
        ("bytes=0x1-2", 200, 0, 10),
        ("bytes 0-1", 200, 0, 10),
        ("items=0-1", 200, 0, 10),
        ("bytes=" + 19 * "9" + "-", 200, 0, 10),
        ("", 200, 0, 10),
    ],
)
def test_ranges(wanted: str, status: int, start: int, stop: int) -> None:
    got, headers, body = ask({"range": wanted} if wanted else {})
    assert (got, body) == (status, DATA[start:stop])
    assert headers["content-length"] == str(stop - start)
    assert headers.get("content-range") == (f"bytes {start}-{stop - 1}/10" if status == 206 else None)


@pytest.mark.parametrize("wanted", ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=" + 18 * "9" + "-"])
def test_a_range_outside_is_refused_with_the_size(wanted: str) -> None:
    with pytest.raises(Problem) as refused:
        ask({"range": wanted})
    assert (refused.value.status, refused.value.code) == (416, "range-not-satisfiable")
    assert refused.value.headers["content-range"] == "bytes */10"


@given(st.integers(0, 12), st.integers(0, 12))
def test_a_range_is_the_slice_of_the_same_numbers(first: int, last: int) -> None:
    if first > 9:
        with pytest.raises(Problem):
            ask({"range": f"bytes={first}-{max(first, last)}"})
    elif last >= first:
        assert ask({"range": f"bytes={first}-{last}"})[2] == DATA[first : last + 1]
    else:
        assert ask({"range": f"bytes={first}-{last}"})[2] == DATA


@pytest.mark.parametrize("stated", [ETAG, f"W/{ETAG}", f'"other", {ETAG}', "*"])
def test_a_copy_that_the_client_has_is_not_sent_again(stated: str) -> None:
    status, headers, body = ask({"if-none-match": stated, "range": "bytes=0-1"})
    assert (status, body, headers["etag"]) == (304, b"", ETAG)
    assert "immutable" in headers["cache-control"]


@pytest.mark.parametrize("stated", ['"other"', DIGEST, ""])
def test_another_copy_is_no_copy(stated: str) -> None:
    assert ask({"if-none-match": stated})[0] == 200


@pytest.mark.parametrize(("stated", "status"), [(ETAG, 206), ('"other"', 200), (f"W/{ETAG}", 200)])
def test_a_range_of_something_else_is_answered_in_full(stated: str, status: int) -> None:
    assert ask({"if-range": stated, "range": "bytes=0-1"})[0] == status


@pytest.mark.parametrize("wanted", ["", "bytes=0-1", "bytes=99-"])
def test_head_is_the_whole_without_its_bytes(wanted: str) -> None:
    """RFC 9110, 14.2: a range is defined for GET alone."""
    status, headers, body = ask({"range": wanted} if wanted else {}, method="HEAD")
    assert (status, body, headers["content-length"]) == (200, b"", "10")


def test_the_answer_names_type_and_digest() -> None:
    _, headers, _ = ask({})
    assert headers["content-type"] == v1.MODEL_MEDIA_TYPE
    assert headers["accept-ranges"] == "bytes"
    assert headers["repr-digest"] == f"sha-256=:{base64.b64encode(bytes.fromhex(DIGEST)).decode()}:"


def test_a_large_model_is_sent_in_pieces() -> None:
    data = bytes(range(256)) * 5000
    assert ask({}, data=data)[2] == data
    assert ask({"range": "bytes=7-1000006"}, data=data)[2] == data[7:1000007]
