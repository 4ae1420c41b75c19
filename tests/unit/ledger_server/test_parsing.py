import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import Request

from fl_core.errors import CursorUnknownError, ModelUnknownError
from fl_core.wire import v1
from ledger_server.api.dependencies import Cursors, measured
from ledger_server.api.parsing import FORM_SLACK, parse_json, publication_form
from ledger_server.http.body import media_type, read_body
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
        ("", "query-invalid"),
        ("5", "query-invalid"),
        (KEY[:16], "query-invalid"),
        (f"{KEY[:16]}-", "query-invalid"),
        (f"{KEY[:16]}--1", "query-invalid"),
        (f"{KEY[:16]}-1 ", "query-invalid"),
        (f"{KEY[:16]}-1_0", "query-invalid"),
        (f"{KEY[:16]}-٣", "query-invalid"),
        (f"{KEY[:16]}-{10**18}", "query-invalid"),
        (f"{KEY[:15]}-1", "query-invalid"),
        (f"{KEY[:15]}x-1", "cursor-unknown"),
        (f"{'f' * 16}-1", "cursor-unknown"),
    ],
)
def test_what_is_no_cursor_of_this_server_is_refused(cursor: str, expected: str) -> None:
    with pytest.raises((Problem, CursorUnknownError)) as refused:
        cursors().decode(cursor)
    assert refused.value.code == expected


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


def test_a_body_over_the_limit_is_refused_at_the_first_byte_too_many() -> None:
    assert bytes(asyncio.run(read_body(request(body=[b"ab", b"cd"]), limit=4))) == b"abcd"
    with pytest.raises(Problem) as refused:
        asyncio.run(read_body(request(body=[b"ab", b"cde", b"never read"]), limit=4))
    assert refusal(refused) == (413, "body-too-large")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("content_length", "5", 413),
        ("content_length", "9" * 40, 413),
        ("content_encoding", "gzip", 415),
        ("content_encoding", "identity, gzip", 415),
        ("content_encoding", "X", 415),
    ],
)
def test_a_head_that_says_enough_has_no_body_read(field: str, value: str, expected: int) -> None:
    asked = request(body=[b"read"], **{field: value})
    with pytest.raises(Problem) as refused:
        asyncio.run(read_body(asked, limit=4))
    assert refused.value.status == expected


def test_identity_is_no_encoding() -> None:
    assert bytes(asyncio.run(read_body(request(body=[b"ab"], content_encoding="identity"), limit=4))) == b"ab"


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
        parse_json(body, v1.SelectRequest)
    assert refused.value.code == expected
    assert [error["where"] for error in refused.value.extensions["errors"]] == [where]


def test_a_key_of_the_senders_is_repeated_short() -> None:
    with pytest.raises(Problem) as refused:
        parse_json(b'{"transaction": "%s", "%s": 1}' % (64 * b"a", 5000 * b"k"), v1.SelectRequest)
    assert refused.value.extensions["errors"][0]["where"] == 64 * "k"
    assert len(refused.value.response().body) < 1000


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
        raise Problem("request-invalid")
    counted = {
        code: registry.get_sample_value("outcomes_total", {"outcome": code})
        for code in ("created", "known", "model-unknown", "request-invalid")
    }
    assert counted == {"created": 2, "known": 1, "model-unknown": 1, "request-invalid": 1}
    assert registry.get_sample_value("duration_count") == 5


# The form of a publication.

BOUNDARY = "boundary"
DOCUMENT, MODEL = b'{"num_examples": 1}', bytes(range(256)) + b"\r\n--bound\r\n--boundar"


def part(name: str, data: bytes, *headers: str, filename: str | None = None) -> bytes:
    suffix = "" if filename is None else f'; filename="{filename}"'
    lines = [f'Content-Disposition: form-data; name="{name}"{suffix}', *headers]
    return f"--{BOUNDARY}\r\n".encode() + "\r\n".join(lines).encode() + b"\r\n\r\n" + data + b"\r\n"


def model_part(data: bytes, *headers: str) -> bytes:
    return part("model", data, *headers, filename="model.safetensors")


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


WHOLE = form(part("transaction", DOCUMENT), model_part(MODEL))


def read(*pieces: bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}") -> tuple[int, bytes]:
    """The number of examples and the model, of a body that comes in these pieces."""
    asked = request(body=pieces, content_type=content_type)
    transaction, model, _ = asyncio.run(publication_form(asked, model_bytes=1000))
    return transaction.num_examples, bytes(model)


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


def test_two_parts_are_read_in_either_order() -> None:
    assert read(WHOLE) == (1, MODEL)
    assert read(form(model_part(MODEL), part("transaction", DOCUMENT))) == (1, MODEL)


def test_either_part_may_be_a_file_or_none() -> None:
    assert read(form(part("transaction", DOCUMENT, filename="t.json"), model_part(MODEL))) == (1, MODEL)
    assert read(form(part("transaction", DOCUMENT), part("model", MODEL))) == (1, MODEL)


@pytest.mark.parametrize("size", [*range(1, 40), 100, 1000])
def test_where_a_form_is_cut_makes_no_difference(size: int) -> None:
    assert read(*cut(WHOLE, size)) == (1, MODEL)


@given(st.binary(max_size=300).filter(lambda model: b"\r\n--boundary" not in model), st.integers(1, 400))
def test_any_model_arrives_as_it_was(model: bytes, size: int) -> None:
    assert read(*cut(form(part("transaction", DOCUMENT), model_part(model)), size)) == (1, model)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (form(part("transaction", DOCUMENT)), (422, "parts-invalid")),
        (form(model_part(b"")), (422, "parts-invalid")),
        (form(part("transaction", b"{}"), part("transaction", b"{}"), model_part(b"")), (422, "parts-invalid")),
        (form(part("transaction", b"{}"), model_part(b""), model_part(b"")), (422, "parts-invalid")),
        (form(part("transaction", b"{}"), model_part(b""), part("more", b"")), (422, "parts-invalid")),
        (form(part("transaction", b"{}"), model_part(b""), part("m", b"", filename="m")), (422, "parts-invalid")),
        (form(part("transaction", b"{}"), part("Model", b"", filename="m")), (422, "parts-invalid")),
        (form(part("transaction", DOCUMENT), model_part(b"", "Content-Type: image/png")), (415, "unsupported-media-type")),
        (form(part("transaction", DOCUMENT), model_part(b"", "Content-Transfer-Encoding: x")), (400, "body-malformed")),
        (form(part("transaction", DOCUMENT), model_part(b"", "Content-Transfer-Encoding: base64")), (400, "body-malformed")),
        (form(part("transaction", b"{}", "X: " + 5000 * "x")), (400, "body-malformed")),
        (form(part("transaction", b" " * (1 << 16) + b"{}"), model_part(b"")), (413, "body-too-large")),
        (form(part("transaction", DOCUMENT), model_part(bytes(1001 + FORM_SLACK))), (413, "body-too-large")),
        (b"", (400, "body-malformed")),
        (b"no form at all", (400, "body-malformed")),
        (WHOLE.replace(b"Content-Disposition", b"Content-Disposal"), (400, "body-malformed")),
    ],
)  # fmt: skip
def test_what_is_no_publication_is_refused_wherever_it_is_cut(body: bytes, expected: tuple[int, str]) -> None:
    for pieces in ([body], cut(body, 7 if len(body) < 2000 else 4093)):
        with pytest.raises(Problem) as refused:
            read(*pieces)
        assert refusal(refused) == expected


@pytest.mark.parametrize("end", range(1, len(WHOLE) - len(BOUNDARY) - 8, 5))
def test_a_form_that_breaks_off_is_never_taken_for_whole(end: int) -> None:
    with pytest.raises(Problem) as refused:
        read(WHOLE[:end])
    assert refused.value.status in (400, 422)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("", 415),
        ("application/json", 415),
        ("multipart/mixed; boundary=boundary", 415),
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=", 400),
        ("multipart/form-data; boundary=" + 71 * "b", 400),
    ],
)
def test_the_content_type_must_name_a_form_and_its_boundary(content_type: str, status: int) -> None:
    with pytest.raises(Problem) as refused:
        read(WHOLE, content_type=content_type)
    assert refused.value.status == status


def test_a_model_s_type_is_read_without_regard_to_case() -> None:
    typed = form(
        part("transaction", DOCUMENT, "content-type: Application/JSON; Charset=UTF-8"),
        model_part(MODEL, "CONTENT-TYPE: Application/Octet-Stream", "content-transfer-encoding: Binary"),
    )
    assert read(typed) == (1, MODEL)
