"""Members come, go and change their keys while their servers run, by `dag-acfl members` on the machine of one."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from dag_acfl.__main__ import main
from fl_core.dag.acts import Act, ActKind, encode_signed_acts, sign_act
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.sync.limits import GossipLimits
from fl_core.types import PublicKey
from fl_core.wire import gossip_v1
from ledger_server.http.peer_signature import NONCE_BYTES, sign_request
from ledger_server.keys import KEY_FILE, load_key
from tests.builders import key_from_seed, make_genesis, model
from tests.live import eventually
from tests.network import Node, network, settle

FOUNDER = Member(public_key_of(key_from_seed(1000)), "founder")


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Node]]:
    """Three that run and know one another's addresses; the first is the ledger's only member."""
    often = replace(GossipLimits(), comparison_interval_s=1.0, pull_interval_s=0.2)
    monkeypatch.setattr("ledger_server.gossip.runtime.limits_for", lambda _: often)
    monkeypatch.setattr("ledger_server.following.EVERY_S", 0.05)
    with network(tmp_path, 3, genesis=replace(make_genesis(), members=(FOUNDER,))) as running:
        for node in running:
            pem = node.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            with open(node.folder / KEY_FILE, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(pem)
        yield running


class Operator:
    """Types `dag-acfl members` on the machine of a server."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def members(self, node: Node, *words: str) -> str:
        assert main(["members", *words, "--data-dir", str(node.folder)]) == 0, self._capsys.readouterr()
        return self._capsys.readouterr().out

    def refused(self, node: Node, *words: str) -> str:
        assert main(["members", *words, "--data-dir", str(node.folder)]) == 1
        return self._capsys.readouterr().err

    def decide(self, one: Node, other: Node, *words: str) -> None:
        """One proposes, the other signs what its list shows."""
        proposal = self.members(one, *words).split()[1].rstrip(":")
        eventually(lambda: proposal in self.members(other, "list"))
        assert "from now on" in self.members(other, "sign", proposal)
        for server in (one, other):
            eventually(lambda server=server: any(act.startswith(proposal) for act in server.service.acts.effect.acts))


@pytest.fixture
def operator(capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(capsys)


def entry(node: Node) -> str:
    return f"server-{node.number}={node.url}#{public_key_of(node.key)}"


def publish(node: Node, value: float) -> Any:
    return node.publish(parents=[node.ledger_id], model=model(value))["id"]


def asked(node: Node, *, by: object, to: PublicKey | None = None) -> int:
    """The status of a request for its summary that this key has signed."""
    fields = sign_request(
        by,  # type: ignore[arg-type]  # a key
        method="GET",
        target=gossip_v1.SUMMARY,
        body=b"",
        recipient=to or public_key_of(node.key),
        created_s=int(time.time()),
        nonce=os.urandom(NONCE_BYTES),
    )
    return httpx2.get(node.url + gossip_v1.SUMMARY, headers=fields).status_code


def test_a_server_is_added_by_one_command_while_both_run(servers: list[Node], operator: Operator) -> None:
    first, second, _ = servers
    published = publish(first, 1)
    assert second.ids() == {second.ledger_id}, "it is nobody's peer yet"
    assert asked(first, by=second.key) == 401
    said = operator.members(first, "add", entry(second))
    assert said == "server-1 is a member; an act needs 2 of 2 signatures from now on\n"
    assert published in settle([first, second])
    back = publish(second, 2)
    assert back in settle([first, second])
    assert operator.members(first, "add", entry(second)) == "server-1 is a member already\n"
    eventually(lambda: f"server-1         {public_key_of(second.key)}  this server" in operator.members(second, "list"))


def test_who_adds_a_server_never_signs_what_another_says_of_its_address(
    servers: list[Node], operator: Operator
) -> None:
    first, second, third = servers
    operator.members(first, "add", entry(second))
    settle([first, second])
    said = operator.members(first, "add", entry(third).replace(third.url, "http://127.0.0.1:1"))
    proposal = said.split()[1].rstrip(":")
    eventually(lambda: proposal in operator.members(second, "list"))
    own = operator.members(second, "add", entry(third))
    assert proposal not in own
    assert f"add server-2 at {third.url}" in own


def test_a_further_one_needs_the_second_members_signature_and_is_spoken_to_by_the_proposer_meanwhile(
    servers: list[Node], operator: Operator
) -> None:
    first, second, third = servers
    operator.members(first, "add", entry(second))
    settle([first, second])
    proposed = operator.members(first, "add", entry(third)).splitlines()
    act = proposed[0].split()[1].rstrip(":")
    assert proposed[0] == f"proposal {act}: add server-2 at {third.url}, key {public_key_of(third.key)}"
    assert proposed[1] == "  signed by founder; in effect with 2 signatures"
    assert proposed[2] == f"  1 more of server-1, each there: dag-acfl members sign {act}"
    published = publish(first, 1)
    assert published in settle([first, third])
    assert asked(second, by=third.key) == 401
    eventually(lambda: act in operator.members(second, "list"))
    assert operator.members(second, "sign", act).startswith("server-2 is a member; an act needs 2 of 3")
    from_third = publish(third, 2)
    assert from_third in settle(servers)
    eventually(lambda: {peer.peer.name for peer in third.gossip.peers()} == {"server-0", "server-1"})


def test_one_that_is_removed_is_refused_at_once_and_its_updates_stay(servers: list[Node], operator: Operator) -> None:
    first, second, third = servers
    operator.members(first, "add", *map(entry, servers))
    stays = publish(third, 1)
    assert stays in settle(servers)
    eventually(lambda: {asked(node, by=third.key) for node in (first, second)} == {200})
    proposal = operator.members(first, "remove", "server-2").split()[1].rstrip(":")
    eventually(lambda: asked(first, by=third.key) == 401)
    assert asked(second, by=third.key) == 200, "one of three has signed"
    eventually(lambda: proposal in operator.members(second, "list"))
    operator.members(second, "sign", proposal)
    eventually(lambda: asked(second, by=third.key) == 401)
    missed = publish(third, 2)
    published = publish(first, 3)
    held = settle([first, second])
    assert {stays, published} <= held
    assert missed not in held
    assert published not in third.ids()
    assert [state.peer.name for state in first.gossip.peers()] == ["server-1"]
    eventually(lambda: first.service.acts.effect.acts == second.service.acts.effect.acts)
    assert "no member is called 'server-2'" in operator.refused(first, "remove", "server-2")


def test_a_key_changes_under_traffic_and_nothing_is_lost(servers: list[Node], operator: Operator) -> None:
    first, second, _ = servers
    operator.members(first, "add", entry(second))
    eventually(lambda: len(second.service.acts.effect.members) == 2)
    published: list[Any] = []
    stopping = threading.Event()

    def traffic() -> None:
        for value in range(1, 10_000):
            published.append(publish(first, value / 1000))
            if stopping.wait(0.02):
                return

    writer = threading.Thread(target=traffic)
    writer.start()
    try:
        old = second.key
        operator.decide(second, first, "rotate")
        assert asked(first, by=old) == 200, "it has not begun with the new one"
        count = len(published)
        eventually(lambda: len(second.ids()) > count), "and goes on with the old one"
        second.stop()
        (second.folder / "server-key.next.pem").replace(second.folder / KEY_FILE)
        second.key = load_key(second.folder / KEY_FILE)
        second.start()
        eventually(lambda: asked(first, by=old) == 401)
        count = len(published)
        eventually(lambda: len(published) > count + 5)
    finally:
        stopping.set()
        writer.join()
    from_second = publish(second, 20)
    assert {*published, from_second} <= settle([first, second])
    assert asked(first, by=second.key) == 200
    listed = operator.members(first, "list")
    assert f"server-1         {public_key_of(second.key)}" in listed
    assert public_key_of(old) not in listed
    second.stop()
    first.stop()
    first.start()
    assert asked(first, by=old) == 401, "also before it hears the new one again"


def test_a_list_that_no_member_has_signed_changes_nothing(servers: list[Node], operator: Operator) -> None:
    first, second, third = servers
    assert "this server is no member of the ledger" in operator.refused(third, "add", entry(third))
    act = Act(
        ledger=first.ledger_id,
        number=1,
        created_at_ms=1,
        kind=ActKind.ADD_MEMBER,
        subject=f"member:{public_key_of(third.key)}",
        details={"name": "third", "url": third.url},
    )
    forged = sign_act(act, third.key)
    operator.members(first, "add", entry(second))
    settle([first, second])
    second.gossip.acts.merge([forged])  # as a member would that lets it through: it travels
    publish(second, 1)
    settle([first, second])
    eventually(lambda: len(first.gossip.acts.digests()) == 2)  # its own, and the one that it leaves
    eventually(lambda: encode_signed_acts(first.service.acts.all()) == encode_signed_acts(second.service.acts.all()))
    assert asked(first, by=third.key) == 401
