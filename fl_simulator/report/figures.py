"""What a method's runs came to beside their accuracy: clusters, virtual time, and this machine's work.

Each is made of the rounds of all seeds of a cell. The first half of a run is warm-up: what is judged at its worst is
judged in the second.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from fl_simulator.metrics import reached_at
from fl_simulator.run.record import RoundRecord

Rounds = Sequence[RoundRecord]
"""Of one run."""

REACHED: Final = 0.95
"""The part of a final accuracy whose time is told: the last hundredths are chance."""

WORKS: Final = ("training", "selection", "similarity", "ledger")
"""Kinds of work that are told apart; the others are in the sum."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """How well clusters were found, over a cell's seeds. None where a method has no such figure.

    Attributes:
        modularity: Mean of the last figures.
        communities: The last figure of each seed.
        purity: Mean of the last figures.
        satisfaction: Mean mr over the second half of the rounds: the first half is warm-up.
        satisfaction_min: The least mr of any selection in the second half.
        foreign: The greatest share of a round's selections that took a foreign cluster's model, in the second half.
        misclassified: The most in any round of the second half.
        clean_from: The first evaluated round of which, and of all after it, nobody is misclassified; the latest of the
            seeds'; None when a seed has no such round.
        clean_from_s: The virtual clock then.
    """

    modularity: float | None = None
    communities: tuple[int, ...] = ()
    purity: float | None = None
    satisfaction: float | None = None
    satisfaction_min: float | None = None
    foreign: float | None = None
    misclassified: int | None = None
    clean_from: int | None = None
    clean_from_s: float | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """How runs in virtual time went: a figure for each seed, None for one that has none.

    Attributes:
        own_s: When accuracy first was ``REACHED`` of the run's own final accuracy.
        rival_s: When it first was ``REACHED`` of the final accuracy, mean over seeds, of the row's best method.
        results: How many results were taken.
        lost: How many trainings came to nothing.
        worst: The least accurate client's accuracy at the last evaluation.
        worst_min: The lowest such accuracy in the second half.
        foreign: The greatest share of selections that took a foreign cluster's model, in the second half.
    """

    own_s: tuple[float | None, ...]
    rival_s: tuple[float | None, ...]
    results: tuple[int, ...]
    lost: tuple[int, ...]
    worst: tuple[float | None, ...]
    worst_min: tuple[float | None, ...]
    foreign: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What a method on a ledger takes, over the rounds of all seeds.

    Attributes:
        seconds: Median of a round's, all work together.
        by_work: Median of a round's seconds of each of ``WORKS`` that the method has.
        tips: At the end, mean over seeds.
        transactions: The same.
        up_bytes: Mean of a round's, from clients.
        down_bytes: To clients.
        between_servers_bytes: Each transfer once.
        peak_memory_bytes: The most that any seed's process held; None where it was not measured.
    """

    seconds: float
    by_work: Mapping[str, float]
    tips: float
    transactions: float
    up_bytes: float
    down_bytes: float
    between_servers_bytes: float
    peak_memory_bytes: int | None


def clustering_of(runs: Sequence[Rounds]) -> Clustering | None:
    """How these runs found clusters; None when none of them has a figure of it."""
    late = [_second_half(run) for run in runs]
    means = [fmean(rates) for run in late if (rates := known(record.satisfaction for record in run))]
    judged = [run for run in runs if _last(run, "misclassified") is not None]
    clean = _latest([_clean_from(run) for run in judged])
    found = Clustering(
        modularity=_mean(known(_last(run, "modularity") for run in runs)),
        communities=tuple(int(value) for run in runs if (value := _last(run, "communities")) is not None),
        purity=_mean(known(_last(run, "purity") for run in runs)),
        satisfaction=_mean(means),
        satisfaction_min=min(known(record.satisfaction_min for run in late for record in run), default=None),
        foreign=max(known(record.foreign for run in late for record in run), default=None),
        misclassified=max(
            (each.misclassified for run in late for each in run if each.misclassified is not None), default=None
        ),
        clean_from=None if clean is None else clean.round,
        clean_from_s=None if clean is None else clean.virtual_time_s,
    )
    return None if found == Clustering() else found


def timing_of(runs: Sequence[Rounds], *, rival: float | None) -> Timing | None:
    """How these runs went in virtual time; None for runs in rounds.

    Args:
        runs: Finished ones.
        rival: The final accuracy, mean over seeds, of the row's best method; None where no method competes.
    """
    if not any(record.results is not None for run in runs for record in run):
        return None
    late = [_second_half(run) for run in runs]
    return Timing(
        own_s=tuple(_reached(run, _last(run, "accuracy")) for run in runs),
        rival_s=tuple(_reached(run, rival) for run in runs),
        results=tuple(sum(record.results or 0 for record in run) for run in runs),
        lost=tuple(sum(record.lost or 0 for record in run) for run in runs),
        worst=tuple(_last(run, "worst") for run in runs),
        worst_min=tuple(min(known(record.worst for record in run), default=None) for run in late),
        foreign=tuple(max(known(record.foreign for record in run), default=None) for run in late),
    )


def machine_of(runs: Sequence[Rounds]) -> Machine | None:
    """What these runs took; None for a method without a ledger."""
    records = [record for run in runs for record in run]
    tips, transactions = (known(_last(run, name) for run in runs) for name in ("tips", "transactions"))
    if not tips or not transactions:
        return None
    works = [work for work in WORKS if any(work in record.seconds for record in records)]
    return Machine(
        seconds=median(sum(record.seconds.values()) for record in records),
        by_work={work: median(record.seconds.get(work, 0.0) for record in records) for work in works},
        tips=fmean(tips),
        transactions=fmean(transactions),
        up_bytes=fmean(record.up_bytes for record in records),
        down_bytes=fmean(record.down_bytes for record in records),
        between_servers_bytes=fmean(record.between_servers_bytes for record in records),
        peak_memory_bytes=max(
            (record.peak_memory_bytes for record in records if record.peak_memory_bytes is not None), default=None
        ),
    )


def known(values: Iterable[float | None]) -> tuple[float, ...]:
    """Those that are not None."""
    return tuple(value for value in values if value is not None)


def _second_half(run: Rounds) -> list[RoundRecord]:
    return [record for record in run if record.round >= run[-1].round / 2]


def _reached(run: Rounds, final: float | None) -> float | None:
    if final is None:
        return None
    accuracies, times = [record.accuracy for record in run], [record.virtual_time_s for record in run]
    return reached_at(accuracies, times, target=REACHED * final)


def _clean_from(run: Rounds) -> RoundRecord | None:
    clean: RoundRecord | None = None
    for record in run:
        if record.misclassified:
            clean = None
        elif record.misclassified == 0 and clean is None:
            clean = record
    return clean


def _latest(rounds: Sequence[RoundRecord | None]) -> RoundRecord | None:
    found = [record for record in rounds if record is not None]
    return max(found, key=lambda record: record.round) if found and len(found) == len(rounds) else None


def _last(run: Rounds, name: str) -> float | None:
    return next((value for record in reversed(run) if (value := getattr(record, name)) is not None), None)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
