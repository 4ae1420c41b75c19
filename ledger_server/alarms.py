"""A server's alarms: what is odd about the updates that it admits, for people to look at (``fl_core.trust.alarms``).

Alarms of this process only: after a start they are made anew of the latest updates in the journal. Whether a model ends
on another's is looked for only as it comes in.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from fl_core.dag.figures import Step
from fl_core.dag.graph import Node
from fl_core.dag.transaction import Header
from fl_core.trust.alarms import Alarm, Alarms, Seen
from fl_core.types import AuthorId, TxId

logger: logging.Logger = logging.getLogger(__name__)

RESTORED: Final = 2_000
"""Updates of the journal that are looked at when a server starts."""
_REMEMBERED: Final = 1_000
"""Updates whose alarms are told to those who listen."""


class ServerAlarms:
    """The alarms of one server; safe to use from many threads.

    Args:
        author_of: The author of an update that is here; None of genesis.

    Attributes:
        on_alarm: Called with each new alarm.
    """

    def __init__(self, author_of: Callable[[TxId], AuthorId | None]) -> None:
        self._alarms = Alarms(author_of)
        self._of_update: LRUCache[TxId, tuple[Alarm, ...]] = LRUCache(_REMEMBERED)
        self._lock = threading.Lock()
        self.on_alarm: Callable[[Alarm], None] = lambda _: None

    def restore(self, node: Node, header: Header) -> None:
        """Look at an update of the journal; nobody is told."""
        self._look(node, header)

    def copied_within(self, step: Step | None) -> float:
        """How near to another author's model an update with this step may not end; 0 where nobody can say."""
        return 0.0 if step is None else self._alarms.thresholds.copy * step.norm

    def follow(self, node: Node, header: Header) -> tuple[Alarm, ...]:
        """Look at an update that another process has admitted and told of: here, those who listen are."""
        return self._remembered(node, self._look(node, header))

    def _remembered(self, node: Node, found: tuple[Alarm, ...]) -> tuple[Alarm, ...]:
        if found:
            with self._lock:
                self._of_update[node.id] = found
        return found

    def see(self, node: Node, header: Header, *, nearest: tuple[TxId, float] | None) -> None:
        """Look at an update that has been admitted."""
        for alarm in self._remembered(node, self._look(node, header, nearest)):
            logger.warning(
                "alarm",
                extra={"kind": alarm.kind, "author": alarm.author, "transaction": alarm.update, "why": alarm.detail},
            )
            self.on_alarm(alarm)

    def _look(self, node: Node, header: Header, nearest: tuple[TxId, float] | None = None) -> tuple[Alarm, ...]:
        """Alarms decide nothing, so nothing that goes wrong in them may keep an update from being admitted."""
        try:
            with self._lock:
                figures = node.figures
                step = None if figures.step is None else figures.step.norm
                return self._alarms.see(Seen(node.id, header, figures.norm, step, nearest))
        except Exception:
            logger.exception("alarms failed", extra={"transaction": node.id})
            return ()

    def of(self, update: TxId) -> tuple[Alarm, ...]:
        """What was found as an update came in, if that was lately."""
        with self._lock:
            return self._of_update.get(update, ())

    def standing(self) -> tuple[Alarm, ...]:
        """The newest alarm of each kind for each author."""
        with self._lock:
            return self._alarms.standing()
