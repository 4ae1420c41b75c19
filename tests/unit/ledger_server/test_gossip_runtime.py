"""Gossip goes on, and ends, whatever the store does meanwhile."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from fl_core.dag.acts import sign_act
from ledger_server.gossip import runtime
from ledger_server.gossip.runtime import Gossip
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer
from tests.builders import ISSUER, key_from_seed, make_genesis
from tests.serving import NOW_MS, serving
from tests.unit.ledger_server.test_acts import added


def test_following_the_store_outlives_what_nobody_expected(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime, "ACTS_S", 0.01)
    calls: list[int] = []

    def refresh() -> None:
        calls.append(1)
        raise TypeError("nobody expected this")

    async def follow() -> None:
        gossip = Gossip(
            server.service, key=ISSUER, peers=tuple, metrics=Metrics(), data_dir=tmp_path / "g", now_ms=lambda: NOW_MS
        )
        gossip.start()
        async with asyncio.timeout(30):
            while len(calls) < 2:  # noqa: ASYNC110 -- filled in a thread
                await asyncio.sleep(0.01)
        await gossip.stop()

    with serving(sqlite_url, tmp_path) as server, caplog.at_level(logging.ERROR):
        monkeypatch.setattr(server.service.acts, "refresh", refresh)
        asyncio.run(follow())
    assert "the acts in the store cannot be read" in caplog.text


def test_who_the_peers_are_is_asked_beside_the_loop(sqlite_url: str, tmp_path: Path) -> None:
    asked_in: list[int] = []

    def peers() -> tuple[Peer, ...]:
        asked_in.append(threading.get_ident())
        return ()

    async def meet() -> None:
        gossip = Gossip(
            server.service, key=ISSUER, peers=peers, metrics=Metrics(), data_dir=tmp_path / "g", now_ms=lambda: NOW_MS
        )
        asked_in.clear()
        gossip.start()
        gossip._act_kept(sign_act(added(server), key_from_seed(72)))
        async with asyncio.timeout(30):
            while not asked_in:  # noqa: ASYNC110 -- filled in a thread
                await asyncio.sleep(0.01)
        await gossip.stop()

    with serving(sqlite_url, tmp_path, genesis=make_genesis()) as server:
        asyncio.run(meet())
    assert threading.get_ident() not in asked_in
