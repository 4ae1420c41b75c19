import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger_server.api.multipart import MAX_TRANSACTION_BYTES, PublicationBody
from ledger_server.http.problems import Problem

BOUNDARY = "boundary"
TYPE = f"multipart/form-data; boundary={BOUNDARY}"
TRANSACTION, MODEL = b'{"num_examples": 1}', bytes(range(256)) + b"\r\n--bound\r\n--boundar"


def part(name: str, data: bytes, *headers: str) -> bytes:
    lines = [f'Content-Disposition: form-data; name="{name}"', *headers]
    return f"--{BOUNDARY}\r\n".encode() + "\r\n".join(lines).encode() + b"\r\n\r\n" + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


WHOLE = form(part("transaction", TRANSACTION), part("model", MODEL))


def read(
    body: bytes | Sequence[bytes], *, content_type: str = TYPE, model_bytes: int = 1000, declared_bytes: int = 0
) -> tuple[bytes, bytes]:
    """Both parts of a body that comes in these pieces."""

    async def stream() -> AsyncIterator[bytes]:
        for piece in [body] if isinstance(body, bytes) else body:
            yield piece

    form = PublicationBody(content_type, model_bytes=model_bytes, declared_bytes=declared_bytes)
    transaction, model = asyncio.run(form.read(stream()))
    return transaction, bytes(model)


def cut(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


def test_two_parts_are_read_in_either_order() -> None:
    assert read(WHOLE) == (TRANSACTION, MODEL)
    assert read(form(part("model", MODEL), part("transaction", TRANSACTION))) == (TRANSACTION, MODEL)


def test_where_the_body_is_cut_makes_no_difference() -> None:
    for size in range(1, len(WHOLE) + 1):
        assert read(list(cut(WHOLE, size))) == (TRANSACTION, MODEL), f"pieces of {size} bytes"


@given(st.binary(max_size=300), st.binary(max_size=300), st.data())
def test_any_bytes_arrive_as_they_were_however_they_are_cut(
    transaction: bytes, model: bytes, data: st.DataObject
) -> None:
    sent = form(part("transaction", transaction), part("model", model))
    if f"\r\n--{BOUNDARY}".encode() in transaction + model:
        return
    places = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=8)))
    pieces = [sent[low:high] for low, high in zip([0, *places], [*places, len(sent)], strict=True)]
    assert read(pieces) == (transaction, model)


@pytest.mark.parametrize("declared", [0, 1, len(WHOLE) - 1, len(WHOLE), 10 * len(WHOLE)])
def test_a_wrong_promise_of_size_changes_nothing(declared: int) -> None:
    assert read(list(cut(WHOLE, 7)), declared_bytes=declared) == (TRANSACTION, MODEL)


@pytest.mark.parametrize("declared", [0, 1 << 19, 1 << 20, 1 << 21])
def test_a_large_model_arrives_whole(declared: int) -> None:
    large = bytes(range(251)) * 4178  # 1 MiB and a little
    sent = form(part("transaction", TRANSACTION), part("model", large))
    got = read(list(cut(sent, 1 << 16)), model_bytes=len(large), declared_bytes=declared)
    assert got == (TRANSACTION, large)


def refusal(body: bytes | Sequence[bytes], **how: object) -> tuple[int, str]:
    with pytest.raises(Problem) as refused:
        read(body, **how)  # type: ignore[arg-type]
    return refused.value.status, refused.value.code


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (form(part("transaction", b"{}")), (422, "parts-invalid")),
        (form(part("model", b"")), (422, "parts-invalid")),
        (form(part("transaction", b"{}"), part("transaction", b"{}"), part("model", b"")), (422, "parts-invalid")),
        (form(part("transaction", b"{}"), part("model", b""), part("more", b"")), (422, "parts-invalid")),
        (form(part("transaction", b"{}"), part("Model", b"")), (422, "parts-invalid")),
        (form(part("model", b"", "Content-Type: image/png")), (415, "unsupported-media-type")),
        (
            form(part("transaction", b"", "Content-Type: application/json; charset=utf-16")),
            (415, "unsupported-media-type"),
        ),
        (form(part("model", b"", "Content-Transfer-Encoding: base64")), (415, "unsupported-media-type")),
        (form(part("transaction", b"{}", "X: " + 5000 * "x")), (400, "body-malformed")),
        (form(part("transaction", bytes(MAX_TRANSACTION_BYTES + 1))), (413, "body-too-large")),
        (form(part("model", bytes(1000 + 64 * 1024 + 1))), (413, "body-too-large")),
        (b"", (400, "body-malformed")),
        (b"no form at all", (400, "body-malformed")),
        (WHOLE.replace(b"form-data", b"attachment"), (422, "parts-invalid")),
        (WHOLE.replace(b"Content-Disposition", b"Content-Disposal"), (422, "parts-invalid")),
    ],
)
def test_what_is_no_publication_is_refused_wherever_it_is_cut(body: bytes, expected: tuple[int, str]) -> None:
    assert refusal(body) == expected
    size = 7 if len(body) < 2000 else 4093
    assert refusal(list(cut(body, size))) == expected


@pytest.mark.parametrize("end", range(1, len(WHOLE) - 4, 5))
def test_a_body_that_breaks_off_is_never_taken_for_whole(end: int) -> None:
    assert refusal(WHOLE[:end])[0] in (400, 422)


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
    assert refusal(WHOLE, content_type=content_type)[0] == status


def test_media_types_are_read_without_regard_to_case_and_may_be_left_out() -> None:
    typed = form(
        part("transaction", TRANSACTION, "content-type: Application/JSON; Charset=UTF-8"),
        part("model", MODEL, "CONTENT-TYPE: application/octet-stream", "content-transfer-encoding: Binary"),
    )
    assert read(typed) == (TRANSACTION, MODEL)
