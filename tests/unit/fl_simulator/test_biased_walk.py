"""The biased walk on a DAG of five, whose odds can be worked out by hand, and beside its naive twin."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_simulator.strategies.ledger.biased_walk import Pair, Ratings, Tangle, Walker, preferences, walk
from tests.reference import biased_walk as reference

FIVE = {0: [], 1: [0], 2: [0], 3: [1], 4: [1, 2]}
"""    0 <- 1 <- 3
       0 <- 2 <- 4 -> 1    """
ACCURACY = {1: 0.9, 2: 0.5, 3: 0.6, 4: 0.8}


class Scripted(np.random.Generator):
    """Draws that the test decides."""

    def __init__(self, draws: Sequence[float]) -> None:
        super().__init__(np.random.PCG64(0))
        self.left = list(draws)

    def random(self) -> float:
        return self.left.pop(0)


class Rater:
    """Knows every rating, and remembers what it was asked."""

    def __init__(self, ratings: Ratings, accuracy: dict[int, float] | None = None) -> None:
        self.ratings, self.accuracy = ratings, accuracy or ACCURACY
        self.questions: list[list[Pair]] = []

    def __call__(self, pairs: Sequence[Pair]) -> None:
        self.questions.append(sorted(pairs))
        for client, transaction in pairs:
            self.ratings[client, transaction] = self.accuracy[transaction]


def tangle_of(parents: reference.Parents, *, tallest: int = 100) -> Tangle:
    tangle = Tangle(tallest=tallest)
    for number in range(1, len(parents)):
        assert tangle.add(parents[number]) == number
    return tangle


def end_of(draws: Sequence[float], *, alpha: float, options: Sequence[int] = (0,)) -> int:
    ratings: Ratings = {}
    walker = Walker(0, options, Scripted(draws))
    return walk(tangle_of(FIVE), [walker], ratings, alpha=alpha, rate=Rater(ratings))[0]


def test_the_better_of_two_is_exp_alpha_times_as_likely() -> None:
    # α = ln 3: at 0, 1 is three times as likely as 2; at 1, 4 three times as likely as 3; 2 leads to 4 alone.
    grid = [(place + 0.5) / 16 for place in range(16)]
    ends = Counter(end_of([first, second], alpha=math.log(3)) for first in grid for second in grid)
    assert ends == {3: 256 * 3 // 16, 4: 256 * 13 // 16}  # 3/4 · 1/4, and 3/4 · 3/4 + 1/4


def test_an_only_approver_is_taken_without_a_rating_or_a_draw() -> None:
    ratings: Ratings = {}
    rater = Rater(ratings)
    assert walk(tangle_of(FIVE), [Walker(0, [2], Scripted([]))], ratings, alpha=1.0, rate=rater) == [4]
    assert rater.questions == []


def test_starts_are_drawn_as_approvers_are() -> None:
    assert end_of([0.7, 0.1], alpha=math.log(3), options=[1, 2]) == 3
    assert end_of([0.8], alpha=math.log(3), options=[1, 2]) == 4


def test_where_there_is_only_genesis_the_walk_ends_there() -> None:
    assert walk(Tangle(tallest=1), [Walker(0, [0], Scripted([]))], {}, alpha=1.0, rate=Rater({})) == [0]


def test_preferences_do_not_depend_on_how_far_apart_ratings_lie() -> None:
    assert preferences([0.5, 0.75, 1.0], 2.0) == pytest.approx([math.exp(-2), math.exp(-1), 1.0])
    assert preferences([0.5, 0.5625, 0.625], 2.0) == pytest.approx([math.exp(-2), math.exp(-1), 1.0])


def test_ratings_that_are_alike_and_an_alpha_of_zero_prefer_nothing() -> None:
    assert preferences([0.3, 0.3, 0.3], 10.0) == [1.0, 1.0, 1.0]
    assert preferences([0.1, 0.9], 0.0) == [1.0, 1.0]


def test_an_alpha_that_underflows_leaves_the_best() -> None:
    assert preferences([0.1, 0.9], 1e6) == [0.0, 1.0]


def test_all_walks_of_a_step_are_one_question_and_no_pair_is_asked_twice() -> None:
    ratings: Ratings = {}
    rater = Rater(ratings)
    walkers = [Walker(client, [0], Scripted([0.1, 0.9])) for client in (0, 0, 1)]
    assert walk(tangle_of(FIVE), walkers, ratings, alpha=0.0, rate=rater) == [4, 4, 4]
    assert rater.questions == [[(0, 1), (0, 2), (1, 1), (1, 2)], [(0, 3), (0, 4), (1, 3), (1, 4)]]


def test_heights_of_the_five_and_where_walks_start() -> None:
    tangle = tangle_of(FIVE)
    assert [tangle.height(number) for number in range(5)] == [2, 1, 1, 0, 0]
    assert tangle.starts(1, 1) == [1, 2]
    assert tangle.starts(3, 9) == [0]  # not so high yet
    assert [tangle_of(FIVE, tallest=0).height(number) for number in range(5)] == [1, 1, 1, 0, 0]


@st.composite
def dags(draw: st.DrawFn, most: int = 14) -> dict[int, list[int]]:
    """Transactions with one or two earlier parents."""
    parents: dict[int, list[int]] = {0: []}
    for number in range(1, draw(st.integers(1, most))):
        parents[number] = sorted(draw(st.sets(st.integers(0, number - 1), min_size=1, max_size=2)))
    return parents


@given(parents=dags(), low=st.integers(1, 4), width=st.integers(0, 3))
def test_heights_and_starts_are_those_of_the_definition(parents: dict[int, list[int]], low: int, width: int) -> None:
    tangle = tangle_of(parents, tallest=low + width)
    for number in parents:
        assert tangle.height(number) == min(reference.height(parents, number), low + width + 1)
        assert list(tangle.approvers(number)) == reference.approvers(parents, number)
        assert tangle.is_tip(number) == (reference.height(parents, number) == 0)
    assert tangle.starts(low, low + width) == reference.starts(parents, low, low + width)


@given(data=st.data(), low=st.integers(1, 3), width=st.integers(0, 2))
def test_what_is_out_of_reach_is_never_asked_for_again(data: st.DataObject, low: int, width: int) -> None:
    high = low + width
    tangle, parents = Tangle(tallest=high), {0: list[int]()}
    kept = {0}
    for _ in range(data.draw(st.integers(1, 8), label="rounds")):
        askable = reference.can_be_asked_for(parents, low, high)
        assert askable <= kept
        tips = sorted(each for each in askable if not reference.approvers(parents, each))
        for _ in range(data.draw(st.integers(1, 3), label="participants")):
            ends = sorted(data.draw(st.sets(st.sampled_from(tips), min_size=1, max_size=2), label="ends"))
            number = tangle.add(ends)
            parents[number] = ends
            kept.add(number)
        kept &= set(tangle.within_reach(low, high))


def test_a_tip_that_was_left_behind_falls_out_of_reach() -> None:
    tangle = tangle_of({0: [], 1: [0], 2: [0], 3: [1], 4: [3], 5: [4]})
    assert tangle.within_reach(1, 2) == [3, 4, 5]  # 2 hangs on genesis alone, whose height is 4
    assert tangle.within_reach(5, 9) == [0, 1, 2, 3, 4, 5]  # every walk begins at genesis still


@given(
    parents=dags(),
    accuracies=st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=14 * 3, max_size=14 * 3),
    alpha=st.sampled_from([0.0, 0.5, 10.0, 1e4]),
    seed=st.integers(0, 1000),
)
def test_walking_together_is_walking_alone(
    parents: dict[int, list[int]], accuracies: list[float], alpha: float, seed: int
) -> None:
    ratings: Ratings = {}

    def rate(pairs: Sequence[Pair]) -> None:
        for client, transaction in pairs:
            ratings[client, transaction] = accuracies[3 * transaction + client]

    clients, begin = (0, 0, 1, 2), reference.starts(parents, 1, 2)
    walkers = [Walker(client, begin, np.random.default_rng([seed, place])) for place, client in enumerate(clients)]
    alone = [
        reference.walk(
            parents,
            begin,
            lambda transaction, client=client: accuracies[3 * transaction + client],
            np.random.default_rng([seed, place]).random,
            alpha,
        )
        for place, client in enumerate(clients)
    ]
    assert walk(tangle_of(parents), walkers, ratings, alpha=alpha, rate=rate) == alone
