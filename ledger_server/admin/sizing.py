"""What servers a number of clients needs: network, disk, memory, CPU and processes; and what limits first.

Arithmetic over measured costs, without input or output of its own. The costs are ``measured_costs.json`` beside this
file, which ``make docs`` writes from the results of benchmarks (``docs/parts/measured_costs.py``). Between measured
points it goes in straight lines, beyond them as the last two do. Costs were taken on one kind of processor: another
one is off by what its cores are faster or slower.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from fl_core.dag.genesis import FRESHNESS, MAX_EXACT, MAX_MEMBERS, SKETCH, Bounds
from fl_core.errors import ParameterError
from ledger_server.settings import Settings

Coding = Literal["whole", "exact", "rounded"]
CODINGS: Final[tuple[Coding, ...]] = ("whole", "exact", "rounded")
BUSY: Final = 0.7
"""Of a core, or of the write lock's time: beyond it, waiting grows faster than work."""
IN_FILES_BYTES: Final = 1_000_000
"""Models from this size on lie better in a directory or a bucket than in the database's rows."""
PACKED_BYTES, PEERS_CODED_BYTES = 256 << 10, 512 << 10
"""Smaller models are kept whole (``prune.pack_after_hours``), and sent whole to peers (``peers_coded``)."""
KEY_MODELS: Final = 8
"""Of so many packed models one is coded by none."""
MIN_NAMED: Final = 32
"""Candidates that evidence names at least, if there are so many; else twice those averaged."""
DAY_S, HOUR_S = 86_400.0, 3600.0
MOST_DEVICES, MOST_MODEL_BYTES, MOST_EVERY_S = 10_000_000, 10**10, 366 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Who publishes what how often, and how it is kept.

    Args:
        devices: Clients that take part, each an author.
        every_s: Seconds from one update of a client to its next.
        model_bytes: Of one model; float32 values.
        servers: Members' servers; each takes in every update.
        coding: How models travel and rest: whole, steps as they are, or steps that clients round.
        keep_days: Models of so many days stay beside each author's newest; None: all, without pruning.
        clusters: Kinds of clients; an average takes models of one kind.
        client_mbit: Of a client's line, both ways, Mbit/s.

    Raises:
        ParameterError: A figure is out of range.
    """

    devices: int
    every_s: float
    model_bytes: float
    servers: int = 2
    coding: Coding = "whole"
    keep_days: float | None = 7.0
    clusters: int = 1
    client_mbit: float = 20.0

    def __post_init__(self) -> None:
        _within("--devices", self.devices, 1, MOST_DEVICES)
        _within("--every", self.every_s, 1, MOST_EVERY_S, "seconds")
        _within("--model-mb", self.model_bytes / 1e6, 1e-4, MOST_MODEL_BYTES / 1e6)
        _within("--servers", self.servers, 1, MAX_MEMBERS)
        _within("--clusters", self.clusters, 1, self.devices, "(as many as there are devices)")
        _within("--client-mbit", self.client_mbit, 0.01, 100_000)
        if self.coding not in CODINGS:
            raise ParameterError(f"--coding is one of {', '.join(CODINGS)}, not {self.coding!r}")
        if self.keep_days is not None:
            _within("--keep", self.keep_days, 0, 36_500, "days; or all")


def _within(name: str, value: float, low: float, high: float, what: str = "") -> None:
    if not low <= value <= high:
        raise ParameterError(f"{name} must be from {low:,g} to {high:,g} {what}".rstrip() + f", not {value:,g}")


@dataclass(frozen=True, slots=True)
class CodedCosts:
    """Of one coding: shares of a model's bytes, and CPU ms for each MB of it."""

    upload: float
    peers: float
    rest: float
    upload_decode_ms: float
    encode_ms: float
    decode_ms: float


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured (``measured_costs.json``)."""

    rounds: tuple[Mapping[str, float], ...]
    """By ``model_bytes`` and ``averaged``, in a full grid: costs of a round and of receiving an update, on SQLite."""
    postgresql: tuple[Mapping[str, float], ...]
    """By ``model_bytes``, with the most that are averaged: the same on PostgreSQL."""
    candidates: tuple[tuple[float, float], ...]
    """How many candidates, and CPU ms of a selection among them beyond that of a round among few."""
    follow_ms: float
    """CPU of a process for an update that another process of the server wrote."""
    lock_ms: float
    """Under PostgreSQL's write lock for a round; the disk's time included."""
    idle_bytes: float
    author_bytes: float
    models_in_memory: float
    """For each model on its way."""
    start_s: float
    """CPU of a start."""
    coded: Mapping[str, CodedCosts]

    @classmethod
    def parse(cls, text: str) -> "Costs":
        """Of the document's text."""
        found: dict[str, Any] = json.loads(text)
        memory, workers = found["memory"], found["workers"]
        return cls(
            rounds=tuple(found["rounds"]),
            postgresql=tuple(found["postgresql"]),
            candidates=tuple((each["candidates"], each["cpu_ms"]) for each in found["candidates"]),
            follow_ms=workers["follow_ms"],
            lock_ms=workers["lock_ms"],
            idle_bytes=memory["idle_bytes"],
            author_bytes=memory["author_bytes"],
            models_in_memory=memory["models_for_each_on_its_way"],
            start_s=found["start"]["cpu_s"],
            coded={name: CodedCosts(**each) for name, each in found["coding"].items()},
        )

    def round(self, name: str, model_bytes: float, *, by: Literal["averaged", "named"], at: float) -> float:
        """One cost, between measured points: along the model's size at each number of models, then between those."""
        columns = sorted({point[by] for point in self.rounds})
        found = [
            (column, line([(p["model_bytes"], p[name]) for p in self.rounds if p[by] == column], model_bytes))
            for column in columns
        ]
        return max(line(found, at), 0.0)

    def on_postgresql(self, name: str, model_bytes: float) -> float:
        return max(line([(point["model_bytes"], point[name]) for point in self.postgresql], model_bytes), 0.0)


def sketch_bytes(model_bytes: float) -> float:
    """Of what is compared of a model in its place, and kept with it; 0 where all of it is compared."""
    return 4.0 * float(SKETCH.params["dimensions"]) if model_bytes / 4 > MAX_EXACT else 0.0


def line(points: Sequence[tuple[float, float]], at: float) -> float:
    """Straight from point to point; beyond the first and the last as between the two nearest."""
    points = sorted(points)
    if len(points) == 1:
        return points[0][1]
    (left, low), (right, high) = next((pair for pair in pairwise(points) if at <= pair[1][0]), (points[-2], points[-1]))
    return low + (high - low) * (at - left) / (right - left)


@dataclass(frozen=True, slots=True)
class Site:
    """What one server can reasonably have; beyond it a demand is out of reach."""

    processes: int = 16
    """As far as the queueing model of ``benchmarks/workers.py`` was carried."""
    network_bytes_s: float = 10e9 / 8
    disk_bytes: float = 20e12
    disk_bytes_s: float = 1e9


SITE: Final = Site()


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound: what share of it is used, and what helps."""

    name: str
    share: float
    remedy: str


@dataclass(frozen=True, slots=True)
class Needs:
    """Of each server, unless it says otherwise; bytes a second are means."""

    updates_per_s: float
    """At all servers together; each takes in all of them."""
    averaged: int
    client_up_bytes: float
    client_down_bytes: float
    """Of an update."""
    from_clients_bytes_s: float
    to_clients_bytes_s: float
    from_peers_bytes_s: float
    to_peers_bytes_s: float
    disk_bytes_day: float
    models_stay_bytes: float | None
    """What pruning leaves of models; None: they grow by the day, as all else does."""
    records_bytes_day: float
    """Headers, evidence and rows of the database, which stay for good."""
    cores: Mapping[str, float]
    processes: int | None
    """None: no number of them is enough."""
    database: Literal["SQLite", "PostgreSQL"]
    models: Literal["database", "directory", "bucket"]
    memory_bytes: float
    """Of one process."""
    connections: int
    """At work at one time; further ones are idle."""
    start_cpu_s: float
    limits: tuple[Limit, ...]
    """The tightest first."""
    warnings: tuple[str, ...]

    @property
    def is_within_reach(self) -> bool:
        return self.limits[0].share <= 1


def needs(demand: Demand, costs: Costs, *, site: Site = SITE) -> Needs:
    """What it takes, each figure as its field says."""
    settings, bounds = Settings.model_construct(), Bounds()
    size, servers = demand.model_bytes, demand.servers
    everywhere = demand.devices / demand.every_s
    here, from_others = everywhere / servers, everywhere * (servers - 1) / servers
    averaged = max(min(bounds.max_parents, demand.devices // demand.clusters), 1)
    candidates = min(demand.devices, bounds.max_candidates)
    named = min(candidates, max(2 * averaged, MIN_NAMED))
    coded = costs.coded.get(demand.coding)
    upload = coded.upload if coded else 1.0
    between = coded.peers if coded and size >= PEERS_CODED_BYTES else 1.0
    rest = coded.rest if coded and size >= PACKED_BYTES else 1.0

    def moved(name: str) -> float:
        return costs.round(name, size, by="named", at=named)

    up, down = upload * size + moved("client_sent_beyond_model"), size + moved("client_received_beyond_model")
    exchanged = from_others * (between * size + moved("peer_bytes_beyond_model"))
    records = everywhere * DAY_S * moved("record_bytes")
    models_day = everywhere * DAY_S * (size * rest + sketch_bytes(size))
    newest = demand.devices * (size + sketch_bytes(size))

    cores = _cores(demand, costs, averaged=averaged, candidates=candidates, database="SQLite")
    database: Literal["SQLite", "PostgreSQL"] = "SQLite"
    processes = _processes(sum(cores.values()), 0.0)
    follow = everywhere * costs.follow_ms / 1e3
    if processes != 1:
        database = "PostgreSQL"
        cores = _cores(demand, costs, averaged=averaged, candidates=candidates, database=database)
        processes = _processes(sum(cores.values()) - cores["database"], follow)
    busiest = min(processes or site.processes, site.processes)
    if busiest > 1:
        cores["following other processes"] = follow * (busiest - 1)

    transfer_s = (up + down) * 8 / (demand.client_mbit * 1e6)
    on_their_way = here / busiest * up * 8 / (demand.client_mbit * 1e6)
    room = settings.http.max_bytes_in_flight / size
    compared = sketch_bytes(size) or size
    memory = (
        costs.idle_bytes
        + settings.cache.model_bytes
        + min(candidates, bounds.max_compared) * compared
        + demand.devices * costs.author_bytes
        + min(max(on_their_way, 1.0), max(room, 1.0)) * costs.models_in_memory * size
    )
    stays = None if demand.keep_days is None else newest + demand.keep_days * models_day
    # Of the smallest model: what is in files is there before the lock is taken (docs/adr/0064).
    smallest = min(point["model_bytes"] for point in costs.rounds)
    on_sqlite_ms = costs.round("lock_ms", smallest, by="averaged", at=averaged)
    lock_ms = on_sqlite_ms if database == "SQLite" else costs.lock_ms
    incoming, outgoing = here * up + exchanged, here * down + exchanged
    in_processes = sum(cores.values()) - cores["database"] - cores.get("following other processes", 0.0)
    places: Literal["database", "directory", "bucket"] = (
        "database" if size < IN_FILES_BYTES else "directory" if busiest <= 4 else "bucket"
    )
    written = everywhere * size * (2 if places == "database" else 1)
    found = (
        Limit(
            f"CPU: {site.processes} processes for a server",
            (in_processes + (site.processes - 1) * follow) / (BUSY * site.processes),
            "fewer updates, or smaller models; more clusters where clients differ: an average takes fewer models then",
        ),
        Limit(
            "the database's write lock",
            everywhere * lock_ms / 1e3 / BUSY,
            "fewer updates, or several ledgers: neither processes nor servers widen it; a faster disk does",
        ),
        Limit(
            "network of a server, 10 Gbit/s",
            max(incoming, outgoing) / site.network_bytes_s,
            "fewer updates, smaller models (adapters only), or --coding rounded for what goes up and between servers",
        ),
        Limit(
            "disk of a server, 20 TB",
            (stays if stays is not None else 365 * models_day) / site.disk_bytes,
            "keep fewer days, --coding rounded, fewer updates; a bucket where it may grow",
        ),
        Limit("writing to disk, 1 GB/s", written / site.disk_bytes_s, "fewer updates or smaller models"),
    )
    limits = tuple(sorted(found, key=lambda limit: -limit.share))
    return Needs(
        updates_per_s=everywhere,
        averaged=averaged,
        client_up_bytes=up,
        client_down_bytes=down,
        from_clients_bytes_s=here * up,
        to_clients_bytes_s=here * down,
        from_peers_bytes_s=exchanged,
        to_peers_bytes_s=exchanged,
        disk_bytes_day=models_day + records,
        models_stay_bytes=stays,
        records_bytes_day=records,
        cores=cores,
        processes=processes if processes is not None and processes <= site.processes else None,
        database=database,
        models=places,
        memory_bytes=memory,
        connections=math.ceil(here * transfer_s),
        start_cpu_s=costs.start_s,
        limits=limits,
        warnings=tuple(_warnings(demand, settings, here=here, transfer_s=transfer_s, processes=busiest, room=room)),
    )


def _cores(
    demand: Demand, costs: Costs, *, averaged: int, candidates: int, database: Literal["SQLite", "PostgreSQL"]
) -> dict[str, float]:
    """Cores of one server by what they do, before processes follow one another."""
    size, servers = demand.model_bytes, demand.servers
    everywhere = demand.devices / demand.every_s
    here, from_others = everywhere / servers, everywhere * (servers - 1) / servers

    def cpu_ms(name: str, number: float = averaged) -> float:
        return costs.round(name, size, by="averaged", at=number)

    round_ms = cpu_ms("cpu_ms") + max(line(costs.candidates, candidates), 0.0)
    database_ms = 0.0
    if database == "PostgreSQL":
        most = max(point["averaged"] for point in costs.rounds)
        round_ms += max(costs.on_postgresql("cpu_ms", size) - cpu_ms("cpu_ms", most), 0.0)
        database_ms = costs.on_postgresql("database_cpu_ms", size)
    coded, megabytes = costs.coded.get(demand.coding), size / 1e6
    coding_ms = 0.0
    if coded is not None:
        coding_ms += here * coded.upload_decode_ms
        if size >= PEERS_CODED_BYTES:
            coding_ms += here * (servers - 1) * coded.encode_ms + from_others * coded.decode_ms
        if size >= PACKED_BYTES:
            coding_ms += everywhere * (coded.encode_ms + coded.decode_ms)
    found = {
        "rounds of clients": here * round_ms,
        "sending to peers": here * (servers - 1) * cpu_ms("serving_cpu_ms"),
        "receiving from peers": from_others * cpu_ms("receiving_singly_cpu_ms"),
        "coding": coding_ms * megabytes,
        "database": everywhere * database_ms,
    }
    return {name: ms / 1e3 for name, ms in found.items()}


def _processes(cores: float, follow: float) -> int | None:
    """The least number of processes that are busy for ``BUSY`` of the time; None: there is none.

    Args:
        cores: Of all work of the server.
        follow: Cores that each process takes for following all others' writes.
    """
    if cores <= BUSY:
        return 1
    return math.ceil((cores - follow) / (BUSY - follow)) if follow < BUSY else None


def _warnings(
    demand: Demand, settings: Settings, *, here: float, transfer_s: float, processes: int, room: float
) -> "list[str]":
    found = []
    if transfer_s > demand.every_s:
        line_mbit = f"{demand.client_mbit:g} Mbit/s"
        found.append(f"a client's line of {line_mbit} is too slow: an update takes {transfer_s:.0f} s of it")
    if demand.devices > Bounds().max_candidates:
        found.append(f"beyond {Bounds().max_candidates:,} authors the latest to come are offered to nobody")
    if demand.every_s > float(FRESHNESS.params["window_s"]):
        found.append("a model is offered for 30 days: lengthen freshness.window_s in genesis")
    if here * HOUR_S > settings.quota.token_updates:
        found.append(
            f"one token may publish {settings.quota.token_updates:,} updates an hour: give each site its own, "
            "or raise DAG_ACFL_QUOTA__TOKEN_UPDATES"
        )
    if HOUR_S / demand.every_s > settings.quota.author_updates:
        found.append("an author may publish 3,600 updates an hour: raise DAG_ACFL_QUOTA__AUTHOR_UPDATES")
    upload_s = transfer_s / 2
    if here / processes * upload_s > room:
        found.append("more bytes on their way than a process takes in: raise DAG_ACFL_HTTP__MAX_BYTES_IN_FLIGHT")
    if here * transfer_s > settings.http.max_connections * processes * 0.75:
        found.append("more clients at work than connections: raise DAG_ACFL_HTTP__MAX_CONNECTIONS and ulimit -n")
    if demand.servers == 1:
        found.append("one server is one point of failure, and its operator's word is all there is: run a second one")
    return found
