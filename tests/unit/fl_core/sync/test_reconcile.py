"""Range-based reconciliation, both sides, honest and hostile."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fl_core.errors import GossipFrameError
from fl_core.sync import reconcile
from fl_core.sync.items import Item, ItemSet, varint
from fl_core.sync.reconcile import MAX_FRAME_BYTES, MAX_ROUNDS, MIN_FRAME_BYTES, Reconciliation, answer
from fl_core.types import TxId
from tests.reference import gossip as naive

EVERYTHING = b"\x00"
"""The bound of a range that goes to the end."""
SKIP, FINGERPRINT, IDS, LIST, LATER = (bytes([mode]) for mode in range(5))
FRAME = b"\x01"


def drawn(count: int, *, seed: int, per_depth: int = 10) -> list[Item]:
    """Random ids, so many at each depth."""
    rng = random.Random(seed)
    return [(place // per_depth, TxId(rng.randbytes(32).hex())) for place in range(count)]


@dataclass(frozen=True, slots=True)
class Outcome:
    have: set[str]
    need: set[str]
    rounds: int
    frames: tuple[bytes, ...]
    is_complete: bool


def reconciled(
    ours: ItemSet,
    theirs: ItemSet,
    *,
    limits: tuple[int, int] = (MAX_FRAME_BYTES, MAX_FRAME_BYTES),
    between: Callable[[], object] = lambda: None,
) -> Outcome:
    """Exchange frames to the end; ``between`` happens after each answer."""
    asking = Reconciliation(ours, limits[0])
    frames: list[bytes] = []
    question: bytes | None = asking.first()
    while question is not None:
        frames += [question, answer(theirs, question, limits[1])]
        between()
        question = asking.next(frames[-1])
    assert len(set(asking.need)) == len(asking.need)
    return Outcome(set(asking.have), set(asking.need), asking.rounds, tuple(frames), asking.is_complete)


def test_equal_sets_need_one_round_trip_and_no_id() -> None:
    items = drawn(5000, seed=1)
    outcome = reconciled(ItemSet(items), ItemSet(items))
    assert (outcome.have, outcome.need, outcome.rounds) == (set(), set(), 1)
    assert outcome.frames[1] == FRAME
    assert len(outcome.frames[0]) < 400


def test_empty_sets_are_equal() -> None:
    outcome = reconciled(ItemSet(), ItemSet())
    assert (outcome.have, outcome.need, outcome.rounds) == (set(), set(), 1)


def test_an_empty_set_needs_everything_parents_first() -> None:
    items = naive.in_order(drawn(300, seed=2))
    asking = Reconciliation(ItemSet())
    assert asking.next(answer(ItemSet(items), asking.first())) is None
    assert asking.need == [identity for _, identity in items]
    assert asking.have == []


def test_a_server_that_holds_more_learns_what_the_other_lacks() -> None:
    items = naive.in_order(drawn(3000, seed=3))
    asking = Reconciliation(ItemSet(items))
    question = asking.next(answer(ItemSet(items[:-1]), asking.first()))
    assert question is not None
    assert asking.next(answer(ItemSet(items[:-1]), question)) is None
    assert asking.have == [items[-1][1]]


@pytest.mark.parametrize(
    ("gap", "most_bytes"), [(slice(12_345, 12_346), 5_000), (slice(-100, None), 10_000)], ids=["one", "newest"]
)
def test_a_small_gap_in_a_large_set_costs_few_bytes_and_at_most_three_round_trips(gap: slice, most_bytes: int) -> None:
    items = naive.in_order(drawn(20_000, seed=4))
    lacking = {identity for _, identity in items[gap]}
    whole, partial = ItemSet(items), ItemSet(set(items) - set(items[gap]))
    pulling, pushing = reconciled(partial, whole), reconciled(whole, partial)
    assert (pulling.need, pulling.have) == (lacking, set())
    assert (pushing.need, pushing.have) == (set(), lacking)
    assert max(pulling.rounds, pushing.rounds) <= 3
    assert all(sum(map(len, each.frames)) <= most_bytes for each in (pulling, pushing))


identities = st.one_of(
    st.binary(min_size=32, max_size=32),
    # Ids that differ in their last byte only: the longest bounds.
    st.integers(0, 255).map(lambda last: bytes([7] * 31 + [last])),
).map(lambda raw: TxId(raw.hex()))
items_of_one_side = st.lists(st.tuples(st.sampled_from([0, 1, 5, 2**32 - 1]), identities), max_size=30)


@given(
    st.integers(0, 1500),
    items_of_one_side,
    items_of_one_side,
    st.integers(0, 2**32),
    st.sampled_from([MIN_FRAME_BYTES, MAX_FRAME_BYTES]),
)
@settings(max_examples=60)
def test_agrees_with_plain_set_difference(
    common: int, ours: list[Item], theirs: list[Item], seed: int, limit: int
) -> None:
    shared = drawn(common, seed=seed)
    # One id has one depth on every server; drawing must not give it two.
    depths: dict[TxId, int] = {}
    mine, others = (
        [(depths.setdefault(identity, depth), identity) for depth, identity in side]
        for side in (shared + ours, shared + theirs)
    )
    outcome = reconciled(ItemSet(mine), ItemSet(others), limits=(limit, limit))
    assert (outcome.have, outcome.need) == naive.reconciled(mine, others)
    assert outcome.is_complete
    assert all(len(frame) <= limit for frame in outcome.frames)


@pytest.mark.parametrize(
    "limits",
    [(MIN_FRAME_BYTES, MIN_FRAME_BYTES), (MAX_FRAME_BYTES, MIN_FRAME_BYTES), (MIN_FRAME_BYTES, MAX_FRAME_BYTES)],
    ids=["both", "answerer", "asker"],
)
def test_a_small_frame_splits_the_work_over_more_round_trips(limits: tuple[int, int]) -> None:
    items = drawn(20_000, seed=5)
    mine, others = items[20:] + drawn(20, seed=6), [item for place, item in enumerate(items) if place % 500]
    outcome = reconciled(ItemSet(mine), ItemSet(others), limits=limits)
    assert (outcome.have, outcome.need) == naive.reconciled(mine, others)
    assert outcome.is_complete
    assert outcome.rounds > reconciled(ItemSet(mine), ItemSet(others)).rounds
    assert all(len(frame) <= limits[at % 2] for at, frame in enumerate(outcome.frames))


def test_the_longest_bounds_and_the_smallest_frame_still_get_ahead() -> None:
    depth = 2**32 - 1
    items = [(depth, TxId((bytes([9] * 30) + at.to_bytes(2, "big")).hex())) for at in range(800)]
    outcome = reconciled(ItemSet(items[::3]), ItemSet(items), limits=(MIN_FRAME_BYTES, MIN_FRAME_BYTES))
    assert (outcome.have, outcome.need) == naive.reconciled(items[::3], items)
    outcome = reconciled(ItemSet(), ItemSet(items), limits=(MIN_FRAME_BYTES, MIN_FRAME_BYTES))
    assert len(outcome.need) == 800


def test_sets_that_grow_between_frames_end_and_find_the_old_differences() -> None:
    items = drawn(3000, seed=7)
    ours, theirs = ItemSet(items[1:]), ItemSet(items[:-1])
    late = iter(drawn(200, seed=8, per_depth=1))

    def grow() -> None:
        for held in (ours, theirs):
            for _ in range(10):
                held.add(*next(late))

    outcome = reconciled(ours, theirs, between=grow)
    assert items[0][1] in outcome.need
    assert items[-1][1] in outcome.have
    both_hold = {identity for _, identity in items[1:-1]}
    assert not both_hold & (outcome.need | outcome.have)


def test_the_ids_of_one_reconciliation_are_bounded_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "MAX_IDS", 150)
    items = naive.in_order(drawn(400, seed=9))
    ours, theirs = ItemSet(), ItemSet(items)
    found: list[int] = []
    while not (outcome := reconciled(ours, theirs, limits=(MIN_FRAME_BYTES, MIN_FRAME_BYTES))).is_complete:
        found.append(len(outcome.need))
        lowest = [item for item in items if item[1] in outcome.need]
        assert lowest == items[len(ours) : len(ours) + 150]
        for item in lowest:
            ours.add(*item)
    assert found == [150, 150]
    assert len(outcome.need) == 100


def test_what_only_we_hold_is_bounded_without_hiding_what_we_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "MAX_IDS", 5)
    items = naive.in_order(drawn(400, seed=10))
    outcome = reconciled(ItemSet(items[:-1]), ItemSet([items[0], items[-1]]))
    assert outcome.need == {items[-1][1]}
    assert outcome.have == {identity for _, identity in items[1:6]}
    assert not outcome.is_complete


def test_open_ranges_are_bounded_and_the_lowest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "MAX_OPEN_RANGES", 4)
    items = naive.in_order(drawn(3000, seed=11))
    asking = Reconciliation(ItemSet(items))
    question: bytes | None = asking.first()
    while question is not None:
        question = asking.next(answer(ItemSet(items[1::2]), question))
        assert len(asking._asked) + len(asking._open) <= 4
    assert not asking.is_complete
    assert items[0][1] in asking.have


# -- frames that no honest server sends -----------------------------------------------------------

HELD = drawn(400, seed=12)
"""Enough to send fingerprints first; ``FEW`` asks for a list."""
FEW = drawn(5, seed=13)


def bound(step: int, prefix: bytes = b"") -> bytes:
    return varint(1 + step) + bytes([len(prefix)]) + prefix


MALFORMED = {
    "nothing at all": b"",
    "another version": b"\x02",
    "negentropy's version": b"\x61",
    "an unknown mode": FRAME + b"\x05" + EVERYTHING,
    "a mode without a bound": FRAME + SKIP,
    "a number that does not end": FRAME + SKIP + b"\xff" * 9,
    "a number that ends with the frame": FRAME + SKIP + b"\x81",
    "a number with a zero in front": FRAME + SKIP + b"\x80\x01\x00",
    "a depth beyond 32 bits": FRAME + SKIP + bound(2**32),
    "a sum of depths beyond 32 bits": FRAME + SKIP + bound(2**32 - 1) + SKIP + bound(1),
    "33 bytes of an id": FRAME + SKIP + bound(0, bytes(33)),
    "a prefix that ends with the frame": FRAME + SKIP + b"\x01\x20abc",
    "an empty range": FRAME + SKIP + bound(0),
    "bounds that go back": FRAME + SKIP + bound(3, b"b") + SKIP + bound(0, b"a"),
    "a range twice": FRAME + SKIP + bound(3) + SKIP + bound(0),
    "ranges after the end": FRAME + SKIP + EVERYTHING + SKIP + EVERYTHING,
    "half a fingerprint": FRAME + FINGERPRINT + EVERYTHING + bytes(15),
    "more than the largest frame": FRAME + bytes(MAX_FRAME_BYTES),
}


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_frame_is_refused_by_both_sides(frame: bytes) -> None:
    with pytest.raises(GossipFrameError) as refused:
        answer(ItemSet(HELD), frame)
    assert refused.value.code == "gossip-frame-invalid"
    asking = Reconciliation(ItemSet(HELD))
    asking.first()
    with pytest.raises(GossipFrameError):
        asking.next(frame)


@pytest.mark.parametrize(
    "frame", [FRAME + IDS + EVERYTHING + b"\x00", FRAME + LATER + EVERYTHING], ids=["ids", "later"]
)
def test_an_asker_says_nothing_that_only_an_answer_can(frame: bytes) -> None:
    with pytest.raises(GossipFrameError, match="direction"):
        answer(ItemSet(HELD), frame)


BAD_ANSWERS = {
    "a question": FRAME + LIST + EVERYTHING,
    "more ids counted than there are": FRAME + IDS + EVERYTHING + b"\x02" + bytes(32),
    "four billion ids": FRAME + IDS + EVERYTHING + varint(2**35 - 1),
    "an id twice": FRAME + IDS + EVERYTHING + b"\x02" + bytes(64),
}


@pytest.mark.parametrize("frame", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_a_bad_answer_is_refused(frame: bytes) -> None:
    asking = Reconciliation(ItemSet(FEW))
    asking.first()
    with pytest.raises(GossipFrameError):
        asking.next(frame)


@pytest.mark.parametrize(
    "said", [FINGERPRINT + EVERYTHING + bytes(16), IDS + EVERYTHING + b"\x00"], ids=["fingerprint", "ids"]
)
def test_an_answer_about_what_was_not_asked_is_refused(said: bytes) -> None:
    items = naive.in_order(drawn(3000, seed=15))
    asking = Reconciliation(ItemSet(items))
    assert asking.next(answer(ItemSet(items[1:]), asking.first())) is not None
    with pytest.raises(GossipFrameError, match="not asked"):
        asking.next(FRAME + said)


@pytest.mark.parametrize(
    "said", [FINGERPRINT + EVERYTHING + bytes(16), LATER + EVERYTHING], ids=["always different", "always later"]
)
def test_a_peer_that_never_ends_is_left_after_a_hundred_rounds(said: bytes) -> None:
    asking = Reconciliation(ItemSet(HELD))
    asking.first()
    for _ in range(MAX_ROUNDS - 1):
        assert asking.next(FRAME + said) is not None
    with pytest.raises(GossipFrameError, match="100 rounds"):
        asking.next(FRAME + said)


def test_a_hundred_rounds_that_found_something_end_without_blame() -> None:
    asking = Reconciliation(ItemSet(FEW))
    asking.first()
    said = FRAME + IDS + bound(0, b"\x00") + b"\x01" + bytes(32) + LATER + EVERYTHING
    outcomes = [asking.next(each) for each in [said] + [FRAME + LATER + EVERYTHING] * (MAX_ROUNDS - 1)]
    assert outcomes[-1] is None
    assert None not in outcomes[:-1]
    assert not asking.is_complete
    assert asking.need == ["00" * 32]


@pytest.mark.parametrize("limit", [MIN_FRAME_BYTES - 1, MAX_FRAME_BYTES + 1])
def test_a_frame_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        Reconciliation(ItemSet(), limit)
    with pytest.raises(ValueError, match="limit"):
        answer(ItemSet(), FRAME, limit)


pieces = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([SKIP, FINGERPRINT, IDS, LIST, LATER]),
    st.builds(bound, st.integers(0, 60), st.binary(max_size=33)),
    st.builds(lambda count: varint(count) + bytes(range(32)) * min(count, 3), st.integers(0, 300)),
    st.binary(min_size=16, max_size=16),
)
"""Random bytes alone hardly ever get beyond the first range."""
hostile = st.one_of(st.binary(max_size=300), st.lists(pieces, max_size=30).map(lambda all_: FRAME + b"".join(all_)))


@given(hostile)
@example(FRAME + LIST + EVERYTHING)
@settings(max_examples=150)
def test_no_bytes_make_an_answerer_do_more_than_refuse_or_answer_within_its_limit(frame: bytes) -> None:
    try:
        said = answer(ItemSet(HELD), frame, MIN_FRAME_BYTES)
    except GossipFrameError:
        return
    assert len(said) <= MIN_FRAME_BYTES
    reconcile._read(said, allowed=reconcile._ANSWERERS)


@given(st.sampled_from([HELD, FEW, []]), st.lists(hostile, max_size=4))
@settings(max_examples=150)
def test_no_bytes_make_an_asker_do_more_than_refuse_or_ask_within_its_limit(
    items: Sequence[Item], answers: Sequence[bytes]
) -> None:
    held = ItemSet(items)
    asking = Reconciliation(held, MIN_FRAME_BYTES)
    asking.first()
    said = 0
    for each in answers:
        said += len(each)
        try:
            question = asking.next(each)
        except GossipFrameError:
            return
        if question is None:
            break
        assert len(question) <= MIN_FRAME_BYTES
        answer(held, question, MIN_FRAME_BYTES)
    assert len(asking.need) <= said // 32
    assert len(asking._open) <= said + 1
    assert set(asking.have) <= {identity for _, identity in items}
    assert not set(asking.need) & set(asking.have)


def test_the_most_ranges_that_fit_a_frame_are_answered_within_the_limit() -> None:
    held = ItemSet(drawn(20_000, seed=14, per_depth=1))
    for said in (SKIP + bound(1), LIST + bound(1), FINGERPRINT + bound(1) + bytes(16)):
        frame = FRAME + said * ((MAX_FRAME_BYTES - 1) // len(said))
        assert len(answer(held, frame)) <= MAX_FRAME_BYTES


def test_no_frame_exceeds_its_limit_however_close_its_ranges_come() -> None:
    held = ItemSet(drawn(3000, seed=16))
    differing = FRAME + b"".join(FINGERPRINT + bound(step) + bytes(16) for step in [13] * 20)
    for limit in range(MIN_FRAME_BYTES, MIN_FRAME_BYTES + 400, 3):
        said = answer(held, differing, limit)
        assert len(said) <= limit
        assert said.endswith(LATER + EVERYTHING)
