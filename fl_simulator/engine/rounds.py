"""The synchronous mode: DAG-ACFL's rounds (Sec. IV-A). Who takes part is drawn here, the same for every strategy."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fl_simulator.engine.evaluation import Interval, restore, state_of
from fl_simulator.engine.population import Population
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.protocol import State, Strategy, Traffic
from fl_simulator.training.protocol import Evaluation


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """What becomes different in the course of a run; rounds are counted from 1.

    Attributes:
        late: Clients that take part in no round before ``join_round``.
        join_round: The first that they may take part in.
        moved: The population from ``move_round`` on and before ``return_round``; None: nobody's data change.
        move_round: The first on other data.
        return_round: The first on the own data again; 0: there is none.
    """

    late: frozenset[int] = frozenset()
    join_round: int = 1
    moved: Population | None = None
    move_round: int = 1
    return_round: int = 0

    def are_away(self, number: int) -> bool:
        """Whether those who move are on others' data in this round, from 0."""
        return self.move_round <= number + 1 < (self.return_round or math.inf)

    def absent(self, number: int) -> frozenset[int]:
        """Who has not joined yet in this round, from 0."""
        return self.late if number + 1 < self.join_round else frozenset()


def participants(world: World, number: int, *, participation: float, absent: frozenset[int] = frozenset()) -> Clients:
    """Who takes part in a round: the share ``participation`` of all clients, rounded, at least one; ascending.

    Of those that are drawn, whoever is absent or does nothing in this run is left out.
    """
    wanted = max(round(participation * world.num_clients), 1)
    rng = world.seeds.generator("participants", number)
    drawn = np.sort(rng.choice(world.num_clients, wanted, replace=False)).astype(np.int64)
    drawn = drawn[~np.isin(drawn, sorted(absent))]
    attack = world.attack
    return drawn if attack is None or attack.attacker.takes_part else attack.honest(drawn)


class Rounds:
    """A run in rounds: everybody who takes part sees the models as of the round's start, and all end together.

    Args:
        world: Whose clients.
        strategy: At its beginning.
        rounds: Of the whole run.
        participation: Share of clients in a round, in (0, 1].
        evaluate_every: Rounds between evaluations of all clients that have taken part so far; the last round is always
            evaluated.
        changes: Who joins late, and whose data change.
    """

    def __init__(
        self,
        world: World,
        strategy: Strategy,
        *,
        rounds: int,
        participation: float,
        evaluate_every: int,
        changes: Changes | None = None,
    ) -> None:
        self._world, self.strategy, self._changes = world, strategy, changes or Changes()
        self._rounds, self._participation, self._evaluate_every = rounds, participation, evaluate_every
        self._next = 0

    def play(self) -> Iterator[Interval]:
        """What is left of the rounds, one each time the caller asks; their time is their number, from 1.

        The world's population is then that of the last round played.
        """
        world, changes, own = self._world, self._changes, self._world.population
        seen = np.zeros(world.num_clients, dtype=bool)
        for number in range(self._rounds):
            absent = changes.absent(number)
            present = participants(world, number, participation=self._participation, absent=absent)
            if changes.moved is not None:
                world.population = changes.moved if changes.are_away(number) else own
            seen[present] = True
            if number < self._next:
                continue
            traffic = self.strategy.round(number, present) if len(present) else Traffic()
            self._next = number + 1
            evaluated, evaluation, backdoors = np.empty(0, dtype=np.int64), None, None
            if self._next % self._evaluate_every == 0 or self._next == self._rounds:
                evaluated = np.flatnonzero(seen)
                if world.attack is not None:
                    evaluated = world.attack.honest(evaluated)
                evaluation, backdoors = self._judge(evaluated)
            yield Interval(
                number=number,
                virtual_time_s=float(self._next),
                participants=present,
                results=len(present),
                lost=0,
                traffic=traffic,
                evaluated=evaluated,
                evaluation=evaluation,
                backdoors=backdoors,
                heard=np.flatnonzero(seen),
            )

    def _judge(self, clients: Clients) -> tuple[Evaluation, Evaluation | None]:
        personal = self.strategy.personal(clients)  # perhaps a model for each, which ends with this call
        return (
            self._world.evaluate(personal.models, personal.rows, clients),
            self._world.backdoors(personal.models, personal.rows, clients),
        )

    def state(self) -> State:
        """All that follows depends on, after a round."""
        return {
            **state_of(self.strategy, self._world),
            "next_round": np.array(self._next),
        }

    def restore(self, state: State) -> None:
        """Become the run whose state this is."""
        restore(self.strategy, self._world, state)
        self._next = int(state["next_round"])
