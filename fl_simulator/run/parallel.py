"""Several runs at once, each in a process of its own; who asks is told what happens, and may stop it.

Runs know nothing of each other, so their number at a time changes no figure. A run that is finished already is not
played again; one that was interrupted goes on. Told to stop, every run finishes its round and keeps a checkpoint. When
the process that asked is killed, so are its runs: they go on from their checkpoints.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final, TypeAlias

from fl_client.training.errors import is_users, told
from fl_core.errors import DagAcflError
from fl_simulator.config.experiment import PlannedRun
from fl_simulator.errors import RunExistsError
from fl_simulator.run.play import WriteLedger, open_folder, run
from fl_simulator.run.processes import end_with_owner, interrupts_noted, usable_cores, without_interrupts
from fl_simulator.run.record import RoundRecord

_POLL_S: Final = 0.1
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run is played from this round on."""

    index: int
    first_round: int


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """A round is over."""

    index: int
    record: RoundRecord


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A run is finished, was so before, or was stopped with a checkpoint."""

    index: int
    finished: bool
    before: bool = False


@dataclass(frozen=True, slots=True)
class RunFailed:
    """A run cannot be played; the others go on."""

    index: int
    message: str


RunEnd: TypeAlias = RunFinished | RunFailed
RunEvent: TypeAlias = RunStarted | RoundFinished | RunEnd
OnEvent: TypeAlias = Callable[[RunEvent], None]


def play_one(
    index: int,
    planned: PlannedRun,
    path: Path,
    *,
    workers: int,
    overwrite: bool,
    write_ledger: WriteLedger | None,
    on_event: OnEvent,
    should_stop: Callable[[], bool],
) -> RunEnd:
    """Play one run in this process; its end is returned, all that comes before it goes to ``on_event``."""
    try:
        with open_folder(planned, path, overwrite=overwrite) as folder:
            on_event(RunStarted(index, len(folder.records)))
            finished = run(
                planned,
                folder,
                workers=workers,
                on_round=lambda record: on_event(RoundFinished(index, record)),
                should_stop=should_stop,
                write_ledger=write_ledger,
            )
        return RunFinished(index, finished)
    except RunExistsError:
        return RunFinished(index, finished=True, before=True)
    except (DagAcflError, OSError) as error:  # a full disk, while the ledger is written
        return RunFailed(index, str(error))
    except Exception as error:
        if not is_users(error):
            raise
        return RunFailed(index, f"a part of your own failed: {told(error)}")


def play_all(
    runs: Sequence[PlannedRun],
    folders: Sequence[Path],
    *,
    jobs: int,
    overwrite: bool = False,
    write_ledger: WriteLedger | None = None,
    on_event: OnEvent = lambda _event: None,
) -> None:
    """Play runs, ``jobs`` at a time.

    Ctrl-C (KeyboardInterrupt here) stops all of them after their round, and is raised again when they have stopped.

    Args:
        runs: What to play.
        folders: Where each goes.
        jobs: Processes, at least 1; each trains with its part of the cores.
        overwrite: Begin anew, whatever is in the folders.
        write_ledger: See ``play.run``; importable, as processes are told by name.
        on_event: Called in this process with what happens, in order for each run.
    """
    for name in _ONE_THREAD:  # threads of a library beside our own processes and threads only wait for each other
        os.environ.setdefault(name, "1")
    context = get_context("spawn")
    events: SimpleQueue[RunEvent] = context.SimpleQueue()
    stop = context.Event()
    processes = min(jobs, max(len(runs), 1))
    workers = max(usable_cores() // processes, 1)

    def events_so_far() -> Iterator[RunEvent]:
        while not events.empty():
            yield events.get()

    def end_of(future: Future[RunEnd | None], index: int) -> RunEnd | None:
        try:
            return future.result()
        except BrokenProcessPool:
            return RunFailed(index, "a process was killed, perhaps for want of memory; try fewer --jobs")

    with (
        interrupts_noted() as interrupted,
        ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(events, stop)) as pool,
    ):
        with without_interrupts():  # the first call starts all processes
            ends = {
                pool.submit(
                    _play, index, planned, folder, workers=workers, overwrite=overwrite, write_ledger=write_ledger
                ): index
                for index, (planned, folder) in enumerate(zip(runs, folders, strict=True))
            }
        follow(ends, events_so_far, end_of, stop=stop.set, interrupted=interrupted, on_event=on_event)


def follow(
    ends: dict[Future[Any], int],
    events_so_far: Callable[[], Iterable[RunEvent]],
    end_of: Callable[[Future[Any], int], RunEnd | None],
    *,
    stop: Callable[[], None],
    interrupted: threading.Event,
    on_event: OnEvent,
) -> None:
    """Tell what happens to runs that are played elsewhere, until all have ended.

    Args:
        ends: What comes of each run, and its index; emptied meanwhile.
        events_so_far: What was not told yet; when a run's future is done, all its events are there.
        end_of: A run's end, of its future and its index; None where it was not to begin any more.
        stop: Lets every run stop after its round, and those that wait not begin; may be called again.
        interrupted: Set when they are to stop.
        on_event: Told in order for each run.
    """
    while ends:
        if interrupted.is_set():
            stop()
        done, _ = wait(ends, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        for event in events_so_far():
            on_event(event)
        for future in done:
            if (end := end_of(future, ends.pop(future))) is not None:
                on_event(end)


_events: "SimpleQueue[RunEvent]"
_stop: Event


def _begin(events: "SimpleQueue[RunEvent]", stop: Event) -> None:
    global _events, _stop
    _events, _stop = events, stop
    end_with_owner()


def _play(index: int, planned: PlannedRun, path: Path, **options: Any) -> RunEnd | None:
    if _stop.is_set():
        return None
    return play_one(index, planned, path, **options, on_event=_events.put, should_stop=_stop.is_set)
