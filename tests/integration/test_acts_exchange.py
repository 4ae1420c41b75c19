"""Members' acts reach every server, with the signatures of all."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fl_core.dag.acts import Act, ActKind, sign_act
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.sync.limits import GossipLimits
from fl_core.verify import verify
from fl_core.wire import v1
from ledger_server.admin.store_source import StoreSource
from tests.builders import key_from_seed, known_secret, make_genesis, model, secret_of
from tests.live import eventually
from tests.network import Node, network, settle

KEYS = [key_from_seed(1000 + number) for number in range(2)]
MEMBERS = tuple(sorted((Member(public_key_of(key), "m") for key in KEYS), key=lambda each: each.key))
OFTEN = replace(GossipLimits(), comparison_interval_s=0.1, pull_interval_s=0.2)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Node]]:
    monkeypatch.setattr("ledger_server.gossip.runtime.limits_for", lambda _: OFTEN)
    urls = [f"sqlite:///{tmp_path / f'{number}.sqlite3'}" for number in range(2)]
    with network(tmp_path, 2, urls=urls, genesis=replace(make_genesis(), members=MEMBERS)) as running:
        yield running


def quarantine(server: Node) -> Act:
    ledger = server.service.id
    return Act(ledger=ledger, number=1, created_at_ms=1, kind=ActKind.QUARANTINE, subject="hash:" + "5" * 64)


def test_each_servers_signature_reaches_the_other(servers: list[Node]) -> None:
    act = quarantine(servers[0])
    for server, key in zip(servers, KEYS, strict=True):
        server.service.acts.admit(sign_act(act, key))
    eventually(lambda: all(server.service.acts.effect.acts == (act.id,) for server in servers))


def test_a_quarantine_leads_clients_back_and_an_erasure_drops_models_on_every_server(servers: list[Node]) -> None:
    one, other = servers
    ann = known_secret("a" * 64)
    clean = one.publish(parents=[one.ledger_id], model=model(1), secret=ann, num_examples=1)
    eve = one.publish(parents=[one.ledger_id], model=model(5))
    tainted = one.publish(parents=[clean["id"], eve["id"]], model=model(2), secret=ann, num_examples=1)
    settle(servers)

    act = replace(quarantine(one), subject=eve["author"], details={"reason": "flips labels"})
    one.service.acts.admit(sign_act(act, KEYS[0]))
    eventually(lambda: len(other.service.acts.all()) == 1)
    reaches = [node.get(v1.QUARANTINE).json()["decisions"][0]["reach"] for node in servers]
    assert reaches == ["here", "proposed"]
    assert other.select(tainted["id"]).json()["reference"] == tainted["id"]
    back = one.select(tainted["id"]).json()
    assert (back["reference"], back["parents"]) == (clean["id"], [clean["id"]])
    assert back["extensions"] == {"led_back_from": tainted["id"]}
    assert back["aggregate"]["digest"] == clean["model"]["digest"]
    other.service.acts.admit(sign_act(act, KEYS[1]))
    eventually(lambda: one.service.acts.effect.acts == other.service.acts.effect.acts == (act.id,))
    assert [node.select(tainted["id"]).json()["reference"] for node in servers] == [clean["id"]] * 2
    healed = one.publish(selection=back["id"], model=model(3), secret=ann)
    settle(servers)
    for node in servers:
        found = node.get(v1.QUARANTINE).json()
        assert (found["descendants"], found["withheld"], found["decisions"][0]["reach"]) == (2, 2, "everywhere")
        states = {each["author"]: (each["state"], each["clean"]) for each in found["clients"]}
        assert states == {eve["author"]: ("quarantined", None), clean["author"]: ("healed", healed["id"])}

    erasure = replace(act, number=2, previous=act.id, kind=ActKind.ERASE)
    for node, key in zip(servers, KEYS, strict=True):
        node.service.acts.admit(sign_act(erasure, key))
    eventually(lambda: all(erasure.id in node.service.acts.effect.acts for node in servers))
    digest = eve["model"]["digest"]
    eventually(lambda: [node.get(v1.path(v1.MODEL, digest=digest)).status_code for node in servers] == [410, 410])
    assert [node.service.models.get(digest) for node in servers] == [None, None]
    body = {"num_examples": 1, "parents": [one.ledger_id], "start": eve["start"], "secret": secret_of(eve["author"])}
    new = one.post(body, model(6))
    assert (new.status_code, new.json()["type"], new.json()["detail"]) == (
        403,
        "/problems/author-refused",
        "the members have erased this author's models; it publishes no more",
    )
    known = one.post({**body, "sequence": eve["sequence"], "created_at_ms": eve["created_at_ms"]}, model(5))
    assert (known.status_code, known.json()["id"]) == (200, eve["id"])
    assert [each.kind for each in verify(StoreSource(one.service.store))] == []


def test_an_erased_model_is_not_left_in_averages_by_which_others_could_compute_it(servers: list[Node]) -> None:
    one = servers[0]
    ann = one.publish(parents=[one.ledger_id], model=model(1), secret=known_secret("a" * 64))
    eve = one.publish(parents=[one.ledger_id], model=model(5), secret=known_secret("e" * 64))
    settle(servers)
    offered = [node.select(ann["id"]).json() for node in servers]
    assert [sorted(each["parents"]) for each in offered] == [sorted([ann["id"], eve["id"]])] * 2
    average = offered[0]["aggregate"]["href"]
    assert [node.get(average).status_code for node in servers] == [200, 200]
    erasure = replace(quarantine(one), subject=eve["author"], kind=ActKind.ERASE)
    for node, key in zip(servers, KEYS, strict=True):
        node.service.acts.admit(sign_act(erasure, key))
    eventually(lambda: [node.get(eve["model"]["href"]).status_code for node in servers] == [410, 410])
    eventually(lambda: [node.get(average).status_code for node in servers] == [404, 404])
    assert [node.get(ann["model"]["href"]).status_code for node in servers] == [200, 200]


def test_strangers_signatures_do_not_spread_and_are_not_asked_for_again(servers: list[Node]) -> None:
    one, other = servers
    stranger, acts = key_from_seed(5), one.service.acts
    acts.effect = replace(acts.effect, electors=acts.effect.electors | {public_key_of(stranger)})
    acts.admit(sign_act(quarantine(one), KEYS[0], stranger))
    assert len(acts.all()[0].signatures) == 2
    assert other.app is not None
    gossip = other.app.state.gossip
    eventually(lambda: len(gossip.acts.digests()) == 2)  # of the act that it keeps, and of the one that it leaves
    assert [*other.service.acts.all()[0].signatures] == [public_key_of(KEYS[0])]


def test_a_forged_signature_of_a_member_is_held_against_the_peer(servers: list[Node]) -> None:
    one, other = servers
    forged = replace(sign_act(quarantine(one), KEYS[0]), signatures={public_key_of(KEYS[1]): bytes(64)})
    assert one.app is not None
    assert other.app is not None
    gossip = other.app.state.gossip
    one.app.state.gossip.acts.merge([forged])
    eventually(lambda: any(state.is_banned for state in gossip.peers()))
    assert other.service.acts.all() == ()
