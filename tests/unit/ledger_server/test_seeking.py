"""A client names transactions that are not here: peers are asked for them, while the client waits."""

import asyncio
import gc

from fl_core.sync.messages import Peer, Transactions
from fl_core.types import PublicKey, TxId
from ledger_server.gossip.seeking import Seeker


def test_a_search_that_finds_nothing_leaves_no_error_in_the_log() -> None:
    complaints: list[str] = []

    async def nothing(_peer: Peer, _transactions: tuple[TxId, ...]) -> Transactions:
        return Transactions(())

    async def search() -> bool:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: complaints.append(context["message"]))
        seeker = Seeker(peers=lambda: [PublicKey("b" * 64)], ask=nothing, came=lambda *_: None, is_here=lambda _: False)
        found = await seeker.seek([TxId("a" * 64), TxId("b" * 64)], client="me")
        await asyncio.sleep(0.01)  # what was cancelled ends
        gc.collect()  # asyncio complains of a forgotten exception when its future goes
        return found

    assert not asyncio.run(search())
    assert complaints == []
