"""A server keeps the acts that members sign, and counts which are in effect."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import ledger_server.acts as module
from fl_core.dag.acts import Act, ActKind, SignedAct, decode_signed_acts, sign_act, sign_rotation
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.errors import ActInvalidError, CheckpointRefusedError, SignatureError, WrongLedgerError
from fl_core.joining import ServedCheckpoint
from fl_core.types import PublicKey, TxId
from fl_core.wire import v1
from ledger_server.acts import MemberActs
from ledger_server.members import Membership
from ledger_server.peers import Peer
from tests.builders import ISSUER, TinyLedger, author_of, key_from_seed, make_genesis, model
from tests.checkpoints import checkpoint_of
from tests.serving import Server, serving
from tests.serving import signed as update_of

OTHER, NEWCOMER = key_from_seed(72), key_from_seed(73)
MEMBERS = tuple(sorted((Member(public_key_of(key), "m") for key in (ISSUER, OTHER)), key=lambda each: each.key))


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[Server]:
    with serving(sqlite_url, tmp_path, genesis=replace(make_genesis(), members=MEMBERS)) as running:
        yield running


def reopened(server: Server, *, has_published: bool = False) -> MemberActs:
    service = server.service
    return MemberActs(service.store, server.ledger_id, service.genesis, has_published=lambda _: has_published)


def added(server: Server) -> Act:
    key: PublicKey = public_key_of(NEWCOMER)
    return Act(ledger=server.ledger_id, number=1, created_at_ms=5, kind=ActKind.ADD_MEMBER, subject=f"member:{key}")


def test_signatures_come_one_by_one(server: Server) -> None:
    acts = server.service.acts
    assert acts.admit(sign_act(added(server), ISSUER))
    assert acts.effect.acts == ()
    assert "dag_acfl_acts_waiting 1.0" in server.client.get("/metrics").text
    assert acts.admit(sign_act(added(server), OTHER))
    assert "dag_acfl_acts_waiting 0.0" in server.client.get("/metrics").text
    assert not acts.admit(sign_act(added(server), ISSUER))
    assert acts.effect.acts == (added(server).id,)
    assert public_key_of(NEWCOMER) in acts.effect.members


def test_acts_outlive_a_restart(server: Server) -> None:
    server.service.acts.admit(sign_act(added(server), ISSUER, OTHER))
    again = reopened(server)
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
    acts.go_by(new)
    assert acts.effect.acts == (), "one of two has signed, whatever a member says"
    acts.admit(sign_act(act, OTHER))
    assert acts.effect.acts == (act.id,)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(type(server.service.store), "keep_checkpoint")
        acts.go_by(ServedCheckpoint(new.data))  # the same bytes are not written again
    for refused in (old, checkpoint_of(tiny, chain[:3], key=key_from_seed(99)), checkpoint_of(TinyLedger(), [])):
        with pytest.raises(CheckpointRefusedError):
            acts.go_by(refused)
    again = reopened(server)
    assert [each.data for each in again.checkpoints.values()] == [new.data]
    assert again.effect == acts.effect


def test_what_another_process_keeps_is_noticed_once(server: Server) -> None:
    command, told = reopened(server), list[SignedAct]()
    acts = reopened(server)  # the server's own takes them in when it likes
    acts.on_kept = told.append
    command.admit(sign_act(added(server), ISSUER))
    command.admit(signed := sign_act(added(server), OTHER))
    assert acts.all() == ()
    for _ in range(2):
        acts.refresh()
    assert acts.effect == command.effect
    assert acts.effect.acts == (added(server).id,)
    assert [each.id for each in told] == [signed.id]


def test_gossip_may_end_while_it_is_told_of_acts(server: Server) -> None:
    acts, told = reopened(server), list[SignedAct]()

    def ended(signed: SignedAct) -> None:
        told.append(signed)
        acts.on_kept = None

    acts.on_kept = ended
    elsewhere = reopened(server)
    for number in (1, 2):
        elsewhere.admit(sign_act(replace(added(server), created_at_ms=number), ISSUER))
    acts.refresh()
    assert len(told) == 2


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


def _warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_members_whom_acts_of_the_past_change_are_told_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    acts, first = server.service.acts, added(server)
    second = replace(first, number=2, previous=first.id, subject=f"member:{public_key_of(key_from_seed(74))}")
    acts.admit(
        sign_act(replace(first, created_at_ms=6, kind=ActKind.QUARANTINE, subject=f"key:{'1' * 64}"), ISSUER, OTHER)
    )
    acts.admit(sign_act(first, ISSUER, OTHER))
    acts.admit(sign_act(second, ISSUER, NEWCOMER))
    assert len(acts.effect.members) == 4
    reopened(server)
    assert _warnings(caplog) == [], "they came one after another"
    past = replace(first, kind=ActKind.REMOVE_MEMBER, subject=f"member:{public_key_of(ISSUER)}")
    acts.admit(signed := sign_act(past, ISSUER, OTHER))
    (said,) = _warnings(caplog)
    assert said.getMessage() == "acts of the past have changed the members; ask those who signed them"
    assert (vars(said)["acts"], vars(said)["undone"]) == ([signed.id], [second.id])


def test_proposals_are_listed_without_judging_the_acts_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    members = Membership(server.service.store, key=ISSUER)
    servers = [Peer(f"s{seed}", "http://s:1", public_key_of(key_from_seed(seed))) for seed in range(100, 130)]
    members.add(servers, now_ms=5)
    monkeypatch.setattr(module, "acts_in_effect", None)
    assert [len(each.waits_for) for each in members.open()] == [1] * 30


def rotation(author: Ed25519PrivateKey, ledger: TxId, *, to: int = 5) -> SignedAct:
    return sign_rotation(author, key_from_seed(100 + to), ledger=ledger)


def test_one_member_does_not_use_up_the_acts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_server.acts.MAX_UNDECIDED_BY_SIGNER", 2)
    acts = server.service.acts
    for time_ms in (1, 2):
        assert acts.admit(sign_act(replace(added(server), created_at_ms=time_ms), ISSUER))
    with pytest.raises(ActInvalidError, match="too many"):
        acts.admit(sign_act(replace(added(server), created_at_ms=3), ISSUER))
    assert acts.admit(sign_act(replace(added(server), created_at_ms=4), OTHER)), "others have their own room"
    assert acts.admit(sign_act(added(server), ISSUER, OTHER)), "what members decide needs none"
    assert acts.effect.acts == (added(server).id,)


def test_undecided_acts_are_bounded_and_decided_ones_are_not(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_server.acts.MAX_UNDECIDED", 1)
    acts = server.service.acts
    acts.admit(sign_act(added(server), ISSUER))
    other = replace(added(server), created_at_ms=6)
    with pytest.raises(ActInvalidError, match="too many"):
        acts.admit(sign_act(other, OTHER))
    assert acts.admit(sign_act(other, ISSUER, OTHER))
    assert acts.admit(sign_act(added(server), OTHER)), "a vote on what is here needs no place"


def test_strangers_do_not_use_up_the_acts(server: Server) -> None:
    stranger = key_from_seed(90)
    with pytest.raises(ActInvalidError, match="once it has published"):
        server.service.acts.admit(rotation(stranger, server.ledger_id))
    assert server.service.acts.all() == ()


def test_two_rotations_of_an_author_are_kept_and_said_to_contradict_one_another(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    acts, author = reopened(server, has_published=True), key_from_seed(90)
    assert acts.admit(rotation(author, server.ledger_id, to=5))
    assert _warnings(caplog) == []
    assert acts.admit(rotation(author, server.ledger_id, to=6))
    assert not acts.admit(rotation(author, server.ledger_id, to=7)), "nothing follows from a third"
    (said,) = _warnings(caplog)
    assert vars(said)["authors"] == [author_of(author)]
    assert "dag-acfl authors rotate" in said.getMessage()
    assert acts.authors.contested == reopened(server).authors.contested == {author_of(author)}


def test_an_author_rotates_itself_after_an_update_of_its_own(server: Server) -> None:
    first, second, third = (key_from_seed(seed) for seed in (90, 91, 92))
    server.post(update_of(server, model(1), seed=90), model(1))
    acts = server.service.acts
    assert acts.admit(sign_rotation(first, second, ledger=server.ledger_id))
    with pytest.raises(ActInvalidError, match="once it has published"):  # whoever goes on as whom by then
        acts.admit(sign_rotation(second, third, ledger=server.ledger_id))


def test_authors_rotations_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_server.acts.MAX_ROTATIONS", 2)
    acts = reopened(server, has_published=True)
    for seed in (90, 91):
        assert acts.admit(rotation(key_from_seed(seed), server.ledger_id, to=seed))
    late = rotation(key_from_seed(92), server.ledger_id)
    with pytest.raises(ActInvalidError, match="members can sign"):
        acts.admit(late)
    decided = replace(late.act, kind=ActKind.ROTATE_AUTHOR)
    assert acts.admit(sign_act(decided, ISSUER, OTHER, key_from_seed(105))), "members have room of their own"
    assert acts.authors.successors[author_of(key_from_seed(92))] == author_of(key_from_seed(105))


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
