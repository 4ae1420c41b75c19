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
        if report is not None
    )
    return table(("part", "what was done", "acknowledged", "lost, unexpected or partial", "holds", "at commit"), rows)


def planted_bugs_table() -> str:
    """Which planted bug was found by which part."""
    report = _fault_report("planted_bugs")
    bugs = {} if report is None else {name: bug for name, bug in report["figures"].items() if isinstance(bug, dict)}
    rows = (
        (f"`{name}`", bug["part"], "yes" if bug["is_caught"] else "**no**", (bug["found"] or [""])[0][:90])
        for name, bug in bugs.items()
    )
    return table(("bug", "part", "found", "as"), rows)


def _fault_report(part: str) -> dict[str, Any] | None:
    file = BENCHMARKS / f"faults_{part}.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def _total(figures: Any, count: str) -> int:
    """A count of a judged history, summed over all that a report holds; a canary's losses are meant to be."""
    if not isinstance(figures, dict):
        return 0
    if isinstance(figures.get("acknowledged"), int):
        return int(figures.get(count, 0))
    return sum(_total(each, count) for name, each in figures.items() if not name.startswith("canary"))


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {"faults": faults_table, "planted-bugs": planted_bugs_table}
