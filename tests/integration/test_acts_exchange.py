"""Members' acts reach every server, with the signatures of all."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from fl_core.dag.acts import Act, ActKind, sign_act
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.sync.limits import GossipLimits
from tests.builders import key_from_seed, make_genesis
from tests.network import network

KEYS = [key_from_seed(1000 + number) for number in range(2)]
MEMBERS = tuple(sorted((Member(public_key_of(key), "m") for key in KEYS), key=lambda each: each.key))
OFTEN = replace(GossipLimits(), comparison_interval_s=0.1, pull_interval_s=0.2)


def test_each_servers_signature_reaches_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_server.gossip.runtime.limits_for", lambda _: OFTEN)
    urls = [f"sqlite:///{tmp_path / f'{number}.sqlite3'}" for number in range(2)]
    with network(tmp_path, 2, urls=urls, genesis=replace(make_genesis(), members=MEMBERS)) as servers:
        first = servers[0].service
        act = Act(ledger=first.id, number=1, created_at_ms=1, kind=ActKind.QUARANTINE, subject="hash:" + "5" * 64)
        for server, key in zip(servers, KEYS, strict=True):
            server.service.acts.admit(sign_act(act, key))
        until_s = time.monotonic() + 20
        while any(server.service.acts.effect.acts != (act.id,) for server in servers):
            assert time.monotonic() < until_s, "the acts did not arrive"
            time.sleep(0.05)
