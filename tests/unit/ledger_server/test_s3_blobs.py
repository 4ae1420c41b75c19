"""Objects of a bucket, over HTTP to a local S3 service: what is put is there, and every failure says what to do."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.request import urlopen

import obstore
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fl_core.types import Digest, digest_of
from ledger_server.buckets import S3Address, parse_s3_url
from ledger_server.store.blobs import s3 as module
from ledger_server.store.blobs.s3 import BucketRefusedError, S3Blobs
from ledger_server.store.errors import StoreLocationError, StoreUnavailableError
from tests.s3 import NOBODY, S3Service

MIB = 1 << 20


def data_of(size: int, *, seed: int = 1) -> bytes:
    return bytes((seed + 7 * index) % 251 for index in range(min(size, 4096))) * (size // 4096 + 1)


NO_DATABASE: Any = None
"""A bucket needs the transaction's lock, and not its connection."""


def put(blobs: S3Blobs, data: bytes) -> tuple[Digest, int]:
    """Digest and size, as ``get`` and ``open`` take them."""
    blobs.prepare(digest_of(data), data)
    return digest_of(data), len(data)


@pytest.fixture
def address(s3: S3Service) -> S3Address:
    return s3.fresh()


@pytest.fixture
def blobs(address: S3Address) -> S3Blobs:
    return S3Blobs(address)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that are asked of S3."""
    ranges: list[tuple[int, int]] = []
    piece = S3Blobs.piece

    def noting(self: S3Blobs, digest: Digest, start: int, stop: int) -> bytes | None:
        ranges.append((start, stop))
        return piece(self, digest, start, stop)

    monkeypatch.setattr(S3Blobs, "piece", noting)
    return ranges


def test_a_model_lies_under_the_prefix_by_its_digest_as_other_programs_see_it(
    s3: S3Service, address: S3Address, blobs: S3Blobs
) -> None:
    assert list(blobs.digests()) == []
    blob = put(blobs, b"a model")
    put(blobs, b"a model")
    assert s3.objects(address) == {f"site/models/{blob[0]}": b"a model"}
    assert list(blobs.digests()) == [blob[0]]
    assert blobs.get(*blob) == b"a model"


def test_without_a_prefix_it_lies_at_the_top(s3: S3Service) -> None:
    address = s3.fresh(prefix="")
    blob = put(S3Blobs(address), b"a model")
    assert s3.objects(address) == {blob[0]: b"a model"}


def test_a_large_model_goes_up_in_parts_and_comes_down_in_pieces(
    s3: S3Service, address: S3Address, blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 * MIB)  # S3 takes no smaller part
    data = data_of(11 * MIB)
    blob = put(blobs, data)
    assert s3.objects(address)[f"site/models/{blob[0]}"] == data
    asked.clear()
    assert blobs.get(*blob) == data
    assert asked == [(0, 5 * MIB), (5 * MIB, 10 * MIB), (10 * MIB, len(data))]
    with blobs.open(*blob) or pytest.fail("gone") as reader:
        assert reader.read(1, len(data) - 1) == data[1:-1]


def test_what_was_never_put_or_was_dropped_is_gone(blobs: S3Blobs) -> None:
    blob = put(blobs, b"a model")
    never = Digest("0" * 64), 7
    with blobs.open(*blob) or pytest.fail("gone") as reader:
        blobs.drop(NO_DATABASE, blob[0])
        assert reader.read(0, 7) == b"", "fewer bytes than it had: whoever hashes them sees it"
    for gone in (blob, never):
        assert blobs.get(*gone) is None
        assert blobs.open(*gone) is None
        blobs.drop(NO_DATABASE, gone[0])


def test_an_object_that_was_cut_short_reads_as_fewer_bytes(blobs: S3Blobs) -> None:
    digest = digest_of(b"whole model")
    blobs.prepare(digest, b"whole")
    blob = digest, 11
    assert blobs.get(*blob) == b"whole"
    with blobs.open(*blob) or pytest.fail("gone") as reader:
        assert reader.read(0, 11) == b"whole"
        assert reader.read(8, 11) == b""


def append(blobs: S3Blobs, data: bytes) -> None:
    blobs.put(NO_DATABASE, digest_of(data), data)


def test_an_append_asks_nothing_of_a_bucket_for_what_was_put_just_now(
    blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(blobs, b"a model")
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "get_range", None)
        patch.setattr(obstore, "put", None)
        append(blobs, b"a model")


def test_an_append_puts_again_what_went_after_it_was_prepared(address: S3Address, blobs: S3Blobs) -> None:
    blob = put(blobs, b"a model")
    other = S3Blobs(address)  # another process; it finds the model there
    put(other, b"a model")
    other.drop(NO_DATABASE, blob[0])
    append(other, b"a model")
    assert blobs.get(*blob) == b"a model"


def test_a_link_gives_the_model_to_whoever_holds_it_and_says_nothing_of_whether_s3_is_there(
    s3: S3Service, blobs: S3Blobs
) -> None:
    digest, size = put(blobs, b"a model")
    link = blobs.link(digest)
    assert link is not None
    with urlopen(link, timeout=10) as found:
        assert found.read() == b"a model"
    with s3.down():
        assert blobs.link(digest) is not None, "nobody has asked yet"
        with pytest.raises(StoreUnavailableError):
            blobs.get(digest, size)
        assert blobs.link(digest) is None
    assert blobs.get(digest, size) == b"a model"
    assert blobs.link(digest) is not None


def test_other_bytes_take_an_objects_place(blobs: S3Blobs) -> None:
    blob = put(blobs, b"a model")
    blobs.replace(NO_DATABASE, blob[0], b"packed")
    assert blobs.get(*blob) == b"packed"


def test_a_sweep_takes_objects_that_are_a_day_old(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = put(blobs, b"a model")
    assert list(blobs.settled()) == []
    monkeypatch.setattr(module, "YOUNG", timedelta(seconds=-60))
    assert list(blobs.settled()) == [blob[0]]


# -- reading in pieces --------------------------------------------------------------------------------


def test_a_model_is_opened_without_reading_it_and_a_slice_costs_one_request(
    blobs: S3Blobs, asked: list[tuple[int, int]]
) -> None:
    data = data_of(4 * MIB)
    with blobs.open(*put(blobs, data)) or pytest.fail("gone") as reader:
        assert (reader.size, asked) == (len(data), [(0, 1)] * 2), "whether it is there: to put it, and to open it"
        asked.clear()
        assert reader.read(3 * MIB, 3 * MIB + 10) == data[3 * MIB : 3 * MIB + 10]
        assert asked == [(3 * MIB, 3 * MIB + 256 * 1024)]
        assert reader.read(100, 110) == data[100:110]
    assert sum(stop - start for start, stop in asked) == 512 * 1024, "of 4 MiB"


def test_reading_on_reads_ahead_further_and_further(blobs: S3Blobs, asked: list[tuple[int, int]]) -> None:
    data = data_of(6 * MIB)[: 6 * MIB]
    step = 64 * 1024
    with blobs.open(*put(blobs, data)) or pytest.fail("gone") as reader:
        asked.clear()
        assert b"".join(reader.read(at, at + step) for at in range(0, len(data), step)) == data
    assert [(stop - start) // 1024 for start, stop in asked] == [256, 512, 1024, 2048, 2304]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.tuples(st.integers(0, 900_000), st.integers(0, 400_000)), min_size=1, max_size=5))
def test_any_reads_in_any_order_are_slices(blobs: S3Blobs, cuts: list[tuple[int, int]]) -> None:
    data = data_of(800_000)
    blob = digest_of(data), len(data)
    if blobs.open(*blob) is None:
        put(blobs, data)
    with blobs.open(*blob) or pytest.fail("gone") as reader:
        for start, length in cuts:
            assert reader.read(start, start + length) == data[start : start + length]


# -- what goes wrong ----------------------------------------------------------------------------------


@contextmanager
def answering(status: int, code: str) -> Iterator[S3Address]:
    """A service that answers every request with one of S3's errors."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            body = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code>secret=hunter2</Error>".encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = answer  # noqa: N815 -- the base class's names

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield S3Address("pilot", "a", f"http://127.0.0.1:{server.server_port}", allow_http=True)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "InvalidAccessKeyId", "does not accept the credentials for s3://pilot/a (InvalidAccessKeyId); set AWS_"),
        (403, "SignatureDoesNotMatch", "does not accept the credentials"),
        (403, "AccessDenied", "refuses AccessDenied at s3://pilot/a; its credentials must allow GetObject, PutObject"),
        (403, "RequestTimeTooSkewed", "set the clock"),
        (404, "NoSuchBucket", "there is no bucket 'pilot'; make it, or correct blobs.s3_url"),
        (400, "AuthorizationHeaderMalformed", "check blobs.s3_region"),
        (404, "", "S3 answers 404 at s3://pilot/a; check blobs.s3_region and blobs.s3_endpoint"),
    ],
)
def test_what_waiting_cannot_mend_is_said_in_one_line(s3: S3Service, status: int, code: str, says: str) -> None:
    with answering(status, code) as address:
        blobs = S3Blobs(address)
        blob = Digest("0" * 64), 7
        for ask in (
            blobs.check,
            lambda: put(blobs, b"x"),
            lambda: blobs.get(*blob),
            lambda: blobs.drop(NO_DATABASE, blob[0]),
        ):
            with pytest.raises(BucketRefusedError) as refused:
                ask()
            assert says in str(refused.value)
            assert "\n" not in str(refused.value)
            assert "hunter2" not in str(refused.value), "S3's own words may repeat what was sent"
        with pytest.raises(BucketRefusedError):
            blobs.open(*blob)  # and not: it is gone


def test_a_service_that_is_overloaded_is_asked_again_and_then_unavailable(s3: S3Service) -> None:
    with answering(503, "SlowDown") as address, pytest.raises(StoreUnavailableError, match="answers 503") as refused:
        S3Blobs(address).prepare(Digest("0" * 64), b"x")
    assert not isinstance(refused.value, BucketRefusedError)


def test_a_service_that_is_away_is_unavailable_and_comes_back(s3: S3Service, blobs: S3Blobs) -> None:
    blob = put(blobs, b"a model")
    with s3.down():
        for ask in (
            blobs.check,
            lambda: put(blobs, b"x"),
            lambda: blobs.get(*blob),
            lambda: blobs.drop(NO_DATABASE, blob[0]),
        ):
            with pytest.raises(StoreUnavailableError, match="S3 does not answer at s3://"):
                ask()
    blobs.check()
    assert blobs.get(*blob) == b"a model"


def test_while_it_is_away_one_asks_and_the_others_are_told_at_once(
    s3: S3Service, blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = put(blobs, b"a model")
    with s3.down(), pytest.raises(StoreUnavailableError):
        blobs.check()
    get_range, asks, may_answer = obstore.get_range, threading.Event(), threading.Event()

    def hang(*arguments: Any, **named: Any) -> Any:
        asks.set()
        assert may_answer.wait(30)
        return get_range(*arguments, **named)

    monkeypatch.setattr(obstore, "get_range", hang)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(blobs.open, *blob)
        assert asks.wait(30)
        for ask in (blobs.check, lambda: put(blobs, b"x"), lambda: blobs.get(*blob)):
            with pytest.raises(StoreUnavailableError, match="does not answer"):
                ask()  # although it is back: nobody has been told so yet
        may_answer.set()
        assert first.result(30) is not None
    assert blobs.get(*blob) == b"a model"


def test_credentials_that_are_missing_are_asked_for_by_name(
    s3: S3Service, address: S3Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreLocationError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        S3Blobs(address)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", NOBODY)
    with pytest.raises(BucketRefusedError, match="there are no credentials for s3:"):
        S3Blobs(address).check()


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StoreLocationError, match="pip install obstore"):
        S3Blobs(S3Address("pilot"))


# -- addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("s3://pilot", ("pilot", "")),
        ("s3://pilot/", ("pilot", "")),
        ("s3://pi.lot-1/a/b_c/", ("pi.lot-1", "a/b_c")),
    ],
)
def test_an_address_names_bucket_and_prefix(text: str, means: tuple[str, str]) -> None:
    assert parse_s3_url(text) == means
    assert str(S3Address(*means)) == text.rstrip("/")


@pytest.mark.parametrize(
    "text",
    ["", "pilot", "https://pilot", "s3://", "s3://UPPER", "s3://a", "s3://pilot//a", "s3://pilot/a//b", "s3://pilot/a b",
     "s3://pilot/../a", "s3://pilot/a/.", "s3://key:secret@pilot/a"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_s3_url(text)
