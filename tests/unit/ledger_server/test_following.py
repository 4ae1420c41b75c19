"""Following the journal: an answer is never older than its question, and no question waits for ever."""

import asyncio
import threading

import pytest

from ledger_server.following import Following
from ledger_server.store.errors import StoreUnavailableError


def test_who_comes_while_a_look_is_under_way_waits_for_the_next_which_all_share() -> None:
    looks: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def look() -> None:
        looks.append(len(looks))
        begun.set()
        assert go_on.wait(10)

    async def ask() -> None:
        following = Following(look)
        first = asyncio.create_task(following.now())
        await asyncio.to_thread(begun.wait, 10)
        others = [asyncio.create_task(following.now()) for _ in range(3)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *others)

    asyncio.run(ask())
    assert looks == [0, 1]


def test_a_database_that_hangs_is_said_to_be_unavailable() -> None:
    answers = threading.Event()

    async def ask() -> None:
        following = Following(lambda: answers.wait(10), within_s=0.01)
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match=r"has not answered for 0\.01 s"):
                await following.now()
        answers.set()
        await Following(lambda: None).now()

    asyncio.run(ask())
