"""Whom a busy server lets in: finished publications before fetches, and those before questions, which wait their turn.

A question leads to a fetch and a publication, so no more are let in than can be finished. Each of the others is refused
at its head and told when its turn comes, by how many wait before it and how fast they are let in; who comes back in
turn finds room that is closed to newcomers, and that nobody fills with anything else. So nobody waits long in the
server itself, and nobody for ever outside.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from fl_core.wire import v1
from ledger_server.http.problems import RETRY_AFTER_S, Problem
from ledger_server.shares import Shares

_QUESTIONS: Final = 0.25
"""Of the room, how much may be filled with a newcomer's question, and how much questions in turn fill, shared; …"""
_FETCHES: Final = 0.875
"""… with a fetch, or a question in turn: what is left is for publications."""
_STREAMS: Final = 0.5
"""Of the room, how much those fill, shared, who listen to events."""
_MOST_TURNS: Final = 10_000
"""Who comes when so many wait has no turn, and is told to come again."""
LONGEST_WAIT_S: Final = 60
"""The most that a client is told to wait at a time, however far its turn is."""
LATE_S: Final = 10.0
"""How long a turn waits for its client."""
_FIRST_STEP_S: Final = 0.03
"""What the first turns are given by: of 3,000 that come at once, none is later than 90 s, where the SDK waits 300."""
_WEIGHT: Final = 0.02
"""Of the newest interval, in the mean interval between questions that are let in."""


def too_busy(retry_after_s: float = RETRY_AFTER_S) -> Problem:
    """With this caller's requests, or with all."""
    wait = {"retry-after": str(min(max(math.ceil(retry_after_s), RETRY_AFTER_S), LONGEST_WAIT_S))}
    detail = "as many requests, or as many of yours, are being answered as may be; try again"
    return Problem("too-busy", detail, headers=wait)


class Admission:
    """Says which requests find room, counts those in progress, and keeps the line of those that ask.

    Args:
        room: How many requests there may be.
        now_s: A clock that never goes back.

    Attributes:
        requests: Who has how many requests in progress.
    """

    def __init__(self, room: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._room, self._now_s = room, now_s
        self.requests = Shares(room)
        self._questions = Shares(max(1, int(_QUESTIONS * room)))
        self._streams = Shares(max(1, int(_STREAMS * room)))
        self._turns: dict[str, float] = {}
        self._step_s, self._last_s = _FIRST_STEP_S, now_s()

    def enter(self, path: str, caller: str | None) -> None:
        """Count a request; None is a caller whose holdings are not looked at."""
        for counted in self._counted(path):
            counted.take(caller)

    def leave(self, path: str, caller: str | None) -> None:
        """The opposite."""
        for counted in self._counted(path):
            counted.give_back(caller)

    def _counted(self, path: str) -> tuple[Shares, ...]:
        kind = self._questions if path == v1.SELECTIONS else self._streams if path in v1.STREAMS else None
        return (self.requests,) if kind is None else (self.requests, kind)

    def refusal(self, method: str, path: str, caller: str, *, is_counted: bool) -> Problem | None:
        """Why a request, counted among those in progress or not yet, may not come in; None lets it in."""
        more = 0 if is_counted else 1
        if self.requests.excess(caller, more) > 0 or (path in v1.STREAMS and self._streams.excess(caller, more) > 0):
            return too_busy()
        streams = self._streams.total  # they are not at work
        work, room = self.requests.total - streams + more, self._room - streams
        if method == "POST" and path == v1.SELECTIONS:
            return self._question(caller, work, room, more)
        is_finished = method == "POST" and path == v1.TRANSACTIONS
        is_in = is_finished or path.startswith("/v1/gossip/") or work <= _FETCHES * room
        return None if is_in else too_busy()

    def _question(self, caller: str, work: int, room: int, more: int) -> Problem | None:
        now_s = self._now_s()
        while self._turns and now_s - self._turns[first := next(iter(self._turns))] > LATE_S:
            del self._turns[first]
        turn_s = self._turns.get(caller)
        has_come = turn_s is not None and turn_s <= now_s
        is_full = work > max(1, room * (_FETCHES if has_come else _QUESTIONS))
        if is_full or self._questions.excess(caller, more) > 0:
            if turn_s is None or has_come:
                before = work if has_come else len(self._turns)
                turn_s = now_s + before * self._step_s
                self._turns.pop(caller, None)  # else it would keep its old place, before those whose turn is earlier
                if len(self._turns) < _MOST_TURNS:
                    self._turns[caller] = turn_s
            return too_busy(turn_s - now_s)
        if self._turns:  # else the interval says how often somebody asks, not how fast they are answered
            self._step_s += _WEIGHT * (min(now_s - self._last_s, 1.0) - self._step_s)
        self._last_s = now_s
        self._turns.pop(caller, None)
        return None
