"""The SDK against a server that misbehaves on demand, over real sockets."""

import gzip
import json
import logging
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest

from fl_client import (
    AnswerInvalidError,
    ApiError,
    LedgerClient,
    ServerUnavailableError,
    reader,
    transport,
)
from fl_client import client as client_module
from fl_core.dag.author import author_of_secret
from fl_core.errors import (
    DigestMismatchError,
    ModelNotFiniteError,
    ModelUnknownError,
    ParameterError,
    ParentsStaleError,
    ParentsUnknownError,
    SequenceConflictError,
    TransactionUnknownError,
    WrongLedgerError,
)
from fl_core.types import digest_of
from tests.builders import TinyLedger, key_from_seed, make_genesis, model
from tests.live import free_ports
from tests.stand_in_server import Answer, StandIn, problem

KEY = key_from_seed(7)


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


def client_of(*servers: StandIn | str, **options: object) -> LedgerClient:
    urls = [each if isinstance(each, str) else each.url for each in servers]
    return LedgerClient(urls, **{"key": KEY, "timeout": 10.0, **options})


def closed_port() -> str:
    """An address where nobody listens."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


# -- genesis and models -------------------------------------------------------------------------------


def test_genesis_is_verified_once_and_remembered(server: StandIn) -> None:
    with client_of(server) as client:
        assert client.genesis().ledger == server.tiny.genesis_id
        asked = len(server.asked)
        assert client.genesis().genesis == server.tiny.genesis
        assert len(server.asked) == asked
        assert client.genesis_model() == server.tiny.genesis_model


def test_a_changed_genesis_document_is_refused(server: StandIn) -> None:
    other = make_genesis(name="other").document
    server.tiny.attachments[server.tiny.genesis.digest] = other
    with client_of(server) as client, pytest.raises(DigestMismatchError, match="document") as refused:
        client.genesis()
    assert refused.value.computed == digest_of(other)


def test_a_changed_genesis_header_is_refused(server: StandIn) -> None:
    out = server.transaction_out(server.tiny.genesis_transaction)
    out["header"] = out["header"][:-2] + "01"
    body = {
        "ledger": server.tiny.genesis_id,
        "name": "",
        "document": {},
        "document_href": "",
        "model": out["model"],
        "transaction": out,
    }
    server.spoil("/v1/genesis", answer=Answer(200, json.dumps(body).encode()))
    with client_of(server) as client, pytest.raises(DigestMismatchError, match="genesis transaction"):
        client.genesis()


def test_a_changed_genesis_model_is_refused(server: StandIn) -> None:
    digest = digest_of(server.tiny.genesis_model)
    server.tiny.models[digest] = model(9, 9, 9, 9)
    with client_of(server) as client, pytest.raises(DigestMismatchError) as refused:
        client.genesis_model()
    assert (refused.value.claimed, refused.value.computed) == (digest, digest_of(model(9, 9, 9, 9)))


def test_a_server_that_sends_other_bytes_is_passed_over_for_one_that_does_not(server: StandIn) -> None:
    digest = digest_of(server.tiny.genesis_model)
    with StandIn() as honest, client_of(server, honest) as client:
        server.tiny.models[digest] = model(9, 9, 9, 9)
        assert client.download(digest) == server.tiny.genesis_model


def test_a_pinned_ledger_refuses_another(server: StandIn) -> None:
    with client_of(server, ledger="1" * 64) as client, pytest.raises(WrongLedgerError, match="off the list"):
        client.select(model=model(1))
    assert "POST /v1/selections" not in server.paths()


def test_servers_of_two_ledgers_are_never_mixed(server: StandIn) -> None:
    with StandIn(TinyLedger(make_genesis(name="other"))) as other, client_of(server, other) as client:
        client.genesis()
        server.spoil("/v1/tips", hang_up="before")
        with pytest.raises(WrongLedgerError):
            client.tips()


def test_a_model_that_was_here_is_not_fetched_again(server: StandIn) -> None:
    with client_of(server) as client:
        selection = client.select(model=model(1, 2))
        assert client.download(selection.aggregate.digest) == model(1, 2)
        client.genesis_model()
        client.genesis_model()
    assert sum(path.startswith("GET /v1/models") for path in server.paths()) == 1


def test_a_downloaded_model_cannot_be_written_to(server: StandIn) -> None:
    with client_of(server) as client:
        assert client.genesis_model().readonly


def test_a_cut_download_continues_where_it_stopped(server: StandIn) -> None:
    big = os.urandom(3_000_000)
    server.tiny.models[digest_of(big)] = big
    server.spoil("/v1/models", cut_after=1_234_567)
    server.spoil("/v1/models", cut_after=765_433)
    with client_of(server) as client:
        assert client.download(digest_of(big)) == big
    ranges = [asked.headers.get("range") for asked in server.asked if asked.path.startswith("/v1/models")]
    assert ranges == [None, "bytes=1234567-", "bytes=2000000-"]


def test_a_cut_download_continues_on_another_server(server: StandIn) -> None:
    big = os.urandom(300_000)
    server.spoil("/v1/models", cut_after=100_000)
    with StandIn() as other, client_of(server, other) as client:
        server.tiny.models[digest_of(big)] = other.tiny.models[digest_of(big)] = big
        assert client.download(digest_of(big)) == big
        assert other.asked[-1].headers["range"] == "bytes=100000-"


def test_a_server_that_ignores_the_range_is_read_from_the_start(server: StandIn) -> None:
    big = os.urandom(300_000)
    server.tiny.models[digest_of(big)] = big
    server.spoil("/v1/models", cut_after=100_000)
    server.spoil("/v1/models", answer=Answer(200, big))
    with client_of(server) as client:
        assert client.download(digest_of(big)) == big


def test_another_range_than_asked_for_is_refused(server: StandIn) -> None:
    big = os.urandom(300_000)
    server.tiny.models[digest_of(big)] = big
    server.spoil("/v1/models", cut_after=100_000)
    server.spoil("/v1/models", answer=Answer(206, big[50:], {"content-range": "bytes 50-299999/300000"}))
    with client_of(server) as client, pytest.raises(AnswerInvalidError, match="another range"):
        client.download(digest_of(big))


def test_a_model_larger_than_the_ledgers_is_not_read(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/models", answer=Answer(200, bytes(100_000)))
        with pytest.raises(AnswerInvalidError, match="100000 bytes"):
            client.download("1" * 64)


def test_an_encoded_answer_is_refused_before_it_is_unpacked(server: StandIn) -> None:
    bomb = gzip.compress(bytes(1_000_000))
    with client_of(server) as client:
        client.genesis()
        for path, call in (
            ("/v1/models", lambda: client.download("1" * 64)),
            ("/v1/tips", client.tips),
            ("/v1/selections", lambda: client.select(model=model(1))),
        ):
            server.spoil(path, answer=Answer(200, bomb, {"content-encoding": "gzip"}))
            with pytest.raises(AnswerInvalidError, match="gzip"):
                call()


def test_a_redirect_is_a_refusal(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        for path, call in (("/v1/tips", client.tips), ("/v1/models", lambda: client.download("1" * 64))):
            server.spoil(path, answer=Answer(307, b"", {"location": "http://127.0.0.1:1/"}))
            with pytest.raises(ApiError) as refused:
                call()
            assert refused.value.status == 307


def test_an_answer_over_the_bound_is_not_read(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        for path, call in (("/v1/tips", client.tips), ("/v1/selections", lambda: client.select(model=model(1)))):
            server.spoil(path, answer=Answer(200, b" " * (16 * 2**20 + 1)))
            with pytest.raises(AnswerInvalidError, match="bytes"):
                call()


# -- publishing ---------------------------------------------------------------------------------------


def test_a_publication_is_signed_and_has_the_id_that_was_computed_here(server: StandIn) -> None:
    with client_of(server) as client:
        selection = client.select(model=model(1, 2))
        published = client.publish(model(1, 2), selection=selection, num_examples=5, metrics={"accuracy": 0.5})
        assert published.created
        assert (published.sequence, published.author) == (0, client.author)
        stored = server.tiny.transactions[published.id]
        stored.verify_signatures()
        assert stored.header.metrics == {"accuracy": 0.5}
        assert client.publish(model(3), parents=[published.id], num_examples=5).sequence == 1


def test_the_very_same_publication_is_answered_with_the_same_transaction(server: StandIn) -> None:
    with client_of(server) as client:
        first, second = (
            client.publish(model(1), parents=[server.tiny.genesis_id], num_examples=1, sequence=0, created_at_ms=5)
            for _ in range(2)
        )
    assert (first.created, second.created) == (True, False)
    assert first.id == second.id


def test_a_client_that_has_published_before_continues_its_count(server: StandIn) -> None:
    for expected in (0, 1):
        with client_of(server) as client:
            published = client.publish(model(expected), parents=[server.tiny.genesis_id], num_examples=1)
        assert published.sequence == expected


def test_a_signed_publication_without_an_answer_is_sent_again_and_published_once(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/transactions", hang_up="after")
        published = client.publish(model(1), parents=[server.tiny.genesis_id], num_examples=1)
    assert not published.created  # the first attempt had arrived
    assert len(server.tiny.ledger) == 2


def test_client_with_a_secret_publishes_once(server: StandIn) -> None:
    with client_of(server, key=None, secret="7" * 64) as client:
        client.genesis()
        server.spoil("/v1/transactions", hang_up="after")
        published = client.publish(model(1), parents=[server.tiny.genesis_id], num_examples=1)
    assert published.author == client.author == author_of_secret("7" * 64)
    assert len(server.tiny.ledger) == 2


def test_client_without_a_key_draws_a_secret(server: StandIn) -> None:
    with client_of(server, key=None) as first, client_of(server, key=None) as second:
        assert first.author.startswith("hash:")
        assert first.author != second.author


def test_key_and_secret_are_one_too_many(server: StandIn) -> None:
    with pytest.raises(ParameterError):
        client_of(server, secret="7" * 64)


def test_an_answer_with_another_id_is_refused(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        out = server.transaction_out(server.tiny.genesis_transaction)
        server.spoil("/v1/transactions", answer=Answer(201, json.dumps(out).encode()))
        with pytest.raises(DigestMismatchError, match="made"):
            client.publish(model(1), parents=[server.tiny.genesis_id], num_examples=1)


# -- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error", "fields"),
    [
        (problem(422, "model-not-finite"), ModelNotFiniteError, {}),
        (problem(409, "parents-stale"), ParentsStaleError, {}),
        (
            problem(409, "parents-unknown", missing=["1" * 64]),
            ParentsUnknownError,
            {"missing": ("1" * 64,)},
        ),
        (problem(409, "parents-unknown"), ParentsUnknownError, {"missing": ()}),
        (
            problem(409, "sequence-conflict", existing="2" * 64, next_sequence=0),
            SequenceConflictError,
            {"existing": "2" * 64, "next_sequence": 0},
        ),
        (
            problem(409, "sequence-conflict", existing=7, next_sequence="many"),
            SequenceConflictError,
            {"existing": "", "next_sequence": 0},
        ),
        (problem(418, "never-heard-of", colour="blue"), ApiError, {"status": 418}),
        (Answer(404, b"<html>"), ApiError, {"status": 404, "problem": {}}),
        (Answer(422, b"{" * 10_000, {"content-type": "application/problem+json"}), ApiError, {"problem": {}}),
    ],
)
def test_a_problem_becomes_the_error_of_its_code(
    server: StandIn, answer: Answer, error: type[Exception], fields: dict[str, object]
) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/transactions", answer=answer)
        with pytest.raises(error) as refused:
            client.publish(model(1), parents=[server.tiny.genesis_id], num_examples=1, sequence=0)
    assert type(refused.value) is error
    for name, value in fields.items():
        assert getattr(refused.value, name) == value
    assert server.url in refused.value.__notes__[0]


def test_a_servers_words_cannot_steer_a_terminal(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/tips", answer=problem(422, "x\x1b[2J", detail="\x1b]0;owned\x07" + "a" * 9999))
        with pytest.raises(ApiError) as refused:
            client.tips()
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000


def test_an_answer_of_another_form_names_the_field(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/tips", answer=Answer(200, b'{"ledger": "0"}'))
        with pytest.raises(AnswerInvalidError, match="TipsOut"):
            client.tips()


def test_unknown_things_have_their_errors(server: StandIn) -> None:
    with client_of(server) as client:
        with pytest.raises(ModelUnknownError):
            client.download("1" * 64)
        with pytest.raises(TransactionUnknownError) as refused:
            client.select(transaction="2" * 64)
    assert refused.value.transaction == "2" * 64


# -- failover and retries -----------------------------------------------------------------------------


def test_a_dead_server_is_passed_over_and_then_asked_last(server: StandIn) -> None:
    dead = closed_port()
    with client_of(dead, server) as client:
        assert client.tips().transactions == 1
        assert [each.endpoint.url for each in client._session.servers.in_order()] == [server.url, dead]


def test_what_one_server_does_not_know_is_asked_of_the_next(server: StandIn) -> None:
    with StandIn() as other, client_of(server, other) as client:
        other.tiny.models[digest_of(model(5))] = model(5)
        assert client.download(digest_of(model(5))) == model(5)


def test_an_aggregate_is_fetched_where_it_was_computed(server: StandIn) -> None:
    with StandIn() as other, client_of(server, other, cache_bytes=0) as client:
        server.spoil("/v1/selections", answer=problem(503, "busy"))
        selection = client.select(model=model(5))
        servers = client._session.servers
        servers.answered(servers.in_order()[-1])  # the first is well again
        assert client.download(selection.aggregate.digest) == model(5)
        assert not any(path.startswith("GET /v1/models") for path in server.paths())


def test_when_no_server_answers_the_error_names_each_with_its_fault() -> None:
    first, second = closed_port(), closed_port()
    with client_of(first, second) as client, pytest.raises(ServerUnavailableError) as failed:
        client.tips()
    assert failed.value.tried == {first: "connection refused", second: "connection refused"}


def test_a_call_ends_in_time_with_its_last_fault(pauses: list[float]) -> None:
    dead = closed_port()
    with client_of(dead, timeout=20.0) as client, pytest.raises(ServerUnavailableError) as failed:
        client.tips()
    assert failed.value.tried == {dead: "connection refused"}
    assert sum(pauses) < 20
    assert all(
        0.5 * expected <= pause <= expected for pause, expected in zip(pauses, (0.1, 0.2, 0.4, 0.8), strict=False)
    )
    assert max(pauses) <= 5


def test_waiting_leaves_what_a_training_has_seeded_as_it_is(pauses: list[float]) -> None:
    before = random.getstate()
    with client_of(closed_port(), timeout=5.0) as client, pytest.raises(ServerUnavailableError):
        client.tips()
    assert len(pauses) > 1
    assert random.getstate() == before


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(server: StandIn, status: int) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/selections", answer=problem(status, "busy"))
        client.select(model=model(1))
    assert server.paths().count("POST /v1/selections") == 2


def test_a_wait_is_told_of_at_growing_intervals_and_once_when_it_ends(
    server: StandIn, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with client_of(server, timeout=600) as client, caplog.at_level(logging.INFO, "fl_client.retry"):
        client.genesis()
        server.spoil("/v1/selections", answer=problem(503, "busy"), times=40)
        client.select(model=model(1))
    assert len(pauses) == 40
    *waits, end = [record.getMessage() for record in caplog.records]
    # At once, and after 5, 10, 20, 40 and 80 of the 75 to 150 s.
    assert 4 <= len(waits) <= 6
    assert all(line.endswith("; trying again") for line in waits)
    assert re.fullmatch(rf"{server.url} answers, after \d+ s without a server", end)


def test_retry_after_is_waited_for(server: StandIn, pauses: list[float]) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/selections", answer=problem(503, "busy", headers={"retry-after": "3"}))
        client.select(model=model(1))
    (pause,) = pauses
    assert 2.5 < pause <= 3
    assert "GET /version" not in server.paths(), "who asks to be left alone is still who it was"


def test_a_pause_beyond_the_deadline_is_not_begun(server: StandIn, pauses: list[float]) -> None:
    with client_of(server, timeout=5) as client:
        client.genesis()
        server.spoil("/v1/selections", answer=problem(503, "busy", headers={"retry-after": "999"}))
        with pytest.raises(ServerUnavailableError, match="busy"):
            client.select(model=model(1))
    assert not pauses


def test_a_refusal_is_not_repeated(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/selections", answer=problem(422, "model-layout"))
        with pytest.raises(Exception, match="model-layout"):
            client.select(model=model(1))
    assert server.paths().count("POST /v1/selections") == 1


def test_a_connection_given_up_by_the_server_is_replaced(server: StandIn) -> None:
    with client_of(server) as client:
        client.genesis()
        server.spoil("/v1/selections", hang_up="before")
        client.select(model=model(1))


@pytest.mark.parametrize(
    "head", ["HTTP/1.1 200 OK\r\nx-filler: ", "HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n"], ids=["head", "body"]
)
def test_a_dripping_answer_ends_at_the_deadline(head: str) -> None:
    """One byte at a time is never silent for long; only a deadline on the whole call ends it."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.send(head.encode())
            while not over.wait(0.01):
                connection.send(b"a")

    thread = threading.Thread(target=drip)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        with client_of(url, timeout=0.2) as client, pytest.raises(ServerUnavailableError):
            client.genesis()
    finally:
        over.set()
        thread.join(5)
        listening.close()
    assert not thread.is_alive()


def test_the_environment_names_no_proxy(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", closed_port())
    monkeypatch.setenv("ALL_PROXY", closed_port())
    with client_of(server) as client:
        assert client.tips().transactions == 1


def test_a_token_is_sent_and_never_shown(server: StandIn) -> None:
    with client_of(server, token="s3cret") as client:
        client.tips()
        client.select(model=model(1))
        assert "s3cret" not in repr(client)
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer s3cret"}


# -- events -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [False, True])
def test_events_go_on_after_the_last_one_seen(server: StandIn, *, cut: bool) -> None:
    server.cuts_events = cut
    ids = [server.tiny.publish("ann", [server.tiny.genesis_id], model(n)) for n in (1, 2)]
    for number, identity in enumerate(ids, start=1):
        out = json.dumps(server.transaction_out(server.tiny.transactions[identity]))
        server.events.append(f"id: e-{number}\nevent: transaction\ndata: {out}\n\n".encode())
    with client_of(server) as client:
        events = client.events()
        assert [next(events).transaction.id for _ in ids] == ids
        events.close()
    asked = [each.headers.get("last-event-id") for each in server.asked if each.path == "/v1/events"]
    assert asked == [None, "e-1"]


def test_who_has_heard_nothing_yet_misses_nothing_when_it_is_cut_off(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = server.tiny.publish("ann", [server.tiny.genesis_id], model(1))
    out = json.dumps(server.transaction_out(server.tiny.transactions[identity]))

    def published_meanwhile(_: float) -> None:
        server.events.append(f"id: e-1\nevent: transaction\ndata: {out}\n\n".encode())

    with client_of(server) as client:
        monkeypatch.setattr(reader, "time", SimpleNamespace(sleep=published_meanwhile, monotonic=time.monotonic))
        events = client.events()
        assert next(events).transaction.id == identity
        events.close()
    asked = [each.headers.get("last-event-id") for each in server.asked if each.path == "/v1/events"]
    assert asked == [None, "e-0"]


def test_an_answer_may_take_longer_than_a_connection(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT_S", 0.2)
    answer = server.answer
    monkeypatch.setattr(server, "answer", lambda *asked: (time.sleep(0.4), answer(*asked))[1])
    with client_of(server) as client:
        assert client.tips().transactions == 1
    assert server.paths().count("GET /v1/tips") == 1


# -- arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["localhost:8900", "ftp://x", "http://", "http://a:b@x", "http://x?y=1", "http://x:99999", "http://x#y"],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ParameterError, match="server address"):
        LedgerClient(url)


def test_a_client_needs_a_server() -> None:
    with pytest.raises(ParameterError, match="at least one"):
        LedgerClient([])


def test_importing_the_package_loads_neither_torch_nor_networkx_nor_an_http_library() -> None:
    script = (
        "import sys, fl_client, fl_client.training\n"
        "assert not {'torch', 'networkx', 'urllib3'} & set(sys.modules)\n"
        "from fl_client import LedgerClient, Participant, ParticipantState\n"
        "assert not {'torch', 'networkx'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_every_public_name_is_there_and_no_other() -> None:
    import fl_client

    for name in fl_client.__all__:
        if name != "TorchTrainer":
            assert getattr(fl_client, name).__name__ == name
    assert list(fl_client.__all__) == sorted(fl_client.__all__)
    with pytest.raises(AttributeError):
        _ = fl_client.nothing


# -- coded models -------------------------------------------------------------------------------------


def test_a_server_that_knows_no_coded_models_is_sent_whole_ones_from_then_on(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LEAST_BYTES", 0)
    monkeypatch.setattr(client_module, "_WORTH_CODING", 100.0)
    with client_of(server) as client:
        client.genesis_model()
        start = client.genesis().model_digest
        server.spoil("/v1/transactions", answer=problem(415, "unsupported-media-type"))
        for number, posts in enumerate((2, 3)):
            client.publish(model(number), parents=[server.tiny.genesis_id], start=start, num_examples=1, coded=True)
            assert len([each for each in server.asked if each.method == "POST"]) == posts


def test_who_lacks_the_base_is_sent_the_whole_model(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LEAST_BYTES", 0)
    monkeypatch.setattr(client_module, "_WORTH_CODING", 100.0)
    with client_of(server) as client:
        client.genesis_model()
        start = client.genesis().model_digest
        server.spoil("/v1/transactions", answer=problem(409, "base-unknown"))
        published = client.publish(model(1), parents=[server.tiny.genesis_id], start=start, num_examples=1, coded=True)
    assert server.tiny.models[server.tiny.transactions[published.id].header.model_digest] == model(1)
