"""Who may publish, and who goes on as whom, by what members and authors have signed."""

import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.acts import Act, ActKind, SignedAct, Threshold, acts_in_effect, sign_act
from fl_core.dag.author_list import AuthorList, list_authors, listed_ever
from fl_core.dag.signature import public_key_of
from fl_core.errors import AuthorRefusedError
from fl_core.trust.quarantine import decisions, quarantine_of
from fl_core.types import ZERO_ID, AuthorId, TxId
from tests.builders import author_of, key_from_seed, make_genesis

ANN, BEN, CAT = MEMBERS = [key_from_seed(seed) for seed in (11, 12, 13)]
DAN, EVE, FAY = (key_from_seed(seed) for seed in (21, 22, 23))
SECRET = AuthorId("hash:" + "5e" * 32)


def act(kind: ActKind, who: Ed25519PrivateKey, to: AuthorId | None = None, *, after: SignedAct | None = None) -> Act:
    return Act(
        ledger=TxId("1e" * 32),
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
    rotated = sign_act(act(ActKind.ROTATE_AUTHOR, DAN, author_of(EVE)), DAN, EVE)
    found = known(rotated, authors="open")
    assert [found.allows(author_of(key)) for key in (DAN, EVE, FAY)] == [False, True, True]
    with pytest.raises(AuthorRefusedError, match=f"{author_of(EVE)} goes on in its place"):
        found.check(author_of(DAN))


def test_a_new_key_takes_the_old_ones_place_whatever_the_order_of_arrival() -> None:
    listed = sign_act(act(ActKind.LIST_AUTHOR, DAN), ANN, BEN)
    first = sign_act(act(ActKind.ROTATE_AUTHOR, DAN, author_of(EVE), after=listed), DAN, EVE)
    second = sign_act(act(ActKind.ROTATE_AUTHOR, EVE, SECRET, after=first), ANN, CAT)
    again = sign_act(act(ActKind.ROTATE_AUTHOR, DAN, author_of(FAY), after=second), DAN, FAY)
    acts = [listed, first, second, again]
    found = known(*acts)
    assert found.listed == {SECRET}, "one place on the list is never two, and nobody goes on twice"
    assert found.current(author_of(DAN)) == found.current(author_of(EVE)) == SECRET
    assert found.first(SECRET) == author_of(DAN)
    assert found.all_names([author_of(EVE)]) == {author_of(DAN), author_of(EVE), SECRET}
    assert found.formers == {author_of(EVE): author_of(DAN), SECRET: author_of(EVE)}
    for seed in range(5):
        assert known(*random.Random(seed).sample(acts, k=4)) == found


@pytest.mark.parametrize("named", [DAN, EVE])
def test_quarantine_and_erasure_hold_for_all_names_of_an_author(named: Ed25519PrivateKey) -> None:
    rotated = sign_act(act(ActKind.ROTATE_AUTHOR, DAN, author_of(EVE)), DAN, EVE)
    acts = [rotated, *(sign_act(act(kind, named), ANN, BEN) for kind in (ActKind.QUARANTINE, ActKind.ERASE))]
    effect = acts_in_effect(acts, founders=[public_key_of(key) for key in MEMBERS], threshold=2)
    found = quarantine_of(decisions(acts, effect), known(*acts))
    assert found.suspects.authors == found.erased == {author_of(DAN), author_of(EVE)}


def test_who_is_not_listed_lists_nobody_by_going_on() -> None:
    rotated = sign_act(act(ActKind.ROTATE_AUTHOR, DAN, author_of(EVE)), DAN, EVE)
    assert known(rotated).listed == frozenset()
    listed = sign_act(act(ActKind.LIST_AUTHOR, CAT, after=rotated), ANN, BEN)
    acts = [rotated, listed]
    effect = acts_in_effect(acts, founders=[public_key_of(key) for key in MEMBERS], threshold=2)
    assert listed_ever(acts, effect) == {author_of(CAT)}
