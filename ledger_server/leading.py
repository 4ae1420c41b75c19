"""What the one process does that looks after a ledger, and how another one takes over."""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Final

from anyio.to_thread import run_sync

from ledger_server.election import Election
from ledger_server.gossip.runtime import Gossip
from ledger_server.pruning import AutomaticPruning
from ledger_server.store.errors import StoreError

logger: logging.Logger = logging.getLogger(__name__)

EVERY_S: Final = 1.0
"""How often each process asks whether it leads."""


class Leading:
    """Has this process read peers' journals and prune while it leads, and not otherwise.

    Args:
        election: Says whether it does.
        gossip: Reads peers' journals.
        pruning: Does not run yet.
        on_look: Called now and again.
    """

    def __init__(
        self, election: Election, gossip: Gossip, pruning: AutomaticPruning, *, on_look: Callable[[], None]
    ) -> None:
        self._election, self._gossip, self._pruning, self._on_look = election, gossip, pruning, on_look
        gossip.leads = False

    async def look(self) -> None:
        """Take over what the former leader leaves, or let go of what this process does not hold any more."""
        self._on_look()
        try:
            leads = await run_sync(self._election.leads)
            if leads and self._gossip.has_caught_up:
                await run_sync(self._election.say_caught_up)
        except StoreError:
            leads = False  # /readyz says it
        if leads == self._gossip.leads:
            return
        self._gossip.leads = leads
        if leads:
            self._pruning.start()
        else:
            await run_sync(self._pruning.stop)
        logger.info(
            "this process leads" if leads else "this process does not lead any more", extra={"pid": os.getpid()}
        )

    async def until(self, ending: asyncio.Event) -> None:
        """Look now and again."""
        while not ending.is_set():
            try:
                await asyncio.wait_for(ending.wait(), EVERY_S)
            except TimeoutError:
                try:
                    await self.look()
                except Exception:
                    logger.exception("whether this process leads is not known")
