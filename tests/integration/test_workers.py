"""Several processes serve one ledger, and answer as one: what one of them has acknowledged, all of them know."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from fl_core.dag.author import author_of_secret
from fl_core.errors import ParameterError
from fl_core.types import digest_of
from fl_core.wire import v1
from ledger_server.election import election_of, place_in
from ledger_server.pruning import prune_served
from ledger_server.store import open_store
from ledger_server.store.errors import StoreError
from tests.builders import START, make_genesis, model, new_secret
from tests.live import client_of, eventually
from tests.serving import Server, prepare, serving, serving_together

ROUNDS = 6


def test_a_clients_calls_may_each_go_to_another_process(database_url: str, tmp_path: Path) -> None:
    genesis = make_genesis(selector_params={"k": 3}, candidates="newest")
    with serving_together(database_url, tmp_path, count=3, genesis=genesis) as server:
        newest = [server.publish(parents=[server.ledger_id], model=model(value)) for value in (1, 3)]
        for value in (5, 7):
            selection = server.select(newest[0]["id"]).json()
            assert set(selection["parents"]) == {each["id"] for each in newest}
            aggregate = server.get(selection["aggregate"]["href"])
            assert digest_of(aggregate.content) == selection["aggregate"]["digest"]
            assert server.get(v1.path(v1.SELECTION, selection=selection["id"])).json() == selection
            newest[0] = server.publish(selection=selection["id"], model=model(value))
            for _ in range(3):
                assert server.get(v1.path(v1.TRANSACTION, transaction=newest[0]["id"])).status_code == 200
                assert newest[0]["id"] in {each["transaction"] for each in server.get(v1.TIPS).json()["items"]}


def test_a_model_that_one_process_prunes_leaves_the_memory_of_all(database_url: str, tmp_path: Path) -> None:
    with serving_together(database_url, tmp_path, count=2) as server:
        secret = new_secret()
        older = server.publish(parents=[server.ledger_id], model=model(1), secret=secret)
        server.publish(parents=[older["id"]], model=model(2), secret=secret, sequence=1)
        hrefs = [server.get(v1.path(v1.TRANSACTION, transaction=older["id"])).json()["model"]["href"]] * 4
        assert [server.get(each).status_code for each in hrefs] == [200] * 4
        now_ms = int(time.time() * 1000) + 1
        prune_served(server.service, keep_ms=0, now_ms=lambda: now_ms, stop=lambda: False)
        eventually(lambda: [server.get(each).status_code for each in hrefs] == [410] * 4)


class Author:
    """Goes on from what it has published, asks another process each time, and notes what it was told."""

    def __init__(self, server: Server) -> None:
        self.server, self.secret = server, new_secret()
        self.acknowledged: list[str] = []

    def __call__(self, value: int) -> None:
        parent = self.server.service.id
        for number in range(ROUNDS):
            fields = {"num_examples": 1, "secret": self.secret, "sequence": number, "start": START}
            answer = self.server.post({**fields, "parents": [parent]}, model(value, number))
            assert answer.status_code == 201, answer.text
            parent = answer.json()["id"]
            self.acknowledged.append(parent)
            listed = self.server.get(v1.CLIENTS).json()["items"]
            mine = [each["newest"] for each in listed if each["author"] == author_of_secret(self.secret)]
            assert mine == [parent], "who was told that it is published finds it wherever it asks"


def test_authors_read_what_they_wrote_and_nothing_is_lost_or_twice(database_url: str, tmp_path: Path) -> None:
    with serving_together(database_url, tmp_path, count=2) as server:
        for _ in range(2):
            server.get("/nowhere")  # FastAPI makes its routes at the first request, not for two threads at a time
        authors = [Author(server) for _ in range(4)]
        with ThreadPoolExecutor(len(authors)) as pool:
            list(pool.map(lambda each: authors[each](each), range(len(authors))))
        pages = [server.get(f"{v1.TRANSACTIONS}?limit=100").json()["items"] for _ in range(2)]
        assert pages[0] == pages[1], "one order"
        listed = [each["id"] for each in pages[0][1:]]
        assert Counter(listed) == Counter(each for author in authors for each in author.acknowledged)
        for author in authors:
            assert [each for each in listed if each in author.acknowledged] == author.acknowledged


def test_listeners_of_one_process_hear_of_what_another_takes(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger_server.following.EVERY_S", 0.02)
    with serving(database_url, tmp_path) as one, serving(database_url, tmp_path, new=False) as other:
        published = one.publish(parents=[one.ledger_id], model=model(1))
        eventually(lambda: len(other.app.state.service.ledger) == 2)
        assert other.app.state.service.view(published["id"]).is_tip


# -- who looks after the ledger -----------------------------------------------------------------------


def test_one_process_at_a_time_leads_and_says_what_it_has(database_url: str, tmp_path: Path) -> None:
    prepare(database_url, tmp_path)
    with open_store(database_url, data_dir=tmp_path) as store:
        one, other = election_of(store.database), election_of(store.database)
        assert [one.leads(), other.leads(), one.leads()] == [True, False, True]
        assert not other.has_caught_up()
        one.say_caught_up()
        assert [one.has_caught_up(), other.has_caught_up()] == [True, True]
        one.resign()
        eventually(lambda: not other.has_caught_up())  # PostgreSQL hears a moment later that the session has ended
        assert [other.leads(), one.leads()] == [True, False]
        for each in (one, other):
            each.resign()


def test_a_leader_whose_connection_breaks_leads_no_more(postgresql_url: str, tmp_path: Path) -> None:
    prepare(postgresql_url, tmp_path)
    with open_store(postgresql_url, data_dir=tmp_path) as store:
        one, other = election_of(store.database), election_of(store.database)
        assert one.leads()
        with store.database.engine.begin() as connection:
            held = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = "
            connection.execute(text(held + "(SELECT oid FROM pg_database WHERE datname = current_database())"))
        eventually(other.leads)
        with pytest.raises(StoreError):
            one.leads()
        assert not one.leads()
        other.resign()
        eventually(one.leads)  # PostgreSQL hears a moment later that the session has ended
        one.resign()


def test_processes_of_one_folder_have_a_place_each(tmp_path: Path) -> None:
    with place_in(tmp_path / "site") as first:
        with place_in(tmp_path / "site") as second, place_in(tmp_path / "site") as third:
            assert [first, second, third] == [0, 1, 2]
        with place_in(tmp_path / "site") as again:
            assert again == 1
    assert (tmp_path / "site" / "lock").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "site").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ParameterError, match=r"cannot be written: .*--data-dir"), place_in(tmp_path / "file"):
        pass
    (tmp_path / "diary").write_text("mine")
    (tmp_path / "lock").symlink_to("diary")
    with pytest.raises(ParameterError, match=r"lock cannot be written"), place_in(tmp_path):
        pass
    assert (tmp_path / "diary").read_text() == "mine"


# -- the command --------------------------------------------------------------------------------------


def processes_of(parent: int) -> list[int]:
    """Those that serve: the parent's children less multiprocessing's own helper."""
    tasks = Path(f"/proc/{parent}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [child for child in children if b"spawn_main" in command_of(child)]


def command_of(process: int) -> bytes:
    """Nothing for one that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


@contextmanager
def served_by_two(folder: Path, *options: object) -> Iterator[subprocess.Popen[bytes]]:
    """``dag-acfl serve --workers 2`` over a new ledger in a folder; what it logs is in the file ``log`` there."""
    prepare(f"sqlite:///{folder / 'ledger.sqlite3'}", folder)
    command: Sequence[Any] = [sys.executable, "-m", "dag_acfl", "serve", "--workers", "2", "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (folder / "log").open("wb") as log:
        served = subprocess.Popen(
            [*command, "--data-dir", folder], stdout=subprocess.PIPE, stderr=log, env=environment, cwd=folder
        )
    with served:
        try:
            yield served
        finally:
            served.kill()


def url_of(served: subprocess.Popen[bytes]) -> str:
    assert served.stdout is not None
    said = served.stdout.readline().decode()
    assert said.startswith("serving on ")
    return said.split()[-1]


def log_of(folder: Path) -> str:
    return (folder / "log").read_text()


def test_the_place_of_a_process_that_is_killed_is_taken_and_all_end_with_their_parent(tmp_path: Path) -> None:
    with served_by_two(tmp_path) as served:
        url_of(served)
        eventually(lambda: log_of(tmp_path).count("server started") == 2)
        before = processes_of(served.pid)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: len({*processes_of(served.pid)} - {*before}) == 1)
        served.send_signal(signal.SIGTERM)
        assert served.wait(60) == 0
    assert "another one starts" in log_of(tmp_path)


def test_who_takes_a_place_goes_on_with_its_metrics(tmp_path: Path) -> None:
    with served_by_two(tmp_path) as served:
        url = url_of(served)

        def figures() -> dict[str, float]:
            with client_of(url) as client:  # a connection that is kept may be to the process that is killed
                answer = client.get("/metrics")
            assert answer.status_code == 200, answer.text
            lines = [line.rpartition(" ") for line in answer.text.splitlines() if line[0] != "#"]
            return {name: float(value) for name, _, value in lines}

        def started() -> dict[str, float]:
            return {name: at for name, at in figures().items() if name.startswith("process_start_time_seconds")}

        def answered() -> float:
            return sum(value for name, value in figures().items() if name.startswith("dag_acfl_requests_total"))

        of_each = [f'process_start_time_seconds{{pid="worker-{number}"}}' for number in range(2)]
        eventually(lambda: sorted(started()) == of_each)
        assert {f'process_open_fds{{pid="worker-{number}"}}' for number in range(2)} <= figures().keys()
        before, count = started(), answered()
        environment = Path(f"/proc/{processes_of(served.pid)[0]}/environ").read_text().split("\0")
        folder = Path(dict(each.split("=", 1) for each in environment if each)["PROMETHEUS_MULTIPROC_DIR"])
        files = {*folder.iterdir()}
        os.kill(processes_of(served.pid)[0], signal.SIGKILL)
        eventually(lambda: sorted(started()) == of_each and sum(started().values()) > sum(before.values()))
        eventually(lambda: {*folder.iterdir()} == files)
        assert answered() > count
        served.kill()  # which cannot take its folder away
        eventually(lambda: not folder.exists())


def test_where_no_process_can_start_all_end_with_the_line_of_one(tmp_path: Path) -> None:
    (tmp_path / "tokens.jsonl").write_text("no token\n")
    with served_by_two(tmp_path) as served:
        assert served.wait(60) == 1
    assert [line for line in log_of(tmp_path).splitlines() if line.startswith("error: ")] == [
        log_of(tmp_path).splitlines()[-1]
    ]
    assert "tokens.jsonl" in log_of(tmp_path).splitlines()[-1]


def test_a_place_is_tried_later_and_later_while_another_process_serves_and_given_up_with_the_last(
    tmp_path: Path,
) -> None:
    with served_by_two(tmp_path) as served:
        url_of(served)
        eventually(lambda: log_of(tmp_path).count("server started") == 2)
        (tmp_path / "tokens.jsonl").write_text("no token\n")
        first, second = processes_of(served.pid)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: log_of(tmp_path).count("another one starts") == 3)
        os.kill(second, signal.SIGKILL)
        assert served.wait(60) == 1
    *lines, last = log_of(tmp_path).splitlines()
    told = [json.loads(line) for line in lines if "another one starts" in line]
    assert [each["in_s"] for each in told[:3]] == [1, 2, 4]
    assert told[0]["reason"] == "a process of the server was killed by signal 9"
    assert last == f"error: {told[2]['reason']}"
    assert "tokens.jsonl" in last
