"""A client names transactions that are not here: peers are asked for them, while the client waits."""

import asyncio
import gc

import pytest

from fl_core.sync.messages import Peer, Transactions
from fl_core.types import PublicKey, TxId
from ledger_server.gossip import seeking
from ledger_server.gossip.seeking import MAX_SEEKS, Seeker

PEERS = [PublicKey("b" * 64), PublicKey("c" * 64)]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeking, "PAUSE_S", 0.0)


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


def test_what_no_peer_had_a_moment_ago_is_not_asked_for_again() -> None:
    asked: list[tuple[TxId, ...]] = []

    async def nothing(_peer: Peer, transactions: tuple[TxId, ...]) -> Transactions:
        asked.append(transactions)
        return Transactions(())

    async def search() -> list[bool]:
        seeker = Seeker(peers=lambda: PEERS, ask=nothing, came=lambda *_: None, is_here=lambda _: False)
        first, second = TxId("a" * 64), TxId("b" * 64)
        return [await seeker.seek(each, client="me") for each in ([first, second], [first], [second])]

    assert asyncio.run(search()) == [False, False, False]
    assert asked == [(TxId("a" * 64), TxId("b" * 64))] * len(PEERS), "each peer once, for all of them"


def test_clients_that_name_what_nobody_has_leave_places_to_others() -> None:
    asked: list[TxId] = []

    async def search() -> None:
        answers = asyncio.Event()

        async def nothing(_peer: Peer, transactions: tuple[TxId, ...]) -> Transactions:
            asked.extend(transactions)
            await answers.wait()
            return Transactions(())

        seeker = Seeker(peers=lambda: PEERS[:1], ask=nothing, came=lambda *_: None, is_here=lambda _: False)

        def seek(number: int, client: str) -> asyncio.Task[bool]:
            return asyncio.create_task(seeker.seek([TxId(f"{number:064x}")], client=client))

        greedy = [seek(number, "greedy") for number in range(MAX_SEEKS + 4)]
        await asyncio.sleep(0.01)
        other = seek(999, "other")
        await asyncio.sleep(0.01)
        answers.set()
        assert not any(await asyncio.gather(*greedy, other))
        await seek(1000, "greedy")

    asyncio.run(search())
    assert asked == [TxId(f"{number:064x}") for number in (*range(MAX_SEEKS // 2), 999, 1000)]
