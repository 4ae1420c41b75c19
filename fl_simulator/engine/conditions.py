"""Who is how fast, and when: speeds, links, availability, failures of a simulation's clients in virtual time.

Everything here is a function of the run's seed, the client and a number or a time, so nothing has to be remembered when
a run is interrupted, and asking more often changes nothing. The parts, each a table of a scenario:

* ``speed`` (samples a second), ``up`` and ``down`` (bytes a second) and ``latency`` (seconds, one way) are drawn for
  every client once: ``constant``, ``uniform`` or ``lognormal`` about what is ``typical``.
* ``availability`` says when a client is reachable: ``always``, ``alternating`` or by a ``trace``.
* ``membership`` lets clients join late and leave for good; without it all are there from the beginning to the end.
* ``work`` lets trainings take longer or shorter, and fail.

A client trains only while it is reachable: who goes in the middle has lost its work. Transfers share no bandwidth.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter, read_parameters
from fl_core.registry import Registry
from fl_core.types import JsonScalar
from fl_simulator.errors import ScenarioError
from fl_simulator.seeds import Seeds


class Window(NamedTuple):
    """A time in which a client is reachable: from ``start`` until before ``end``, in seconds."""

    start: float
    end: float


# How a figure differs from client to client.


class Distribution(Protocol):
    """Draws one figure for each client."""

    @property
    def typical(self) -> float:
        """The figure that the distribution lies about."""
        ...

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Figures of so many clients, shape ``(size,)``, none negative."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Everybody's is the same."""

    typical: float = parameter(1.0, at_least=0.0, doc="Everybody's figure.")

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        del rng
        return np.full(size, self.typical)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Anything between a lowest and a highest figure is as likely."""

    typical: float = parameter(1.0, at_least=0.0, doc="The mean.")
    ratio: float = parameter(10.0, at_least=1.0, doc="How many times the lowest the highest is.")

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        lowest = 2 * self.typical / (1 + self.ratio)
        return rng.uniform(lowest, lowest * self.ratio, size)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """The logarithm is normally distributed: most are near the median, and a few are far above."""

    typical: float = parameter(1.0, at_least=0.0, doc="The median.")
    sigma: float = parameter(0.5, at_least=0.0, at_most=10.0, doc="Standard deviation of the natural logarithm.")

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return self.typical * rng.lognormal(0.0, self.sigma, size)


DISTRIBUTIONS: Final[Registry[type[Any]]] = Registry(
    "distribution", {"constant": Constant, "lognormal": Lognormal, "uniform": Uniform}
)


# When a client is reachable.


class Availability(Protocol):
    """Says when each client is reachable."""

    def windows(self, num_clients: int, seeds: Seeds) -> list[Iterator[Window]]:
        """Of each client its times, ascending, no two overlapping; they may go on for ever."""
        ...


@dataclass(frozen=True, slots=True)
class Always:
    """Everybody, all the time."""

    def windows(self, num_clients: int, seeds: Seeds) -> list[Iterator[Window]]:
        del seeds
        return [iter([Window(0.0, math.inf)]) for _ in range(num_clients)]


@dataclass(frozen=True, slots=True)
class Alternating:
    """Exponentially distributed times on and off, in turn; as if that had gone on for ever when the run begins."""

    on_s: float = parameter(600.0, above=0.0, doc="Mean time for which a client is reachable.")
    off_s: float = parameter(600.0, above=0.0, doc="Mean time for which it is not.")

    def windows(self, num_clients: int, seeds: Seeds) -> list[Iterator[Window]]:
        return [self._turns(seeds.generator("availability", client)) for client in range(num_clients)]

    def _turns(self, rng: np.random.Generator) -> Iterator[Window]:
        # An exponential time has no memory: what is left of the first one is distributed like a whole one.
        time = 0.0 if rng.random() < self.on_s / (self.on_s + self.off_s) else rng.exponential(self.off_s)
        while True:
            end = time + rng.exponential(self.on_s)
            yield Window(time, end)
            time = end + rng.exponential(self.off_s)


@dataclass(frozen=True, slots=True)
class AvailabilityTrace:
    """Windows that a file lists; a client that it does not name is never reachable."""

    path: str = parameter("", doc="A CSV file with the header client,from_s,to_s and a line for each window.")

    def windows(self, num_clients: int, seeds: Seeds) -> list[Iterator[Window]]:
        """See ``Availability.windows``; where the file says what cannot be, the error names the line."""
        del seeds
        try:
            header, *lines = Path(self.path).read_text("utf-8").splitlines() or [""]
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"the trace {self.path} cannot be read: {error}") from error
        if header != _TRACE_HEADER:
            raise ScenarioError(f"{self.path}, line 1: the header is {_TRACE_HEADER}, not {header}")
        found: list[list[Window]] = [[] for _ in range(num_clients)]
        for number, line in enumerate(lines, start=2):
            try:
                client, start, end = line.split(",")
                if not (0 <= int(client) < num_clients and 0 <= float(start) < float(end)):
                    raise ValueError
            except ValueError:
                raise ScenarioError(
                    f"{self.path}, line {number}: a client, 0 to {num_clients - 1}, and two times in seconds, "
                    f"the second one later, not {line}"
                ) from None
            found[int(client)].append(Window(float(start), float(end)))
        return [iter(_merged(sorted(windows))) for windows in found]


_TRACE_HEADER: Final = "client,from_s,to_s"


def _merged(windows: list[Window]) -> list[Window]:
    merged: list[Window] = []
    for window in windows:
        if merged and window.start <= merged[-1].end:
            merged[-1] = Window(merged[-1].start, max(merged[-1].end, window.end))
        else:
            merged.append(window)
    return merged


AVAILABILITIES: Final[Registry[type[Any]]] = Registry(
    "availability", {"always": Always, "alternating": Alternating, "trace": AvailabilityTrace}
)


# All of it.


@dataclass(frozen=True, slots=True)
class MembershipParams:
    """Who joins late and who leaves for good."""

    joining: float = parameter(0.0, at_least=0.0, at_most=1.0, doc="Share of clients that are not there at first.")
    join_from_s: float = parameter(0.0, at_least=0.0, doc="When the first of them may join.")
    join_until_s: float = parameter(600.0, at_least=0.0, doc="When the last has; each time between is as likely.")
    leaving: float = parameter(0.0, at_least=0.0, at_most=1.0, doc="Share of clients that leave before the end.")
    leave_from_s: float = parameter(600.0, at_least=0.0, doc="When the first of them may leave.")
    leave_until_s: float = parameter(1200.0, at_least=0.0, doc="When the last has; each time between is as likely.")

    def __post_init__(self) -> None:
        for what in ("join", "leave"):
            if getattr(self, f"{what}_from_s") > getattr(self, f"{what}_until_s"):
                raise ParameterError(f"membership.{what}_from_s must not be above {what}_until_s")


@dataclass(frozen=True, slots=True)
class WorkParams:
    """What differs from training to training."""

    jitter: float = parameter(
        0.0, at_least=0.0, at_most=10.0, doc="Sigma of a lognormal factor, of median 1, on the time a training takes."
    )
    failures: float = parameter(0.0, at_least=0.0, below=1.0, doc="Probability that a training fails half-way.")


@dataclass(frozen=True, slots=True)
class ConditionsParams:
    """All parameters; in a scenario those of a part have its name and a dot before them.

    ``speed`` names the distribution and ``speed.typical``, ``speed.ratio`` … are its parameters; so are ``up``,
    ``down``, ``latency``, and ``availability``; ``membership.joining`` …, ``work.failures`` …. What is typical unless
    told is nobody's measurement: 1,000 samples a second, 10 and 20 Mbit/s, 50 ms.
    """

    speed: Distribution = field(default_factory=lambda: Constant(1000.0))
    up: Distribution = field(default_factory=lambda: Constant(1.25e6))
    down: Distribution = field(default_factory=lambda: Constant(2.5e6))
    latency: Distribution = field(default_factory=lambda: Constant(0.05))
    availability: Availability = field(default_factory=Always)
    membership: MembershipParams = field(default_factory=MembershipParams)
    work: WorkParams = field(default_factory=WorkParams)

    def write(self) -> dict[str, JsonScalar]:
        """What ``read`` makes this of, defaults written out."""
        said: dict[str, JsonScalar] = {}
        for each in fields(self):
            part, params = each.name, getattr(self, each.name)
            if part in _CHOSEN:
                said[part] = next(name for name, kind in _CHOSEN[part].items() if isinstance(params, kind))
            said |= {f"{part}.{key}": value for key, value in asdict(params).items()}
        return said

    @classmethod
    def read(cls, given: Mapping[str, JsonScalar], *, owner: str) -> Self:
        """Check what a scenario says."""
        parts: dict[str, dict[str, JsonScalar]] = {each.name: {} for each in fields(cls)}
        names: dict[str, str] = {}
        for key, value in given.items():
            part, dot, name = key.partition(".")
            if part not in parts or (not dot and part not in _CHOSEN):
                raise ParameterError(f"{owner} has no parameter {key!r}; parts: {', '.join(parts)}")
            if dot:
                parts[part][name] = value
            else:
                names[part] = str(value)
        availability = names.get("availability", "always")
        return cls(
            **{
                part: _distribution(names.get(part, "constant"), typical, parts[part], owner=f"{owner}: {part}")
                for part, typical in _TYPICAL.items()
            },
            availability=read_parameters(
                AVAILABILITIES[availability], parts["availability"], owner=f"{owner}: availability {availability!r}"
            ),
            membership=read_parameters(MembershipParams, parts["membership"], owner=f"{owner}: membership"),
            work=read_parameters(WorkParams, parts["work"], owner=f"{owner}: work"),
        )


_TYPICAL: Final = {"speed": 1000.0, "up": 1.25e6, "down": 2.5e6, "latency": 0.05}
_CHOSEN: Final = {**dict.fromkeys(_TYPICAL, DISTRIBUTIONS), "availability": AVAILABILITIES}
"""Parts that have a name; the others have parameters alone."""


def _distribution(name: str, typical: float, given: Mapping[str, JsonScalar], *, owner: str) -> Distribution:
    made: Distribution = read_parameters(DISTRIBUTIONS[name], {"typical": typical, **given}, owner=f"{owner} {name!r}")
    if made.typical == 0 and typical >= 1:  # a latency may be nothing; who has no speed never ends
        raise ParameterError(f"{owner}: typical must be above 0")
    return made


class Conditions:
    """The conditions of one run.

    Attributes:
        speeds: Samples a second, shape ``(C,)``.
        up: Bytes a second, shape ``(C,)``.
        down: Likewise.
        latencies: Seconds one way, shape ``(C,)``.
    """

    def __init__(self, params: ConditionsParams, seeds: Seeds, num_clients: int) -> None:
        self._work, self._seeds = params.work, seeds
        self.speeds = params.speed.draw(num_clients, seeds.generator("speed"))
        self.up = params.up.draw(num_clients, seeds.generator("up"))
        self.down = params.down.draw(num_clients, seeds.generator("down"))
        self.latencies = params.latency.draw(num_clients, seeds.generator("latency"))
        self._members = _members(params.membership, seeds, num_clients)
        self._coming = params.availability.windows(num_clients, seeds)
        self._known: list[list[Window]] = [[] for _ in range(num_clients)]

    def window(self, client: int, at: float) -> Window | None:
        """The time in which a client is reachable at ``at``, or the next one; None when it never is any more."""
        known, member = self._known[client], self._members[client]
        while not known or known[-1].end <= at:
            following = next(self._coming[client], None)
            if following is None or following.start >= member.end:
                return None
            present = Window(max(following.start, member.start), min(following.end, member.end))
            if present.start < present.end:
                known.append(present)
        return known[bisect_right(known, at, key=lambda window: window.end)]

    def compute_s(self, client: int, samples: int, *, round_index: int) -> float:
        """How long a client computes on so many samples, those of each epoch counted."""
        factor = 1.0
        if self._work.jitter:
            factor = self._seeds.generator("jitter", client, round_index).lognormal(0.0, self._work.jitter)
        return float(samples / self.speeds[client] * factor)

    def upload_s(self, client: int, nbytes: int) -> float:
        """How long a message takes from the client to its server."""
        return float(self.latencies[client] + nbytes / self.up[client])

    def download_s(self, client: int, nbytes: int) -> float:
        """How long a message takes from the server to the client."""
        return float(self.latencies[client] + nbytes / self.down[client])

    def lost_at(self, client: int, start: float, duration: float, *, round_index: int) -> float:
        """When the training that a reachable client begins at ``start`` is lost, unless it is over before."""
        window = self.window(client, start)
        assert window is not None, "only a reachable client begins"
        share = self.failure(client, round_index=round_index)
        return window.end if share is None else min(window.end, start + share * duration)

    def failure(self, client: int, *, round_index: int) -> float | None:
        """After which share of a training it fails, in [0, 1); None when it does not."""
        if not self._work.failures:
            return None
        fails, share = self._seeds.generator("failure", client, round_index).random(2)
        return float(share) if fails < self._work.failures else None


def _members(params: MembershipParams, seeds: Seeds, num_clients: int) -> list[Window]:
    """When each client joins and leaves; one that would leave before it joins is never there."""
    joined, left = np.zeros(num_clients), np.full(num_clients, math.inf)
    rng = seeds.generator("joining")
    late = rng.permutation(num_clients)[: round(params.joining * num_clients)]
    joined[late] = rng.uniform(params.join_from_s, params.join_until_s, len(late))
    rng = seeds.generator("leaving")
    gone = rng.permutation(num_clients)[: round(params.leaving * num_clients)]
    left[gone] = rng.uniform(params.leave_from_s, params.leave_until_s, len(gone))
    return [Window(float(start), float(end)) for start, end in zip(joined, left, strict=True)]
