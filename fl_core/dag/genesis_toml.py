"""A genesis that a person writes: one TOML file, of which ``dag-acfl ledger init`` makes the document.

    name = "hospitals"
    threshold = "majority"                # or how many members sign an act

    [comparison]                          # a rule: its name, and its parameters beside it
    name = "layers"                       # default: everything that is trained, of large models a sketch
    tensors = ["fc2.weight", "fc2.bias"]

    [selector]
    name = "least-squares"
    min_tips = 4

    [bounds]
    max_parents = 32

    [[members]]
    key = "5e…"
    name = "north"

    [layout]
    buffers = ["bn1.running_mean"]        # tensors of the model that are not trained

    [training]
    epochs = 2

What is left out is as the profile of its authors has it (``fl_core.dag.profiles``). The layout comes with the initial
model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from fl_core.dag.genesis import (
    DEFAULT_EPOCHS,
    RULES,
    SKETCH,
    Bounds,
    Component,
    Genesis,
    Member,
    check_supported,
    compare_all,
    compare_layers,
)
from fl_core.dag.profiles import PROFILES
from fl_core.errors import GenesisError, ModelLayoutError
from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import JsonScalar

_PLAIN: Final = ("name", "threshold", "supersedes")
_TABLES: Final = (*RULES, "bounds", "members", "layout", "training", "extensions")


def genesis_from_table(
    table: Mapping[str, Any],
    *,
    layout: ModelLayout,
    founders: Sequence[Member] = (),
    complete: Callable[[str, Component], Component] = lambda _, component: component,
) -> Genesis:
    """The genesis that a parsed TOML file describes.

    Args:
        table: What ``tomllib`` made of the file.
        layout: Of the initial model.
        founders: The members, where the file names none.
        complete: Fills in a rule's parameters from its registry, given the rule's place (``selector``) and component.

    Raises:
        GenesisError: The file says something that cannot be, with the place where it does.
    """
    if unknown := sorted(table.keys() - {*_PLAIN, *_TABLES}):
        raise GenesisError(f"unknown: {', '.join(unknown)}; there are {', '.join((*_PLAIN, *_TABLES))}")
    if not isinstance(table.get("name"), str):
        raise GenesisError("name: what people call the ledger, as text")
    layout_table = _table(table, "layout", known=("buffers", "local"))
    training = {"epochs": DEFAULT_EPOCHS, **_table(table, "training")}
    training.setdefault("initial_epochs", training["epochs"])
    members = [Member(**_strings(each, "members", ("key", "name"))) for each in _list(table, "members")]
    buffers = _in_order(_list(layout_table, "buffers"), layout)
    who = _table(table, "authors").get("name", RULES["authors"].name)
    profile = PROFILES.get(str(who), PROFILES["open"])  # what is unknown is refused below
    defaults = {**profile, "comparison": compare_all(layout, buffers)}
    genesis = Genesis(
        name=table["name"],
        layout=layout,
        buffers=buffers,
        local=tuple(_tensor(each) for each in _list(layout_table, "local")),
        **{rule: complete(rule, _component(table, rule, defaults[rule], layout)) for rule in RULES},
        bounds=_bounds(table),
        members=tuple(sorted(members or founders, key=lambda member: member.key)),
        threshold=table.get("threshold", "majority"),
        supersedes=table.get("supersedes"),
        training=training,
        extensions=_table(table, "extensions"),
    )
    check_supported(genesis)
    return genesis


def _table(table: Mapping[str, Any], name: str, *, known: Sequence[str] | None = None) -> dict[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, Mapping):
        raise GenesisError(f"{name} must be a table: [{name}]")
    if known is not None and (unknown := sorted(value.keys() - set(known))):
        raise GenesisError(f"{name}: unknown {', '.join(unknown)}; there are {', '.join(known)}")
    return dict(value)


def _list(table: Mapping[str, Any], name: str) -> list[Any]:
    value = table.get(name, [])
    if not isinstance(value, list):
        raise GenesisError(f"{name} must be a list")
    return value


def _strings(value: Any, where: str, keys: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping) or set(value) != set(keys):
        raise GenesisError(f"each of {where} has {' and '.join(keys)}")
    return dict(value)


def _component(table: Mapping[str, Any], rule: str, default: Component, layout: ModelLayout) -> Component:
    given = _table(table, rule)
    name = given.pop("name", default.name)
    if not isinstance(name, str):
        raise GenesisError(f"[{rule}]: name must be text, not {name!r}")
    if rule == "comparison" and name == "layers":
        return compare_layers(_in_order(_list(given, "tensors"), layout))
    if rule == "comparison" and name == SKETCH.name:
        default = SKETCH
    known = {each.name: each.params for each in (RULES[rule], default)}
    params: dict[str, JsonScalar] = {**known.get(name, {}), **given}
    try:
        return Component(name, params)
    except GenesisError as error:
        raise GenesisError(f"[{rule}]: {error}") from error


def _in_order(names: list[Any], layout: ModelLayout) -> tuple[str, ...]:
    known = [tensor.name for tensor in layout.tensors]
    if unknown := [str(name) for name in names if name not in known]:
        raise GenesisError(f"no tensor {', '.join(unknown)}; the model has {', '.join(known)}"[:500])
    return tuple(name for name in known if name in names)


def _tensor(value: Any) -> TensorSpec:
    fields = _strings(value, "layout.local", ("name", "dtype", "shape"))
    try:
        return TensorSpec(fields["name"], fields["dtype"], tuple(fields["shape"]))
    except (ModelLayoutError, TypeError) as error:
        raise GenesisError(f"layout.local: {error}") from error


def _bounds(table: Mapping[str, Any]) -> Bounds:
    defaults = asdict(Bounds())
    given = _table(table, "bounds", known=list(defaults))
    # A whole number is a number: max_norm = 100 means 100.0.
    for key, value in given.items():
        if type(defaults[key]) is float and type(value) is int:
            given[key] = float(value)
    return Bounds(**given)
