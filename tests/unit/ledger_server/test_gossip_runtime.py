"""Gossip goes on, and ends, whatever the store does meanwhile."""

import asyncio
import threading
from pathlib import Path

import pytest

from fl_core.dag.acts import sign_act
from fl_core.dag.signature import public_key_of
from fl_core.sync.effects import Admit
from fl_core.sync.messages import TransactionBundle
from fl_core.types import Digest
from ledger_server.gossip.runtime import Gossip
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer
from tests.builders import ISSUER, key_from_seed, make_genesis
from tests.serving import NOW_MS, serving
from tests.unit.ledger_server.test_acts import added


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


def test_a_peers_model_is_read_and_hashed_beside_the_loop(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a gigabyte would hold up every request; here its file has gone, so it is asked for anew."""
    peer = Peer("b", "http://127.0.0.1:1", public_key_of(key_from_seed(72)))
    read_in: list[int] = []
    lost: list[str] = []

    def gone(_: Digest) -> None:
        read_in.append(threading.get_ident())
        raise FileNotFoundError("gone")

    with serving(sqlite_url, tmp_path) as server:
        gossip = Gossip(
            server.service,
            key=ISSUER,
            peers=lambda: (peer,),
            metrics=Metrics(),
            data_dir=tmp_path / "g",
            now_ms=lambda: NOW_MS,
        )
        monkeypatch.setattr(gossip._incoming, "data", gone)
        monkeypatch.setattr(gossip._node, "model_lost", lost.append)
        found = server.service.store.genesis()
        assert found is not None
        asyncio.run(gossip._admit([Admit(TransactionBundle(found[0], None), peer.public_key)]))
    assert lost == [found[0].id]
    assert read_in != []
    assert threading.get_ident() not in read_in
