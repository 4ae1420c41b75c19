"""The generated parts of docs/selection.md: what the rules that choose tips make of sequences whose truth is known."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from docs.parts.kept import BENCHMARKS
from docs.parts.markdown import table


def selection_rules_table() -> str:
    """What each rule took of sequences whose truth is known: right, and foreign where it is not 0."""
    rules = _selection_facts()["rules"]
    kinds = list(next(iter(rules.values())))
    rows = ((rule, *(_right_and_foreign(by_kind[kind]) for kind in kinds)) for rule, by_kind in rules.items())
    return table(("rule", *kinds), rows)


def selection_settings_table() -> str:
    """Per setting of BEAST, and for least squares: how often its cut is the longest's, and what a search costs."""
    facts = _selection_facts()
    names = facts["settings"]
    rows = (
        (
            name,
            _percent(facts["same cut as the longest"][name]),
            _percent(by_kind["weak"]["same"]),
            _percent(by_kind["weak"]["right"]),
            *(_milliseconds(facts["milliseconds"].get(name, {}).get(length)) for length in ("10", "90", "1000")),
        )
        for name, by_kind in names.items()
    )
    head = ("samples x chains", "same cut", "… weak", "right, weak", "ms, n 10", "ms, n 90", "ms, n 1000")
    return table(head, rows)


def selection_times_table() -> str:
    """Milliseconds of one search by length."""
    milliseconds = _selection_facts()["milliseconds"]
    lengths = list(next(iter(milliseconds.values())))
    names = [name for name in milliseconds if " x " not in name or name.startswith("3000") or "default" in name]
    rows = (
        (
            f"BEAST, {name}" if " x " in name else name,
            *(_milliseconds(milliseconds[name].get(length)) for length in lengths),
        )
        for name in names
    )
    return table(("search", *(f"n {length}" for length in lengths)), rows)


def _selection_facts() -> dict[str, Any]:
    return dict(json.loads((BENCHMARKS / "change_points.json").read_text("utf-8"))["facts"])


def _right_and_foreign(figures: Mapping[str, float]) -> str:
    foreign = f" ({_percent(figures['foreign'])})" if figures["foreign"] else ""
    return _percent(figures["right"]) + foreign


def _percent(share: float) -> str:
    return f"{share * 100:.1f}"


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 1 else f"{value:.1f}"


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "selection-rules": selection_rules_table,
    "selection-settings": selection_settings_table,
    "selection-times": selection_times_table,
}
