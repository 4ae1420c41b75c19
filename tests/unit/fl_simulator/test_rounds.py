"""Rounds: who takes part is the same whatever is compared, and who is judged when."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray

from fl_simulator.engine.population import exchanged
from fl_simulator.engine.rounds import Changes, Rounds, participants
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.protocol import PersonalizedModels, State, Strategy, Traffic
from tests.simulations import make_world, two_camps

CLIENTS = 6


class Noted:
    """A strategy that learns nothing and notes what it is asked."""

    name = "noted"

    def __init__(self, world: World) -> None:
        self._model = world.initial_model()
        self.rounds: list[tuple[int, list[int]]] = []
        self.judged: list[list[int]] = []

    def round(self, number: int, participants: Clients) -> Traffic:
        self.rounds.append((number, participants.tolist()))
        return Traffic(up=number, down=2 * number)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        self.judged.append([int(client) for client in clients])
        return PersonalizedModels(self._model[np.newaxis], np.zeros(len(clients), np.int64))

    def groups(self) -> NDArray[np.int64] | None:
        return None

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        assert state == {}


def rounds_of(
    strategy: Strategy | None = None,
    *,
    rounds: int = 7,
    participation: float = 0.5,
    evaluate_every: int = 3,
    world: World | None = None,
    changes: Changes | None = None,
) -> Rounds:
    here = world or make_world()
    return Rounds(
        here,
        strategy or Noted(here),
        rounds=rounds,
        participation=participation,
        evaluate_every=evaluate_every,
        changes=changes,
    )


# -- who takes part -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "wanted"), [(1.0, 6), (0.5, 3), (0.75, 4), (0.4, 2), (0.34, 2), (0.16, 1), (0.001, 1)]
)
def test_a_share_of_all_clients_takes_part_and_one_at_least(share: float, wanted: int) -> None:
    present = participants(make_world(), 0, participation=share)
    assert len(present) == len(set(present.tolist())) == wanted
    assert present.tolist() == sorted(present.tolist())
    assert set(present.tolist()) <= set(range(CLIENTS))


def test_every_round_and_every_seed_draws_anew_and_the_same_again() -> None:
    def drawn(seed: int) -> list[list[int]]:
        world = make_world(two_camps(clients=40, samples=4), seed=seed)
        return [participants(world, number, participation=0.5).tolist() for number in range(5)]

    assert drawn(0) == drawn(0)
    assert len({str(each) for each in drawn(0) + drawn(1)}) == 10


def test_everybody_has_its_turn() -> None:
    world = make_world(two_camps(clients=40, samples=4))
    counts = np.zeros(40, int)
    for number in range(200):
        counts[participants(world, number, participation=0.25)] += 1
    assert counts.sum() == 2000
    assert counts.min() > 50 - 5 * np.sqrt(200 * 0.25 * 0.75), "five standard deviations below the mean"


# -- what is done with them ------------------------------------------------------------------------------


def test_a_strategy_is_given_each_round_once_in_order_with_its_participants() -> None:
    world = make_world()
    noted = Noted(world)
    played = list(rounds_of(noted, world=world).play())
    assert [number for number, _ in noted.rounds] == [each.number for each in played] == list(range(7))
    assert [those for _, those in noted.rounds] == [each.participants.tolist() for each in played]
    assert [(each.traffic.up, each.traffic.down) for each in played] == [(n, 2 * n) for n in range(7)]


def test_a_round_is_played_when_it_is_asked_for_and_not_before() -> None:
    world = make_world()
    noted = Noted(world)
    playing = rounds_of(noted, world=world, rounds=5).play()
    assert noted.rounds == []
    list(islice(playing, 2))
    assert [number for number, _ in noted.rounds] == [0, 1]


@pytest.mark.parametrize(
    ("rounds", "every", "judged"),
    [(7, 3, [2, 5, 6]), (6, 3, [2, 5]), (3, 1, [0, 1, 2]), (4, 10, [3]), (1, 1, [0])],
)
def test_every_so_many_rounds_are_judged_and_the_last_always(rounds: int, every: int, judged: list[int]) -> None:
    played = list(rounds_of(rounds=rounds, evaluate_every=every).play())
    assert [each.number for each in played if each.evaluation is not None] == judged
    assert all(len(each.evaluated) == 0 for each in played if each.evaluation is None)


def test_who_has_taken_part_so_far_is_judged_by_its_own_model() -> None:
    world = make_world()
    noted = Noted(world)
    played = list(rounds_of(noted, world=world, evaluate_every=1, participation=0.34, rounds=5).play())
    seen: set[int] = set()
    for each, judged in zip(played, noted.judged, strict=True):
        seen |= set(each.participants.tolist())
        assert each.evaluated.tolist() == judged == sorted(seen)
        assert each.evaluation is not None
        assert each.evaluation.count.tolist() == [len(world.population.test[client]) for client in judged]
    assert len(seen) > 2, "the draws differ, so that being judged later is seen"


def test_who_goes_on_plays_and_judges_as_if_it_had_never_stopped() -> None:
    whole = list(rounds_of(evaluate_every=1).play())
    stopped, resumed = rounds_of(evaluate_every=1), rounds_of(evaluate_every=1)
    list(islice(stopped.play(), 4))
    resumed.restore(stopped.state())
    rest = list(resumed.play())
    assert [each.number for each in rest] == [4, 5, 6]
    for before, after in zip(whole[4:], rest, strict=True):
        assert before.participants.tolist() == after.participants.tolist()
        assert before.evaluated.tolist() == after.evaluated.tolist()
        assert (before.evaluation is None) == (after.evaluation is None)


def test_a_rounds_time_is_its_number_and_every_participants_result_is_taken() -> None:
    played = list(rounds_of().play())
    assert [each.virtual_time_s for each in played] == [1, 2, 3, 4, 5, 6, 7]
    assert all((each.results, each.lost) == (len(each.participants), 0) for each in played)


# -- who joins late, and whose data change ------------------------------------------------------------------


def test_who_joins_late_takes_part_from_that_round_on() -> None:
    late = Changes(late=frozenset({1, 4}), join_round=3)
    played = list(rounds_of(participation=1.0, rounds=4, evaluate_every=1, changes=late).play())
    assert [each.participants.tolist() for each in played] == [[0, 2, 3, 5]] * 2 + [[0, 1, 2, 3, 4, 5]] * 2
    assert [each.evaluated.tolist() for each in played] == [each.participants.tolist() for each in played]


class Watching(Noted):
    """Notes what cluster each client is of when a round is played and when it is judged."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.world = world
        self.clusters: list[list[int]] = []

    def round(self, number: int, participants: Clients) -> Traffic:
        self.clusters.append(self.world.population.clusters.tolist())
        return super().round(number, participants)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        self.clusters.append(self.world.population.clusters.tolist())
        return super().personal(clients)


def drifting(*, rounds: int = 5) -> tuple[Rounds, Watching, World]:
    """Everybody has the other camp's data in the third and the fourth round."""
    world = make_world()
    moved = exchanged(world.population, 1.0, rng=np.random.default_rng(0))
    watching = Watching(world)
    changes = Changes(moved=moved, move_round=3, return_round=5)
    return rounds_of(watching, rounds=rounds, evaluate_every=1, world=world, changes=changes), watching, world


def test_who_moves_trains_and_is_judged_on_the_others_data_until_its_return() -> None:
    run, watching, world = drifting()
    own = world.population.clusters.tolist()
    other = [1 - cluster for cluster in own]
    list(run.play())
    assert watching.clusters == [own] * 4 + [other] * 4 + [own] * 2


def test_a_run_that_is_resumed_among_the_others_goes_on_there() -> None:
    stopped, _, _ = drifting()
    whole = list(drifting()[0].play())
    list(islice(stopped.play(), 3))
    resumed, watching, _ = drifting()
    resumed.restore(stopped.state())
    rest = list(resumed.play())
    assert [each.number for each in rest] == [3, 4]
    assert len(watching.clusters) == 4
    for one, other in zip(rest, whole[3:], strict=True):
        assert one.evaluation is not None
        assert other.evaluation is not None
        assert one.evaluation.correct.tolist() == other.evaluation.correct.tolist()
