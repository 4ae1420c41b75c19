"""The lists of tips and of clients: the same as a walk over the whole journal finds, and each entry read once."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.api import listings
from tests.builders import make_genesis, model
from tests.serving import Server, serving


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    with serving(database_url, tmp_path, genesis=make_genesis(selector_params={"k": 3})) as running:
        yield running


def walked(server: Server) -> list[dict[str, Any]]:
    """All transactions, page by page."""
    found: list[dict[str, Any]] = []
    path: str | None = f"{v1.TRANSACTIONS}?limit=7"
    while path is not None:
        page = server.get(path).json()
        found += page["items"]
        path = None if page["next"] is None else f"{v1.TRANSACTIONS}?limit=7&after={page['next']}"
    return found


def tips(transactions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    named = {parent for each in transactions for parent in each["parents"]}
    fields = ("author", "sequence", "depth")
    found = [{"transaction": each["id"], **{name: each[name] for name in fields}} for each in transactions]
    return sorted((each for each in found if each["transaction"] not in named), key=lambda each: each["transaction"])


def clients(transactions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    newest = {each["author"]: each for each in transactions if each["kind"] == "update"}
    fields = ("author", "sequence", "depth", "is_tip", "created_at", "num_examples", "metrics")
    return [{"newest": each["id"], **{name: each[name] for name in fields}} for _, each in sorted(newest.items())]


@pytest.mark.parametrize("most_kept", [listings.MOST_KEPT_BYTES, 500])
def test_lists_are_those_that_a_walk_over_the_whole_journal_finds_however_often_they_are_asked_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, most_kept: int
) -> None:
    monkeypatch.setattr(listings, "MOST_KEPT_BYTES", most_kept)
    rng, ids = random.Random(most_kept), [server.ledger_id]
    for place in range(15):
        if place % 3 != 1:
            known = walked(server)
            assert server.get(v1.TIPS).json()["items"] == tips(known)
            assert server.get(v1.CLIENTS).json()["items"] == clients(known)
            kept = server.app.state.listings
            for each in (kept.tips, kept.clients):
                assert sum(map(len, each._texts.values())) <= most_kept
        update = server.publish(
            parents=[rng.choice(ids)],
            model=model(place),
            secret=f"{rng.randrange(4):02x}" * 32,
            metrics={"accuracy": place / 16},
        )
        ids.append(TxId(update["id"]))


def test_of_a_ledger_that_has_grown_what_is_new_is_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    read, of_store = list[str](), server.service.store.transactions
    monkeypatch.setattr(server.service.store, "transactions", lambda ids: [read.extend(ids), of_store(ids)][1])

    def listed(path: str) -> list[str]:
        read.clear()
        server.get(path)
        return read.copy()

    first, second = [
        server.publish(parents=[server.ledger_id], model=model(place), secret=f"{place:02x}" * 32)["id"]
        for place in range(2)
    ]
    for path in (v1.TIPS, v1.CLIENTS):
        assert sorted(listed(path)) == sorted([first, second])
        assert listed(path) == []
    third = server.publish(parents=[first], model=model(3), secret="00" * 32)["id"]
    assert listed(v1.TIPS) == listed(v1.CLIENTS) == [third]


def test_a_long_list_is_sent_compressed_to_who_takes_that_and_whole_to_others(server: Server) -> None:
    for place in range(12):
        server.publish(parents=[server.ledger_id], model=model(place), secret=f"{place:02x}" * 32)
    for path in (v1.TIPS, v1.CLIENTS):
        packed = server.client.get(path, headers={"accept-encoding": "gzip"})
        plain = server.client.get(path, headers={"accept-encoding": "identity"})
        assert (packed.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
        assert packed.json() == plain.json()
        assert packed.headers["etag"] == plain.headers["etag"]
        assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
