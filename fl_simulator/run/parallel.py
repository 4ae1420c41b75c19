"""Several runs at once, each in a process of its own; who asks is told what happens, and may stop it.

Runs know nothing of each other, so their number at a time changes no figure. A run that is finished already is not
played again; one that was interrupted goes on. Told to stop, every run finishes its round and keeps a checkpoint. When
the process that asked is killed, so are its runs: they go on from their checkpoints.
"""

import os
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty
from typing import Any, Final, TypeAlias

from fl_core.errors import DagAcflError
from fl_simulator.config.experiment import PlannedRun
from fl_simulator.errors import RunExistsError
from fl_simulator.run.play import WriteLedger, open_folder, run
from fl_simulator.run.processes import end_with_owner, interrupts_noted, usable_cores, without_interrupts
from fl_simulator.run.record import RoundRecord

_POLL_S: Final = 0.1
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Processes and threads of our own share the cores; a library's threads beside them only wait for each other."""


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


RunEvent: TypeAlias = RunStarted | RoundFinished | RunFinished | RunFailed
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
) -> RunFinished | RunFailed:
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
    context = get_context("spawn")
    events: Queue[RunEvent] = context.Queue()
    stop = context.Event()
    processes = min(jobs, max(len(runs), 1))
    workers = max(usable_cores() // processes, 1)
    with (
        interrupts_noted() as interrupted,
        _one_thread_each(),
        ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(events, stop)) as pool,
    ):
        with without_interrupts():  # the first call starts all processes
            futures = [
                pool.submit(
                    _play, index, planned, folder, workers=workers, overwrite=overwrite, write_ledger=write_ledger
                )
                for index, (planned, folder) in enumerate(zip(runs, folders, strict=True))
            ]
        told: set[int] = set()
        while not _heard_all(futures, told):
            if interrupted.is_set():
                stop.set()
                for future in futures:
                    future.cancel()
            try:
                event = events.get(timeout=_POLL_S)
            except Empty:
                continue
            on_event(event)
            if isinstance(event, (RunFinished, RunFailed)):
                told.add(event.index)
        for index, future in enumerate(futures):
            error = None if future.cancelled() else future.exception()
            if isinstance(error, BrokenProcessPool):
                if index not in told:
                    on_event(RunFailed(index, "a process was killed, perhaps for want of memory; try fewer --jobs"))
            elif error is not None:
                raise error


def _heard_all(futures: Sequence[Future[bool]], told: Container[int]) -> bool:
    """Whether all runs have ended and, of those that tell it, were heard to.

    A process hands its events over by a thread of its own: its result may overtake the last of them.
    """
    return all(future.done() and (index in told or not _has_told(future)) for index, future in enumerate(futures))


def _has_told(future: Future[bool]) -> bool:
    return not future.cancelled() and future.exception() is None and future.result()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_events: "Queue[RunEvent]"
_stop: Event


def _begin(events: "Queue[RunEvent]", stop: Event) -> None:
    global _events, _stop
    _events, _stop = events, stop
    end_with_owner()


def _play(index: int, planned: PlannedRun, path: Path, **options: Any) -> bool:
    """Play one run in this process; whether its end was told."""
    if _stop.is_set():
        return False
    _events.put(play_one(index, planned, path, **options, on_event=_events.put, should_stop=_stop.is_set))
    return True
