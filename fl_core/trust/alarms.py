"""Alarms that need no truth: what is odd about an update beside those of the clients that its author averages with.

They tell a person where to look, and decide nothing: no rule of the ledger reads them. Each update is looked at once,
when it is admitted, in the server's own order, so two servers' alarms may differ. Kinds, by ``Thresholds``:

* ``zero-model``: all values are 0.
* ``copy``: the model is another author's to the byte, or its step ends on one of the newest models of others.
* ``no-step``: a step that is a hundredth of the others': the author hands back what it was given.
* ``large-step``: a step whose logarithm lies above the others' median by many of their median absolute deviations.
* ``unhelpful``: averages with the author's models did worse on the askers' own test data than the askers' own models
  did, by more than two standard errors, as headers say (``_own_accuracy``, ``_refused_accuracy``). Who is averaged with
  a bad author shares its figures: contribution tells them apart.
* ``unselected``: nobody else has ever averaged the author's updates, although most authors' are.

"The others" are the authors of the parents of the author's latest average; their latest steps, or where those are too
few everybody's latest.
"""

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from fl_core.dag.transaction import Header
from fl_core.trust.refusal import refused_in
from fl_core.types import AuthorId, Digest, TxId

_STEPS_KEPT: Final = 8
_BENEFITS_KEPT: Final = 40
_MAD_OF_A_NORMAL: Final = 1.4826
"""Standard deviation over median absolute deviation."""


class AlarmKind(StrEnum):
    """What is odd; see the module docstring."""

    ZERO_MODEL = "zero-model"
    COPY = "copy"
    NO_STEP = "no-step"
    LARGE_STEP = "large-step"
    UNHELPFUL = "unhelpful"
    UNSELECTED = "unselected"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When something is odd; fixed on honest runs, on data that no attack table uses."""

    no_step: float = 0.01
    large_step: float = 5.0
    least_deviation: float = 0.2
    least_steps: int = 5
    copy: float = 0.1
    least_averages: int = 10
    least_askers: int = 3
    least_updates: int = 10


@dataclass(frozen=True, slots=True)
class Alarm:
    """One finding about one author; the newest of its kind stands for all of them.

    Attributes:
        update: In which it was found.
        value: What was measured.
        bound: Beyond which it is odd.
        detail: In words.
        first: Of the author's updates the first in which it was found.
        count: In how many it was found so far.
    """

    kind: AlarmKind
    author: AuthorId
    update: TxId
    value: float
    bound: float
    detail: str
    first: TxId
    count: int = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """An admitted update, as far as alarms look at it.

    Attributes:
        id: Its id.
        header: What it says.
        norm: Of its model.
        step: Norm of its step; None where that is not known.
        nearest: The nearest of the newest models of other authors and the distance; None where none is so near that it
            matters, or none was looked for.
    """

    id: TxId
    header: Header
    norm: float
    step: float | None = None
    nearest: tuple[TxId, float] | None = None


@dataclass(slots=True)
class _Author:
    """What is remembered of an author; tuples, since most authors have little and there may be many."""

    model: Digest | None = None
    steps: tuple[float, ...] = ()
    others: tuple[AuthorId, ...] = ()
    updates: int = 0
    is_selected: bool = False
    benefits: tuple[tuple[AuthorId, float], ...] = ()


class Alarms:
    """Of one ledger, an update at a time; its memory follows authors, not age.

    Args:
        author_of: The author of an earlier update; None of genesis, and of what is not here.
    """

    def __init__(self, author_of: Callable[[TxId], AuthorId | None]) -> None:
        self._author_of = author_of
        self.thresholds: Final = Thresholds()
        self._authors: dict[AuthorId, _Author] = {}
        self._models: dict[Digest, AuthorId] = {}  # the newest of each author
        self._latest: deque[tuple[AuthorId, float]] = deque(maxlen=64)
        self._standing: dict[tuple[AuthorId, AlarmKind], Alarm] = {}
        self._grown = self._grown_selected = 0  # authors with many updates, and those of them whom others averaged

    def see(self, seen: Seen) -> tuple[Alarm, ...]:
        """Take in the next admitted update; what is newly odd about it, and about those that it averaged."""
        header = seen.header
        author = self._of(header.author)
        parents = self._other_authors(header.author, header.parents)
        refused = self._other_authors(header.author, refused_in(header))
        if parents or refused:
            author.others = parents or refused
        author.updates += 1
        if author.updates == self.thresholds.least_updates:
            self._grown, self._grown_selected = self._grown + 1, self._grown_selected + author.is_selected
        found = [*self._odd_model(seen, author), *self._odd_authors(seen, (*parents, *refused))]
        if seen.step is not None:
            author.steps = (*author.steps, seen.step)[-_STEPS_KEPT:]
            self._latest.append((header.author, seen.step))
        if author.model is not None and self._models.get(author.model) == header.author:
            del self._models[author.model]
        author.model = header.model_digest
        self._models.setdefault(header.model_digest, header.author)
        return tuple(self._noted(alarm) for alarm in found)

    def standing(self) -> tuple[Alarm, ...]:
        """The newest of each kind for each author, in order of authors and kinds."""
        return tuple(self._standing[key] for key in sorted(self._standing))

    def _of(self, author: AuthorId) -> _Author:
        return self._authors.setdefault(author, _Author())

    def _other_authors(self, asker: AuthorId, updates: Iterable[TxId]) -> tuple[AuthorId, ...]:
        named = map(self._author_of, updates)
        return tuple(dict.fromkeys(each for each in named if each is not None and each != asker))

    def _noted(self, alarm: Alarm) -> Alarm:
        before = self._standing.get((alarm.author, alarm.kind))
        noted = alarm if before is None else replace(alarm, count=before.count + 1, first=before.first)
        self._standing[alarm.author, alarm.kind] = noted
        return noted

    # -- one model ----------------------------------------------------------------------------------

    def _odd_model(self, seen: Seen, author: _Author) -> list[Alarm]:
        header, limits = seen.header, self.thresholds
        found: list[Alarm] = []

        def odd(kind: AlarmKind, value: float, bound: float, detail: str) -> None:
            found.append(Alarm(kind, header.author, seen.id, value, bound, detail, seen.id))

        if seen.norm == 0:
            odd(AlarmKind.ZERO_MODEL, 0.0, 0.0, "all values are 0")
        owner = self._models.get(header.model_digest)
        if owner is not None and owner != header.author:
            odd(AlarmKind.COPY, 0.0, 0.0, f"the model is that of {owner}, to the byte")
        elif seen.nearest is not None and seen.step is not None and seen.nearest[1] < limits.copy * seen.step:
            nearest, distance = seen.nearest
            odd(AlarmKind.COPY, distance, limits.copy * seen.step, f"a step that ends on the model of {nearest[:16]}…")
        steps = self._steps_of_others(header.author, author.others)
        if seen.step is not None and len(steps) >= limits.least_steps:
            middle = statistics.median(steps)
            if seen.step < limits.no_step * middle:
                odd(AlarmKind.NO_STEP, seen.step, limits.no_step * middle, "it hands back what it was given")
            elif seen.step > (bound := _upper(steps, limits)):
                odd(AlarmKind.LARGE_STEP, seen.step, bound, f"the median of the others is {middle:.3g}")
        return found

    def _steps_of_others(self, author: AuthorId, others: Sequence[AuthorId]) -> list[float]:
        """Latest steps above 0: of those whom the author averages with, or of everybody else where those are few."""
        known = [self._authors[each] for each in others if each in self._authors]
        steps = [step for each in known for step in each.steps if step > 0]
        if len(steps) < self.thresholds.least_steps:
            steps = [step for who, step in self._latest if who != author and step > 0]
        return steps

    # -- authors ------------------------------------------------------------------------------------

    def _odd_authors(self, seen: Seen, named: Sequence[AuthorId]) -> list[Alarm]:
        """What the update says of the authors whose models its own began from, or was to begin from; said once."""
        benefit, found, standing, limits = benefit_in(seen.header), [], self._standing, self.thresholds
        for each in named:
            other = self._of(each)
            if not other.is_selected:
                other.is_selected = True
                self._grown_selected += other.updates >= limits.least_updates
                standing.pop((each, AlarmKind.UNSELECTED), None)
            if benefit is not None:
                other.benefits = (*other.benefits, (seen.header.author, benefit))[-_BENEFITS_KEPT:]
                upper = self._upper_benefit(other)
                if upper is None or upper >= 0:
                    standing.pop((each, AlarmKind.UNHELPFUL), None)
                elif (each, AlarmKind.UNHELPFUL) not in standing:
                    detail = f"mean benefit plus two standard errors, over its latest {len(other.benefits)} averages"
                    found.append(Alarm(AlarmKind.UNHELPFUL, each, seen.id, upper, 0.0, detail, seen.id))
        who = seen.header.author
        author = self._of(who)
        is_passed_over = not author.is_selected and author.updates >= limits.least_updates
        if is_passed_over and 2 * self._grown_selected > self._grown and (who, AlarmKind.UNSELECTED) not in standing:
            detail = f"nobody has averaged its {author.updates} updates"
            found.append(Alarm(AlarmKind.UNSELECTED, who, seen.id, 0.0, 0.0, detail, seen.id))
        return found

    def _upper_benefit(self, author: _Author) -> float | None:
        """Mean benefit and two standard errors; None where too few have said anything."""
        benefits = [benefit for _, benefit in author.benefits]
        askers = {asker for asker, _ in author.benefits}
        if len(benefits) < self.thresholds.least_averages or len(askers) < self.thresholds.least_askers:
            return None
        return statistics.fmean(benefits) + 2 * statistics.stdev(benefits) / math.sqrt(len(benefits))


def benefit_in(header: Header) -> float | None:
    """By how much the average did better than the asker's own model, as the asker says; None where it says nothing.

    A difference of accuracies; of losses, as a share of the own model's. -1 to 1: it is a claim, so it is cut there.
    """
    metrics, benefit = header.metrics, None
    if (own := metrics.get("_own_accuracy")) is not None:
        given = metrics.get("_refused_accuracy", metrics.get("accuracy"))
        benefit = None if given is None else given - own
    elif own := metrics.get("_own_loss"):
        given = metrics.get("_refused_loss", metrics.get("loss"))
        benefit = None if given is None else (own - given) / abs(own)
    return None if benefit is None else max(-1.0, min(1.0, benefit))


def _upper(steps: Sequence[float], limits: Thresholds) -> float:
    """The largest step that is not odd beside these, all above 0."""
    logs = [math.log(step) for step in steps]
    middle = statistics.median(logs)
    deviation = _MAD_OF_A_NORMAL * statistics.median(abs(each - middle) for each in logs)
    return math.exp(middle + limits.large_step * max(deviation, limits.least_deviation))
