"""The protocol as a client meets it, on SQLite and on PostgreSQL."""

import asyncio
import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from anyio.to_thread import current_default_thread_limiter
from httpx2 import ASGITransport, AsyncClient

from fl_core.dag.author import author_of_secret
from fl_core.dag.genesis import Component
from fl_core.dag.signature import Role, sign
from fl_core.dag.transaction import decode_header, transaction_id
from fl_core.errors import StepTooLongError
from fl_core.models import flat
from fl_core.types import TxId, digest_of
from fl_core.wire import v1
from ledger_server.publishing import Received
from tests.builders import LAYOUT, TinyLedger, author_of, key_from_seed, make_genesis, model, new_secret, receipt_of
from tests.databases import change
from tests.serving import NOW_MS, Server, publication, serving, signed


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    with serving(database_url, tmp_path, genesis=make_genesis(selector_params={"k": 3})) as running:
        yield running


def values(data: bytes) -> list[float]:
    return [float(value) for value in flat(LAYOUT, data)]


def test_genesis_can_be_checked_by_whoever_reads_it(server: Server) -> None:
    body = server.client.get(v1.GENESIS).json()
    document = server.client.get(body["document_href"]).content
    header = bytes.fromhex(body["transaction"]["header"])
    assert transaction_id(header) == body["ledger"]
    assert decode_header(header).attachment_digest == digest_of(document)
    assert json.loads(document) == body["document"]
    assert server.client.get(body["model"]["href"]).content == model(1, 1, 1, 1)


def test_a_device_with_curl_completes_a_round(server: Server) -> None:
    joined = server.join(model(1, 2, 3))
    assert joined.status_code == 201
    selection = joined.json()
    assert (selection["source"], selection["parents"]) == ("own", [server.ledger_id])
    first = server.publish(selection=selection["id"], model=model(1, 2, 3), num_examples=10)
    assert (first["author"][:5], first["sequence"], first["attachment"]["digest"]) == ("hash:", 0, selection["id"])

    again = server.select(first["id"]).json()
    assert (again["parents"], again["aggregate"]["digest"]) == ([first["id"]], digest_of(model(1, 2, 3)))
    second = server.publish(selection=again["id"], model=model(1, 2, 4), num_examples=10)
    assert (second["author"], second["sequence"]) == (first["author"], 1), "the name is inherited"


def test_a_brief_answer_has_what_the_next_call_needs_and_costs_the_same_ids(server: Server) -> None:
    for place in range(20):
        server.publish(parents=[server.ledger_id], model=model(1, place / 10))
    kind = {"content-type": v1.MODEL_MEDIA_TYPE}
    whole = server.client.post(v1.SELECTIONS, content=model(1, 2), headers=kind)
    brief = server.client.post(f"{v1.SELECTIONS}?brief=1", content=model(1, 2), headers=kind)
    assert brief.json() == {
        name: whole.json()[name]
        for name in ("id", "ledger", "rule", "source", "cut", "parents", "too_few", "aggregate")
    }
    assert len(brief.content) < 900
    assert len(whole.content) > 5000

    fields = {"selection": brief.json()["id"], "num_examples": 1, "secret": new_secret()}
    published = server.client.post(f"{v1.TRANSACTIONS}?brief=1", files=publication(fields, model(1, 3)))
    assert (published.status_code, len(published.content) < 800) == (201, True)
    shown = server.client.get(v1.path(v1.TRANSACTION, transaction=published.json()["id"])).json()
    assert published.json().items() < shown.items()
    genesis, shown = (server.client.get(v1.GENESIS + query).json() for query in ("?brief=1", ""))
    assert shown == {**genesis, "document": shown["document"], "transaction": shown["transaction"]}
    assert server.client.get(f"{v1.GENESIS}?brief=perhaps").json()["errors"][0]["where"] == "query/brief"


def test_the_aggregate_is_the_examples_weighted_mean_of_the_parents(server: Server) -> None:
    a = server.publish(parents=[server.ledger_id], model=model(1, 0, 0, 1), num_examples=1)
    b = server.publish(parents=[server.ledger_id], model=model(3, 0, 0, 1), num_examples=3)
    selection = server.select(a["id"]).json()
    assert selection["parents"] == sorted([a["id"], b["id"]])
    data = server.client.get(selection["aggregate"]["href"]).content
    assert digest_of(data) == selection["aggregate"]["digest"]
    assert values(data) == pytest.approx(values(model(2.5, 0, 0, 1)))


def test_the_same_question_on_the_same_tips_is_answered_by_the_same_selection(server: Server) -> None:
    a = server.publish(parents=[server.ledger_id], model=model(1))
    first, second = server.select(a["id"]), server.select(a["id"])
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert server.client.get(first.headers["location"]).json() == first.json()


def test_a_signed_transaction_is_the_one_that_the_client_built(server: Server) -> None:
    fields = signed(server, model(2))
    body = server.post(fields, model(2))
    assert body.status_code == 201, body.text
    published = body.json()
    assert published["id"] == fields["id"] == transaction_id(bytes.fromhex(published["header"]))
    assert published["created_at"] == "2023-11-14T22:13:20.000Z"
    receipt_of(published["receipt"]).verify(TxId(published["id"]))
    assert published["receipt"]["received_at_ms"] == NOW_MS
    assert server.client.get("/version").json()["public_key"] == published["receipt"]["issuer"]


def test_publishing_the_same_bytes_again_adds_nothing(server: Server) -> None:
    fields = signed(server, model(2))
    first, second = server.post(fields, model(2)), server.post(fields, model(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert server.client.get(v1.TIPS).json()["transactions"] == 2


def test_one_sequence_number_is_used_once(server: Server) -> None:
    server.post(signed(server, model(2)), model(2))
    conflict = server.post(signed(server, model(3)), model(3))
    assert (conflict.status_code, conflict.json()["type"]) == (409, "/problems/sequence-conflict")
    assert conflict.json()["next_sequence"] == 1


def test_nobody_publishes_unsigned_for_a_key(server: Server) -> None:
    fields = signed(server, model(2))
    transaction = server.post(fields, model(2)).json()
    selection = server.select(transaction["id"]).json()
    unsigned = {"selection": selection["id"], "num_examples": 1}
    for shown, code in (
        ({}, "signature-required"),
        ({"author": transaction["author"]}, "signature-invalid"),
        ({"author": transaction["author"], "secret": "5" * 64}, "signature-invalid"),
        ({"secret": "5" * 64}, "transaction-invalid"),
    ):
        refused = server.post({**unsigned, **shown}, model(3))
        assert (refused.status_code, refused.json()["type"]) == (422, f"/problems/{code}")


def test_nobody_takes_over_an_author_or_uses_up_its_numbers(server: Server) -> None:
    mine = server.publish(parents=[server.ledger_id], model=model(1), secret="5" * 64)
    selection = server.select(mine["id"]).json()["id"]
    for fields in ({"selection": selection}, {"parents": [mine["id"]]}):
        for shown, code in (
            ({}, "signature-required"),
            ({"author": mine["author"]}, "signature-required"),
            ({"author": mine["author"], "secret": "6" * 64}, "signature-invalid"),
            ({"author": mine["author"], "signature": "6" * 128}, "signature-required"),
            ({"author": mine["author"], "sequence": 2**63 - 1}, "signature-required"),
        ):
            refused = server.post({"num_examples": 1, **fields, **shown}, model(2))
            assert (refused.status_code, refused.json()["type"]) == (422, f"/problems/{code}"), (fields, shown)
    mistaken = {"parents": [mine["id"]], "num_examples": 1, "secret": "5" * 64, "sequence": 2**63 - 1}
    refused = server.post(mistaken, model(2))
    assert (refused.status_code, refused.json()["next_sequence"]) == (409, 1), "a mistake of its own locks nobody out"
    assert server.publish(selection=selection, model=model(2), secret="5" * 64)["sequence"] == 1


def test_an_author_publishes_so_much_in_an_hour_and_takes_nothing_from_another(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(sqlite_url, tmp_path, quota={"author_updates": 2}, blobs={"store": "directory"}) as server:
        mine = {"parents": [server.ledger_id], "model": model(1), "secret": "5" * 64}
        first = server.publish(**mine)
        forged = {"parents": [server.ledger_id], "num_examples": 1, "author": first["author"], "secret": "6" * 64}
        assert server.post(forged, model(2)).status_code == 422, "and does not count"
        too_long = {"parents": [server.ledger_id], "num_examples": 1, "secret": "5" * 64}
        assert server.post(too_long, model(1e6)).json()["type"] == "/problems/step-too-long"
        tiny = TinyLedger(server.service.genesis)
        far = Received(transaction=tiny.draft("eve", [server.ledger_id], model(1e6)), attachment=None, model=model(1e6))
        (outcome,) = server.service.admit_received([far])
        assert isinstance(outcome, StepTooLongError)
        assert not [*tmp_path.rglob(f"*{digest_of(model(1e6))[4:]}*")], "nor is it stored, whoever brings it"
        assert [*tmp_path.rglob(f"*{digest_of(model(1))[4:]}*")]
        server.publish(**mine, metrics={"accuracy": 0.5})
        again = {"parents": [server.ledger_id], "start": first["start"], "num_examples": 1, "secret": "5" * 64}
        with monkeypatch.context() as averaging:
            averaging.delattr(server.service.aggregates.__class__, "vector")  # nothing is averaged for it
            refused = server.post(again, model(1))
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/quota-exceeded")
        assert 1700 < int(refused.headers["retry-after"]) <= 1800
        assert "this author may publish 2 updates within an hour" in refused.json()["detail"]
        server.publish(parents=[server.ledger_id], model=model(1))


def test_a_selection_serves_only_who_asked_for_it(server: Server) -> None:
    a = server.publish(parents=[server.ledger_id], model=model(1))
    selection = server.select(a["id"]).json()
    refused = server.post({"selection": selection["id"], "num_examples": 1, "secret": "9" * 64}, model(2))
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/transaction-invalid")


def test_pages_follow_one_another_and_hold_parents_before_children(server: Server) -> None:
    parent = server.ledger_id
    for step in range(5):
        parent = server.publish(parents=[parent], model=model(step + 1))["id"]
    seen: list[str] = []
    href = f"{v1.TRANSACTIONS}?limit=2"
    while href:
        page = server.client.get(href)
        seen += [item["id"] for item in page.json()["items"]]
        href = page.links["next"]["url"] if page.json()["next"] else ""
    assert len(seen) == 6
    assert seen[0] == server.ledger_id
    assert seen[-1] == parent


def test_a_model_is_served_with_ranges_and_cached_for_ever(server: Server) -> None:
    data = model(1, 2, 3, 4)
    published = server.publish(parents=[server.ledger_id], model=data)
    href = published["model"]["href"]
    whole = server.client.get(href)
    assert whole.content == data
    assert whole.headers["etag"] == f'"{digest_of(data)}"'
    assert "immutable" in whole.headers["cache-control"]
    part = server.client.get(href, headers={"range": "bytes=8-15"})
    assert (part.status_code, part.content) == (206, data[8:16])
    assert part.headers["content-range"] == f"bytes 8-15/{len(data)}"
    assert server.client.get(href, headers={"range": "bytes=-4"}).content == data[-4:]
    assert server.client.get(href, headers={"if-none-match": whole.headers["etag"]}).status_code == 304
    beyond = server.client.get(href, headers={"range": f"bytes={len(data)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(data)}")
    many = "bytes=" + ",".join(f"{i}-{i}" for i in range(1000))
    assert server.client.get(href, headers={"range": many}).status_code == 200
    head = server.client.head(href)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(data)))
    assert server.client.get(f"{v1.TRANSACTIONS}/{published['id']}/model").content == data


def test_header_and_attachment_are_served_as_their_exact_bytes(server: Server) -> None:
    selection = server.join(model(1)).json()
    published = server.publish(selection=selection["id"], model=model(1, 1))
    header = server.client.get(f"{v1.TRANSACTIONS}/{published['id']}/header").content
    assert transaction_id(header) == published["id"]
    attachment = server.client.get(published["attachment"]["href"]).content
    assert digest_of(attachment) == published["attachment"]["digest"] == selection["id"]


def test_what_is_left_without_a_parent_is_told_to_who_asked_for_the_selection(server: Server) -> None:
    ann, bob, cat = "a" * 64, "b" * 64, author_of(key_from_seed(7))
    own = server.publish(parents=[server.ledger_id], model=model(1), secret=ann)["id"]
    other = server.publish(parents=[server.ledger_id], model=model(2), secret=bob)["id"]
    selection = server.select(own).json()["id"]

    def without(parent: str, **shown: str) -> tuple[int, str]:
        response = server.client.post(v1.path(v1.SELECTION_WITHOUT, selection=selection, parent=parent), json=shown)
        return response.status_code, response.json().get("type", "").rpartition("/")[2] or response.json()["digest"]

    assert without(other, secret=ann) == (200, digest_of(model(1)))
    assert without(own, secret=ann) == (404, "selection-unknown"), "nobody measures what it is worth itself"
    assert without(other, secret=bob) == (422, "transaction-invalid")
    assert without(other) == (422, "signature-required")
    id_ = TxId(selection)
    signed = sign(key_from_seed(7), id_, role=Role.ASKER).hex()
    assert without(other, author=cat, signature=signed) == (422, "transaction-invalid")
    wrong = sign(key_from_seed(7), id_, role=Role.SELECTION).hex()
    assert without(other, author=cat, signature=wrong)[1] == "signature-invalid"


def test_tips_clients_and_clusters_describe_the_graph(server: Server) -> None:
    a = server.publish(parents=[server.ledger_id], model=model(1), secret="a" * 64)
    b = server.publish(parents=[a["id"]], model=model(2), secret="b" * 64)
    c = server.publish(parents=[server.ledger_id], model=model(3), secret="c" * 64)
    tips = server.client.get(v1.TIPS).json()
    assert [tip["transaction"] for tip in tips["items"]] == sorted([b["id"], c["id"]])
    clients = server.client.get(v1.CLIENTS).json()["items"]
    assert {(item["author"], item["is_tip"], item["depth"]) for item in clients} == {
        (author_of_secret("a" * 64), False, 1),
        (author_of_secret("b" * 64), True, 2),
        (author_of_secret("c" * 64), True, 1),
    }
    clusters = server.client.get(v1.CLUSTERS).json()
    assert [len(cluster["authors"]) for cluster in clusters["clusters"]] == [2, 1]
    assert clusters["clusters"][0]["approvals_inside"] == 1


def test_a_ledger_without_publications_has_no_clusters(server: Server) -> None:
    clusters = server.client.get(v1.CLUSTERS).json()
    assert (clusters["clusters"], clusters["modularity"]) == ([], None)


def test_costs_are_told_apart_by_what_they_are_for(server: Server) -> None:
    data = model(1)
    server.publish(parents=[server.ledger_id], model=data)
    costs = server.client.get(v1.COSTS).json()
    kinds = {each["kind"]: each for each in costs["kinds"]}
    assert kinds["publications"]["received"] > len(data)
    assert kinds["gossip"] == {"kind": "gossip", "received": 0, "sent": 0}
    for way in ("received", "sent"):
        assert sum(each[way] for each in costs["kinds"]) == costs[f"{way}_bytes"]
    assert costs["archived"] == 0


def test_costs_count_what_a_round_moved(server: Server) -> None:
    before = server.client.get(v1.COSTS).json()
    selection = server.join(model(1)).json()
    server.publish(selection=selection["id"], model=model(1))
    after = server.client.get(v1.COSTS).json()
    assert (before["publications"], after["publications"]) == (0, 1)
    assert after["received_bytes"] - before["received_bytes"] > 2 * LAYOUT.nbytes
    assert after["paper_bytes_per_client_round"] == 2 * (32 + LAYOUT.nbytes)
    assert after["bytes_per_client_round"] > 2 * LAYOUT.nbytes
    server.client.get(v1.GENESIS)  # no part of a client's round
    later = server.client.get(v1.COSTS).json()
    assert later["bytes_per_client_round"] == after["bytes_per_client_round"]
    assert later["sent_bytes"] > after["sent_bytes"]


def test_a_restarted_server_goes_on_where_it_stopped(database_url: str, tmp_path: Path) -> None:
    genesis = make_genesis(selector_params={"k": 3})
    with serving(database_url, tmp_path, genesis=genesis) as before:
        a = before.publish(parents=[before.ledger_id], model=model(1, 0, 0, 1), num_examples=1)
        before.publish(parents=[before.ledger_id], model=model(3, 0, 0, 1), num_examples=3)
        selection = before.select(a["id"]).json()
        tips = before.client.get(v1.TIPS).json()
    with serving(database_url, tmp_path, new=False) as after:
        assert after.client.get(v1.TIPS).json() == tips
        made_again = after.client.get(selection["aggregate"]["href"])
        assert digest_of(made_again.content) == selection["aggregate"]["digest"]
        again = after.select(a["id"])
        assert (again.status_code, again.json()) == (201, selection), "the same question has the same answer"
        after.publish(selection=selection["id"], model=model(2, 0, 0, 1))


def test_a_damaged_model_is_never_served(database_url: str, tmp_path: Path) -> None:
    data = model(1, 2, 3, 4)
    with serving(database_url, tmp_path) as server:
        href = server.publish(parents=[server.ledger_id], model=data)["model"]["href"]
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    change(database_url, "UPDATE model_pieces SET data = :damaged WHERE data = :data", damaged=damaged, data=data)
    with serving(database_url, tmp_path, new=False) as server:
        refused = server.client.get(href)
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/model-corrupt")


def test_unknown_things_are_not_found(server: Server) -> None:
    nothing = "0" * 64
    for path, kind in [
        (f"/v1/transactions/{nothing}", "transaction-unknown"),
        (f"/v1/transactions/{nothing}/model", "transaction-unknown"),
        (f"/v1/transactions/{nothing}/header", "transaction-unknown"),
        (f"/v1/models/{nothing}", "model-unknown"),
        (f"/v1/selections/{nothing}", "selection-unknown"),
    ]:
        response = server.client.get(path)
        assert (response.status_code, response.json()["type"]) == (404, f"/problems/{kind}")
    unknown = server.select(nothing)
    assert (unknown.status_code, unknown.json()["transaction"]) == (404, nothing)


def test_the_policy_can_demand_signatures(database_url: str, tmp_path: Path) -> None:
    strict = make_genesis(keys_only=True)
    with serving(database_url, tmp_path, genesis=strict) as server:
        refused = server.post({"parents": [server.ledger_id], "num_examples": 1}, model(1))
        assert (refused.status_code, refused.json()["type"]) == (422, "/problems/signature-required")
        assert server.post(signed(server, model(2)), model(2)).status_code == 201


def test_times_come_from_the_servers_clock_when_the_client_names_none(server: Server) -> None:
    assert server.publish(parents=[server.ledger_id], model=model(1))["created_at_ms"] == NOW_MS


def test_however_many_ask_for_metrics_others_keep_the_worker_threads(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, header_bytes = list[int](), server.service.header_bytes

    async def ask() -> set[int]:
        threads = current_default_thread_limiter()

        def look() -> tuple[int, int]:
            taken.append(threads.borrowed_tokens)
            return header_bytes()

        monkeypatch.setattr(server.service, "header_bytes", look)
        async with AsyncClient(transport=ASGITransport(app=server.app), base_url="http://127.0.0.1") as client:
            return {answer.status_code for answer in await asyncio.gather(*(client.get("/metrics") for _ in range(20)))}

    assert asyncio.run(ask()) == {200}
    assert taken == [1] * 20


def test_health_version_and_metrics(server: Server) -> None:
    assert server.client.get("/healthz").json()["status"] == "ok"
    assert server.client.get("/readyz").json()["checks"]["ledger"] == server.ledger_id
    assert server.client.get("/version").json()["ledger"] == server.ledger_id
    server.publish(parents=[server.ledger_id], model=model(1))
    text = server.client.get("/metrics").text
    assert "dag_acfl_transactions 2.0" in text
    assert "dag_acfl_candidates 1.0" in text
    assert "dag_acfl_most_candidates 100000.0" in text
    assert 'dag_acfl_publications_total{outcome="created"} 1.0' in text
    costs = server.client.get(v1.COSTS).json()
    figures = dict(line.split() for line in text.splitlines() if line.startswith("dag_acfl_") and "{" not in line)
    assert float(figures["dag_acfl_ledger_payload_bytes"]) == costs["ledger_payload_bytes"]
    assert float(figures["dag_acfl_storage_bytes"]) > costs["ledger_payload_bytes"]
    assert float(figures["dag_acfl_storage_free_bytes"]) > 0
    is_sqlite = server.settings.resolved_database_url.startswith("sqlite")
    assert (float(figures["dag_acfl_database_log_bytes"]) > 0) == is_sqlite
    assert f'dag_acfl_ledger_info{{ledger="{server.ledger_id}"}} 1.0' in text
    assert "dag_acfl_queue_length 0.0" in text
    if sys.platform == "linux":
        process = dict(line.split() for line in text.splitlines() if line.startswith("process_"))
        assert float(process["process_resident_memory_bytes"]) > 1e7
        assert 0 < float(process["process_open_fds"]) < float(process["process_max_fds"])
    assert "_created" not in text


def test_without_a_console_a_person_lands_on_a_page_and_pages_load_nothing_from_elsewhere(
    database_url: str, tmp_path: Path
) -> None:
    with serving(database_url, tmp_path, console_enabled=False) as server:
        start, docs = server.client.get("/"), server.client.get("/docs")
        assert server.ledger_id in start.text
        assert "href='/docs'" in start.text
        assert [path for path in server.app.openapi()["paths"] if f" {path}</code>" not in docs.text] == []
    for page in (start, docs):
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert not re.search("https?://|src=|<script|<link", page.text)


def test_without_documents_there_is_no_link_to_them(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, docs_enabled=False, console_enabled=False) as server:
        assert "/docs" not in server.client.get("/").text
        assert [server.client.get(path).status_code for path in ("/docs", "/openapi.json")] == [404, 404]


def test_a_problem_type_has_a_page(server: Server) -> None:
    page = server.client.get("/problems/parents-unknown")
    assert (page.status_code, "parents-unknown" in page.text) == (200, True)


def test_peers_are_none_and_the_key_is_this_servers(server: Server) -> None:
    assert server.client.get(v1.PEERS).json() == {"public_key": server.service.public_key, "items": []}


def test_an_adaptive_selection_finds_the_own_cluster(database_url: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    genesis = make_genesis(selector="beast", max_step_growth=1000.0)
    with serving(database_url, tmp_path, genesis=genesis, first=model(0.01, 0.01, 0.01)) as server:
        mine: list[str] = []
        for index in range(10):
            centre = (1.0, 0.1, 0.0) if index < 5 else (0.0, -0.1, 1.0)
            noisy = [value + 0.01 * rng.standard_normal() for value in centre]
            published = server.publish(parents=[server.ledger_id], model=model(*noisy))
            if index < 5:
                mine.append(published["id"])
        selection = server.select(mine[0]).json()
        assert selection["parents"] == sorted(mine)
        assert any(candidate["score"] is not None for candidate in selection["candidates"])


def test_an_average_of_too_few_models_for_its_rule_is_counted_and_logged_once(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ledger_server.selecting")
    genesis = replace(make_genesis(selector_params={"k": 3}), aggregator=Component("median"))
    with serving(database_url, tmp_path, genesis=genesis) as server:
        mine, _ = (server.publish(parents=[server.ledger_id], model=model(1, place))["id"] for place in range(2))
        assert [server.select(mine).json()["too_few"] for _ in range(2)] == [{"models": 2, "needed": 3}] * 2
        text = server.client.get("/metrics").text
    assert "dag_acfl_too_few_models_total 1.0" in text
    assert "dag_acfl_average_models_sum 2.0" in text
    assert caplog.text.count("fewer models than the ledger's aggregator needs") == 1


def test_a_second_server_on_one_database_follows_the_first(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path) as first, serving(database_url, tmp_path, new=False) as second:
        of_first = first.publish(parents=[first.ledger_id], model=model(1))["id"]
        of_second = second.publish(parents=[second.ledger_id], model=model(2))["id"]
        listed = [item["id"] for item in second.client.get(v1.TRANSACTIONS).json()["items"]]
        assert listed == [first.ledger_id, of_first, of_second]
