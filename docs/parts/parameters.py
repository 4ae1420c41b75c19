"""Tables of parameters, from the rules that each field of a parameters dataclass is declared with."""

import inspect
from collections.abc import Iterator
from typing import Any, Final

from docs.parts.markdown import table
from fl_core.parameters import Rule, rules_of

PARAMETER: Final = ("parameter", "default", "range", "meaning")
KEY: Final = ("key", *PARAMETER[1:])


def part_table(name: str, kind: type[Any]) -> str:
    """A part by its name, and its parameters."""
    rows = list(parameter_rows(kind))
    return f"`{name}`:\n\n{table(PARAMETER, rows)}" if rows else f"`{name}` has no parameters.\n"


def named_table(name: str, made: Any, params: type[Any]) -> str:
    """A rule by its module's first paragraph, which names the source, and its parameters."""
    module = inspect.getmodule(made)
    said = " ".join((inspect.getdoc(module) or "").partition("\n\n")[0].replace("``", "`").split())
    own, more = params, ""
    if hasattr(params, "read"):  # one of parts: its own parameters, and where to find the parts'
        own = type(params().own)
        more = "\nAnd those of its parts, such as `aggregator` and `aggregator.trim_share`; see below.\n"
    rows = list(parameter_rows(own))
    parameters = table(PARAMETER, rows) if rows else "No parameters.\n"
    return f"**`{name}`.** {said}\n\n{parameters}{more}"


def first_sentence(doc: str | None) -> str:
    """What a docstring says before its first empty line."""
    return inspect.cleandoc(doc or "").partition("\n\n")[0]


def parameter_rows(params: type[Any]) -> Iterator[tuple[str, ...]]:
    """A row for each field: name, default, range, meaning."""
    defaults = params()
    for name, rule in rules_of(params).items():
        value = getattr(defaults, name)
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        yield f"`{name}`", f"`{shown}`" if shown else "none", _range(rule), rule.doc


def _range(rule: Rule) -> str:
    if rule.choices:
        return ", ".join(f"`{choice}`" for choice in rule.choices)
    bounds = (("≥", rule.at_least), (">", rule.above), ("≤", rule.at_most), ("<", rule.below))
    return ", ".join(
        f"{sign} {int(bound) if bound == int(bound) else bound}" for sign, bound in bounds if bound is not None
    )
