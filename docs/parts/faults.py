"""The generated parts of docs/faults.md: what the full fault runs came to, from the files that they wrote."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from docs.parts.kept import BENCHMARKS
from docs.parts.markdown import table

_FAULT_ORDER: Final = (
    "kill",
    "commands",
    "crash_sites",
    "power_loss",
    "disk",
    "postgresql",
    "cursor",
    "partitions",
    "lossy",
    "late_joiner",
    "bad_peers",
    "hospital",
    "workers",
    "soak",
    "simulation",
)


def faults_table() -> str:
    """What the full fault runs came to, from the files that they wrote."""
    reports = {part: _fault_report(part) for part in _FAULT_ORDER}
    rows = (
        (
            f"`{part}`",
            f"{report['what']}; size {report['size']:,}",
            f"{_total(report['figures'], 'acknowledged'):,}",
            f"{sum(_total(report['figures'], count) for count in ('lost', 'unexpected', 'partial'))}",
            ("yes: " if report["is_sound"] else "**no**: ") + report["must_hold"],
            report["commit"][:8],
        )
        for part, report in reports.items()
    )
    return table(("part", "what was done", "acknowledged", "lost, unexpected or partial", "holds", "at commit"), rows)


def planted_bugs_table() -> str:
    """Which planted bug was found by which part."""
    figures = _fault_report("planted_bugs")["figures"]
    bugs = {name: bug for name, bug in figures.items() if isinstance(bug, dict)}
    rows = (
        (f"`{name}`", bug["part"], "yes" if bug["is_caught"] else "**no**", (bug["found"] or [""])[0][:90])
        for name, bug in bugs.items()
    )
    return table(("bug", "part", "found", "as"), rows)


def pauses_table() -> str:
    """How long clients waited when a process, or PostgreSQL, was killed under them."""
    figures = _fault_report("workers")["figures"]
    words = {"leader": "the process that leads", "other": "another process", "postgresql": "all of PostgreSQL"}
    rows = (
        (words[kind], f"{figures['kills'][kind]}", *(f"{pause[each]:g} s" for each in ("p50", "p95", "max")), gone)
        for kind, pause in figures["longest_pause_of_a_client_s"].items()
        for gone in [f"{figures['postgresql_gone_s']['max']:g} s" if kind == "postgresql" else "–"]
    )
    return table(
        ("killed", "times", "the client that waited longest: p50", "p95", "max", "PostgreSQL itself gone, max"), rows
    )


def soak_table() -> str:
    """What each process of the soak had in its second half, and what that grew by in an hour."""
    second: Mapping[str, Mapping[str, Mapping[str, float]]] = _fault_report("soak")["figures"]["second_half"]
    measured = {
        "memory that is in no file": "anonymous_mib",
        "open files": "files",
        "threads": "threads",
        "the database's log": "log_mib",
        "disk": "disk_mib",
    }
    rows = ((name, *(_grown(each.get(figure)) for figure in measured.values())) for name, each in second.items())
    return table(("of", *measured), rows)


def _grown(figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return "–"
    return f"{figure['level']:,.0f}; {figure['per_hour']:+.1f} ± {2 * figure['noise']:.1f}"


def _fault_report(part: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((BENCHMARKS / f"faults_{part}.json").read_text("utf-8"))
    return report


def _total(figures: Any, count: str) -> int:
    """A count of a judged history, summed over all that a report holds; a canary's losses are meant to be."""
    if not isinstance(figures, dict):
        return 0
    if isinstance(figures.get("acknowledged"), int):
        return int(figures.get(count, 0))
    return sum(_total(each, count) for name, each in figures.items() if not name.startswith("canary"))


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "faults": faults_table,
    "planted-bugs": planted_bugs_table,
    "pauses": pauses_table,
    "soak": soak_table,
}
