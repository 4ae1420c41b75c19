"""Quarantines and lifts: what holds follows from who has signed what, whatever came first."""

import random
from itertools import combinations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.acts import Act, ActKind, Effect, SignedAct, acts_in_effect, sign_act
from fl_core.dag.signature import public_key_of
from fl_core.sync.act_set import ActSet
from fl_core.trust.quarantine import Reach, decisions
from fl_core.types import ZERO_ID, PublicKey, TxId
from tests.builders import key_from_seed

LEDGER = TxId("1e" * 32)
DAN = key_from_seed(14)
ANN, BEN, CAT = KEYS = tuple(key_from_seed(seed) for seed in (11, 12, 13))
NEEDED = 2
SIGNERS = [some for count in (1, 2, 3) for some in combinations(KEYS, count)]


def act(kind: ActKind, subject: str, *, after: SignedAct | None = None, at: int = 5) -> Act:
    number, previous = (1, TxId(ZERO_ID)) if after is None else (after.act.number + 1, after.id)
    return Act(ledger=LEDGER, number=number, previous=previous, created_at_ms=at, kind=kind, subject=subject)


def quarantine(*keys: Ed25519PrivateKey, after: SignedAct | None = None, at: int = 5) -> SignedAct:
    return sign_act(act(ActKind.QUARANTINE, "update:" + "ab" * 32, after=after, at=at), *keys)


def lift(of: SignedAct, *keys: Ed25519PrivateKey, after: SignedAct | None = None, at: int = 5) -> SignedAct:
    return sign_act(act(ActKind.LIFT, f"act:{of.id}", after=after, at=at), *keys)


def effect(*acts: SignedAct) -> Effect:
    return acts_in_effect(acts, founders=[public_key_of(key) for key in KEYS], threshold=NEEDED)


def reaches(*acts: SignedAct) -> list[str]:
    """Where the only quarantine, or the first one, holds by ann, ben and cat."""
    state = effect(*acts)
    return [decisions(acts, state, server=public_key_of(key))[0].reach.value for key in KEYS]


@pytest.mark.parametrize("at", range(6))
def test_a_lift_from_before_the_threshold_has_signed_the_quarantine_changes_nothing_alone(at: int) -> None:
    """The ids of the two, of which one is the smaller, are of no account."""
    proposed, lifted = quarantine(ANN), lift(quarantine(ANN), ANN, at=at)
    assert reaches(proposed) == ["here", "proposed", "proposed"]
    assert reaches(proposed, lifted) == ["lifted"] * 3, "ann takes back what ann has said alone"
    assert effect(proposed, lifted).waiting == {}, "nobody is asked to sign what nobody wants"
    both = quarantine(ANN, BEN)
    assert reaches(both, lifted) == ["everywhere"] * 3
    assert effect(both, lifted).waiting == {lifted.id: {public_key_of(key) for key in KEYS}}, "others may still sign it"
    agreed = lift(both, ANN, CAT, at=at)
    for known in (proposed, both):
        assert reaches(known, agreed) == ["lifted"] * 3
        assert effect(known, agreed).waiting == {}, "nobody is asked to sign what is lifted"


def test_one_member_lifts_for_itself_only_what_it_has_quarantined_for_itself() -> None:
    first = quarantine(ANN, BEN)
    assert reaches(first, lift(first, CAT, after=first)) == ["everywhere"] * 3
    own = quarantine(ANN)
    against = lift(own, CAT)
    assert reaches(own, against) == ["here", "proposed", "proposed"]
    assert {*effect(own, against).waiting} == {own.id, against.id}
    both = quarantine(ANN, DAN)
    assert effect(both, lift(own, ANN)).waiting == {}, "of dan, who is no member, nothing is asked"


def test_an_erasure_is_lifted_by_nobody() -> None:
    erased = sign_act(act(ActKind.ERASE, "hash:" + "5" * 64), ANN)
    lifted = lift(erased, ANN, BEN, CAT)
    assert reaches(erased, lifted) == ["here", "proposed", "proposed"]
    assert effect(erased, lifted).acts == ()


def test_members_of_the_past_lift_nothing_of_today() -> None:
    removed = sign_act(act(ActKind.REMOVE_MEMBER, "member:" + public_key_of(ANN)), BEN, CAT)
    bad = quarantine(BEN, CAT, after=removed)
    assert reaches(removed, bad, lift(bad, ANN, BEN)) == ["everywhere"] * 3
    assert reaches(removed, bad, lift(bad, ANN, BEN, after=removed)) == ["everywhere"] * 3, "ann is no member"
    assert reaches(removed, bad, lift(bad, BEN, CAT, after=removed)) == ["lifted"] * 3


@st.composite
def histories(draw: st.DrawFn) -> list[SignedAct]:
    """Quarantines and lifts of them, of the same number or of later ones, signed by whom you like."""
    made: list[SignedAct] = []
    for at in range(draw(st.integers(2, 7))):
        signers = draw(st.sampled_from(SIGNERS))
        after = draw(st.sampled_from([None, *made]))
        named = [each for each in made if each.act.kind is ActKind.QUARANTINE]
        if named and draw(st.booleans()):
            made.append(lift(draw(st.sampled_from(named)), *signers, after=after, at=at))
        else:
            made.append(quarantine(*signers, after=after, at=at))
    return made


def holding(made: list[SignedAct], server: PublicKey) -> set[TxId]:
    """What holds on a server, as the rules say it: straight from who has signed what."""
    known = {each.id: each for each in made}

    def is_carried(each: SignedAct) -> bool:
        follows = each.act.number == 1 or is_carried(known[each.act.previous])
        return follows and len(each.signatures) >= NEEDED and is_of_today(each)

    def is_of_today(each: SignedAct) -> bool:
        return each.act.kind is ActKind.QUARANTINE or each.act.number >= known[TxId(each.act.subject_id)].act.number

    lifts = [each for each in made if each.act.kind is ActKind.LIFT]
    found = set()
    for each in made:
        if each.act.kind is ActKind.QUARANTINE:
            of_it = [other for other in lifts if other.act.subject_id == each.id]
            own = server in each.signatures and not any(server in other.signatures for other in of_it)
            if (is_carried(each) or own) and not any(map(is_carried, of_it)):
                found.add(each.id)
    return found


@given(histories(), st.randoms(use_true_random=False))
def test_servers_that_have_heard_the_same_decide_the_same_whatever_came_first(
    made: list[SignedAct], order: random.Random
) -> None:
    single = [SignedAct(each.act_bytes, {key: mark}) for each in made for key, mark in each.signatures.items()]
    everywhere = []
    for server in map(public_key_of, KEYS):
        order.shuffle(single)
        heard = ActSet(LEDGER)
        for each in single:
            heard.merge([each])
        decided = decisions(heard.all(), effect(*heard.all()), server=server)
        assert {each.signed.id for each in decided if each.holds} == holding(made, server)
        everywhere.append({each.signed.id for each in decided if each.reach is Reach.EVERYWHERE})
    assert everywhere[0] == everywhere[1] == everywhere[2]
    by_nobody = {each.signed.id for each in decisions(made, effect(*made)) if each.holds}
    assert everywhere[0] == by_nobody, "where the members have decided, no server goes by what it has signed itself"
