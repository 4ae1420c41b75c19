"""Acts: one encoding each, and one outcome of a set of them, whatever the order in which they came."""

import contextlib
import random
from collections.abc import Container
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.acts import (
    Act,
    ActKind,
    Effect,
    ListedMember,
    SignedAct,
    Threshold,
    acts_digest,
    acts_in_effect,
    check_act,
    decode_act,
    decode_signed_acts,
    encode_signed_acts,
    list_members,
    sign_act,
    sign_rotation,
    votes_needed,
)
from fl_core.dag.signature import public_key_of
from fl_core.errors import ActInvalidError, SignatureError, WrongLedgerError
from fl_core.types import ZERO_ID, TxId
from tests.builders import key_from_seed

LEDGER = TxId("1e" * 32)
ANN, BEN, CAT, DAN = (key_from_seed(seed) for seed in (11, 12, 13, 14))
UPDATE = "update:" + "ab" * 32


def member(key: Ed25519PrivateKey) -> str:
    return "member:" + public_key_of(key)


def act(kind: ActKind, subject: str, target: str = "", *, after: SignedAct | None = None, reason: str = "") -> Act:
    return Act(
        ledger=LEDGER,
        number=1 if after is None else after.act.number + 1,
        previous=TxId(ZERO_ID) if after is None else after.id,
        created_at_ms=5,
        kind=kind,
        subject=subject,
        object=target,
        details={"reason": reason} if reason else {},
    )


def quarantine(*keys: Ed25519PrivateKey, after: SignedAct | None = None, reason: str = "") -> SignedAct:
    return sign_act(act(ActKind.QUARANTINE, UPDATE, after=after, reason=reason), *keys)


def effect(*acts: SignedAct, threshold: Threshold = "majority", settled: tuple[TxId, ...] = ()) -> Effect:
    founders = [public_key_of(key) for key in (ANN, BEN, CAT)]
    return acts_in_effect(acts, founders=founders, threshold=threshold, settled=settled)


ids = st.binary(min_size=32, max_size=32).map(bytes.hex)
names = st.from_regex(r"[a-z0-9_.-]{1,64}", fullmatch=True)
AUTHORS = ["hash", "key"]
SHAPES = {
    ActKind.ADD_MEMBER: (["member"], None),
    ActKind.REMOVE_MEMBER: (["member"], None),
    ActKind.ROTATE_MEMBER: (["member"], ["member"]),
    ActKind.LIST_AUTHOR: (AUTHORS, None),
    ActKind.UNLIST_AUTHOR: (AUTHORS, None),
    ActKind.ROTATE_AUTHOR: (AUTHORS, AUTHORS),
    ActKind.QUARANTINE: ([*AUTHORS, "update"], None),
    ActKind.LIFT: (["act"], None),
    ActKind.ERASE: (AUTHORS, None),
    ActKind.SUCCEED: (["ledger"], None),
    ActKind.ROTATE_SELF: (["key"], ["key"]),
}


@st.composite
def acts(draw: st.DrawFn) -> Act:
    kind = draw(st.sampled_from(ActKind))
    subjects, objects = SHAPES[kind]
    is_own = kind is ActKind.ROTATE_SELF
    number = 1 if is_own else draw(st.integers(1, 2**63 - 1))
    return Act(
        ledger=TxId(draw(ids)),
        number=number,
        previous=TxId(ZERO_ID) if number == 1 else TxId(draw(ids.filter(lambda each: each != ZERO_ID))),
        created_at_ms=0 if is_own else draw(st.integers(0, 2**63 - 1)),
        kind=kind,
        subject=f"{draw(st.sampled_from(subjects))}:{draw(ids)}",
        object="" if objects is None else f"{draw(st.sampled_from(objects))}:{draw(ids)}",
        details=draw(st.dictionaries(names, st.text(max_size=40), max_size=0 if is_own else 3)),
    )


@given(acts())
def test_act_reads_back(original: Act) -> None:
    assert decode_act(original.encode()) == original


@given(acts(), st.data())
def test_flipped_bit_is_another_act_or_none(original: Act, data: st.DataObject) -> None:
    flipped = bytearray(original.encode())
    bit = data.draw(st.integers(0, 8 * len(flipped) - 1))
    flipped[bit // 8] ^= 1 << (bit % 8)
    with contextlib.suppress(ActInvalidError):
        found = decode_act(bytes(flipped))
        assert found.encode() == bytes(flipped)
        assert found.id != original.id


@given(acts(), st.integers(0, 400))
def test_cut_or_longer_act_is_refused(original: Act, size: int) -> None:
    data = original.encode()
    with pytest.raises(ActInvalidError):
        decode_act(data[: min(size, len(data) - 1)])
    with pytest.raises(ActInvalidError):
        decode_act(data + b"\0")


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 0},
        {"number": 2},
        {"previous": TxId("ab" * 32)},
        {"created_at_ms": 2**63},
        {"ledger": TxId("AB" * 32)},
        {"kind": ActKind.ERASE},
        {"subject": ""},
        {"subject": "update:ab"},
        {"subject": "member:" + "ab" * 32},
        {"object": UPDATE},
        {"details": {"Reason": "x"}},
        {"details": {"reason": "x" * 513}},
        {"details": {"reason": "\ud800"}},
        {"details": {f"n{i}": "" for i in range(17)}},
    ],
)
def test_field_out_of_range_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ActInvalidError):
        replace(act(ActKind.QUARANTINE, UPDATE), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{"number": 2, "previous": TxId("ab" * 32)}, {"created_at_ms": 1}, {"details": {"reason": "x"}}]
)
def test_an_authors_own_rotation_has_one_form(changes: dict[str, object]) -> None:
    own = sign_rotation(ANN, BEN, ledger=LEDGER).act
    with pytest.raises(ActInvalidError, match="own rotation"):
        replace(own, **changes)  # type: ignore[arg-type]


def test_signed_act_reads_back() -> None:
    signed = quarantine(ANN, BEN, reason="flipped labels")
    data = signed.encode()
    assert decode_signed_acts(data, most=1) == (signed,)
    for wrong in (data[:-1], data + b"\0", data + data):
        with pytest.raises(ActInvalidError):
            decode_signed_acts(wrong, most=1)
    body = 4 + len(signed.act_bytes) + 2
    with pytest.raises(ActInvalidError):
        # The signers in falling order.
        decode_signed_acts(data[:body] + data[body + 96 :] + data[body : body + 96], most=1)


def test_several_acts_read_back() -> None:
    several = [quarantine(ANN, reason=str(each)) for each in range(5)]
    data = encode_signed_acts(several)
    assert sorted(several, key=lambda each: each.id) == list(decode_signed_acts(data, most=5))
    with pytest.raises(ActInvalidError):
        decode_signed_acts(data, most=4)
    with pytest.raises(ActInvalidError):
        decode_signed_acts(several[0].encode() * 2, most=2)


def test_every_signature_must_verify() -> None:
    quarantine(ANN, BEN).verify()
    signed = quarantine(ANN)
    with pytest.raises(ActInvalidError):
        SignedAct(signed.act_bytes, {}).verify()
    with pytest.raises(SignatureError):
        SignedAct(signed.act_bytes, {public_key_of(BEN): signed.signatures[public_key_of(ANN)]}).verify()


def test_copies_merge_alike_in_any_order() -> None:
    one, other = quarantine(ANN), quarantine(BEN)
    assert one.merged(other) == other.merged(one) == quarantine(ANN, BEN)
    assert acts_digest([one]) != acts_digest([one.merged(other)])


def test_a_second_signature_by_the_same_key_is_nothing_new() -> None:
    one = quarantine(ANN)
    again = replace(one, signatures=dict.fromkeys(one.signatures, bytes(64)))
    assert one.merged(again) == one
    assert acts_digest([one]) == acts_digest([again])


def test_majority_carries_an_act() -> None:
    assert effect(quarantine(ANN)).acts == ()
    assert effect(quarantine(ANN, DAN)).acts == ()
    assert effect(quarantine(ANN, BEN)).acts == (quarantine(ANN, BEN).id,)
    assert effect(quarantine(ANN), threshold=1).acts == (quarantine(ANN).id,)
    assert effect(quarantine(ANN, BEN), threshold=3).acts == ()


@pytest.mark.parametrize(
    ("members", "threshold", "votes"),
    [(1, "majority", 1), (2, "majority", 2), (3, "majority", 2), (4, "majority", 3), (3, 2, 2), (1, 2, 1), (0, 1, 1)],
)
def test_votes_needed(members: int, threshold: Threshold, votes: int) -> None:
    assert votes_needed(members, threshold) == votes


def checked(signed: SignedAct, *, ledger: TxId = LEDGER, authors: Container[str] = ()) -> set[str]:
    kept = check_act(signed, ledger=ledger, effect=effect(), has_published=lambda author: author in authors)
    return {*kept.signatures}


def test_act_of_a_stranger_is_not_kept() -> None:
    assert checked(quarantine(ANN, DAN)) == {public_key_of(ANN)}
    with pytest.raises(ActInvalidError):
        checked(quarantine(DAN))
    with pytest.raises(WrongLedgerError):
        checked(quarantine(ANN), ledger=TxId("2e" * 32))


def test_strangers_signatures_are_not_verified() -> None:
    signed = quarantine(ANN)
    forged = replace(signed, signatures={**signed.signatures, public_key_of(DAN): bytes(64)})
    assert checked(forged) == {public_key_of(ANN)}
    with pytest.raises(ActInvalidError):
        checked(replace(signed, signatures={public_key_of(DAN): bytes(64)}))
    with pytest.raises(SignatureError):
        checked(replace(signed, signatures={public_key_of(ANN): bytes(64)}))


def test_an_author_of_this_ledger_rotates_itself_by_both_keys_alone() -> None:
    old, new = key_from_seed(31), key_from_seed(32)
    author, rotation = "key:" + public_key_of(old), sign_rotation(old, new, ledger=LEDGER)
    both = {public_key_of(old), public_key_of(new)}
    assert checked(rotation, authors=[author]) == both
    assert checked(sign_act(rotation.act, old, new, ANN, BEN), authors=[author]) == both, "it is no act of the members"
    for signed, authors in ((rotation, []), (sign_act(rotation.act, old, ANN, BEN), [author])):
        with pytest.raises(ActInvalidError, match="both keys"):
            checked(signed, authors=authors)
    assert effect(rotation) == effect()
    follows = quarantine(ANN, BEN, after=rotation)
    assert effect(rotation, follows).acts == (), "members' acts do not hang on an author's word"


def test_numbers_cannot_run_ahead() -> None:
    first, unseen = quarantine(ANN, BEN), quarantine(ANN, BEN, reason="never sent")
    ahead = quarantine(ANN, BEN, after=unseen)
    assert effect(first, ahead).acts == (first.id,)
    assert effect(first, ahead, unseen).number == 2


def test_new_member_signs_the_next_act() -> None:
    added = sign_act(act(ActKind.ADD_MEMBER, member(DAN)), ANN, BEN)
    at_once, next_one = quarantine(ANN, DAN), quarantine(ANN, BEN, DAN, after=added)
    state = effect(added, at_once, next_one)
    assert state.acts == (added.id, next_one.id)
    assert public_key_of(DAN) in state.members
    assert state.members_version == 1


def test_removed_member_signs_no_later_act() -> None:
    removed = sign_act(act(ActKind.REMOVE_MEMBER, member(CAT)), ANN, BEN)
    later = quarantine(ANN, CAT, after=removed)
    state = effect(removed, later)
    assert state.acts == (removed.id,)
    assert len(state.members) == 2


def test_last_member_stays() -> None:
    first = sign_act(act(ActKind.REMOVE_MEMBER, member(CAT)), ANN)
    second = sign_act(act(ActKind.REMOVE_MEMBER, member(BEN), after=first), ANN)
    third = sign_act(act(ActKind.REMOVE_MEMBER, member(ANN), after=second), ANN)
    assert effect(first, second, third, threshold=1).members == {public_key_of(ANN)}


def test_rotation_needs_the_new_key() -> None:
    rotation = act(ActKind.ROTATE_MEMBER, member(CAT), member(DAN))
    assert effect(sign_act(rotation, ANN, BEN)).acts == ()
    state = effect(sign_act(rotation, ANN, BEN, DAN))
    assert state.members == {public_key_of(key) for key in (ANN, BEN, DAN)}


def test_members_rotate_an_author_to_a_key_that_agrees_or_to_a_secret() -> None:
    old, new = key_from_seed(31), key_from_seed(32)
    rotation = act(ActKind.ROTATE_AUTHOR, "key:" + public_key_of(old), "key:" + public_key_of(new))
    assert effect(sign_act(rotation, old, new)).acts == ()
    assert effect(sign_act(rotation, ANN, BEN, old)).acts == ()
    assert effect(sign_act(rotation, ANN, BEN, new)).acts == (rotation.id,)
    to_secret = act(ActKind.ROTATE_AUTHOR, "key:" + public_key_of(old), "hash:" + "5e" * 32)
    assert effect(sign_act(to_secret, ANN, BEN)).acts == (to_secret.id,)


def test_only_a_quarantine_is_lifted() -> None:
    first = quarantine(ANN, BEN)
    lifted = sign_act(act(ActKind.LIFT, f"act:{first.id}", after=first), ANN, BEN)
    again = sign_act(act(ActKind.LIFT, f"act:{lifted.id}", after=lifted), ANN, BEN)
    assert effect(first, lifted, again).acts == (first.id, lifted.id)


def test_a_ledger_has_one_successor() -> None:
    both = [sign_act(act(ActKind.SUCCEED, f"ledger:{digit * 64}"), ANN, BEN) for digit in "ab"]
    assert effect(*both).acts == (min(each.id for each in both),)


def test_settled_acts_are_not_rewritten() -> None:
    honest = quarantine(ANN, BEN)
    rewritten = sign_act(act(ActKind.REMOVE_MEMBER, member(ANN)), BEN, CAT)
    assert public_key_of(ANN) not in effect(honest, rewritten).members
    state = effect(honest, rewritten, settled=(honest.id,))
    assert state.acts == (honest.id,)
    assert public_key_of(ANN) in state.members


def test_what_waited_for_a_signature_while_a_checkpoint_settled_its_number_takes_effect_when_it_has_it() -> None:
    settled = sign_act(act(ActKind.QUARANTINE, f"update:{'e' * 64}"), ANN, BEN)
    late = quarantine(ANN)
    assert list(effect(settled, late, settled=(settled.id,)).waiting) == [late.id]
    signed = late.merged(quarantine(CAT))
    assert {*effect(settled, signed, settled=(settled.id,)).acts} == {settled.id, signed.id}


def test_what_a_checkpoint_settles_must_be_carried_all_the_same() -> None:
    takeover = [sign_act(act(ActKind.REMOVE_MEMBER, member(ANN)), CAT)]
    takeover.append(sign_act(act(ActKind.REMOVE_MEMBER, member(BEN), after=takeover[0]), CAT))
    settled = tuple(each.id for each in takeover)
    assert effect(*takeover, settled=settled) == effect()
    honest = quarantine(ANN, BEN)
    assert effect(honest, *takeover, settled=settled) == effect(honest), "it excludes nothing, either"
    late = sign_act(takeover[1].act, ANN, CAT)
    assert effect(takeover[0], late, settled=settled) == effect(), "nor without its previous act"


@given(st.integers(0, 2**32 - 1), st.randoms(use_true_random=False))
def test_order_of_arrival_changes_nothing(seed: int, shuffle: random.Random) -> None:
    drawn = random.Random(seed)
    keys = [ANN, BEN, CAT, DAN]
    made: list[SignedAct] = []
    for _ in range(8):
        after = drawn.choice([None, *made])
        kind = drawn.choice([ActKind.ADD_MEMBER, ActKind.REMOVE_MEMBER, ActKind.QUARANTINE])
        subject = UPDATE if kind is ActKind.QUARANTINE else member(drawn.choice(keys))
        signers = drawn.sample(keys, drawn.randint(1, 4))
        made.append(sign_act(act(kind, subject, after=after, reason=str(len(made))), *signers))
    expected = effect(*made)
    shuffled = made[:]
    shuffle.shuffle(shuffled)
    assert effect(*shuffled) == expected
    assert acts_digest(shuffled) == acts_digest(made)
    # What was in effect stays so when it is settled first, whatever else comes.
    assert effect(*shuffled, settled=expected.acts) == expected


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_an_act_is_open_as_long_as_all_who_judge_it_could_carry_it(seed: int, is_settled: bool) -> None:  # noqa: FBT001
    drawn = random.Random(seed)
    keys = [ANN, BEN, CAT, DAN]
    made: list[SignedAct] = []
    for _ in range(8):
        after = drawn.choice([None, *made])
        kind = drawn.choice([ActKind.ADD_MEMBER, ActKind.REMOVE_MEMBER, ActKind.ROTATE_MEMBER, ActKind.QUARANTINE])
        subject = UPDATE if kind is ActKind.QUARANTINE else member(drawn.choice(keys))
        target = member(drawn.choice(keys)) if kind is ActKind.ROTATE_MEMBER else ""
        signers = drawn.sample(keys, drawn.randint(1, 4))
        made.append(sign_act(act(kind, subject, target, after=after, reason=str(len(made))), *signers))
    settled = effect(*made[:4]).acts if is_settled else ()
    state = effect(*made, settled=settled)
    expected = {}
    for each in made:
        others = [other for other in made if other is not each]
        judges = effect(*(other for other in others if other.act.number < each.act.number), settled=settled).members
        by_all = replace(each, signatures={**dict.fromkeys(judges, b""), **each.signatures})
        if each.id not in state.acts and each.id in effect(*others, by_all, settled=settled).acts:
            expected[each.id] = judges
    assert state.waiting == expected


# -- the list of members ------------------------------------------------------------------------------

DAN_KEY = public_key_of(DAN)


def listed(*acts: SignedAct, by: Ed25519PrivateKey | None = None) -> dict[str, ListedMember]:
    """Founders ann, ben and cat and what the acts make of them, by name."""
    founders = {public_key_of(key): name for key, name in ((ANN, "ann"), (BEN, "ben"), (CAT, "cat"))}
    server = None if by is None else public_key_of(by)
    return {each.name: each for each in list_members(acts, effect(*acts), founders=founders, server=server)}


def adding_dan(*keys: Ed25519PrivateKey) -> SignedAct:
    details = {"name": "dan", "url": "http://dan:8900"}
    return sign_act(replace(act(ActKind.ADD_MEMBER, member(DAN)), details=details), *keys)


def test_members_have_the_name_and_address_of_the_act_that_added_them() -> None:
    found = listed(adding_dan(ANN, BEN))
    assert found["dan"] == ListedMember(DAN_KEY, "dan", "http://dan:8900")
    assert found["ann"] == ListedMember(public_key_of(ANN), "ann"), "genesis says no address"


def test_a_members_own_act_holds_on_its_own_server_before_the_others_have_signed() -> None:
    act_of_one = adding_dan(ANN)
    assert "dan" in listed(act_of_one, by=ANN)
    assert "dan" not in listed(act_of_one, by=BEN)
    assert "dan" not in listed(act_of_one)
    leaves = sign_act(act(ActKind.REMOVE_MEMBER, member(CAT)), ANN)
    assert listed(leaves, by=ANN).keys() == {"ann", "ben"}
    assert listed(leaves, by=CAT).keys() == {"ann", "ben", "cat"}


def test_a_strangers_own_act_holds_nowhere() -> None:
    assert listed(adding_dan(DAN), by=DAN).keys() == {"ann", "ben", "cat"}


def test_a_new_key_has_the_place_of_the_old_one_and_names_it() -> None:
    added = adding_dan(ANN, BEN)
    new = key_from_seed(15)
    rotates = act(ActKind.ROTATE_MEMBER, member(DAN), member(new), after=added)
    assert listed(added, sign_act(rotates, ANN, BEN, CAT))["dan"].key == DAN_KEY, "the new key has not signed"
    found = listed(added, sign_act(rotates, ANN, BEN, CAT, new))["dan"]
    assert found == ListedMember(public_key_of(new), "dan", "http://dan:8900", former=DAN_KEY)
    moved = replace(rotates, details={"url": "http://new:8900"})
    assert listed(added, sign_act(moved, ANN, BEN, CAT, new))["dan"].url == "http://new:8900"


def test_one_that_was_removed_can_come_back() -> None:
    gone = sign_act(act(ActKind.REMOVE_MEMBER, member(CAT)), ANN, BEN)
    back = sign_act(act(ActKind.ADD_MEMBER, member(CAT), after=gone), ANN, BEN)
    assert listed(gone).keys() == {"ann", "ben"}
    assert len(listed(gone, back)) == 3
