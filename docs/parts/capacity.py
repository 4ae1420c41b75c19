"""The generated parts of docs/capacity.md: what the calculator says of the usual cases, and on which measurements."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from dag_acfl.commands.capacity import number, period, rate, size
from docs.parts.kept import BENCHMARKS
from docs.parts.markdown import table
from docs.parts.measured_costs import measured_costs
from ledger_server.admin.sizing import Coding, Costs, Demand, needs

MB: Final = 1e6
_MODELS: Final[tuple[tuple[float, Coding], ...]] = ((0.1, "whole"), (1, "whole"), (13, "whole"), (13, "rounded"))
_HOSPITALS: Final = Demand(devices=50, every_s=3600, model_bytes=MB, servers=3, clusters=5)
_DEVICES: Final = Demand(devices=10_000, every_s=3600, model_bytes=MB, servers=2, clusters=100, keep_days=2)


def _cases(base: Demand) -> str:
    """A row for each pace and size."""
    costs = Costs.parse(measured_costs())
    rows = []
    for every_s in (60.0, 3600.0):
        for model_mb, coding in _MODELS:
            demand = replace(base, every_s=every_s, model_bytes=model_mb * MB, coding=coding)
            found = needs(demand, costs)
            incoming = found.from_clients_bytes_s + found.from_peers_bytes_s
            outgoing = found.to_clients_bytes_s + found.to_peers_bytes_s
            first = found.limits[0]
            times = number(1 / first.share)
            reach = f"at {times} times this" if found.is_within_reach else f"**out of reach**: {times} of this"
            processes = "–" if found.processes is None else f"{found.processes}"
            rows.append(
                (
                    f"{model_mb:g} MB" + ("" if coding == "whole" else f", {coding}"),
                    period(every_s),
                    number(found.updates_per_s),
                    f"{rate(incoming)}, {rate(outgoing)}",
                    size(found.disk_bytes_day),
                    size(found.models_stay_bytes or 0.0),
                    number(sum(found.cores.values())),
                    processes,
                    f"{found.database}, {found.models}",
                    f"{first.name}, {reach}",
                )
            )
    head = (
        "model",
        "every",
        "updates a second",
        "network of a server, in, out",
        "disk a day",
        "models that stay",
        "cores",
        "processes",
        "database, models",
        "limits first",
    )
    return table(head, rows)


def _sources() -> str:
    """Which benchmark gave the costs, when, on what."""
    sources = json.loads(measured_costs())["sources"]
    rows = (
        (f"`{each['command']}`", each["date"], (each["commit"] or "–")[:8], each["cpu"], f"{each['load_average']:.1f}")
        for each in sources.values()
    )
    return table(("command", "on", "at commit", "processor", "load average before"), rows)


def _against_reality() -> str:
    """How far the calculator was off, of a run that none of its costs come from."""
    result = json.loads((BENCHMARKS / "capacity.json").read_text("utf-8"))
    rows = (
        (
            ratio["name"].removesuffix(": off by"),
            ratio["basis"],
            f"{100 * ratio['value']:.1f} %",
            f"{100 * ratio['target']:g} %",
        )
        for ratio in result["ratios"]
    )
    return table(("figure", "for an update", "off by", "meant to be within"), rows)


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "capacity-hospitals": lambda: _cases(_HOSPITALS),
    "capacity-devices": lambda: _cases(_DEVICES),
    "capacity-sources": _sources,
    "capacity-reality": _against_reality,
}
