"""What a browser and a client that polls meet: pages of named origins, compressed JSON, and answers not sent twice."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx2 import Response

from fl_core.wire import v1
from tests.builders import make_genesis, model
from tests.serving import Server, publication, serving

PAGE = "https://app.example.org"


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[Server]:
    """Loopback, no tokens."""
    with serving(sqlite_url, tmp_path, cors_origins=PAGE, genesis=make_genesis(selector_params={"k": 3})) as running:
        yield running


def preflight(server: Server, path: str, *, origin: str = PAGE, **more: str) -> Response:
    asked = {"origin": origin, "access-control-request-method": "POST", **more}
    return server.client.options(path, headers=asked)


def test_a_page_of_a_named_origin_takes_part_also_on_loopback_without_tokens(server: Server) -> None:
    asked = preflight(server, v1.SELECTIONS, **{"access-control-request-headers": "content-type,authorization"})
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert asked.headers["access-control-max-age"] == "7200", "cached, so that each call is one"
    private = preflight(server, v1.SELECTIONS, **{"access-control-request-private-network": "true"})
    assert private.headers["access-control-allow-private-network"] == "true"

    kind = {"origin": PAGE, "content-type": v1.MODEL_MEDIA_TYPE}
    selection = server.client.post(v1.SELECTIONS, content=model(1, 2), headers=kind)
    fields = {"selection": selection.json()["id"], "num_examples": 1, "secret": "5e" * 32}
    update = server.client.post(v1.TRANSACTIONS, files=publication(fields, model(1, 2)), headers={"origin": PAGE})
    for answer in (selection, update):
        assert answer.status_code == 201
        assert answer.headers["access-control-allow-origin"] == PAGE
        readable = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
        assert {"etag", "location", "retry-after", "x-request-id", "repr-digest"} <= readable
        assert "origin" in answer.headers["vary"].lower()


def test_a_page_reads_why_it_was_refused(server: Server) -> None:
    refused = server.client.get(v1.path(v1.MODEL, digest="0" * 64), headers={"origin": PAGE})
    assert (refused.json()["type"], refused.headers["access-control-allow-origin"]) == ("/problems/model-unknown", PAGE)


@pytest.mark.parametrize("origin", ["https://app.example.org.evil.example", "http://app.example.org", "null"])
def test_pages_of_other_origins_stay_outside(server: Server, origin: str) -> None:
    assert preflight(server, v1.SELECTIONS, origin=origin).status_code == 400
    answer = server.client.get(v1.TIPS, headers={"origin": origin})
    assert (answer.status_code, answer.json()["type"]) == (421, "/problems/elsewhere")
    assert "access-control-allow-origin" not in answer.headers


def test_a_name_of_elsewhere_stays_outside_although_its_page_is_named(server: Server) -> None:
    answer = server.client.get(v1.TIPS, headers={"origin": PAGE, "host": "app.example.org"})
    assert answer.status_code == 421, "by DNS rebinding"


def test_a_named_page_shows_its_token_like_everybody(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path, cors_origins=PAGE, auth={"required_for": ("reads",)}) as server:
        assert preflight(server, v1.TIPS, **{"access-control-request-headers": "authorization"}).status_code == 200
        answer = server.client.get(v1.TIPS, headers={"origin": PAGE})
    assert (answer.status_code, answer.json()["type"]) == (401, "/problems/token-required")
    assert answer.headers["access-control-allow-origin"] == PAGE


def test_without_the_setting_no_page_is_let_in(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path) as server:
        assert preflight(server, v1.SELECTIONS).status_code == 405
        answer = server.client.get(v1.TIPS, headers={"origin": "http://localhost:3000"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def raw(server: Server, path: str, accepted: str) -> tuple[str | None, bytes]:
    """The coding of an answer, and its bytes as they travel."""
    with server.client.stream("GET", path, headers={"accept-encoding": accepted}) as answer:
        return answer.headers.get("content-encoding"), b"".join(answer.iter_raw())


@pytest.mark.parametrize("count", [5, 80], ids=["short", "compressed in a thread"])
def test_json_travels_compressed_to_who_takes_gzip(server: Server, count: int) -> None:
    for place in range(count):
        server.publish(parents=[server.ledger_id], model=model(1, place / 100))
    for accepted in ("gzip", "br;q=1.0, GZip ; q=0.5", "identity;q=0.5,gzip"):
        coding, packed = raw(server, v1.TRANSACTIONS, accepted)
        assert coding == "gzip"
        assert len(packed) < len(gzip.decompress(packed)) / 3
    for accepted in ("identity", "br", "gzip;q=0", "gzip; q=0.000"):
        assert raw(server, v1.TRANSACTIONS, accepted) == (None, gzip.decompress(packed))


def test_models_and_small_answers_travel_as_they_are(server: Server) -> None:
    first = server.client.get(v1.GENESIS).json()["model"]["href"]
    assert raw(server, first, "gzip") == (None, model(1, 1, 1, 1))
    assert raw(server, v1.TIPS, "gzip")[0] is None
    assert raw(server, v1.path(v1.TRANSACTION_HEADER, transaction=server.ledger_id), "gzip")[0] is None


@pytest.mark.parametrize("path", [v1.TIPS, v1.CLUSTERS, v1.CLIENTS])
def test_who_polls_is_sent_what_is_new(server: Server, path: str) -> None:
    first = server.client.get(path)
    known = {"if-none-match": first.headers["etag"]}
    again = server.client.get(path, headers=known)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    server.publish(parents=[server.ledger_id], model=model(1))
    after = server.client.get(path, headers=known)
    assert after.status_code == 200
    assert (after.json() == first.json(), after.headers["etag"] == first.headers["etag"]) == (False, False)
