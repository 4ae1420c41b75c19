import asyncio
import threading

from ledger_server.events import Listeners

WAIT_S = 30.0


def test_every_listener_is_woken_by_any_thread_and_misses_nothing() -> None:
    async def check() -> None:
        listeners, journal, heard = Listeners(), list[int](), dict[int, list[int]]()

        async def listen(number: int) -> None:
            heard[number] = []
            with listeners.listening() as news:
                while len(heard[number]) < 160:
                    news.clear()
                    heard[number] += journal[len(heard[number]) :]
                    if len(heard[number]) < 160:
                        await asyncio.wait_for(news.wait(), WAIT_S)

        def publish() -> None:
            for _ in range(20):
                journal.append(len(journal))
                listeners.wake()

        tasks = [asyncio.create_task(listen(number)) for number in range(2)]
        await asyncio.sleep(0)
        assert len(listeners) == 2
        threads = [threading.Thread(target=publish) for _ in range(8)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*tasks)
        for thread in threads:
            thread.join()
        assert heard[0] == heard[1] == journal
        assert len(listeners) == 0
        listeners.wake()  # nobody listens: nothing happens

    asyncio.run(check())


def test_closing_wakes_everyone_from_another_thread() -> None:
    async def check() -> None:
        listeners = Listeners()
        with listeners.listening() as news:
            threading.Thread(target=listeners.close).start()
            await asyncio.wait_for(news.wait(), WAIT_S)
            assert listeners.closed

    asyncio.run(check())


def test_a_loop_that_has_ended_is_no_reason_to_fail() -> None:
    listeners = Listeners()
    held = []

    async def listen_for_ever() -> None:
        listening = listeners.listening()
        listening.__enter__()
        held.append(listening)

    asyncio.run(listen_for_ever())
    listeners.wake()
    listeners.close()
    assert len(listeners) == 1
