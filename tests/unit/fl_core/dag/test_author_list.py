"""Who may publish, and who goes on as whom, by what members and authors have signed."""

import random
from collections.abc import Sequence
from functools import partial
from itertools import pairwise, permutations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.acts import Act, ActKind, SignedAct, Threshold, acts_in_effect, sign_act, sign_rotation
from fl_core.dag.author_list import AuthorList, list_authors, listed_ever
from fl_core.dag.signature import public_key_of
from fl_core.errors import AuthorRefusedError
from fl_core.trust.quarantine import Quarantine, decisions, quarantine_of
from fl_core.types import ZERO_ID, AuthorId, TxId
from ledger_server.acts import MAX_OWN_ROTATIONS
from tests.builders import author_of, key_from_seed, make_genesis

ANN, BEN, CAT = MEMBERS = [key_from_seed(seed) for seed in (11, 12, 13)]
DAN, EVE, FAY = (key_from_seed(seed) for seed in (21, 22, 23))
SECRET = AuthorId("hash:" + "5e" * 32)
LEDGER = TxId("1e" * 32)

rotated_itself = partial(sign_rotation, ledger=LEDGER)


def rotated_by_members(old: Ed25519PrivateKey, new: Ed25519PrivateKey, *, after: SignedAct | None = None) -> SignedAct:
    return sign_act(act(ActKind.ROTATE_AUTHOR, old, author_of(new), after=after), ANN, BEN, new)


def act(kind: ActKind, who: Ed25519PrivateKey, to: AuthorId | None = None, *, after: SignedAct | None = None) -> Act:
    return Act(
        ledger=LEDGER,
        number=1 if after is None else after.act.number + 1,
        previous=TxId(ZERO_ID) if after is None else after.id,
        created_at_ms=5,
        kind=kind,
        subject=author_of(who),
        object=to or "",
    )


def known(
    *acts: SignedAct,
    authors: str = "listed",
    server: Ed25519PrivateKey | None = None,
    threshold: Threshold = "majority",
) -> AuthorList:
    founders = [public_key_of(key) for key in MEMBERS]
    effect = acts_in_effect(acts, founders=founders, threshold=threshold)
    own = None if server is None else public_key_of(server)
    return list_authors(acts, effect, genesis=make_genesis(authors=authors), server=own)


def test_the_threshold_lists_and_one_member_for_its_own_server() -> None:
    by_one = sign_act(act(ActKind.LIST_AUTHOR, DAN), ANN)
    assert not known(by_one).allows(author_of(DAN))
    assert known(by_one, server=ANN).allows(author_of(DAN))
    assert not known(by_one, server=BEN).allows(author_of(DAN))
    by_two = sign_act(by_one.act, ANN, BEN)
    assert known(by_two).listed == {author_of(DAN)}
    with pytest.raises(AuthorRefusedError, match="dag-acfl authors add"):
        known(by_two).check(author_of(EVE))
    off = sign_act(act(ActKind.UNLIST_AUTHOR, DAN, after=by_two), CAT, BEN)
    assert known(by_two, off).listed == frozenset()


def test_an_open_ledger_takes_everybody_but_who_was_rotated() -> None:
    assert known(authors="open").listed is None
    found = known(rotated_itself(DAN, EVE), authors="open")
    assert [found.allows(author_of(key)) for key in (DAN, EVE, FAY)] == [False, True, True]
    with pytest.raises(AuthorRefusedError, match=f"{author_of(EVE)} goes on in its place"):
        found.check(author_of(DAN))


def test_a_new_key_takes_the_old_ones_place_whatever_the_order_of_arrival() -> None:
    listed = sign_act(act(ActKind.LIST_AUTHOR, DAN), ANN, BEN)
    first = rotated_itself(DAN, EVE)
    second = sign_act(act(ActKind.ROTATE_AUTHOR, EVE, SECRET, after=listed), ANN, CAT)
    again = sign_act(act(ActKind.ROTATE_AUTHOR, EVE, author_of(FAY), after=second), ANN, CAT, FAY)
    acts = [listed, first, second, again, rotated_itself(EVE, FAY)]
    found = known(*acts)
    assert found.listed == {SECRET}, "one place on the list is never two, and nobody goes on twice"
    assert found.current(author_of(DAN)) == found.current(author_of(EVE)) == SECRET
    assert found.first(SECRET) == author_of(DAN)
    assert found.all_names([author_of(EVE)]) == {author_of(DAN), author_of(EVE), SECRET}
    assert found.formers == {author_of(EVE): author_of(DAN), SECRET: author_of(EVE)}
    for seed in range(5):
        assert known(*random.Random(seed).sample(acts, k=5)) == found


def test_an_author_that_signs_two_rotations_publishes_no_more_until_members_say_who_goes_on_as_it() -> None:
    listed = sign_act(act(ActKind.LIST_AUTHOR, DAN), ANN, BEN)
    acts = [listed, rotated_itself(DAN, EVE), rotated_itself(DAN, FAY)]
    assert known(*acts[:2]).listed == {author_of(EVE)}
    found = known(*acts)
    assert found.contested == {author_of(DAN)}
    assert [found.allows(author_of(key)) for key in (DAN, EVE, FAY)] == [False] * 3
    with pytest.raises(AuthorRefusedError, match="dag-acfl authors rotate"):
        found.check(author_of(DAN))
    mended = known(*acts, rotated_by_members(DAN, FAY, after=listed))
    assert (mended.listed, mended.contested) == ({author_of(FAY)}, frozenset())
    assert mended.differing(found) == found.differing(mended) == {author_of(DAN), author_of(FAY)}
    third = known(*acts, rotated_by_members(DAN, CAT, after=listed))
    assert third.formers == {author_of(CAT): author_of(DAN)}


@pytest.mark.parametrize("names", [(DAN, EVE, DAN), (DAN, EVE, FAY, DAN)], ids=["there and back", "round"])
def test_nobody_goes_on_in_a_circle(names: tuple[Ed25519PrivateKey, ...]) -> None:
    rotations = [rotated_itself(*pair) for pair in pairwise(names)]
    assert known(*rotations).contested == set(map(author_of, names))
    first, second, *more = names
    mended = known(rotated_by_members(first, second), *rotations)
    assert mended.successors[author_of(first)] == author_of(second)
    assert mended.contested == {author_of(key) for key in (second, *more)} - {author_of(first)}


def test_two_do_not_go_on_as_one() -> None:
    rotations = [rotated_itself(DAN, FAY), rotated_itself(EVE, FAY)]
    assert known(*rotations).contested == {author_of(DAN), author_of(EVE)}
    mended = known(*rotations, rotated_by_members(EVE, FAY))
    assert (mended.first(author_of(FAY)), mended.contested) == (author_of(EVE), {author_of(DAN)})


def test_to_take_any_name_of_an_author_off_the_list_ends_all_of_them_whenever_it_was_rotated() -> None:
    listed = sign_act(act(ActKind.LIST_AUTHOR, DAN), ANN, BEN)
    also = sign_act(act(ActKind.LIST_AUTHOR, EVE), ANN, BEN)
    rotated = rotated_itself(DAN, EVE)
    assert known(listed, also, rotated).listed == {author_of(EVE)}, "two places become one"
    for name in (DAN, EVE):
        off = sign_act(act(ActKind.UNLIST_AUTHOR, name, after=listed), ANN, BEN)
        assert known(listed, also, off, rotated).listed == frozenset()


KEYS = (DAN, EVE, FAY, CAT)
LISTED = sign_act(act(ActKind.LIST_AUTHOR, DAN), ANN, BEN)
OWN = [rotated_itself(*pair) for pair in permutations(KEYS, 2)]
OTHERS = [
    LISTED,
    sign_act(act(ActKind.LIST_AUTHOR, FAY), ANN, BEN),
    sign_act(act(ActKind.UNLIST_AUTHOR, EVE, after=LISTED), ANN, BEN),
    sign_act(act(ActKind.QUARANTINE, EVE), ANN, BEN),
    sign_act(act(ActKind.ERASE, CAT), ANN, BEN),
    rotated_by_members(DAN, EVE, after=LISTED),
    rotated_by_members(EVE, CAT),
    rotated_by_members(CAT, DAN),
    # What no member has signed is no act of the members, whatever it follows.
    sign_act(act(ActKind.ROTATE_AUTHOR, FAY, author_of(DAN), after=OWN[0]), FAY, DAN),
]


@given(st.lists(st.lists(st.sampled_from([*OWN, *OTHERS])), min_size=3, max_size=3))
def test_servers_that_exchange_what_they_keep_agree_whatever_came_first(arrivals: list[list[SignedAct]]) -> None:
    """Each keeps as many of an author's own rotations as it has room for; what follows is as if it kept them all."""
    everything = {each.id: each for came in arrivals for each in came}
    servers: list[dict[TxId, SignedAct]] = [{}, {}, {}]
    for _ in range(2):
        for kept, came in zip(servers, arrivals, strict=True):
            for each in came:
                alike = [other for other in kept.values() if other.act.subject == each.act.subject]
                own = sum(other.act.kind is ActKind.ROTATE_SELF for other in alike)
                if each.act.kind is not ActKind.ROTATE_SELF or own < MAX_OWN_ROTATIONS:
                    kept[each.id] = each
        arrivals = [[each for other in servers for each in other.values()] for _ in servers]

    def outcome(acts: Sequence[SignedAct]) -> tuple[AuthorList, Quarantine]:
        effect = acts_in_effect(acts, founders=[public_key_of(key) for key in MEMBERS], threshold=2)
        return known(*acts), quarantine_of(decisions(acts, effect), known(*acts))

    assert [outcome([*kept.values()]) for kept in servers] == [outcome([*everything.values()])] * 3


@pytest.mark.parametrize("named", [DAN, EVE])
def test_quarantine_and_erasure_hold_for_all_names_of_an_author(named: Ed25519PrivateKey) -> None:
    acts = [
        rotated_itself(DAN, EVE),
        *(sign_act(act(kind, named), ANN, BEN) for kind in (ActKind.QUARANTINE, ActKind.ERASE)),
    ]
    effect = acts_in_effect(acts, founders=[public_key_of(key) for key in MEMBERS], threshold=2)
    found = quarantine_of(decisions(acts, effect), known(*acts))
    assert found.suspects.authors == found.erased == {author_of(DAN), author_of(EVE)}


def test_who_is_not_listed_lists_nobody_by_going_on() -> None:
    rotated = rotated_itself(DAN, EVE)
    assert known(rotated).listed == frozenset()
    listed = sign_act(act(ActKind.LIST_AUTHOR, CAT), ANN, BEN)
    acts = [rotated, listed, rotated_itself(CAT, FAY), rotated_itself(CAT, DAN)]
    effect = acts_in_effect(acts, founders=[public_key_of(key) for key in MEMBERS], threshold=2)
    assert listed_ever(acts[:2], effect) == {author_of(CAT)}
    assert listed_ever(acts[:3], effect) == {author_of(CAT), author_of(FAY)}
    assert author_of(FAY) in listed_ever(acts, effect), "it could publish until the second rotation came"
