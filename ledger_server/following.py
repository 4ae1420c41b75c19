"""What other processes have written to the journal is in view before a question is answered, and soon without one."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from ledger_server.store.errors import StoreError, StoreUnavailableError, SupersededError

logger: logging.Logger = logging.getLogger(__name__)

EVERY_S: Final = 0.2
"""How often the journal is looked at though nobody asks: those who listen to events wait so long, and peers."""
WITHIN_S: Final = 10.0
"""A question that has waited so long for the journal is told that the database does not answer."""


class Following:
    """Looks whether the journal has moved on; to be used in one event loop.

    One look is shared by all who wait for it: whoever comes while one is under way waits for the next, which begins
    after they came and so sees all that was there. So an answer is never older than its question.

    Args:
        look: Takes in what is new, in a thread.
        within_s: How long a question waits for that.
    """

    def __init__(self, look: Callable[[], object], *, within_s: float = WITHIN_S) -> None:
        self._look, self._within_s = look, within_s
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._thread: CapacityLimiter | None = None
        self.on_superseded: Callable[[SupersededError], None] = lambda _: None
        """Called when this process is to end."""

    async def now(self) -> None:
        """Return when all that was in the journal at the call is in view.

        Raises:
            StoreError: The journal cannot be read, or not in time.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._after(self._under_way))
        try:
            async with asyncio.timeout(self._within_s):
                await asyncio.shield(self._next)
        except TimeoutError:
            raise StoreUnavailableError(f"the database has not answered for {self._within_s:g} s") from None

    async def _after(self, former: asyncio.Task[None] | None) -> None:
        if former is not None:
            await asyncio.wait([former])
        self._under_way, self._next = self._next, None
        if self._thread is None:  # of its own: others may wait for what a look brings
            self._thread = CapacityLimiter(1)
        await run_sync(self._look, limiter=self._thread)

    async def until(self, ending: asyncio.Event) -> None:
        """Look now and again."""
        while not ending.is_set():
            try:
                await self.now()
            except SupersededError as error:
                self.on_superseded(error)
            except StoreError:
                pass  # /readyz says it
            except Exception:
                logger.exception("what other processes have written cannot be taken in")
            try:
                await asyncio.wait_for(ending.wait(), EVERY_S)
            except TimeoutError:
                continue
