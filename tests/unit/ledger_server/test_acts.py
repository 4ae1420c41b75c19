"""A server keeps the acts that members sign, and counts which are in effect."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fl_core.dag.acts import Act, ActKind, decode_signed_acts, sign_act
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.errors import ActInvalidError, CheckpointRefusedError, SignatureError, WrongLedgerError
from fl_core.types import PublicKey, TxId
from fl_core.wire import v1
from ledger_server.acts import MemberActs
from tests.builders import ISSUER, TinyLedger, key_from_seed, make_genesis, model
from tests.checkpoints import checkpoint_of
from tests.serving import Server, serving

OTHER, NEWCOMER = key_from_seed(72), key_from_seed(73)
MEMBERS = tuple(sorted((Member(public_key_of(key), "m") for key in (ISSUER, OTHER)), key=lambda each: each.key))


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[Server]:
    with serving(sqlite_url, tmp_path, genesis=replace(make_genesis(), members=MEMBERS)) as running:
        yield running


def added(server: Server) -> Act:
    key: PublicKey = public_key_of(NEWCOMER)
    return Act(ledger=server.ledger_id, number=1, created_at_ms=5, kind=ActKind.ADD_MEMBER, subject=f"member:{key}")


def test_signatures_come_one_by_one(server: Server) -> None:
    acts = server.service.acts
    assert acts.admit(sign_act(added(server), ISSUER))
    assert acts.effect.acts == ()
    assert acts.admit(sign_act(added(server), OTHER))
    assert not acts.admit(sign_act(added(server), ISSUER))
    assert acts.effect.acts == (added(server).id,)
    assert public_key_of(NEWCOMER) in acts.effect.members


def test_acts_outlive_a_restart(server: Server) -> None:
    server.service.acts.admit(sign_act(added(server), ISSUER, OTHER))
    again = MemberActs(server.service.store, server.ledger_id, server.service.genesis)
    assert again.all() == server.service.acts.all()
    assert again.effect == server.service.acts.effect


def test_a_checkpoint_that_a_server_went_by_outlives_a_restart_and_an_older_one_does_not_replace_it(
    server: Server,
) -> None:
    tiny = TinyLedger(genesis=server.service.genesis)
    assert tiny.genesis_id == server.ledger_id
    parent, chain = tiny.genesis_id, []
    for value in range(1, 5):
        parent = tiny.publish("ann", [parent], model(value))
        chain.append(parent)
    act = added(server)
    old, new = (checkpoint_of(tiny, chain[:count], acts=[(1, act.id), (2, TxId("2" * 64))]) for count in (1, 2))
    acts = server.service.acts
    acts.admit(sign_act(act, ISSUER))
    assert acts.effect.acts == (), "one of two"
    acts.go_by(new)
    assert acts.effect.acts == (act.id,), "a member says that it is in effect"
    for refused in (old, checkpoint_of(tiny, chain[:3], key=key_from_seed(99)), checkpoint_of(TinyLedger(), [])):
        with pytest.raises(CheckpointRefusedError):
            acts.go_by(refused)
    again = MemberActs(server.service.store, server.ledger_id, server.service.genesis)
    assert [each.data for each in again.checkpoints.values()] == [new.data]
    assert again.effect == acts.effect


def test_receipts_name_the_version_of_the_list(server: Server) -> None:
    first = server.publish(parents=[server.ledger_id], model=model(1))
    server.service.acts.admit(sign_act(added(server), ISSUER, OTHER))
    second = server.publish(parents=[server.ledger_id], model=model(2))
    assert [each["receipt"]["members_version"] for each in (first, second)] == [0, 1]


def test_acts_are_shown(server: Server) -> None:
    assert server.client.get(v1.ACTS).content == b""
    signed = sign_act(added(server), ISSUER)
    server.service.acts.admit(signed)
    assert decode_signed_acts(server.client.get(v1.ACTS).content, most=1) == (signed,)


def test_acts_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_server.acts.MAX_ACTS", 1)
    acts = server.service.acts
    acts.admit(sign_act(added(server), ISSUER))
    with pytest.raises(ActInvalidError, match="more than 1"):
        acts.admit(sign_act(replace(added(server), created_at_ms=6), ISSUER))
    assert acts.admit(sign_act(added(server), OTHER)), "a vote on what is here needs no place"


def test_signatures_of_an_act_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_server.acts.MAX_SIGNATURES", 1)
    acts = server.service.acts
    acts.admit(sign_act(added(server), ISSUER))
    with pytest.raises(ActInvalidError, match="1 signatures"):
        acts.admit(sign_act(added(server), OTHER))


def test_strangers_signatures_take_no_room(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_server.acts.MAX_SIGNATURES", 3)
    acts, strangers = server.service.acts, [key_from_seed(seed) for seed in range(80, 90)]
    assert acts.admit(sign_act(added(server), ISSUER, *strangers))
    assert not acts.admit(sign_act(added(server), ISSUER, *strangers[:5]))
    assert [*acts.all()[0].signatures] == [public_key_of(ISSUER)]
    assert acts.admit(sign_act(added(server), OTHER, *strangers))
    assert acts.effect.acts == (added(server).id,)


def test_signatures_of_later_and_former_members_are_heard(server: Server) -> None:
    acts, joins = server.service.acts, added(server)
    lists = replace(joins, number=2, previous=joins.id, kind=ActKind.LIST_AUTHOR, subject="hash:" + 64 * "a")
    leaves = replace(joins, number=3, previous=lists.id, kind=ActKind.REMOVE_MEMBER)
    early = sign_act(lists, ISSUER, NEWCOMER)
    acts.admit(early)
    assert [*acts.all()[0].signatures] == [public_key_of(ISSUER)], (
        "nobody's yet: the act that makes it a member is late"
    )
    for signed in (sign_act(joins, ISSUER, OTHER), sign_act(lists, OTHER), sign_act(leaves, ISSUER, OTHER)):
        assert acts.admit(signed)
    assert public_key_of(NEWCOMER) not in acts.effect.members
    assert acts.admit(early)
    assert len(next(each for each in acts.all() if each.id == lists.id).signatures) == 3


def test_what_nobody_may_decide_is_refused(server: Server) -> None:
    acts = server.service.acts
    with pytest.raises(ActInvalidError):
        acts.admit(sign_act(added(server), NEWCOMER))
    with pytest.raises(WrongLedgerError):
        acts.admit(sign_act(replace(added(server), ledger=TxId("2e" * 32)), ISSUER))
    with pytest.raises(SignatureError):
        acts.admit(replace(sign_act(added(server), ISSUER), signatures={public_key_of(ISSUER): bytes(64)}))
    assert acts.all() == ()
