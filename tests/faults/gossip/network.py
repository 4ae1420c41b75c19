"""A network that delays, loses, doubles, reorders and cuts, all by one seed, in virtual time."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from fl_core.sync.messages import Peer


@dataclass(slots=True)
class Clock:
    """Virtual time: what is due next happens next, and nothing happens between."""

    now_s: float = 0.0
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Have something done later."""
        self._count += 1
        heapq.heappush(self._due, (self.now_s + delay_s, self._count, action))

    def step(self) -> None:
        """Go to the next moment at which something is due, and do it."""
        self.now_s, _, action = heapq.heappop(self._due)
        action()


@dataclass(slots=True)
class Network:
    """Links between servers, each direction for itself.

    Args:
        clock: When messages arrive.
        rng: Every draw.
        slowest_s: Longest delay of a message.
        loss: Share of messages that get lost.
        doubled: Share of messages that arrive twice.
    """

    clock: Clock
    rng: random.Random
    slowest_s: float
    loss: float
    doubled: float
    cut: set[tuple[Peer, Peer]] = field(default_factory=set)

    def send(self, sender: Peer, receiver: Peer, deliver: Callable[[], None]) -> None:
        """One message: it arrives late, twice, out of order, or not at all."""
        if (sender, receiver) in self.cut:
            return
        copies = 0 if self.rng.random() < self.loss else 1 + (self.rng.random() < self.doubled)
        for _ in range(copies):
            self.clock.after(self.delay_s(), deliver)

    def delay_s(self) -> float:
        """Mostly short, sometimes as long as it gets."""
        return 0.001 + self.slowest_s * self.rng.random() ** 3

    def heal(self) -> None:
        """From now on everything arrives once; delays stay."""
        self.cut.clear()
        self.loss = self.doubled = 0.0
