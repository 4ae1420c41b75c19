"""Servers of one ledger become equal over real HTTP, whatever happens between them.

What a server reads from its journal for its peers, and writes by many threads, is tried on both kinds of database.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_client import LedgerClient, Participant, ParticipantState, StepReport
from fl_core.dag.signature import Role, public_key_of, sign
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.step_coding import round_step
from fl_core.types import Digest, PublicKey, TxId, digest_of
from fl_core.wire import gossip_v1, v1
from ledger_server.gossip.views import PeerView, PeerViews
from ledger_server.peers import Peer
from tests.builders import CREATED_AT_MS, key_from_seed, make_genesis, model
from tests.databases import DatabaseUrls
from tests.live import eventually
from tests.network import Node, acquaint, network, settle
from tests.tiny_trainer import TinyTrainer

NOW_MS = CREATED_AT_MS + 1000
LARGE = ModelLayout.of([TensorSpec("w", "F32", (300_000,))])  # 1.2 MB: resumable, and in a file beside the database


def large(number: int) -> bytes:
    return encode_flat(LARGE, np.random.default_rng(number).standard_normal(300_000).astype("<f4"))


def aggregate_of(node: Node, transaction: str) -> tuple[list[str], str]:
    answer = node.select(transaction).json()
    return answer["parents"], answer["aggregate"]["digest"]


def test_what_is_published_anywhere_is_everywhere(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, 3, urls=database_urls(3)) as servers:
        published = {
            servers[number % 3].publish(parents=[servers[0].ledger_id], model=model(number, 1, 1, 1))["id"]
            for number in range(1, 10)
        }
        held = settle(servers)
        assert held == {servers[0].ledger_id, *published}
        for identity in published:
            answers = [node.get(v1.path(v1.TRANSACTION, transaction=identity)).json() for node in servers]
            assert answers[0] == answers[1] == answers[2], "the same bytes, signatures and place everywhere"
            models = [node.get(v1.path(v1.TRANSACTION_MODEL, transaction=identity)).content for node in servers]
            assert digest_of(models[0]) == answers[0]["model"]["digest"]
            assert models[0] == models[1] == models[2]


def test_peers_ask_for_large_models_coded_and_hold_the_very_bytes(tmp_path: Path) -> None:
    first = large(0)
    one, other = (
        encode_flat(LARGE, round_step(LARGE, flat(LARGE, first) + flat(LARGE, large(n)) / 100, flat(LARGE, first)))
        for n in (1, 2)
    )
    with network(tmp_path, 2, genesis=make_genesis(layout=LARGE), first=first, peers_coded=True) as servers:
        mine = servers[0].publish(parents=[servers[0].ledger_id], model=one, secret="7" * 64)
        settle(servers)
        servers[0].publish(parents=[mine["id"]], model=other, secret="7" * 64)
        settle(servers)
        for each in (one, other):
            assert servers[1].service.models.get(digest_of(each)) == each
        text = servers[0].get("/metrics").text
    (line,) = (
        line for line in text.splitlines() if line.startswith("dag_acfl_gossip_served_bytes") and 'kind="model"' in line
    )
    assert 0.1 < float(line.split()[-1]) / 2 / LARGE.nbytes < 0.25


def test_an_update_can_be_followed_through_the_servers_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ledger_server")
    with network(tmp_path, 2) as servers:
        made = servers[0].publish(parents=[servers[0].ledger_id], model=model(1))
        settle(servers)
        eventually(lambda: len([each for each in caplog.records if "transaction" in each.__dict__]) == 2)
    named = [record.__dict__ for record in caplog.records if "transaction" in record.__dict__]
    assert {(line["transaction"], line["author"]) for line in named} == {(made["id"], made["author"])}
    assert {(line["message"], line.get("path"), line.get("peer")) for line in named} == {
        ("request", v1.TRANSACTIONS, None),
        ("update received", None, "server-0"),
    }


def test_a_peer_that_is_refused_for_its_clock_is_seen_by_both(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="ledger_server.gossip.contacts")
    stale = 'reason="peer-signature-stale"'
    with network(tmp_path, 2, ahead_ms=[0, 120_000]) as servers:
        for mine, peer in ((servers[0], "server-1"), (servers[1], "server-0")):
            eventually(lambda mine=mine: stale in mine.get("/metrics").text)
            assert f'dag_acfl_peer_up{{peer="{peer}"}} 0.0' in mine.get("/metrics").text
    told = [record.__dict__ for record in caplog.records if "stale" in record.__dict__.get("reason", "")]
    assert sorted(line["peer"] for line in told) == ["server-0", "server-1"], "once each"
    assert {line["message"] for line in told} == {"peer refuses this server"}


def test_equal_ledgers_give_equal_tips_and_averages(tmp_path: Path) -> None:
    with network(tmp_path, 3, genesis=make_genesis(selector_params={"k": 4})) as servers:
        with ThreadPoolExecutor(6) as pool:
            made = list(
                pool.map(
                    lambda n: servers[n % 3].publish(parents=[servers[0].ledger_id], model=model(n, 1, 2, 1)),
                    range(1, 13),
                )
            )
        settle(servers)
        tips = [node.get(v1.TIPS).json() for node in servers]
        assert tips[0] == tips[1] == tips[2]
        chosen = [aggregate_of(node, made[0]["id"]) for node in servers]
        assert len(chosen[0][0]) == 5, "four others and its own"
        assert chosen[0] == chosen[1] == chosen[2]


def test_a_server_that_was_away_catches_up(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, 3, urls=database_urls(3)) as servers:
        servers[0].publish(parents=[servers[0].ledger_id], model=model(1))
        settle(servers)
        servers[2].stop()
        newest = servers[0].ledger_id
        for number in range(30):
            newest = TxId(servers[number % 2].publish(parents=[newest], model=model(number, 7))["id"])
            settle(servers[:2])
        servers[2].start()
        assert len(settle(servers)) == 32
        assert servers[2].get(v1.path(v1.TRANSACTION, transaction=newest)).json()["depth"] == 30


def test_both_sides_of_a_partition_go_on_and_become_one(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        servers[1].stop()
        alone = [servers[0].publish(parents=[servers[0].ledger_id], model=model(n))["id"] for n in (1, 2)]
        servers[0].stop()
        servers[1].start()
        others = [servers[1].publish(parents=[servers[1].ledger_id], model=model(n))["id"] for n in (3, 4)]
        servers[0].start()
        assert settle(servers) == {servers[0].ledger_id, *alone, *others}


def test_transactions_with_one_and_the_same_model_all_arrive(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        servers[1].stop()
        made = {servers[0].publish(parents=[servers[0].ledger_id], model=model(1, 2))["id"] for _ in range(5)}
        made.add(servers[0].publish(parents=[servers[0].ledger_id], model=model(2, 1))["id"])
        servers[1].start()
        assert settle(servers) == {servers[0].ledger_id, *made}


def test_large_models_travel_whole(tmp_path: Path) -> None:
    with network(tmp_path, 2, genesis=make_genesis(layout=LARGE, compared=("w",)), first=large(0)) as servers:
        made = [servers[n % 2].publish(parents=[servers[0].ledger_id], model=large(n)) for n in range(1, 6)]
        settle(servers)
        for transaction in made:
            for node in servers:
                data = node.get(transaction["model"]["href"]).content
                assert digest_of(data) == transaction["model"]["digest"]


def test_a_client_moves_to_a_server_that_does_not_know_it_yet(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        servers[1].stop()
        mine = servers[0].publish(parents=[servers[0].ledger_id], model=model(1, 2))["id"]
        servers[1].start()
        answer = servers[1].select(mine)
        assert answer.status_code == 201, "the server asked its peer before it said no"
        assert mine in servers[1].ids()


def test_a_participant_goes_on_when_the_server_that_made_its_average_is_gone(tmp_path: Path) -> None:
    class Unlucky(LedgerClient):
        unlucky = False

        def download(self, digest: str) -> memoryview:
            if self.unlucky and not self.holds(digest):
                self.unlucky = False
                servers[0].stop()
            return super().download(digest)

    rules = make_genesis(selector="top-k", selector_params={"k": 2})
    with (
        network(tmp_path, 2, genesis=rules) as servers,
        ParticipantState(tmp_path / "ann") as ann,
    ):
        urls = [node.url for node in servers]
        reports: list[StepReport] = []
        with Unlucky(urls, key=ann.key) as client:
            participant = Participant(client, TinyTrainer(target=2), ann)
            participant.run(1, on_step=reports.append)
            for number in (1, 2):
                servers[0].publish(parents=[servers[0].ledger_id], model=model(number, 1, 2, 1))
            settle(servers)
            client.unlucky = True
            participant.run(1, on_step=reports.append)
            assert not client.unlucky, "the average was fetched, and its server was gone"
        assert [report.server for report in reports] == urls
        assert reports[1].source == "parents"
        assert len(reports[1].parents) >= 2, "an average that no server has before it makes it"
        assert reports[1].transaction in servers[1].ids()


def test_what_came_before_it_was_sought_is_not_waited_for(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        mine = TxId(servers[0].publish(parents=[servers[0].ledger_id], model=model(1, 2))["id"])
        settle(servers)
        loop = servers[1].gossip._loop
        assert loop is not None
        assert asyncio.run_coroutine_threadsafe(servers[1].gossip.seek([mine], client="me"), loop).result(30)


def test_two_clients_that_seek_the_same_are_both_served(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        servers[1].stop()
        mine = servers[0].publish(parents=[servers[0].ledger_id], model=model(1, 2))["id"]
        servers[1].start()
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda _: servers[1].select(mine).status_code, range(3)))
        assert set(answers) <= {200, 201}


def test_a_transaction_that_nobody_knows_is_unknown_without_a_long_wait(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        answer = servers[0].select("f" * 64)
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/transaction-unknown")


def test_the_same_publication_to_every_server_is_one_transaction(tmp_path: Path) -> None:
    from tests.serving import signed

    with network(tmp_path, 3) as servers:
        fields = signed(servers[0], model(5), seed=77)  # type: ignore[arg-type]
        ready = threading.Barrier(6, timeout=10)

        def publish(number: int) -> int:
            ready.wait()
            return servers[number % 3].post(fields, model(5)).status_code

        with ThreadPoolExecutor(6) as pool:
            statuses = list(pool.map(publish, range(6)))
        assert set(statuses) <= {200, 201}
        assert settle(servers) == {servers[0].ledger_id, TxId(str(fields["id"]))}


def test_peers_are_listed_with_how_they_are(tmp_path: Path) -> None:
    announced = 'dag_acfl_gossip_bytes_total{direction="sent",kind="announcement",peer="server-1"}'
    with network(tmp_path, 3) as servers:
        acquaint(servers)
        servers[2].stop()
        servers[0].publish(parents=[servers[0].ledger_id], model=model(1))
        settle(servers[:2])
        # A request's bytes are counted when its answer is whole, which is after the peer holds the transaction.
        eventually(lambda: announced in servers[0].get("/metrics").text)
        listed = {peer["name"]: peer for peer in servers[0].get(v1.PEERS).json()["items"]}
        assert listed.keys() == {"server-1", "server-2"}
        assert listed["server-1"]["is_reachable"]
        assert not listed["server-1"]["is_banned"]
        assert listed["server-1"]["sent_bytes"] > 0


def seen_through(server: Node) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in server.get(v1.VIEW_SERVERS).json()["servers"]}


def test_a_server_shows_its_peers_as_they_see_one_another(tmp_path: Path) -> None:
    with network(tmp_path, 3) as servers:
        acquaint(servers)
        servers[0].publish(parents=[servers[0].ledger_id], model=model(1))
        settle(servers)
        seen = seen_through(servers[0])
        assert [*seen] == ["this server", "server-1", "server-2"]
        assert [each["transactions"] for each in seen.values()] == [2, 2, 2]
        by_the_second = {peer["name"]: peer for peer in seen["server-1"]["peers"]}
        assert by_the_second.keys() == {"server-0", "server-2"}
        assert by_the_second["server-0"]["sent_bytes"] > 0
        assert by_the_second["server-0"]["transactions"] in (None, 1, 2), "as many as it said when it was asked last"


def test_a_peer_that_does_not_answer_is_shown_with_the_reason(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        servers[1].stop()
        seen = seen_through(servers[0])
        assert seen["server-1"]["transactions"] is None
        assert seen["server-1"]["problem"]
        (peer,) = servers[0].get(v1.PEERS).json()["items"]
        assert not peer["is_reachable"]
        assert peer["troubles"]


def test_peers_are_asked_at_most_every_five_seconds_however_many_look() -> None:
    asked: list[str] = []
    at_s = [0.0]

    async def ask(peer: PublicKey, _: float) -> gossip_v1.PeersSeenOut:
        asked.append(peer)
        await asyncio.sleep(0)
        return gossip_v1.PeersSeenOut(transactions=1, items=[])

    def shown(views: Sequence[PeerView]) -> bytes:
        """Another object each time."""
        return b" ".join(view.peer.name.encode() for view in views)

    async def look() -> None:
        peer = Peer("bob", "http://127.0.0.1:1", public_key_of(key_from_seed(1)))
        views = PeerViews(peers=lambda: [peer], ask=ask, now_s=lambda: at_s[0])
        found = await asyncio.gather(*(views.lately(shown) for _ in range(10)))
        assert (len(asked), found[0]) == (1, b"bob")
        assert all(each is found[0] for each in found), "made once, for all"
        at_s[0] = 5.0
        assert await views.lately(shown) is not found[0]
        assert len(asked) == 2

    asyncio.run(look())


PEERS_ONLY = [
    ("POST", gossip_v1.ANNOUNCEMENTS),
    ("GET", gossip_v1.CHANGES),
    ("POST", gossip_v1.TRANSACTIONS),
    ("GET", gossip_v1.model_path(Digest("0" * 64))),
    ("GET", gossip_v1.SUMMARY),
    ("POST", gossip_v1.RECONCILIATION),
    ("GET", gossip_v1.PEERS),
]


def test_nobody_but_a_peer_may_ask_as_one(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        for method, path in PEERS_ONLY:
            refused = servers[0].client.request(method, path)
            answer = refused.status_code, refused.json()["type"]
            assert answer == (401, "/problems/peer-signature-required"), f"{method} {path}"


def client_of(servers: list[Node], *, seed: int = 501) -> LedgerClient:
    return LedgerClient([node.url for node in servers], key=key_from_seed(seed))


def test_a_client_publishes_the_very_same_transaction_where_it_did_not_ask(tmp_path: Path) -> None:
    with network(tmp_path, 2, genesis=make_genesis(selector_params={"k": 3})) as servers:
        for number in (1, 2):
            servers[0].publish(parents=[servers[0].ledger_id], model=model(number, 1, 1, 1))
        settle(servers)
        with client_of(servers) as client:
            selection = client.select(model=model(3, 1, 1, 1))
            header = client.header_for(
                model(4, 1, 1, 1), selection=selection, num_examples=1, metrics={}, sequence=0, created_at_ms=NOW_MS
            )
            servers[0].stop()
            published = client.publish_header(header, model(4, 1, 1, 1))
            assert published.created
            servers[0].start()
            held = settle(servers)
            assert published.id in held
            assert not client.publish_header(header, model(4, 1, 1, 1)).created, "known everywhere by the same id"
        assert servers[0].get(v1.path(v1.TRANSACTION_ATTACHMENT, transaction=published.id)).status_code == 200


def test_evidence_that_no_peer_signed_is_not_taken(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers, client_of(servers[:1]) as client:
        selection = client.select(model=model(3))
        carried = client.evidence(selection.id)
        assert carried is not None
        stranger = key_from_seed(999)
        forged = {
            "document": carried.document,
            "issuer": public_key_of(stranger),
            "signature": sign(stranger, TxId(selection.id), role=Role.SELECTION).hex(),
        }
        fields = {"num_examples": 1, "selection": selection.id, "evidence": forged, "secret": "5e" * 32}
        refused = servers[1].post(fields, model(4))
        assert (refused.status_code, refused.json()["type"]) == (404, "/problems/selection-unknown")
        wrong = {**carried.model_dump(), "signature": "0" * 128}
        refused = servers[1].post({**fields, "evidence": wrong}, model(4))
        assert (refused.status_code, refused.json()["type"]) == (422, "/problems/signature-invalid")
        changed = {**carried.model_dump(), "document": carried.document.replace('"cut":0', '"cut":1')}
        refused = servers[1].post({**fields, "evidence": changed}, model(4))
        assert (refused.status_code, refused.json()["type"]) == (422, "/problems/digest-mismatch")
        assert servers[1].post({**fields, "evidence": carried.model_dump()}, model(4)).status_code == 201


def test_parents_that_are_on_their_way_are_waited_for(tmp_path: Path) -> None:
    with network(tmp_path, 2) as servers:
        servers[1].stop()
        parent = servers[0].publish(parents=[servers[0].ledger_id], model=model(1), secret="a" * 64)["id"]
        servers[1].start()
        child = servers[1].publish(parents=[parent], model=model(2), secret="a" * 64)
        assert child["depth"] == 2
