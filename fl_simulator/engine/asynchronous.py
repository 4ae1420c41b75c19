"""The asynchronous mode: everybody works at a speed of its own, and nobody waits for anybody.

A client that is reachable and idle asks its server for work (a question, up), is given a model (down), trains, and
sends the result (up); then it asks again. If it is gone before the result has arrived, or the training fails, the work
is lost, and it asks anew when it is back. ``conditions`` says how long each step takes.

What a training comes to is needed when it is finished, not before. So trainings that overlap in virtual time are
computed together, as late as possible: when the first of them is finished, all that wait. Whether they were is never
part of what comes out, and one that will be lost is not computed at all.
"""

import heapq
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

import numpy as np

from fl_core.types import Vector32
from fl_simulator.engine.conditions import Conditions
from fl_simulator.engine.evaluation import Interval, Schedule, evaluate_interval, restore, state_of
from fl_simulator.engine.world import World
from fl_simulator.strategies.asynchronous.protocol import Assignment, AsynchronousStrategy
from fl_simulator.strategies.protocol import State


class _Kind(IntEnum):
    """What may happen to a client."""

    COMES = 0
    """It may be reachable again."""
    ASKS = 1
    """Its question arrives."""
    FINISHES = 2
    """Its result arrives, or is ready where nothing is sent."""
    MISSES = 3
    """It has gone before its question arrived."""
    LOSES = 4
    """It has gone, or failed, before its result arrived."""


@dataclass(slots=True, eq=False)
class _Work:
    """A training that will be finished; ``model`` is where it starts until it is computed, then what it came to."""

    model: Vector32
    finish_at: float
    round_index: int
    up_bytes: int
    epochs: int
    proximal: float
    is_computed: bool = False
    start: Vector32 | None = None
    """Where it started, in a run with attackers."""

    @property
    def together_with(self) -> tuple[int, float]:
        """Trainings for which this is the same can be computed by one call."""
        return self.epochs, self.proximal


class AsynchronousRun:
    """One run, at its beginning, as the strategy is; the conditions are those of the world's clients."""

    def __init__(
        self, world: World, strategy: AsynchronousStrategy, conditions: Conditions, schedule: Schedule
    ) -> None:
        self._world, self._conditions, self._schedule = world, conditions, schedule
        self.strategy = strategy
        self._now = 0.0
        self._events: list[tuple[float, int, _Kind, int]] = []  # a heap: time, order of insertion, what, whose
        self._inserted = 0
        for client in world.present:
            if not self._follows(client):
                self._insert(0.0, _Kind.COMES, client)
        self._idle: list[int] = []  # ascending
        self._busy: set[int] = set()
        self._work: dict[int, _Work] = {}
        self._round_indices = np.zeros(world.num_clients, dtype=np.int64)
        self._results = np.zeros(world.num_clients, dtype=np.int64)
        self._draws = 0
        self._done = 0
        self._lost = 0

    def play(self) -> Iterator[Interval]:
        while self._done < self._schedule.num_evaluations:
            self.strategy.begin_interval()
            before, self._lost = self._results.copy(), 0
            now = self._schedule.time_of(self._done)
            self._pass_time(until=now)
            interval = evaluate_interval(
                self._world,
                self._schedule,
                self._conditions,
                number=self._done,
                results=self._results - before,
                lost=self._lost,
                traffic=self.strategy.traffic,
                seen=np.flatnonzero(self._results),
                personal=partial(self.strategy.personal, now=now),
            )
            self._done += 1
            yield interval

    def _follows(self, client: int) -> bool:
        """Whether the client is an attacker that has no time of its own."""
        attack = self._world.attack
        return attack is not None and attack.follows and client in attack.clients

    def _insert(self, when: float, kind: _Kind, client: int) -> None:
        heapq.heappush(self._events, (when, self._inserted, kind, client))
        self._inserted += 1

    def _pass_time(self, *, until: float) -> None:
        """Let everything happen until then, inclusive."""
        while self._events and self._events[0][0] <= until:
            self._now, _, kind, client = heapq.heappop(self._events)
            match kind:
                case _Kind.COMES:
                    self._come(client)
                case _Kind.ASKS:
                    self._ask(client)
                case _Kind.FINISHES:
                    self._finish(client)
                case _Kind.MISSES:
                    self._rest(client)
                case _Kind.LOSES:
                    self._lost += 1
                    self._rest(client)
            if not self._events or self._events[0][0] > self._now:  # who comes at the same time has the same chance
                self._set_to_work()
        self._now = until

    def _come(self, client: int) -> None:
        window = self._conditions.window(client, self._now)
        if window is None:
            return
        if window.start > self._now:
            self._insert(window.start, _Kind.COMES, client)
        else:
            insort(self._idle, client)

    def _set_to_work(self) -> None:
        """Let idle clients ask, as many as may be at work; who has gone meanwhile comes later."""
        limit, now = self._schedule.concurrency, self._now
        while self._idle and not 0 < limit <= len(self._busy):
            client = self._idle.pop(self._drawn() if limit else 0)
            window = self._conditions.window(client, now)
            if window is None or window.start > now:
                self._come(client)
                continue
            self._busy.add(client)
            arrives = now + self._conditions.upload_s(client, self.strategy.question_bytes(client))
            self._happen(client, _Kind.ASKS, arrives, before=window.end, otherwise=_Kind.MISSES)

    def _drawn(self) -> int:
        rng = self._world.seeds.generator("next client", self._draws)
        self._draws += 1
        return int(rng.integers(len(self._idle)))

    def _happen(self, client: int, kind: _Kind, when: float, *, before: float, otherwise: _Kind) -> bool:
        """Let one thing happen at ``when``, or the other at ``before`` if that is not later; whether it is the one."""
        happens = when < before
        self._insert(when if happens else before, kind if happens else otherwise, client)
        return happens

    def _ask(self, client: int) -> None:
        now = self._now
        assignment = self.strategy.start(client, now=now)
        work = self._work_of(client, assignment)
        duration = self._duration_s(client, assignment, work.epochs, work.round_index)
        end = self._conditions.lost_at(client, now, duration, round_index=work.round_index)
        if self._happen(client, _Kind.FINISHES, now + duration, before=end, otherwise=_Kind.LOSES):
            work.finish_at = now + duration
            self._work[client] = work

    def _work_of(self, client: int, assignment: Assignment) -> _Work:
        """The client's next training, to be finished at once until it is known when."""
        round_index = int(self._round_indices[client])
        self._round_indices[client] += 1
        epochs = self._world.training.epochs if assignment.epochs is None else assignment.epochs
        start = None if self._world.attack is None else assignment.model
        return _Work(
            assignment.model, self._now, round_index, assignment.up_bytes, epochs, assignment.proximal, start=start
        )

    def _duration_s(self, client: int, assignment: Assignment, epochs: int, round_index: int) -> float:
        """From the server's answer to the result's arrival."""
        samples = len(self._world.population.train[client]) * epochs
        duration = self._conditions.download_s(client, assignment.down_bytes)
        duration += self._conditions.compute_s(client, samples, round_index=round_index)
        if assignment.up_bytes:
            duration += self._conditions.upload_s(client, assignment.up_bytes)
        return duration

    def _finish(self, client: int) -> None:
        if not self._work[client].is_computed:
            self._compute_with(client)
        work = self._work.pop(client)
        self._take(client, work)
        if work.up_bytes:
            clusters = self._world.population.clusters
            for attacker in self._world.present:
                if self._follows(attacker) and clusters[attacker] == clusters[client]:
                    self._follow(attacker)
        self._rest(client)

    def _take(self, client: int, work: _Work) -> None:
        """Hand a result in; what the client trains only for itself it keeps as it is."""
        model, attack = work.model, self._world.attack
        if attack is not None and work.up_bytes:
            assert work.start is not None, "a run with attackers remembers where work started"
            model = attack.hand_in(client, work.start, model, round_index=work.round_index)
        self.strategy.finish(client, model, now=self._now)
        if work.up_bytes:
            self._results[client] += 1

    def _follow(self, attacker: int) -> None:
        """Let an attacker ask, train and hand in within this moment; what it trains only for itself comes before."""
        for _ in range(2):
            assignment = self.strategy.start(attacker, now=self._now)
            self._work[attacker] = self._work_of(attacker, assignment)
            self._compute([attacker])
            work = self._work.pop(attacker)
            self._take(attacker, work)
            if work.up_bytes:
                break

    def _compute_with(self, needed: int) -> None:
        """Train a client's model, and with it others that wait, those that are finished first before."""
        key = self._work[needed].together_with
        waiting = [
            client
            for client, work in self._work.items()
            if client != needed and not work.is_computed and work.together_with == key
        ]
        waiting.sort(key=lambda client: (self._work[client].finish_at, client))
        self._compute([needed, *waiting][: self._schedule.largest_batch or None])

    def _compute(self, clients: list[int]) -> None:
        """Train these clients' models together."""
        models = np.stack([self._work[client].model for client in clients])
        epochs, proximal = self._work[clients[0]].together_with
        self._world.train(
            models,
            clients,
            round_index=[self._work[client].round_index for client in clients],
            epochs=epochs,
            proximal=proximal,
        )
        for client, model in zip(clients, models, strict=True):
            self._work[client].model, self._work[client].is_computed = model.copy(), True

    def _rest(self, client: int) -> None:
        self._busy.discard(client)
        self._come(client)

    def state(self) -> State:
        works = list(self._work.values())
        size = self._world.trainer.layout.num_parameters
        starts = [] if self._world.attack is None else [work.start for work in works]
        return {
            **state_of(self.strategy, self._world),
            "work.starts": np.array(starts, dtype=np.float32).reshape(-1, size),
            "now": np.array(self._now),
            "events": np.array(
                [(when, kind, client) for when, _, kind, client in sorted(self._events)], dtype=np.float64
            ).reshape(-1, 3),
            "idle": np.array(self._idle, dtype=np.int64),
            "busy": np.array(sorted(self._busy), dtype=np.int64),
            "work.clients": np.array(list(self._work), dtype=np.int64),
            "work.models": np.array([work.model for work in works], dtype=np.float32).reshape(-1, size),
            "work.figures": np.array(
                [
                    (work.finish_at, work.round_index, work.up_bytes, work.epochs, work.proximal, work.is_computed)
                    for work in works
                ],
                dtype=np.float64,
            ).reshape(-1, 6),
            "round_indices": self._round_indices.copy(),
            "results": self._results.copy(),
            "counts": np.array([self._draws, self._done]),
        }

    def restore(self, state: State) -> None:
        restore(self.strategy, self._world, state)
        self._now = float(state["now"])
        self._events = []
        for when, kind, client in state["events"].tolist():
            self._insert(when, _Kind(int(kind)), int(client))
        self._idle, self._busy = state["idle"].tolist(), set(state["busy"].tolist())
        rows = zip(state["work.clients"].tolist(), state["work.models"], state["work.figures"].tolist(), strict=True)
        self._work = {
            client: _Work(model.copy(), finish_at, int(round_index), int(up), int(epochs), proximal, bool(computed))
            for client, model, (finish_at, round_index, up, epochs, proximal, computed) in rows
        }
        if self._world.attack is not None:
            for work, start in zip(self._work.values(), state["work.starts"], strict=True):
                work.start = start.copy()
        self._round_indices, self._results = state["round_indices"].copy(), state["results"].copy()
        self._draws, self._done = (int(count) for count in state["counts"])
        self._lost = 0
