"""What is odd about an update, beside the steps and averages of the others."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.building import build_update
from fl_core.trust.alarms import Alarm, AlarmKind, Alarms, Seen, Thresholds
from fl_core.trust.refusal import refused_extension
from fl_core.types import AuthorId, Digest, TxId
from tests.builders import author_of, key_from_seed

LEDGER = TxId("1" * 64)


class Watched:
    """A ledger of which only alarms are kept; updates are numbered, authors have names."""

    def __init__(self) -> None:
        self.authors: dict[TxId, AuthorId] = {}
        self.newest: dict[str, TxId] = {}
        self.alarms = Alarms(self.authors.get)

    def author(self, name: str) -> AuthorId:
        return author_of(key_from_seed(100 + ord(name)))

    def publish(
        self,
        name: str,
        others: str = "",
        *,
        step: float | None = 1.0,
        norm: float = 5.0,
        model: int | None = None,
        metrics: Mapping[str, float] | None = None,
        refused: str = "",
        has_evidence: bool = True,
        nearest: tuple[str, float] | None = None,
    ) -> Sequence[Alarm]:
        number = len(self.authors)
        parents = tuple(sorted(self.newest[each] for each in others)) or (LEDGER,)
        update = build_update(
            ledger=LEDGER,
            author=self.author(name),
            sequence=number,
            created_at_ms=0,
            num_examples=1,
            start=Digest("2" * 64),
            model_digest=Digest(f"{model if model is not None else 1000 + number:064x}"),
            model_size=4,
            parents=parents,
            evidence=Digest("3" * 64) if refused and has_evidence else None,
            metrics=metrics or {},
            extensions=refused_extension([self.newest[each] for each in refused]),
        )
        near = None if nearest is None else (self.newest[nearest[0]], nearest[1])
        alarms = self.alarms.see(Seen(update.id, update.header, norm, step, near))
        self.authors[update.id], self.newest[name] = update.header.author, update.id
        return alarms

    def standing(self) -> list[tuple[str, AlarmKind, int]]:
        names = {self.author(name): name for name in "abcdefgh"}
        return [(names[each.author], each.kind, each.count) for each in self.alarms.standing()]


@pytest.fixture
def ledger() -> Watched:
    """Five authors, who have averaged with each other."""
    watched = Watched()
    for name in "abcde":
        assert watched.publish(name) == ()
    for name in "abcde":
        assert watched.publish(name, "abcde") == ()
    return watched


def kinds(alarms: Sequence[Alarm]) -> list[AlarmKind]:
    return [alarm.kind for alarm in alarms]


def test_steps_are_odd_beside_those_of_the_authors_that_were_averaged(ledger: Watched) -> None:
    assert kinds(ledger.publish("a", "abcde", step=2.7)) == []  # e¹ times the median, where deviations are least
    (large,) = ledger.publish("a", "abcde", step=2.8)
    assert (large.kind, large.bound) == (AlarmKind.LARGE_STEP, pytest.approx(2.718, abs=1e-3))
    assert kinds(ledger.publish("b", "abcde", step=0.009)) == [AlarmKind.NO_STEP]
    assert sorted(ledger.standing()) == [("a", AlarmKind.LARGE_STEP, 1), ("b", AlarmKind.NO_STEP, 1)]


def test_a_cluster_with_larger_steps_than_another_is_not_odd(ledger: Watched) -> None:
    for name in "fgh":
        ledger.publish(name, step=40.0)
    for _ in range(2):
        for name in "fgh":
            ledger.publish(name, "fgh", step=40.0)
    assert kinds(ledger.publish("f", "fgh", step=45.0)) == []
    assert kinds(ledger.publish("a", "abcde", step=40.0)) == [AlarmKind.LARGE_STEP]


def test_copies_are_found_to_the_byte_and_where_a_step_ends_on_anothers_model(ledger: Watched) -> None:
    ledger.publish("a", "ab", model=7)
    assert kinds(ledger.publish("b", "ab", model=7)) == [AlarmKind.COPY]
    assert kinds(ledger.publish("a", "ab", model=7)) == []  # its own
    assert kinds(ledger.publish("c", "abc", nearest=("d", 0.09))) == [AlarmKind.COPY]
    assert kinds(ledger.publish("c", "abc", nearest=("d", 0.11))) == []


def test_a_zero_model_is_named(ledger: Watched) -> None:
    assert kinds(ledger.publish("a", "abcde", norm=0.0)) == [AlarmKind.ZERO_MODEL]


def test_an_author_whose_averages_do_worse_than_the_askers_own_models_is_named_once(ledger: Watched) -> None:
    said: list[tuple[AlarmKind, AuthorId]] = []
    for turn in range(4):
        for name in "abcd":
            worse = {"_own_accuracy": 0.8, "_refused_accuracy": 0.3 + 0.01 * turn, "accuracy": 0.8}
            said += [(each.kind, each.author) for each in ledger.publish(name, refused="e", metrics=worse)]
    assert said == [(AlarmKind.UNHELPFUL, ledger.author("e"))]
    for _ in range(10):  # the latest 40 averages count: it is forgiven
        for name in "abcd":
            ledger.publish(name, "e", metrics={"_own_accuracy": 0.5, "accuracy": 0.8})
    assert ("e", AlarmKind.UNHELPFUL) not in [each[:2] for each in ledger.standing()]


def test_a_claim_beyond_all_measure_counts_as_one(ledger: Watched) -> None:
    for turn in range(4):
        for name in "abcd":
            ledger.publish(name, refused="e", metrics={"_own_accuracy": -1e308 if turn else 1e308, "accuracy": 1e308})
    assert ledger.standing() == []  # four benefits of 0, and twelve of 1


def test_who_was_not_given_a_model_judges_nobody(ledger: Watched) -> None:
    for _ in range(4):
        for name in "abcd":
            worse = {"_own_accuracy": 0.8, "_refused_accuracy": 0.3}
            ledger.publish(name, refused="e", has_evidence=False, metrics=worse)
    assert ledger.standing() == []


def test_two_askers_alone_name_nobody(ledger: Watched) -> None:
    for _ in range(20):
        for name in "ab":
            ledger.publish(name, refused="e", metrics={"_own_accuracy": 0.8, "_refused_accuracy": 0.1})
    assert ledger.standing() == []


def test_an_author_that_nobody_averages_is_named_where_most_others_are(ledger: Watched) -> None:
    for _ in range(10):
        for name in "abcd":
            ledger.publish(name, "abcd")
    alone = Thresholds().least_updates
    assert [kinds(ledger.publish("f")) for _ in range(alone + 1)] == [[]] * (alone - 1) + [[AlarmKind.UNSELECTED], []]
    ledger.publish("a", "abf")
    assert ledger.standing() == []


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0.8, 1.25)), min_size=20, max_size=60))
def test_steps_that_differ_by_a_quarter_are_never_odd(published: list[tuple[str, float]]) -> None:
    watched = Watched()
    for name, step in published:
        others = "".join(sorted(watched.newest))
        assert watched.publish(name, others, step=step) == ()
