"""The synchronous mode in virtual time: rounds that last as long as their slowest participant.

Participants are drawn among the clients that are reachable when the round begins; the server sends each a model (down),
each trains and sends its result (up). The next round begins when the last has arrived. Who is gone before, or fails, is
dropped from the round, which does not wait for it any longer, as after a broken connection; so is, with a deadline, who
is not there in time. The method is told of those who remain only; a round in which nobody remains changes nothing.

A message is as large as a participant's was on average in the round before; in the first round it is one model. What a
method does before a client's first round (FlexCFL's pre-training, a joiner's E′ epochs) takes no virtual time here.
"""

import math
from collections.abc import Iterator

import numpy as np

from fl_simulator.engine.conditions import Conditions
from fl_simulator.engine.evaluation import (
    Interval,
    Schedule,
    evaluate_interval,
    is_reachable,
    restore,
    state_of,
)
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.protocol import State, Strategy, Traffic


class TimedRounds:
    """One run, at its beginning, as the strategy is.

    Args:
        participation: Share of all clients that a round wants, in (0, 1]; of those reachable it takes as many, or all.
    """

    def __init__(
        self,
        world: World,
        strategy: Strategy,
        conditions: Conditions,
        schedule: Schedule,
        *,
        participation: float = 1.0,
    ) -> None:
        self._world, self._conditions, self._schedule = world, conditions, schedule
        self.strategy = strategy
        self._wanted = max(round(participation * world.num_clients), 1)
        self._began = 0.0
        self._attempts = 0
        self._rounds = 0
        self._done = 0
        self._message = Traffic(up=world.model_bytes, down=world.model_bytes)
        self._seen = np.zeros(world.num_clients, dtype=bool)

    def play(self) -> Iterator[Interval]:
        end, remaining, dropped = self._plan()
        while self._done < self._schedule.num_evaluations:
            now = self._schedule.time_of(self._done)
            traffic, results, lost = Traffic(), np.zeros(self._world.num_clients, dtype=np.int64), 0
            while end <= now:
                traffic += self._carry_out(end, remaining, dropped)
                results[remaining] += 1
                lost += dropped
                end, remaining, dropped = self._plan()
            interval = evaluate_interval(
                self._world,
                self._schedule,
                self._conditions,
                number=self._done,
                results=results,
                lost=lost,
                traffic=traffic,
                seen=np.flatnonzero(self._seen),
                personal=self.strategy.personal,
            )
            self._done += 1
            yield interval

    def _plan(self) -> tuple[float, Clients, int]:
        """The round that begins now, or when somebody comes; the same however often it is asked.

        Returns:
            When it is over, infinity when nobody comes any more; whose results arrive, ascending; and how many others
            were sent a model.
        """
        conditions, everybody = self._conditions, self._world.present
        coming = [
            window.start for client in everybody if (window := conditions.window(client, self._began)) is not None
        ]
        start = max(self._began, min(coming, default=math.inf))
        if math.isinf(start):
            return math.inf, np.empty(0, dtype=np.int64), 0
        reachable = [client for client in everybody if is_reachable(conditions, client, start)]
        rng = self._world.seeds.generator("participants", self._attempts)
        drawn = np.sort(rng.choice(reachable, min(self._wanted, len(reachable)), replace=False))
        latest = start + self._schedule.deadline_s if self._schedule.deadline_s else math.inf
        end, remaining = start, []
        for client in drawn.tolist():
            over, arrives = self._result(client, start)
            end = max(end, over)
            if arrives and over <= latest:
                remaining.append(client)
        return min(end, latest), np.array(remaining, dtype=np.int64), len(drawn) - len(remaining)

    def _result(self, client: int, start: float) -> tuple[float, bool]:
        """When a participant's result is there, or when it is clear that it will not come; and which of the two."""
        conditions = self._conditions
        samples = len(self._world.population.train[client]) * self._world.training.epochs
        duration = (
            conditions.download_s(client, self._message.down)
            + conditions.compute_s(client, samples, round_index=self._attempts)
            + conditions.upload_s(client, self._message.up)
        )
        end = conditions.lost_at(client, start, duration, round_index=self._attempts)
        return min(start + duration, end), start + duration < end

    def _carry_out(self, end: float, remaining: Clients, dropped: int) -> Traffic:
        traffic = Traffic(down=dropped * self._message.down)
        if count := len(remaining):
            own = self.strategy.round(self._rounds, remaining)
            traffic += own
            self._message = Traffic(up=own.up // count, down=own.down // count)
            self._seen[remaining] = True
            self._rounds += 1
        self._began = end
        self._attempts += 1
        return traffic

    def state(self) -> State:
        return {
            **state_of(self.strategy, self._world),
            "began": np.array(self._began),
            "counts": np.array([self._attempts, self._rounds, self._done]),
            "message": np.array([self._message.up, self._message.down]),
            "seen": self._seen.copy(),
        }

    def restore(self, state: State) -> None:
        restore(self.strategy, self._world, state)
        self._began = float(state["began"])
        self._attempts, self._rounds, self._done = (int(count) for count in state["counts"])
        self._message = Traffic(up=int(state["message"][0]), down=int(state["message"][1]))
        self._seen = state["seen"].copy()
