"""The console's files, and the columns that it draws: what a browser is sent."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fl_core.dag.acts import Act, ActKind, sign_act
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.types import TxId, digest_of
from fl_core.wire import v1
from ledger_server.api.console import files
from ledger_server.app import create_console
from ledger_server.settings import load_settings
from ledger_server.store.errors import StoreUnavailableError
from tests.builders import ISSUER, make_genesis, model
from tests.serving import Server, serving

VENDOR = Path(__file__).parents[2] / "ledger_server" / "console" / "vendor"


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """Loopback, no tokens."""
    with serving(database_url, tmp_path, genesis=make_genesis(selector_params={"k": 3})) as running:
        yield running


@pytest.fixture
def small(sqlite_url: str, tmp_path: Path) -> Iterator[Server]:
    """The same on SQLite alone, for what asks nothing of a database."""
    with serving(sqlite_url, tmp_path) as running:
        yield running


def grown(server: Server, count: int) -> list[str]:
    """Ids of a ledger in order of arrival: genesis, and a chain of one author's updates."""
    ids: list[str] = [server.ledger_id]
    for place in range(count):
        update = server.publish(
            parents=ids[-1:], model=model(place), secret="5e" * 32, metrics={"accuracy": place / 10}
        )
        ids.append(update["id"])
    return ids


def columns(server: Server, **query: int) -> v1.UpdatesViewOut:
    answer = server.client.get(v1.VIEW_UPDATES, params=query)
    assert answer.status_code == 200, answer.text
    return v1.UpdatesViewOut.model_validate_json(answer.content)


def test_who_opens_the_address_in_a_browser_finds_the_console(small: Server) -> None:
    page = small.client.get("/", follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/ui/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert 'src="main.js"' in page.text


def test_its_pages_load_nothing_from_elsewhere_and_nothing_inline(small: Server) -> None:
    policy = small.get("/ui/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert {part.split()[0] for part in policy.split("; ") if "'self'" in part} >= {"script-src", "connect-src"}


def test_every_file_is_served_as_it_is_also_compressed_and_not_sent_twice(small: Server) -> None:
    for path, file in files().items():
        plain = small.client.get(f"/ui/{path}", headers={"accept-encoding": "identity"})
        assert (plain.status_code, plain.content) == (200, file.data), path
        with small.client.stream("GET", f"/ui/{path}", headers={"accept-encoding": "gzip"}) as packed:
            assert gzip.decompress(b"".join(packed.iter_raw())) == file.data
        again = small.client.get(f"/ui/{path}", headers={"if-none-match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert {"index.html", "main.js", "style.css", "client/crypto.js"} <= files().keys()


def test_all_of_it_is_small() -> None:
    assert sum(len(file.packed) for file in files().values()) <= 150_000, "the page's budget by gzip, in bytes"


def test_others_files_are_those_that_were_recorded_with_their_licences() -> None:
    recorded = json.loads((VENDOR / "files.json").read_text())
    found = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()} - {
        "files.json",
        "htm-3.1.1/preact.d.ts",
    }
    assert found == {name for package in recorded for name in package["files"]}
    for package in recorded:
        assert package["licence"] in {"MIT", "Apache-2.0"}
        assert any(name.endswith("/LICENSE") for name in package["files"])
        for name, digest in package["files"].items():
            assert digest_of((VENDOR / name).read_bytes()) == digest, name


@pytest.mark.parametrize("path", ["../settings.py", "%2e%2e/settings.py", "vendor", "nothing.js", "main.js/"])
def test_only_its_own_files_are_served(small: Server, path: str) -> None:
    assert small.client.get(f"/ui/{path}").status_code == 404


def test_a_server_can_do_without_a_console(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path, console_enabled=False) as server:
        assert server.get("/ui/").status_code == 404
        assert "ledger server" in server.client.get("/", follow_redirects=False).text


def test_the_console_is_shown_to_all_and_the_ledger_only_by_token(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path, auth={"required_for": ("reads",)}) as server:
        assert server.get("/ui/").status_code == 200
        for path in (v1.VIEW_UPDATES, v1.path(v1.VIEW_UPDATE, transaction=server.ledger_id)):
            assert server.get(path).status_code == 401


def test_a_part_of_the_journal_comes_in_columns(server: Server) -> None:
    ids = grown(server, 4)
    part = columns(server, first=2, end=5)
    assert (part.transactions, part.first, part.end, part.every) == (5, 2, 5, 1)
    assert (part.arrivals, part.ids) == ([2, 3, 4], ids[2:])
    assert part.parents == [[1], [2], [3]]
    assert part.depth == [2, 3, 4]
    assert (len(part.authors), part.author, part.server) == (1, [0, 0, 0], [0, 0, 0])
    assert part.metrics == {"accuracy": [0.1, 0.2, 0.3]}
    listed = server.get(v1.TRANSACTIONS).json()["items"][2:]
    assert part.received_at_ms == [each["receipt"]["received_at_ms"] for each in listed]


def test_a_long_part_is_shown_by_evenly_spaced_updates(server: Server) -> None:
    ids = grown(server, 9)
    part = columns(server, most=4)
    assert (part.every, part.arrivals) == (3, [0, 3, 6, 9])
    assert part.ids == ids[::3]
    assert part.parents == [[], [], [], []]


def test_a_metric_that_an_update_does_not_state_is_none(server: Server) -> None:
    server.publish(parents=[server.ledger_id], model=model(1), metrics={"loss": 0.5})
    assert columns(server).metrics == {"loss": [None, 0.5]}


def test_authors_who_name_many_metrics_make_no_answer_larger(server: Server) -> None:
    for place in range(4):
        named = {f"m{place}-{number}": 1.0 for number in range(31)}
        server.publish(parents=[server.ledger_id], model=model(place), metrics={"accuracy": 0.5, **named})
    part = columns(server)
    assert len(part.metrics) == 24
    assert part.metrics["accuracy"] == [None, 0.5, 0.5, 0.5, 0.5], "what most of them state"


def test_what_a_page_has_is_not_sent_again_until_something_is_new(server: Server) -> None:
    first = server.get(v1.VIEW_UPDATES)
    known = {"if-none-match": first.headers["etag"]}
    assert server.client.get(v1.VIEW_UPDATES, headers=known).status_code == 304
    grown(server, 1)
    after = server.client.get(v1.VIEW_UPDATES, headers=known)
    assert (after.status_code, after.json()["transactions"]) == (200, 2)


def test_there_is_nothing_beyond_the_newest_update(server: Server) -> None:
    answer = server.client.get(v1.VIEW_UPDATES, params={"first": 1})
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/cursor-unknown")


@pytest.mark.parametrize("query", [{"first": -1}, {"first": "x"}, {"most": 0}, {"most": 1001}, {"end": 1 << 70}])
def test_a_part_that_is_none_is_refused(server: Server, query: dict[str, object]) -> None:
    assert server.client.get(v1.VIEW_UPDATES, params=query).status_code == 422


def test_what_was_recorded_of_an_update_is_shown(server: Server) -> None:
    ids = grown(server, 2)
    known = v1.UpdateViewOut.model_validate_json(server.get(v1.path(v1.VIEW_UPDATE, transaction=ids[2])).content)
    assert (known.transaction, known.arrival, known.taint, known.is_withheld) == (ids[2], 2, 0.0, False)
    assert [(each.transaction, each.share) for each in known.parents] == [(ids[1], 1.0)]
    lengths = [each.step for each in known.tensors]
    assert known.step == pytest.approx(sum(length * length for length in lengths) ** 0.5)
    assert known.step > 0


def test_of_genesis_there_is_no_step(server: Server) -> None:
    known = server.get(v1.path(v1.VIEW_UPDATE, transaction=server.ledger_id)).json()
    assert (known["step"], known["tensors"], known["parents"]) == (None, [], [])


def test_an_update_that_is_not_here_is_not_found(server: Server) -> None:
    assert server.get(v1.path(v1.VIEW_UPDATE, transaction="0" * 64)).status_code == 404


def crowd(server: Server, authors: int, each: int) -> list[list[str]]:
    """The ids of some authors' updates, an author a list; they publish in turn, each upon its own newest."""
    found: list[list[str]] = [[] for _ in range(authors)]
    for turn in range(each):
        for author, ids in enumerate(found):
            update = server.publish(
                parents=ids[-1:] or [server.ledger_id], model=model(10 * turn + author), secret=f"{author:02x}" * 32
            )
            ids.append(update["id"])
    return found


def ids_of(asked: Server, *, issuer: str = "", **query: object) -> list[str]:
    answer = asked.client.get(v1.VIEW_UPDATES, params={**query, "server": issuer})
    assert answer.status_code == 200, answer.text
    return v1.UpdatesViewOut.model_validate_json(answer.content).ids


def densities(server: Server, **query: object) -> v1.DensityViewOut:
    answer = server.client.get(v1.VIEW_DENSITY, params=query)
    assert answer.status_code == 200, answer.text
    return v1.DensityViewOut.model_validate_json(answer.content)


def test_updates_are_found_over_the_whole_journal_by_what_is_said_of_them(server: Server) -> None:
    first, second, third = crowd(server, 3, 3)
    author = server.get(v1.path(v1.TRANSACTION, transaction=second[0])).json()["author"]
    bare = author.partition(":")[2]
    assert ids_of(server, author=author) == ids_of(server, author=bare[:20]) == second
    assert ids_of(server, tips=True) == [first[-1], second[-1], third[-1]]
    assert ids_of(server, author=author, tips=True) == second[-1:]
    assert ids_of(server, author=author, end=6) == second[:2], "of the first six, genesis included"
    assert ids_of(server, author="ff" * 32) == []
    receipt = server.get(v1.path(v1.TRANSACTION, transaction=third[1])).json()["receipt"]
    at, issuer = receipt["received_at_ms"], receipt["issuer"]
    everybody = [id_ for turn in zip(first, second, third, strict=True) for id_ in turn]
    assert ids_of(server, issuer=issuer[:8], since=at) == everybody, "all at the tests' time, after genesis"
    assert ids_of(server, until=at) == [server.ledger_id]
    assert ids_of(server, issuer="00" * 8) == ids_of(server, since=at + 1) == []


def test_of_many_that_are_found_evenly_spaced_ones_are_shown(server: Server) -> None:
    (own, _) = crowd(server, 2, 5)
    author = server.get(v1.path(v1.TRANSACTION, transaction=own[0])).json()["author"]
    answer = server.client.get(v1.VIEW_UPDATES, params={"author": author, "most": 3})
    part = v1.UpdatesViewOut.model_validate_json(answer.content)
    assert (part.found, part.every, part.ids) == (5, 2, own[::2])


def test_what_is_new_is_found_at_once(server: Server) -> None:
    (own,) = crowd(server, 1, 1)
    assert ids_of(server, tips=True) == own
    update = server.publish(parents=own, model=model(7), secret="00" * 32)
    assert ids_of(server, tips=True) == [update["id"]]
    assert densities(server).found == 3


def test_tips_that_could_not_be_read_once_are_read_when_they_are_asked_for_again(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = grown(small, 2)[-1]

    def fails(_: object) -> dict[TxId, int]:
        raise StoreUnavailableError("the connection is gone")

    with monkeypatch.context() as broken:
        broken.setattr(small.service.store, "arrivals", fails)
        assert small.get(f"{v1.VIEW_UPDATES}?tips=true").status_code == 503
    assert ids_of(small, tips=True) == [newest]


@pytest.mark.parametrize("seed", range(3))
def test_tips_are_those_that_a_walk_over_the_whole_journal_finds_however_often_they_are_asked_for(
    server: Server, seed: int
) -> None:
    rng = random.Random(seed)
    parents_of: dict[str, list[str]] = {server.ledger_id: []}
    for place in range(24):
        own = rng.choice([*parents_of])
        update = server.publish(parents=[own], model=model(place), secret=rng.choice(["5e" * 32, "6f" * 32]))
        parents_of[update["id"]] = update["parents"]
        if rng.random() < 0.6:
            first = rng.randrange(len(parents_of))
            end = rng.randrange(first + 1, len(parents_of) + 2)
            named = {parent for parents in parents_of.values() for parent in parents}
            part = [*parents_of][first:end]
            assert ids_of(server, tips=True, first=first, end=end) == [id_ for id_ in part if id_ not in named]


def test_updates_of_a_cluster_are_found_by_its_place(server: Server) -> None:
    crowd(server, 2, 3)
    clusters = server.get(v1.CLUSTERS).json()["clusters"]
    for place, cluster in enumerate(clusters):
        answer = server.client.get(v1.VIEW_UPDATES, params={"cluster": place})
        part = v1.UpdatesViewOut.model_validate_json(answer.content)
        assert sorted(part.authors) == sorted(cluster["authors"])
    assert ids_of(server, cluster=99) == []


def test_a_density_counts_every_update_once(server: Server) -> None:
    crowd(server, 3, 4)
    for over in ("order", "depth", "time"):
        found = densities(server, over=over, columns=5)
        assert found.found == found.transactions == 13
        assert sum(sum(lane.counts) for lane in found.lanes) == 13
        assert all(lane.start + len(lane.counts) <= found.columns for lane in found.lanes)
    by_author = densities(server, by="author", columns=13)
    assert sorted(lane.updates for lane in by_author.lanes) == [1, 4, 4, 4]
    every_third = {lane.start: lane.counts for lane in by_author.lanes if lane.updates == 4}
    assert every_third == {start: [1, 0, 0, 1, 0, 0, 1, 0, 0, 1] for start in (1, 2, 3)}
    (only,) = densities(server, by="server", columns=2).lanes
    assert (only.updates, only.start, only.counts) == (13, 0, [7, 6])
    assert {lane.name for lane in densities(server, by="cluster").lanes} >= {"-1", "0"}


def test_a_density_of_what_is_found_nowhere_is_empty(server: Server) -> None:
    found = densities(server, author="ab" * 32)
    assert (found.found, found.lanes) == (0, [])


def test_an_id_is_found_by_its_beginning(server: Server) -> None:
    ids = [server.ledger_id, *(id_ for own in crowd(server, 2, 3) for id_ in own)]
    for id_ in ids:
        for digits in (3, 9, 64):  # an odd number of digits, too
            found = server.client.get(v1.VIEW_SEARCH, params={"text": id_[:digits]}).json()
            assert [each["transaction"] for each in found["updates"]] == sorted(
                each for each in ids if each.startswith(id_[:digits])
            )
    author = server.get(v1.path(v1.TRANSACTION, transaction=ids[1])).json()["author"]
    for text in (author, author.partition(":")[2][:16]):
        assert server.client.get(v1.VIEW_SEARCH, params={"text": text}).json()["authors"] == [author]


def test_at_most_twenty_are_named_and_the_answer_says_that_there_are_more(small: Server) -> None:
    ids = grown(small, 320)
    digit, count = Counter(id_[0] for id_ in ids).most_common(1)[0]
    assert count > 20, "of 321 ids"
    found = small.client.get(v1.VIEW_SEARCH, params={"text": digit}).json()
    assert [each["transaction"] for each in found["updates"]] == sorted(id_ for id_ in ids if id_[0] == digit)[:20]
    assert not found["is_all"]


@pytest.mark.parametrize("text", ["", "g", "A1", "%", "key:", "key:xyz", "0" * 65, "../"])
def test_only_hexadecimal_digits_are_searched_for(server: Server, text: str) -> None:
    assert server.client.get(v1.VIEW_SEARCH, params={"text": text}).status_code == 422


def test_an_update_that_was_received_in_the_farthest_future_is_counted(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small.service, "_now_ms", lambda: 2**63 - 1)
    small.publish(parents=[small.ledger_id], model=model(1))
    for columns in range(1, 100):
        found = densities(small, over="time", columns=columns)
        assert sorted((lane.updates, sum(lane.counts)) for lane in found.lanes) == [(1, 1), (1, 1)]


def test_results_without_a_ledger_are_shown_to_pages_of_this_machine_alone(tmp_path: Path) -> None:
    app = create_console(
        load_settings(data_dir=tmp_path), lambda: v1.ViewSourceOut(kind="simulation", ledger=None, page="0" * 64)
    )
    with TestClient(app, base_url="http://127.0.0.1:8900") as client:
        assert client.get(v1.VIEW_SOURCE).status_code == 200
        assert client.get(v1.VIEW_SOURCE, headers={"host": "localhost:8900"}).status_code == 200
        assert client.get(v1.VIEW_SOURCE, headers={"host": "rebound.example:8900"}).status_code == 400


@pytest.mark.parametrize(
    "query",
    [{"author": "x"}, {"server": "g"}, {"since": -1}, {"tips": "maybe"}, {"cluster": -1}, {"by": "x"}, {"columns": 0}],
)
def test_what_cannot_be_asked_for_is_refused(server: Server, query: dict[str, object]) -> None:
    assert server.client.get(v1.VIEW_DENSITY, params=query).status_code == 422


def test_what_pages_share_is_what_its_own_routes_answer_and_is_sent_once(server: Server) -> None:
    grown(server, 3)
    shared = server.get(v1.VIEW_LEDGER)
    found = shared.json()
    for name, path in (
        ("clusters", v1.CLUSTERS),
        ("clients", v1.CLIENTS),
        ("peers", v1.PEERS),
        ("alarms", v1.ALARMS),
        ("quarantine", v1.QUARANTINE),
    ):
        assert found[name] == server.get(path).json(), name
    assert found["costs"]["transactions"] == 4
    assert shared.headers["content-encoding"] == "gzip"
    plain = server.client.get(v1.VIEW_LEDGER, headers={"accept-encoding": "identity"})
    assert (plain.json(), "content-encoding" in plain.headers) == (found, False)
    assert server.client.get(v1.VIEW_LEDGER, headers={"if-none-match": shared.headers["etag"]}).status_code == 304


@pytest.fixture
def founded(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """Of a ledger whose only member is this server."""
    genesis = replace(make_genesis(), members=(Member(public_key_of(ISSUER), "here"),))
    with serving(database_url, tmp_path, genesis=genesis) as running:
        yield running


def quarantine(server: Server, update: str) -> str:
    """Quarantine an update, as this server's operator; the act's id."""
    act = Act(ledger=server.ledger_id, number=1, created_at_ms=1, kind=ActKind.QUARANTINE, subject=f"update:{update}")
    assert server.service.acts.admit(sign_act(act, ISSUER))
    return act.id


def test_what_pages_share_is_made_anew_once_members_have_decided_something(founded: Server) -> None:
    server = founded
    ids = grown(server, 2)
    assert server.get(v1.VIEW_LEDGER).json()["quarantine"]["decisions"] == []
    signed = quarantine(server, ids[1])
    assert [each["act"] for each in server.get(v1.VIEW_LEDGER).json()["quarantine"]["decisions"]] == [signed]


def test_tainted_updates_are_found_as_soon_as_something_is_quarantined(founded: Server) -> None:
    server = founded
    ids = grown(server, 3)
    assert ids_of(server, tainted=True) == []
    assert densities(server, tainted=True).found == 0
    quarantine(server, ids[2])
    assert ids_of(server, tainted=True) == ids[2:], "the update that is named, and what descends from it"
    assert densities(server, tainted=True).found == 2
