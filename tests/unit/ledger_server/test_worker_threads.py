"""Worker threads: nobody has more than are left for others, and whoever may have one gets it in turn."""

import asyncio
import threading

from ledger_server.http.threads import WorkerThreads

WAIT_S = 60.0


async def until(holds: threading.Semaphore) -> None:
    assert await asyncio.to_thread(holds.acquire, timeout=WAIT_S)


def test_one_caller_has_half_and_others_pass_by_those_of_its_requests_that_wait() -> None:
    async def ask() -> tuple[int, list[str]]:
        threads, began, end, done = WorkerThreads(4), threading.Semaphore(0), threading.Event(), list[str]()

        def dear() -> None:
            began.release()
            assert end.wait(WAIT_S)
            done.append("dear")

        greedy = [asyncio.create_task(threads.run("greedy", dear)) for _ in range(6)]
        await until(began)
        await until(began)
        await threads.run("other", lambda: done.append("cheap"))
        waiting = threads.waiting
        end.set()
        await asyncio.gather(*greedy)
        return waiting, done

    assert asyncio.run(ask()) == (4, ["cheap", *["dear"] * 6])


def test_a_client_that_leaves_while_it_waits_or_as_its_turn_comes_takes_no_thread_along() -> None:
    async def ask() -> str:
        threads, began, end = WorkerThreads(1), threading.Semaphore(0), threading.Event()

        def dear() -> None:
            began.release()
            assert end.wait(WAIT_S)

        first = asyncio.create_task(threads.run("a", dear))
        await until(began)
        second, third = (asyncio.create_task(threads.run(each, lambda: None)) for each in "bc")
        await asyncio.sleep(0)
        second.cancel()
        first.add_done_callback(lambda _: third.cancel())  # it has just been let on
        end.set()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert (second.cancelled(), third.cancelled(), threads.waiting) == (True, True, 0)
        return await threads.run("d", lambda: "served")

    assert asyncio.run(ask()) == "served"
