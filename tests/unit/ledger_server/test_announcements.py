import asyncio
import threading

from ledger_server.events import QUEUE_LENGTH, Announcements

WAIT_S = 30.0


def drained(queue: "asyncio.Queue[int | None]") -> list[int | None]:
    found = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found


async def settled() -> None:
    """Everything that other threads had put into the loop has been run."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_every_listener_hears_every_arrival_in_order() -> None:
    async def check() -> None:
        announcements = Announcements()
        with announcements.listen() as one, announcements.listen() as other:
            assert announcements.listeners() == 2
            for arrival in (3, 4, 5):
                announcements.announce(arrival)
            await settled()
            assert drained(one) == drained(other) == [3, 4, 5]
        assert announcements.listeners() == 0
        announcements.announce(6)  # nobody listens: nothing happens

    asyncio.run(check())


def test_threads_announce_to_a_loop_that_is_not_theirs() -> None:
    async def check() -> None:
        announcements = Announcements()
        with announcements.listen() as queue:
            threads = [
                threading.Thread(target=lambda first=first: [announcements.announce(first + i) for i in range(20)])
                for first in range(0, 160, 20)
            ]
            for thread in threads:
                thread.start()
            heard = [await asyncio.wait_for(queue.get(), WAIT_S) for _ in range(160)]
            for thread in threads:
                thread.join()
        assert sorted(filter(None, heard)) == list(range(1, 160))
        for first in range(0, 160, 20):
            mine = [each for each in heard if each is not None and first <= each < first + 20]
            assert mine == sorted(mine), "what one thread announced is heard in its order"

    asyncio.run(check())


def test_a_listener_that_does_not_listen_is_cut_off_and_the_others_are_not() -> None:
    async def check() -> None:
        announcements = Announcements()
        with announcements.listen() as slow, announcements.listen() as quick:
            heard: list[int | None] = []
            for arrival in range(3 * QUEUE_LENGTH):
                announcements.announce(arrival)
                await settled()
                heard += drained(quick)
            assert heard == list(range(3 * QUEUE_LENGTH))
            assert drained(slow) == [*range(QUEUE_LENGTH), None], "the first it missed is where it ends"

    asyncio.run(check())


def test_closing_ends_every_stream_also_one_that_begins_later() -> None:
    async def check() -> None:
        announcements = Announcements()
        with announcements.listen() as queue:
            announcements.announce(1)
            closing = threading.Thread(target=announcements.close)
            closing.start()
            closing.join()
            announcements.close()
            await settled()
            found = drained(queue)
            assert (found[0], found[1]) == (1, None)
        with announcements.listen() as late:
            assert await asyncio.wait_for(late.get(), WAIT_S) is None

    asyncio.run(check())


def test_a_full_queue_has_room_for_its_end() -> None:
    async def check() -> None:
        announcements = Announcements()
        with announcements.listen() as queue:
            for arrival in range(QUEUE_LENGTH):
                announcements.announce(arrival)
            announcements.close()
            await settled()
            assert drained(queue) == [*range(QUEUE_LENGTH), None]

    asyncio.run(check())


def test_a_loop_that_has_ended_is_no_reason_to_fail() -> None:
    announcements = Announcements()
    held = []

    async def listen_for_ever() -> None:
        listening = announcements.listen()
        listening.__enter__()
        held.append(listening)

    asyncio.run(listen_for_ever())
    announcements.announce(1)
    announcements.close()
    assert announcements.listeners() == 1
