"""What is going to happen and when, in one order that nothing but the insertions decides.

>>> queue: EventQueue[str] = EventQueue()
>>> queue.push(2.0, "finish")
>>> queue.push(1.0, "first")
>>> queue.push(1.0, "second")
>>> [queue.pop() for _ in range(3)]
[(1.0, 'first'), (1.0, 'second'), (2.0, 'finish')]
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

EventT = TypeVar("EventT")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[EventT]):
    when: float
    order: int
    event: EventT

    def __lt__(self, other: "_Entry[EventT]") -> bool:
        return (self.when, self.order) < (other.when, other.order)


class EventQueue(Generic[EventT]):
    """Events by time; of those at the same time, by insertion. Events themselves are never compared.

    Args:
        entries: Times and events to begin with, inserted in this order.
    """

    def __init__(self, entries: Iterable[tuple[float, EventT]] = ()) -> None:
        self._heap: list[_Entry[EventT]] = []
        self._inserted = 0
        for when, event in entries:
            self.push(when, event)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_at(self) -> float:
        """When the next event happens; infinity when there is none."""
        return self._heap[0].when if self._heap else math.inf

    def push(self, when: float, event: EventT) -> None:
        """Let something happen at ``when``, which must be a number: an event at NaN would have no place."""
        assert not math.isnan(when), event
        heapq.heappush(self._heap, _Entry(when, self._inserted, event))
        self._inserted += 1

    def pop(self) -> tuple[float, EventT]:
        """Take the next event and its time out.

        Raises:
            IndexError: There is none.
        """
        entry = heapq.heappop(self._heap)
        return entry.when, entry.event

    def entries(self) -> list[tuple[float, EventT]]:
        """Times and events in the order in which they will happen; a queue that begins with them is equal to this."""
        return [(entry.when, entry.event) for entry in sorted(self._heap)]
