"""Parameters that people write in a genesis document or a scenario, checked once and strictly.

A selector or an aggregator declares its parameters as a frozen dataclass whose fields are made with
``parameter``: default, bounds and meaning stand in one place. ``read_parameters`` turns a JSON object
into such a value. Names, types and ranges are decided here; what a value means is decided where it is
used, and rules between two fields belong in the dataclass's ``__post_init__`` (raise ``ParameterError``).

    >>> @dataclass(frozen=True, slots=True)
    ... class Params:
    ...     k: int = parameter(3, at_least=1, doc="Tips to take.")
    >>> read_parameters(Params, {"k": 5}, owner="selector 'top-k'")
    Params(k=5)
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from fl_core.errors import ParameterError
from fl_core.types import JsonScalar

ParamsT = TypeVar("ParamsT")

_RULE = "fl_core.parameters"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value of one parameter may be; bounds are inclusive except ``above`` and ``below``. Without ``choices`` a
    string may be any.
    """

    doc: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()

    def problem(self, value: float | str) -> str | None:
        """Why ``value`` is outside, in words; None when it is inside."""
        if isinstance(value, str):
            return None if value in self.choices or not self.choices else f"must be one of {', '.join(self.choices)}"
        bounds = (
            (math.isfinite(value), "must be finite"),
            (self.at_least is None or value >= self.at_least, f"must be at least {self.at_least}"),
            (self.at_most is None or value <= self.at_most, f"must be at most {self.at_most}"),
            (self.above is None or value > self.above, f"must be above {self.above}"),
            (self.below is None or value < self.below, f"must be below {self.below}"),
        )
        return next((words for holds, words in bounds if not holds), None)


def parameter(
    default: JsonScalar,
    *,
    doc: str,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with its rule beside it; the return type is the field's, as with ``field``."""
    rule = Rule(doc, at_least, at_most, above, below, choices)
    return dataclasses.field(default=default, metadata={_RULE: rule})


@dataclass(frozen=True, slots=True)
class NoParams:
    """Of a part that has no parameters."""


def rules_of(params: type[Any]) -> dict[str, Rule]:
    """Name and rule of every parameter, in order of declaration; documentation is made from this."""
    return {each.name: each.metadata[_RULE] for each in dataclasses.fields(params)}


def read_parameters(params: type[ParamsT], given: Mapping[str, JsonScalar], *, owner: str) -> ParamsT:
    """Build ``params`` from a JSON object.

    An integer is taken where a float is asked for (JSON writes 1.0 as 1); nothing else is converted, and
    a Boolean is never a number.

    Raises:
        ParameterError: an unknown name, a wrong type, or a value out of range; the message names
            ``owner`` and the fix.
    """
    rules, kinds = rules_of(params), get_type_hints(params)
    for name in given:
        if name not in rules:
            known = ", ".join(rules) or "none"
            raise ParameterError(f"{owner} has no parameter {name!r}; known: {known}")
    return params(
        **{name: _checked(value, kinds[name], rules[name], f"{owner}: {name}") for name, value in given.items()}
    )


def _checked(value: object, kind: type, rule: Rule, where: str) -> JsonScalar:
    if kind is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            raise ParameterError(f"{where} must be finite") from None
    if type(value) is not kind or not isinstance(value, str | int | float | bool):
        raise ParameterError(f"{where} must be {kind.__name__}, not {type(value).__name__}")
    if not isinstance(value, bool) and (problem := rule.problem(value)):
        raise ParameterError(f"{where} {problem}, not {value!r}")
    return value
