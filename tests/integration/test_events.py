"""Live events over real sockets: order, resuming, leaving, and the end of the server."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fl_client import LedgerReader
from fl_core.node import Publication
from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.api import events
from ledger_server.api.dependencies import Cursors
from ledger_server.app import create_app
from ledger_server.publishing import LedgerService
from ledger_server.settings import load_settings
from tests.builders import ISSUER, make_genesis, model, new_secret
from tests.live import Live, eventually, run_app
from tests.serving import NOW_MS, prepare

WAIT_S = 30.0


class Listener:
    """One connection to the events, read line by line."""

    opened: ClassVar[list["Listener"]] = []

    def __init__(self, live: Live, *, after: str | None = None, path: str = v1.EVENTS) -> None:
        self._connection = http.client.HTTPConnection(live.host, live.port, timeout=WAIT_S)
        self._connection.request("GET", path, headers={} if after is None else {"Last-Event-ID": after})
        self._response = self._connection.getresponse()
        self.opened.append(self)
        self.alarms: list[dict[str, Any]] = []
        self.status, self.headers = self._response.status, self._response.headers
        if self.status == 200:
            block = self._block() or {}
            assert block.pop("") == "connected", "whoever reads this listens"
            self.cursor = block["id"]

    def problem(self) -> dict[str, Any]:
        problem: dict[str, Any] = json.loads(self._response.read())
        return problem

    def _block(self) -> dict[str, str] | None:
        """The fields up to the next empty line, a comment under the empty name; None at the end."""
        fields: dict[str, str] = {}
        while line := self._response.readline().decode().rstrip("\n") or (None if not fields else ""):
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        return fields or None

    def next(self) -> tuple[str, dict[str, Any]] | None:
        """The next transaction with its cursor; None when the server ended the stream."""
        while (fields := self._block()) is not None:
            if fields.get("event") == "alarm":
                assert "id" not in fields
                self.alarms.append(json.loads(fields["data"]))
            elif "" not in fields:
                assert fields["event"] == "transaction"
                return fields["id"], json.loads(fields["data"])
        return None

    def take(self, count: int) -> tuple[list[str], list[str]]:
        """Cursors and transaction ids of the next events."""
        found = [self.next() for _ in range(count)]
        assert None not in found, "the stream ended too early"
        return [each[0] for each in found if each], [each[1]["id"] for each in found if each]

    def columns(self, count: int) -> tuple[list[str], list[v1.UpdatesViewOut]]:
        """Cursors and contents of the next events for pages, until they have so many updates."""
        cursors: list[str] = []
        parts: list[v1.UpdatesViewOut] = []
        while sum(len(part.ids) for part in parts) < count:
            fields = self._block()
            assert fields is not None, "the stream ended too early"
            assert fields["event"] == "updates"
            cursors.append(fields["id"])
            parts.append(v1.UpdatesViewOut.model_validate_json(fields["data"]))
        return cursors, parts

    def close(self) -> None:
        self._response.close()
        self._connection.close()


@pytest.fixture(autouse=True)
def _all_leave() -> Iterator[None]:
    yield
    while Listener.opened:
        Listener.opened.pop().close()


@contextmanager
def live_ledger(url: str, folder: Path, *, new: bool = True, **flags: Any) -> Iterator[tuple[Live, LedgerService]]:
    settings = load_settings(data_dir=folder, database_url=url, drain_s=5, **flags)
    if new:
        prepare(url, folder, genesis=make_genesis(selector_params={"k": 3}))
    app = create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS)
    with run_app(app, settings) as live:
        yield live, app.state.service


@pytest.fixture
def running(sqlite_url: str, tmp_path: Path) -> Iterator[tuple[Live, LedgerService]]:
    with live_ledger(sqlite_url, tmp_path) as both:
        yield both


def publish(service: LedgerService, count: int) -> list[str]:
    """Publish as many transactions, each by an author of its own."""
    found = []
    for index in range(count):
        publication = Publication(num_examples=1, parents=(service.id,), secret=new_secret())
        found.append(str(service.publish(publication, model(1 + index % 5, 1)).transaction))
    return found


def test_two_listeners_see_every_transaction_in_order(running: tuple[Live, LedgerService]) -> None:
    live, service = running
    one, other = Listener(live), Listener(live)
    assert one.headers["content-type"].startswith("text/event-stream")
    published = publish(service, 12)
    assert one.take(12) == other.take(12)
    assert [stored.transaction.id for stored in service.store.page(after=0, limit=100)] == published
    late = Listener(live)
    newest = publish(service, 1)
    for listener in (one, other, late):
        assert listener.take(1)[1] == newest, "who comes later hears what is admitted from then on"
        listener.close()


def test_an_event_is_the_transaction_as_it_is_read(running: tuple[Live, LedgerService]) -> None:
    live, service = running
    listener = Listener(live)
    (identity,) = publish(service, 1)
    found = listener.next()
    assert found is not None
    connection = http.client.HTTPConnection(live.host, live.port, timeout=WAIT_S)
    connection.request("GET", v1.path(v1.TRANSACTION, transaction=identity))
    assert json.loads(connection.getresponse().read()) == found[1]
    connection.request("GET", f"{v1.TRANSACTIONS}?after={found[0]}")
    assert json.loads(connection.getresponse().read())["items"] == [], "the id is a cursor of pages, too"
    connection.close()
    listener.close()


def test_a_copy_is_told_behind_its_transaction_and_stands_among_the_alarms(
    running: tuple[Live, LedgerService],
) -> None:
    live, service = running
    listener = Listener(live)
    copied, _, _, _, _, copy, _ = publish(service, 7)  # the sixth author's model is the first one's
    assert listener.take(7)[1][5] == copy
    assert [(each["kind"], each["update"]) for each in listener.alarms] == [("copy", copy)]
    with LedgerReader(live.url) as reader:
        (alarm,) = [each for each in reader.alarms().items if each.update == copy]
    assert alarm.kind == "copy"
    assert service.view(TxId(copied)).stored.transaction.header.author in alarm.detail
    assert b'dag_acfl_alarms_total{kind="copy"} 2.0' in live.state.metrics.exposition()
    listener.close()


def test_who_comes_back_misses_nothing_and_sees_nothing_twice(running: tuple[Live, LedgerService]) -> None:
    live, service = running
    first = Listener(live)
    published = publish(service, 5)
    cursors, seen = first.take(3)
    first.close()
    published += publish(service, 250)  # more than a page, while nobody listens
    again = Listener(live, after=cursors[-1])
    seen += again.take(252)[1]
    published += publish(service, 2)
    seen += again.take(2)[1]
    again.close()
    assert seen == published


def test_events_published_from_threads_reach_a_listener_that_comes_back_again_and_again(
    running: tuple[Live, LedgerService],
) -> None:
    live, service = running
    total, position = 80, f"{service.epoch[:16]}-0"
    threads = [threading.Thread(target=publish, args=(service, total // 4)) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen: list[str] = []
    while len(seen) < total:
        listener = Listener(live, after=position)
        cursors, found = listener.take(min(7, total - len(seen)))
        listener.close()
        position, seen = cursors[-1], seen + found
    for thread in threads:
        thread.join(WAIT_S)
    assert seen == [stored.transaction.id for stored in service.store.page(after=0, limit=1000)]


def test_who_is_cut_off_before_the_first_event_misses_nothing(running: tuple[Live, LedgerService]) -> None:
    live, service = running
    first = Listener(live)
    first.close()
    published = publish(service, 2)
    again = Listener(live, after=first.cursor)
    assert again.take(2)[1] == published
    again.close()


@pytest.mark.parametrize(
    ("after", "status", "code"),
    [
        ("0123456789abcdef-0", 410, "cursor-unknown"),
        ("{epoch}-1", 410, "cursor-unknown"),
        ("{epoch}-999999", 410, "cursor-unknown"),
        ("{epoch}", 422, "query-invalid"),
        ("", 422, "query-invalid"),
    ],
)
def test_a_cursor_from_nowhere_is_refused_before_the_stream_begins(
    sqlite_url: str, tmp_path: Path, after: str, status: int, code: str
) -> None:
    with live_ledger(sqlite_url, tmp_path) as (live, service):
        refused = Listener(live, after=after.format(epoch=service.epoch[:16]))
        assert (refused.status, refused.problem()["type"]) == (status, f"/problems/{code}")


def test_a_listener_that_leaves_is_forgotten(sqlite_url: str, tmp_path: Path) -> None:
    with live_ledger(sqlite_url, tmp_path) as (live, service):
        listeners = [Listener(live) for _ in range(3)]
        assert len(service.listeners) == 3
        listeners[0].close()
        eventually(lambda: len(service.listeners) == 2)
        abrupt = listeners[1]._connection.sock
        if abrupt is not None:  # a reset instead of an orderly end
            abrupt.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        listeners[1].close()
        eventually(lambda: len(service.listeners) == 1)
        published = publish(service, 2)
        assert listeners[2].take(2)[1] == published
        listeners[2].close()
        eventually(lambda: len(service.listeners) == 0)
        eventually(lambda: live.state.admission.requests.total == 0)


def test_a_listener_that_does_not_read_delays_nobody_and_leaves_when_it_goes(sqlite_url: str, tmp_path: Path) -> None:
    with live_ledger(sqlite_url, tmp_path) as (live, service):
        deaf = socket.create_connection((live.host, live.port), timeout=WAIT_S)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(f"GET {v1.EVENTS} HTTP/1.1\r\nHost: {live.host}\r\n\r\n".encode())
        eventually(lambda: len(service.listeners) == 1)
        listener = Listener(live)
        for _ in range(8):
            published = publish(service, 50)
            assert listener.take(50)[1] == published
        deaf.close()
        eventually(lambda: len(service.listeners) == 1)
        listener.close()


def test_stopping_the_server_ends_the_stream_in_good_order(database_url: str, tmp_path: Path) -> None:
    with live_ledger(database_url, tmp_path) as (live, service):
        listeners = [Listener(live) for _ in range(2)]
        (published,) = publish(service, 1)
        cursors = [listener.take(1)[0][0] for listener in listeners]
        with socket.create_connection((live.host, live.port), timeout=WAIT_S) as raw:
            raw.sendall(f"GET {v1.EVENTS} HTTP/1.1\r\nHost: {live.host}\r\n\r\n".encode())
            eventually(lambda: len(service.listeners) == 3)
            live.stop()
            received = b"".join(iter(lambda: raw.recv(1 << 16), b""))
        assert received.startswith(b"HTTP/1.1 200 ")
        assert received.endswith(b"\r\n0\r\n\r\n"), "the last chunk: an end of the answer, not a broken connection"
        for listener in listeners:
            assert listener.next() is None
            listener.close()
    with live_ledger(database_url, tmp_path, new=False) as (live, service):
        (newest,) = publish(service, 1)
        again = Listener(live, after=cursors[0])
        assert again.take(1)[1] == [newest] != [published], "after a restart the stream goes on where it was"
        again.close()


def test_listeners_leave_room_for_other_requests_and_listeners(sqlite_url: str, tmp_path: Path) -> None:
    limits: Mapping[str, int] = {"max_concurrent_requests": 8}
    with live_ledger(sqlite_url, tmp_path, http=limits) as (live, service):
        listeners = [Listener(live) for _ in range(2)]
        refused = Listener(live)
        assert (refused.status, refused.problem()["type"]) == (503, "/problems/too-busy")
        assert refused.headers["retry-after"] == "1"
        listeners.pop().close()
        eventually(lambda: len(service.listeners) == 1)
        assert Listener(live).status == 200


@pytest.mark.parametrize("many", [events._MANY, 2], ids=["few", "many"])
def test_pages_are_told_of_many_updates_at_once_in_order_and_go_on_where_they_stopped(
    running: tuple[Live, LedgerService], monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(events, "_MANY", many)
    live, service = running
    one, other = (Listener(live, path=v1.VIEW_EVENTS) for _ in range(2))
    published = publish(service, 200)
    cursors, parts = one.columns(200)
    assert [id_ for part in parts for id_ in part.ids] == published
    assert len(parts) < 100, "some at a time"
    assert parts[0].arrivals[0] == 1
    assert parts[-1].parents[-1] == [0], "as /v1/view/updates has it"
    assert [id_ for part in other.columns(200)[1] for id_ in part.ids] == published
    again = Listener(live, path=v1.VIEW_EVENTS, after=cursors[0])
    missed = published[len(parts[0].ids) :] + publish(service, 3)
    assert [id_ for part in again.columns(len(missed))[1] for id_ in part.ids] == missed


def test_a_page_with_a_cursor_of_another_journal_is_told_to_begin_anew(running: tuple[Live, LedgerService]) -> None:
    live, _ = running
    refused = Listener(live, path=v1.VIEW_EVENTS, after="0123456789abcdef-0")
    assert (refused.status, refused.problem()["type"]) == (410, "/problems/cursor-unknown")


def test_a_page_that_missed_very_much_is_told_to_begin_anew(
    running: tuple[Live, LedgerService], monkeypatch: pytest.MonkeyPatch
) -> None:
    live, service = running
    monkeypatch.setattr(events, "_MOST_MISSED", 2)
    publish(service, 3)
    cursors = Cursors(service)
    assert Listener(live, path=v1.VIEW_EVENTS, after=cursors.encode(1)).status == 200
    refused = Listener(live, path=v1.VIEW_EVENTS, after=cursors.encode(0))
    assert (refused.status, refused.problem()["type"]) == (410, "/problems/cursor-unknown")
