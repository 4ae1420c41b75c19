"""What is offered, by either rule, and what pruning keeps: no author by itself moves either of them for others."""

import random
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.candidates import CANDIDATE_RULES
from fl_core.dag.acts import acts_in_effect
from fl_core.dag.author import AuthorKind
from fl_core.dag.author_list import AuthorList
from fl_core.dag.figures import Figures, Step
from fl_core.dag.genesis import Genesis, Member
from fl_core.dag.graph import Node
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Transaction
from fl_core.errors import ParameterError
from fl_core.ledger import WaitingForParents
from fl_core.retention import Retention
from fl_core.trust.lineage import Suspects
from fl_core.trust.quarantine import Quarantine
from fl_core.types import AuthorId, TxId, digest_of
from tests.builders import CREATED_AT_MS, ISSUER, TinyLedger, key_from_seed, make_genesis, model
from tests.reference import graph as reference

DAY = 24 * 3600
SERVERS = [ISSUER, *map(key_from_seed, (501, 502))]
MEMBERS = tuple(sorted((Member(public_key_of(key), "a") for key in SERVERS), key=lambda member: member.key))
both_rules = pytest.mark.parametrize("rule", [*CANDIDATE_RULES])


def listing(genesis: Genesis, *members: Member) -> Genesis:
    return replace(genesis, members=members)


def offered(tiny: TinyLedger, asker: str | None = None) -> set[TxId]:
    return {c.transaction for c in tiny.node.candidate_rule.candidates(None if asker is None else tiny.author(asker))}


def kept(tiny: TinyLedger, keep_s: float = 0) -> set[TxId]:
    retention = Retention.of(tiny.ledger.graph, tiny.genesis, keep_ms=int(1000 * keep_s), offering=tiny.node.offering)
    return {node.id for node in tiny.ledger if retention.keeps(node)}


def joined(tiny: TinyLedger, names: str) -> dict[str, TxId]:
    return {name: tiny.publish(name, [tiny.genesis_id], model(1)) for name in names}


# -- what is offered ----------------------------------------------------------------------------------


@both_rules
def test_the_asker_is_not_compared_with_itself(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule))
    by = joined(tiny, "ab")
    assert offered(tiny, "a") == {by["b"]}
    assert offered(tiny) == {*by.values()}


@both_rules
def test_of_each_author_only_the_newest_transaction_counts(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule))
    old, new = joined(tiny, "a")["a"], joined(tiny, "a")["a"]
    assert {*tiny.ledger.graph.tips()} == {old, new}
    assert offered(tiny) == {new}


def test_naming_models_as_parents_hides_tips_from_everybody_and_nothing_where_the_newest_are_offered() -> None:
    for rule, hidden in (("newest", False), ("tips", True)):
        tiny = TinyLedger(make_genesis(candidates=rule))
        honest = {*joined(tiny, "abcdef").values()}
        eve = tiny.publish("eve", [*honest], model(9))
        assert offered(tiny) == ({eve} if hidden else {eve, *honest})


def test_the_askers_own_newest_is_averaged_always_or_while_it_is_a_tip() -> None:
    for rule, averaged in (("newest", True), ("tips", False)):
        tiny = TinyLedger(make_genesis(candidates=rule))
        own = joined(tiny, "a")["a"]
        assert tiny.node.candidate_rule.own(tiny.author("a")) == own
        assert tiny.node.candidate_rule.own(tiny.author("b")) is None
        tiny.publish("b", [own], model(2))
        assert tiny.node.candidate_rule.own(tiny.author("a")) == (own if averaged else None)


@both_rules
def test_an_update_is_offered_for_as_long_as_the_window_by_ledger_time(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule, freshness_s=30 * DAY))
    old = joined(tiny, "a")["a"]
    tiny.now_s = 30 * DAY
    new = joined(tiny, "b")["b"]
    assert offered(tiny) == {old, new}
    tiny.now_s += 1
    newer = joined(tiny, "b")["b"]
    assert offered(tiny) == {newer}
    assert joined(tiny, "a")["a"] in offered(tiny), "who comes back is offered again"


@both_rules
def test_a_chain_of_one_author_moves_nobody_elses_bounds(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule))
    honest = {*joined(tiny, "abcdef").values()}
    tip = tiny.genesis_id
    for number in range(205):
        tip = tiny.publish("eve", [tip], model(number))
    assert offered(tiny) == {*honest, tip}
    assert kept(tiny) == {tiny.genesis_id, *honest, tip}


@both_rules
def test_a_thousand_new_names_crowd_nobody_out_who_was_there_before(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule, max_candidates=1000))
    honest = {*joined(tiny, "abcdef").values()}
    tiny.now_s = 1
    graph = tiny.ledger.graph
    for number in range(1005):
        node = replace(
            tiny.node.nodes_of([*honest])[0],
            id=TxId(f"{number:064x}"),
            author=AuthorKind.SECRET.author(f"{number:064x}"),
            parents=(tiny.genesis_id,),
            depth=1 + number,
            received_at_ms=CREATED_AT_MS + 1000,
        )
        graph.add(node)
        tiny.node.candidate_rule.admit(node)
    assert len(offered(tiny)) == 1000
    assert honest < offered(tiny)
    assert len(tiny.node.candidate_rule.front()) == 1001
    tiny.now_s = 2
    again = {*joined(tiny, "abcdef").values()}
    assert again < offered(tiny), "an author stands where it stood, with its newest"


@both_rules
def test_receipts_that_one_member_dates_back_crowd_out_nobody_of_whom_another_has_received(rule: str) -> None:
    tiny = TinyLedger(listing(make_genesis(candidates=rule, max_candidates=12), *MEMBERS))
    honest = {*joined(tiny, "abcdef").values()}
    strangers = [f"stranger {number}" for number in range(20)]

    def flood(issuer: Ed25519PrivateKey, now_s: float) -> set[TxId]:
        tiny.now_s = now_s
        drafts = [tiny.draft(name, [tiny.genesis_id], model(1), issuer=issuer) for name in strangers]
        for draft in drafts:
            tiny.node.admit(draft, None, figures=Figures(1.0))
        return {draft.id for draft in drafts}

    flooded = flood(SERVERS[1], now_s=-100)
    assert honest < offered(tiny)
    assert len(offered(tiny) & flooded) == 6
    flooded = flood(ISSUER, now_s=1)
    assert honest < offered(tiny), "where they go on, strangers are as new as that server says"
    assert len(offered(tiny) & flooded) == 6


@both_rules
def test_who_may_not_publish_takes_nobodys_place(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule, max_candidates=3))
    joined(tiny, "uvwxyz")
    tiny.now_s = 1
    listed = {*joined(tiny, "abc").values()}
    names = frozenset(map(tiny.author, "abc"))
    tiny.node.go_by(acts_in_effect((), founders=[], threshold="majority"), AuthorList(names))
    assert offered(tiny) == listed
    joined(tiny, "u")
    assert offered(tiny) == listed
    assert {*tiny.node.candidate_rule.front()} == listed


def test_who_goes_on_as_another_stands_where_that_one_stood() -> None:
    tiny = TinyLedger(make_genesis(candidates="newest", max_candidates=1))
    for name in "abc":
        tiny.now_s += 1
        joined(tiny, name)
    a, c = map(tiny.author, "ac")
    tiny.node.go_by(acts_in_effect((), founders=[], threshold="majority"), AuthorList(None, {a: c}, {c: a}))
    assert offered(tiny) == {tiny.ledger.graph.newest_of(c).id}


def test_an_update_under_a_former_name_counts_for_who_goes_on_also_where_it_comes_last() -> None:
    tiny = TinyLedger(make_genesis(candidates="newest", max_candidates=1))
    a, c = map(tiny.author, "ac")
    late = tiny.draft("a", [tiny.genesis_id], model(1))
    tiny.node.go_by(acts_in_effect((), founders=[], threshold="majority"), AuthorList(None, {a: c}, {c: a}))
    for name in "bc":
        tiny.now_s += 1
        joined(tiny, name)
    tiny.node.admit(late, None, figures=Figures(1.0))
    assert offered(tiny) == {tiny.ledger.graph.newest_of(c).id}


@both_rules
def test_who_asks_makes_room_for_one_more_at_the_bound(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule, max_candidates=2))
    by = {}
    for name in "abcd":
        tiny.now_s += 1
        by |= joined(tiny, name)
    assert {*tiny.node.candidate_rule.front()} == {by["a"], by["b"], by["c"]}
    assert offered(tiny) == {by["a"], by["b"]}
    assert offered(tiny, "a") == {by["b"], by["c"]}
    assert offered(tiny, "d") == {by["a"], by["b"]}


# -- ledger time --------------------------------------------------------------------------------------


def test_one_servers_wild_clock_moves_nothing_while_others_are_listed() -> None:
    tiny = TinyLedger(listing(make_genesis(freshness_s=60), *MEMBERS))
    graph = tiny.ledger.graph
    by = joined(tiny, "ab")
    for clock_s in (1e9, -1e9):
        tiny.now_s = clock_s
        wild = tiny.draft("eve", [tiny.genesis_id], model(1), issuer=SERVERS[2])
        tiny.node.admit(wild, None, figures=Figures(1.0))
        assert {*by.values()} <= offered(tiny)
        assert graph.now_ms == CREATED_AT_MS, "the lower of two that have said something, of three"
    tiny.now_s = 5
    tiny.node.admit(tiny.draft("c", [tiny.genesis_id], model(1), issuer=SERVERS[1]), None, figures=Figures(1.0))
    assert graph.now_ms == CREATED_AT_MS + 5000, "between the first and the wild one"
    stranger = key_from_seed(599)
    tiny.now_s = 1e9
    tiny.node.admit(tiny.draft("d", [tiny.genesis_id], model(1), issuer=stranger), None, figures=Figures(1.0))
    assert graph.now_ms == CREATED_AT_MS + 5000, "who is no member is not asked"


def test_another_list_of_members_has_another_time() -> None:
    first, second = Member(public_key_of(SERVERS[0]), "a"), Member(public_key_of(SERVERS[1]), "b")
    tiny = TinyLedger(listing(make_genesis(freshness_s=60), first))
    old = joined(tiny, "a")["a"]
    tiny.now_s = 100
    tiny.node.admit(new := tiny.draft("b", [tiny.genesis_id], model(1), issuer=SERVERS[1]), None, figures=Figures(1.0))
    assert offered(tiny) == {old, new.id}
    tiny.node.go_by(acts_in_effect((), founders=[second.key], threshold="majority"), AuthorList())
    assert offered(tiny) == {new.id}
    tiny.node.go_by(acts_in_effect((), founders=[first.key], threshold="majority"), AuthorList())
    assert offered(tiny) == {old, new.id}


# -- what pruning keeps -------------------------------------------------------------------------------


def test_one_off_names_can_be_pruned_once_they_are_out_of_the_window() -> None:
    tiny = TinyLedger(make_genesis(freshness_s=10))
    flood = {*joined(tiny, "abcdefgh").values()}
    tiny.now_s = 10
    site = joined(tiny, "z")["z"]
    assert kept(tiny) == {tiny.genesis_id, site, *flood}
    tiny.now_s = 11
    site = joined(tiny, "z")["z"]
    assert kept(tiny) == {tiny.genesis_id, site}
    assert kept(tiny, keep_s=1.5) == {tiny.genesis_id, *(n.id for n in tiny.ledger if n.author == tiny.author("z"))}


def test_models_are_kept_for_some_time_at_least() -> None:
    with pytest.raises(ParameterError, match="at least 0"):
        kept(TinyLedger(), -1)


# -- the same everywhere ------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([*CANDIDATE_RULES]), st.integers(1, 5), st.integers(1, 3))
def test_candidates_and_retention_are_those_of_their_definitions_in_any_order_of_arrival(
    seed: int, rule: str, most: int, listed: int
) -> None:
    rng = random.Random(seed)
    window_s = rng.choice([1, 3, 6])
    genesis = listing(make_genesis(candidates=rule, freshness_s=window_s, max_candidates=most), *MEMBERS[:listed])
    members = [member.key for member in MEMBERS[:listed]]
    source = TinyLedger(genesis)
    clocks = [0.0, rng.choice([0.0, -2.0]), rng.choice([0.5, 1e6])]
    waiting, ids = [], [source.genesis_id]
    names = frozenset(map(source.author, "abcdef"[: rng.randint(3, 6)]))
    source.ledger.graph.author_list = AuthorList(names)
    for step in range(20):
        server = rng.randrange(3)
        source.now_s = step / 2 + clocks[server]
        draft = source.draft(
            rng.choice("abcdef"),
            rng.sample(ids[-8:], k=min(len(ids), rng.randint(1, 3))),
            model(rng.random()),
            sequence=rng.choice([None, rng.randint(0, 3)]),
            issuer=SERVERS[server],
        )
        if draft.id not in source.ledger:
            source.node.admit(draft, None, figures=Figures(1.0))
            waiting.append(draft)
            ids.append(draft.id)
    replica = TinyLedger(genesis)
    replica._keys = source._keys
    replica.ledger.graph.author_list = AuthorList(names)
    rule_of, gone, let_go = replica.node.candidate_rule, set[TxId](), set[TxId]()
    while waiting:
        rng.shuffle(waiting)
        left = []
        for draft in waiting:
            if isinstance(replica.node.admit(draft, None, figures=Figures(1.0)), WaitingForParents):
                left.append(draft)
                continue
            for asker in (None, replica.author(rng.choice("abcdef"))):
                expected = reference.candidates(
                    replica.ledger,
                    asker=asker,
                    rule=rule,
                    window_ms=1000 * window_s,
                    most=most,
                    members=members,
                    listed=names,
                )
                assert [each.transaction for each in rule_of.candidates(asker)] == expected
            assert not rule_of.eligible & gone, "what was retired is never offered again"
            gone |= {node.id for node in replica.ledger if node.parents} - rule_of.eligible
            keep_s = 2
            now_kept = kept(replica, keep_s)
            assert now_kept == reference.kept(
                replica.ledger, window_ms=1000 * window_s, keep_ms=1000 * keep_s, members=members
            )
            assert not now_kept & let_go, "what may be pruned once may be pruned for ever"
            let_go |= {node.id for node in replica.ledger} - now_kept
        waiting = left
    for name in "abcdef":
        assert offered(replica, name) == offered(source, name)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([*CANDIDATE_RULES]), st.sampled_from(["open", "listed"]))
def test_what_acts_change_one_by_one_is_what_they_come_to_at_once_and_after_a_start(
    seed: int, rule: str, profile: str
) -> None:
    rng, figures = random.Random(seed), Figures(1.0, Step(1.0, ()))
    members = acts_in_effect((), founders=[public_key_of(ISSUER)], threshold="majority")
    genesis = make_genesis(candidates=rule, max_candidates=3, freshness_s=5)
    tiny, drafts = TinyLedger(genesis), list[Transaction]()
    names, quarantined = [*map(tiny.author, "abcdefgh")], list[AuthorId]()
    successors: dict[AuthorId, AuthorId] = {}
    for tiny.now_s in range(16):
        ids = [node.id for node in tiny.ledger]
        drafts.append(
            draft := tiny.draft(rng.choice("abcdef"), rng.sample(ids, k=min(len(ids), 2)), model(rng.random()))
        )
        tiny.node.admit(draft, None, figures=figures)
        old, new = rng.sample(names, 2)
        if rng.random() < 0.5 and old not in successors and new not in {*successors, *successors.values()}:
            successors[old] = new
        elif successors and rng.random() < 0.2:
            del successors[rng.choice([*successors])]  # an act that came late stands before it
        if rng.random() < 0.1:
            quarantined.append(rng.choice(names))
        listed = frozenset(rng.sample(names, k=5)) if profile == "listed" else None
        formers = {after: before for before, after in successors.items()}
        contested = frozenset(rng.sample(names, k=rng.randrange(3))) - successors.keys()
        authors = AuthorList(listed, dict(successors), formers, contested)
        quarantine = Quarantine(Suspects(authors.all_names(quarantined)), authors.all_names(quarantined[1:]))
        tiny.node.go_by(members, authors, quarantine)
        fresh = TinyLedger(genesis)
        fresh.node.go_by(members, authors, quarantine)
        is_start = rng.random() < 0.5
        for each in drafts:
            if is_start:
                fresh.node.restore(*tiny.node.nodes_of([each.id]))
            else:
                fresh.node.admit(each, None, figures=figures)
        ours, theirs = tiny.node.candidate_rule, fresh.node.candidate_rule
        assert ours.eligible == theirs.eligible
        for asker in (None, *names):
            assert ours.candidates(asker) == theirs.candidates(asker)
            assert asker is None or ours.own(asker) == theirs.own(asker)
        assert tiny.node.offering.withheld == fresh.node.offering.withheld


def test_ten_thousand_one_off_names_leave_a_thousand_candidates_and_go_stale_together() -> None:
    tiny = TinyLedger(make_genesis(candidates="newest", max_candidates=1000))
    ledger, rule = tiny.ledger, tiny.node.candidate_rule

    def add(number: int, *, seconds: int) -> TxId:
        node = Node(
            id=TxId(f"{number * 0x9E3779B97F4A7C15 % 2**64:064x}"),
            parents=(ledger.id,),
            author=AuthorKind.SECRET.author(f"{number:064x}"),
            sequence=0,
            num_examples=1,
            recorded=b"",
            depth=1,
            model_digest=digest_of(b""),
            received_at_ms=CREATED_AT_MS + 1000 * seconds,
            issuer=public_key_of(ISSUER),
        )
        ledger.graph.add(node)
        rule.admit(node)
        return node.id

    pile = [add(number, seconds=0) for number in range(1, 10_001)]
    assert [each.transaction for each in rule.candidates(None)] == sorted(pile[:1000])
    late = add(20_000, seconds=201)
    assert [each.transaction for each in rule.candidates(None)] == [late]
    assert len(rule.eligible) == 1
