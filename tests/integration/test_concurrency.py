"""Many clients at once over HTTP: what was acknowledged is there, whole, for everyone and in one order."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from fl_core.dag.genesis import Genesis
from fl_core.dag.transaction import transaction_id
from fl_core.selection import SELECTORS
from fl_core.selection.change_points import BeastPriors, change_point_probabilities
from fl_core.types import Vector64, digest_of
from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.publishing import LedgerService
from ledger_server.settings import load_settings
from tests.builders import ISSUER, make_genesis, model
from tests.live import Live, client_of, run_app
from tests.serving import NOW_MS, Server, prepare, signed

CLIENTS, ROUNDS = 8, 5
WAIT_S = 60.0


@dataclass
class Running:
    """A live server and clients for its port."""

    live: Live
    server: Server
    opened: list[httpx2.Client] = field(default_factory=list)

    @property
    def service(self) -> LedgerService:
        return self.server.service

    def client(self) -> httpx2.Client:
        self.opened.append(client_of(self.live.url, timeout_s=WAIT_S))
        return self.opened[-1]

    def publish(self, client: httpx2.Client, fields: dict[str, Any], data: bytes) -> httpx2.Response:
        """As ``Server.post``, over this client's own connection."""
        over_socket = Server(self.server.app, client, self.server.settings)  # type: ignore[arg-type]
        return over_socket.post(fields, data)  # type: ignore[return-value]


@pytest.fixture
def run(database_url: str, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts the test's server."""
    with ExitStack() as stack:

        def start(genesis: Genesis, *, first: bytes | None = None, **flags: Any) -> Running:
            settings = load_settings(data_dir=tmp_path, database_url=database_url, **flags)
            prepare(database_url, tmp_path, genesis=genesis, first=first)
            app = create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS)
            live = stack.enter_context(run_app(app, settings))
            running = Running(live, Server(app, None, settings))  # type: ignore[arg-type]
            stack.callback(lambda: [client.close() for client in running.opened])
            return running

        yield start


class Observer(threading.Thread):
    """Reads the ledger over and over while it grows, and holds what it is shown to what must be true of it."""

    def __init__(self, running: Running) -> None:
        super().__init__(daemon=True)
        self._client, self._ledger = running.client(), running.service.id
        self.seen: list[str] = []
        self.acknowledged: list[str] = []
        self.stop = threading.Event()
        self.faults: list[str] = []
        self.polls = 0
        self._cursor: str | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.poll()
            self.poll()
        except BaseException as error:  # noqa: BLE001 -- told to the test below
            self.faults.append(repr(error))

    def poll(self) -> None:
        due = list(self.acknowledged)
        tail: list[dict[str, Any]] = []
        start = 0 if self._cursor is None else int(self._cursor.partition("-")[2]) + 1
        following: str | None = self._cursor
        while True:
            page = self._get(v1.TRANSACTIONS, limit=7, **({"after": following} if following else {})).json()
            tail += page["items"]
            if page["next"] is None:
                break
            self._cursor = following = page["next"]
        shown = [item["id"] for item in tail]
        known = self.seen[start:]
        assert shown[: len(known)] == known, "the order changed, or something disappeared"
        for item in tail[len(known) :]:
            assert set(item["parents"]) <= set(self.seen), f"{item['id']} came before its parents"
            assert item["depth"] == 0 or bool(item["parents"]), "only genesis has no parents"
            self.seen.append(item["id"])
            self._whole(item)
        assert len(self.seen) == len(set(self.seen)), "shown twice"
        missing = set(due) - set(self.seen)
        assert not missing, f"acknowledged and not shown: {missing}"
        self.polls += 1

    def _whole(self, item: dict[str, Any]) -> None:
        read = self._get(v1.path(v1.TRANSACTION, transaction=item["id"])).json()
        assert transaction_id(bytes.fromhex(read["header"])) == item["id"], "another header than its id says"
        assert digest_of(self._get(item["model"]["href"]).content) == item["model"]["digest"], "another model"
        if item["attachment"] is not None:
            attachment = self._get(item["attachment"]["href"]).content
            assert digest_of(attachment) == item["attachment"]["digest"], "another attachment"

    def _get(self, path: str, **query: Any) -> httpx2.Response:
        answer = self._client.get(path, params=query)
        assert answer.status_code == 200, f"{path} {query}: {answer.status_code} {answer.text[:200]}"
        return answer


class CountingAggregator:
    """Counts the averages that are really computed."""

    def __init__(self, real: Any) -> None:
        self._real, self._lock, self.calls = real, threading.Lock(), 0

    def aggregate(self, sources: Any, weights: Any) -> Any:
        with self._lock:
            self.calls += 1
        return self._real.aggregate(sources, weights)


def device(running: Running, observer: Observer, seed: int) -> list[dict[str, Any]]:
    """A client's life: join, then select, fetch, publish; returns its selections."""
    rng, client = np.random.default_rng(seed), running.client()

    def trained() -> bytes:
        return model(*(rng.standard_normal(3) + 1))

    joined = client.post(v1.SELECTIONS, content=trained(), headers={"content-type": v1.MODEL_MEDIA_TYPE})
    selection = joined.json()
    selections = [selection]
    for _ in range(ROUNDS):
        fields = {"selection": selection["id"], "num_examples": seed + 1, "secret": f"{seed:064x}"}
        published = running.publish(client, fields, trained())
        assert published.status_code == 201, published.text
        identity = published.json()["id"]
        observer.acknowledged.append(identity)
        assert client.get(v1.path(v1.TRANSACTION, transaction=identity)).status_code == 200
        asked = client.post(v1.SELECTIONS, json={"transaction": identity})
        assert asked.status_code in (200, 201), asked.text
        selection = asked.json()
        selections.append(selection)
        fetched = client.get(selection["aggregate"]["href"])
        assert (fetched.status_code, digest_of(fetched.content)) == (200, selection["aggregate"]["digest"])
    return selections


def test_eight_clients_at_once_leave_one_whole_ledger(run: Callable[..., Running]) -> None:
    running = run(make_genesis(selector_params={"k": 3}, max_step_growth=1000.0))
    counting = CountingAggregator(running.service.aggregates._aggregators[0])
    running.service.aggregates._aggregators = [counting, counting]
    observer = Observer(running)
    observer.start()
    with ThreadPoolExecutor(CLIENTS) as pool:
        lives = list(pool.map(lambda seed: device(running, observer, seed), range(CLIENTS)))
    observer.stop.set()
    observer.join(WAIT_S)
    assert not observer.is_alive()
    assert not observer.faults
    assert observer.polls > 1
    assert len(observer.seen) == 1 + CLIENTS * ROUNDS
    assert set(observer.acknowledged) == set(observer.seen[1:])
    averaged = {tuple(each["parents"]) for life in lives for each in life if len(each["parents"]) > 1}
    assert len(averaged) > 1
    assert counting.calls == len(averaged), "each set of parents is averaged once"
    replayed = LedgerService(running.service.store, key=ISSUER, now_ms=lambda: NOW_MS, cache_bytes=0)
    assert replayed.tips() == running.service.tips()
    assert replayed.approvals(lately=1000)[1].counts == running.service.approvals(lately=1000)[1].counts


def at_once(running: Running, calls: list[tuple[dict[str, Any], bytes]]) -> list[httpx2.Response]:
    """Publications that are sent at the same moment, each over a connection of its own."""
    ready = threading.Barrier(len(calls), timeout=WAIT_S)

    def one(call: tuple[dict[str, Any], bytes]) -> httpx2.Response:
        client = running.client()
        client.get("/healthz")  # the connection stands
        ready.wait()
        return running.publish(client, *call)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def test_a_race_for_one_sequence_number_has_one_winner(run: Callable[..., Running]) -> None:
    running = run(make_genesis())
    for sequence in range(2):
        models = [model(sequence + 1, index) for index in range(8)]
        answers = at_once(running, [(signed(running.server, data, sequence=sequence), data) for data in models])
        assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
        (winner,) = [answer.json()["id"] for answer in answers if answer.status_code == 201]
        for answer in answers:
            if answer.status_code == 409:
                problem = answer.json()
                assert problem["type"] == "/problems/sequence-conflict"
                assert (problem["existing"], problem["next_sequence"]) == (winner, sequence + 1)
    assert running.client().get(v1.TIPS).json()["transactions"] == 3


def test_one_transaction_sent_eight_times_at_once_is_created_once(run: Callable[..., Running]) -> None:
    running = run(make_genesis())
    data = model(2)
    answers = at_once(running, [(signed(running.server, data), data)] * 8)
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert running.client().get(v1.TIPS).json()["transactions"] == 2


def test_a_device_without_a_key_may_send_twice_at_once(run: Callable[..., Running]) -> None:
    """The server counts for it: two transactions of one author, one after the other."""
    running = run(make_genesis())
    client = running.client()
    fields = {"num_examples": 1, "secret": "5e" * 32}
    first = running.publish(client, {"parents": [running.service.id], **fields}, model(1)).json()
    selection = client.post(v1.SELECTIONS, json={"transaction": first["id"]}).json()
    fields["selection"] = selection["id"]
    answers = at_once(running, [(fields, model(2, index)) for index in range(8)])
    assert [answer.status_code for answer in answers] == [201] * 8
    assert sorted(answer.json()["sequence"] for answer in answers) == list(range(1, 9))
    assert {answer.json()["author"] for answer in answers} == {first["author"]}


def test_others_and_supervisors_are_answered_while_all_threads_that_one_may_have_wait_for_beast(
    run: Callable[..., Running],
) -> None:
    genesis = make_genesis(selector="beast", max_step_growth=1000.0)
    running = run(genesis, first=model(0.01, 0.01, 0.01), worker_threads=4)
    asked, answer = threading.Semaphore(0), threading.Event()

    def wait_and_detect(sequence: Vector64, priors: BeastPriors) -> Vector64:
        asked.release()
        assert answer.wait(WAIT_S)
        return change_point_probabilities(sequence, priors)

    running.service.selections._selector = SELECTORS.build("beast", {}, detect=wait_and_detect)
    rng, client = np.random.default_rng(0), running.client()
    mine: list[str] = []
    for index in range(10):
        centre = np.array([1.0, 0.1, 0.0] if index < 5 else [0.0, -0.1, 1.0])
        data = model(*(centre + 0.01 * rng.standard_normal(3)))
        fields = {"parents": [running.service.id], "num_examples": 1, "secret": f"{index:064x}"}
        mine.append(running.publish(client, fields, data).json()["id"])
    with ThreadPoolExecutor(4) as askers:
        answers = [askers.submit(running.client().post, v1.SELECTIONS, json={"transaction": each}) for each in mine[:4]]
        try:
            assert all(asked.acquire(timeout=WAIT_S) for _ in range(2))
            for _ in range(5):
                assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
                other = HTTPConnection(running.live.host, running.live.port, WAIT_S, source_address=("127.0.0.2", 0))
                other.request("GET", v1.TIPS)
                assert other.getresponse().status == 200
                other.close()
            assert not any(each.done() for each in answers), "both threads were waiting all the time"
            assert not asked.acquire(blocking=False), "and the others for their turn"
        finally:
            answer.set()
        assert [each.result(WAIT_S).status_code for each in answers] == [201] * 4
