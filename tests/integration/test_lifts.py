"""Quarantines and lifts on three servers, two of whose signatures decide: whatever came first, all come to the same."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dag_acfl.__main__ import main
from fl_core.dag.acts import ActKind, sign_act
from fl_core.dag.author import author_of_secret
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.sync.limits import GossipLimits
from fl_core.trust.lineage import Suspects
from fl_core.trust.quarantine import Reach, decisions
from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.keys import KEY_FILE
from ledger_server.members import MembersError, Membership
from ledger_server.store import open_store
from tests.builders import author_of, key_from_seed, make_genesis, model, write_key
from tests.live import eventually
from tests.network import Node, network, settle
from tests.serving import prepare

BAD = author_of_secret("e" * 64)
KEYS = [key_from_seed(1000 + number) for number in range(3)]
MEMBERS = tuple(
    sorted((Member(public_key_of(key), name) for key, name in zip(KEYS, "abc", strict=True)), key=lambda each: each.key)
)
OFTEN = replace(GossipLimits(), comparison_interval_s=0.1, pull_interval_s=0.2)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Node]]:
    monkeypatch.setattr("ledger_server.following.EVERY_S", 0.05)
    monkeypatch.setattr("ledger_server.gossip.runtime.limits_for", lambda _: OFTEN)
    with network(tmp_path, 3, genesis=replace(make_genesis(), members=MEMBERS)) as running:
        for node in running:
            write_key(node.key, node.folder / KEY_FILE)
        first = running[0]
        bad = first.publish(parents=[first.ledger_id], model=model(5), secret="e" * 64)
        first.publish(parents=[bad["id"]], model=model(2), secret="a" * 64)
        settle(running)
        yield running


def command(capsys: pytest.CaptureFixture[str], node: Node, *words: str) -> str:
    assert main([*words, "--data-dir", str(node.folder)]) == 0, capsys.readouterr()
    return capsys.readouterr().out


def withheld(servers: list[Node]) -> list[int]:
    return [node.get(v1.QUARANTINE).json()["withheld"] for node in servers]


def reaches(servers: list[Node]) -> list[list[str]]:
    return [[each["reach"] for each in node.get(v1.QUARANTINE).json()["decisions"]] for node in servers]


def all_hold(servers: list[Node], signatures: int) -> None:
    """Wait until every server holds the same acts, with so many signatures altogether."""

    def held(node: Node) -> list[tuple[str, set[Any]]]:
        return [(each.id, set(each.signatures)) for each in node.service.acts.all()]

    eventually(lambda: sum(len(signers) for _, signers in held(servers[0])) == signatures)
    eventually(lambda: held(servers[0]) == held(servers[1]) == held(servers[2]))


def proposal(said: str) -> str:
    return said.split("proposal ")[1].partition(":")[0]


def test_a_quarantine_that_was_lifted_before_the_threshold_signed_it_is_in_effect_everywhere_until_the_lift_is(
    servers: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = servers
    act = proposal(command(capsys, a, "trust", "quarantine", BAD, "--reason", "flips labels"))
    all_hold(servers, 1)
    assert withheld(servers) == [2, 0, 0], "a member's own act holds on its own server"

    said = command(capsys, a, "trust", "lift", act, "--reason", "a broken sensor")
    assert said == f"a took back: quarantine {BAD}: flips labels\n"
    all_hold(servers, 2)
    assert withheld(servers) == [0, 0, 0]
    assert act not in command(capsys, b, "members", "list"), "nobody is asked to sign what nobody wants"
    assert reaches(servers) == [["lifted"]] * 3

    (asked,) = [each.act for each in b.service.acts.all() if each.id.startswith(act)]
    b.service.acts.admit(sign_act(asked, KEYS[1]))  # as if it had been signed before the lift came
    all_hold(servers, 3)
    assert withheld(servers) == [2, 2, 2], "two have signed the quarantine, one has signed the lift"
    assert reaches(servers) == [["everywhere"]] * 3
    said = command(capsys, a, "trust", "lift", act)
    lift = proposal(said)
    assert "signed by a; in effect with 2 signatures\n" in said
    assert f"1 more of b, c, each there: dag-acfl members sign {lift}" in said

    command(capsys, c, "members", "sign", lift)
    all_hold(servers, 4)
    assert withheld(servers) == [0, 0, 0]
    assert reaches(servers) == [["lifted"]] * 3


def test_a_member_that_has_lifted_its_own_quarantine_can_quarantine_again_and_others_can_say_no(
    servers: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = servers
    act = proposal(command(capsys, a, "trust", "quarantine", BAD, "--reason", "flips labels"))
    all_hold(servers, 1)
    lift = proposal(command(capsys, b, "trust", "lift", act, "--reason", "it is well"))
    all_hold(servers, 2)
    assert withheld(servers) == [2, 0, 0], "one member's lift takes nothing from another"
    listed = command(capsys, c, "members", "list")
    assert f"quarantine {BAD}, which b would lift: flips labels" in listed
    assert f"lift quarantine {act}: it is well" in listed
    command(capsys, a, "members", "sign", lift)
    all_hold(servers, 3)
    assert withheld(servers) == [0, 0, 0]
    listed = command(capsys, c, "members", "list")
    assert act not in listed, "nobody is asked to sign what is lifted"
    again = command(capsys, a, "trust", "quarantine", BAD, "--reason", "it is back")
    assert proposal(again) != act
    assert "everywhere, here at once" in again
    all_hold(servers, 4)
    assert reaches(servers) == [["lifted", "here"], ["lifted", "proposed"], ["lifted", "proposed"]]
    command(capsys, c, "trust", "quarantine", BAD, "--reason", "here, too")
    all_hold(servers, 5)
    assert withheld(servers) == [2, 2, 2]


def here(node: Node) -> list[str]:
    """Whom a server goes by as members."""
    return [each.name for each in node.service.acts.members(public_key_of(node.key))]


def test_a_member_that_was_removed_by_one_alone_comes_back_there_by_the_opposite_command(
    servers: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = servers
    removal = proposal(command(capsys, a, "members", "remove", "c"))
    all_hold(servers, 1)
    assert [sorted(here(node)) for node in servers] == [["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    said = command(capsys, a, "members", "add", f"c={c.url}#{public_key_of(c.key)}")
    assert said == "c is a member already\na took back: remove c\n"
    eventually(lambda: sorted(here(a)) == ["a", "b", "c"])
    all_hold(servers, 2)
    assert removal not in command(capsys, b, "members", "list"), "nobody is asked to sign what nobody wants"
    again = proposal(command(capsys, a, "members", "remove", "c"))
    assert again != removal, "what was taken back is not signed again"
    eventually(lambda: again in command(capsys, b, "members", "list"))
    command(capsys, b, "members", "sign", again)
    eventually(lambda: [sorted(here(node)) for node in (a, b)] == [["a", "b"]] * 2)


def test_who_was_added_by_one_alone_is_none_any_more_by_the_opposite_command(
    servers: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, _ = servers
    command(capsys, a, "members", "add", f"d=http://127.0.0.1:1#{public_key_of(key_from_seed(9))}")
    all_hold(servers, 1)
    eventually(lambda: "d" in here(a))
    assert "d" not in here(b)
    assert command(capsys, a, "members", "remove", "d").startswith("a took back: add d at http://127.0.0.1:1")
    eventually(lambda: "d" not in here(a))
    all_hold(servers, 2)
    assert [*b.service.acts.effect.waiting] == []


def test_an_author_that_one_alone_has_taken_off_the_list_is_on_it_again_there(tmp_path: Path) -> None:
    url, author = f"sqlite:///{tmp_path / 'ledger.sqlite3'}", author_of(key_from_seed(7))
    prepare(url, tmp_path, genesis=replace(make_genesis(authors="listed"), members=MEMBERS))
    with open_store(url, data_dir=tmp_path) as store:
        a, b = (Membership(store, key=key) for key in KEYS[:2])

        clock = count()

        def decide(member: Membership, kind: ActKind) -> list[str]:
            member.acts.refresh()
            standings = member.propose(kind, [author], now_ms=next(clock))
            return [member.words(each) for each in standings]

        for member in (a, b):
            decide(member, ActKind.LIST_AUTHOR)
        assert decide(a, ActKind.UNLIST_AUTHOR) == [f"let {author} publish no more"]
        assert not a.acts.authors.allows(author)
        assert decide(a, ActKind.LIST_AUTHOR)[0] == f"a took back: let {author} publish no more"
        assert a.acts.authors.allows(author), "whichever of the two acts has the smaller id"
        for _ in range(3):
            assert decide(a, ActKind.UNLIST_AUTHOR)[-1] == f"let {author} publish no more"
            assert not a.acts.authors.allows(author)
            decide(a, ActKind.LIST_AUTHOR)
            assert a.acts.authors.allows(author)


# -- whatever is done, and however it travels ---------------------------------------------------------

SUBJECTS = [Suspects(authors=frozenset({BAD})), Suspects(updates=frozenset({TxId("ab" * 32)}))]
DEEDS = ["quarantine", "lift", "sign", "lift", "sign", "tell", "tell"]


def do(deed: str, member: Membership, drawn: random.Random) -> None:
    acts = member.acts.all()
    quarantines = [each.id for each in acts if each.act.kind is ActKind.QUARANTINE]
    if deed == "quarantine":
        member.quarantine(drawn.choice(SUBJECTS), reason="bad", now_ms=drawn.randrange(1000))
    elif deed == "lift" and quarantines:
        with suppress(MembersError):  # it follows what has not come yet
            member.lift(drawn.choice(quarantines), reason="", now_ms=drawn.randrange(1000))
    elif deed == "sign" and member.open():
        member.sign(drawn.choice(member.open()).signed.id)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 2)), max_size=25), st.randoms(use_true_random=False))
def test_members_decide_alike_whatever_they_do_and_in_whatever_order_it_travels(
    deeds: list[tuple[str, int]], drawn: random.Random
) -> None:
    """What servers still differ in when they have heard the same waits for signatures, so it can be decided."""
    with ExitStack() as held:
        members = []
        for key in KEYS:
            folder = Path(held.enter_context(TemporaryDirectory()))
            url = f"sqlite:///{folder / 'ledger.sqlite3'}"
            prepare(url, folder, genesis=replace(make_genesis(), members=MEMBERS))
            store = held.enter_context(open_store(url, data_dir=folder))
            members.append(Membership(store, key=key))
        for deed, number in deeds:
            here = members[number]
            if deed == "tell" and (kept := here.acts.all()):
                members[drawn.randrange(3)].acts.admit(drawn.choice(kept))
            do(deed, here, drawn)
        every = [each for member in members for each in member.acts.all()]
        for member in members:
            drawn.shuffle(every)
            for each in every:
                member.acts.admit(each)
        a, b, c = (member.acts for member in members)
        assert a.all() == b.all() == c.all()
        assert a.effect == b.effect == c.effect
        assert a.effect.waiting == b.effect.waiting == c.effect.waiting
        by_all = {each.signed.id: each.reach for each in decisions(a.all(), a.effect)}
        for each in (decision for acts in (a, b, c) for decision in acts.decisions()):
            if by_all[each.signed.id] in (Reach.EVERYWHERE, Reach.LIFTED):
                assert each.reach is by_all[each.signed.id]
            elif each.holds:
                assert each.signed.id in a.effect.waiting, "where servers differ, others are asked"
        for each in (act for act in a.all() if act.act.kind is ActKind.LIFT):
            quarantine = TxId(each.act.subject_id)
            is_open = by_all[quarantine] is Reach.EVERYWHERE or quarantine in a.effect.waiting
            assert (each.id in a.effect.waiting) == is_open, "who would lift what holds asks others"
