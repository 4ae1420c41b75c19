"""docs/settings.md: every setting of a ledger server, from ledger_server.settings."""

import inspect
from collections.abc import Iterator
from typing import Final

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from docs.parts.markdown import table
from ledger_server.settings import ENV_PREFIX, Settings

_SETTINGS_INTRODUCTION: Final = f"""\
Each is looked for in this order: an option of `dag-acfl serve`, the environment (`{ENV_PREFIX}…`), `.env`,
`dag-acfl.toml` in the working folder, the default. `dag-acfl serve --print-config` shows the outcome. What the
members of a ledger must agree on is not here but in its genesis document (docs/protocol.md).
"""
_HEAD: Final = ("`dag-acfl.toml`", "environment", "default", "bounds", "what it decides")


def settings_page() -> str:
    """The whole of docs/settings.md."""
    parts = [
        "# Settings of a ledger server\n",
        "<!-- Written by `make docs` from ledger_server/settings.py; change it there. -->\n",
        _SETTINGS_INTRODUCTION,
        table(_HEAD, _settings_rows(Settings, "")),
    ]
    for name, field in Settings.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            parts.append(f"## `[{name}]`: {inspect.cleandoc(group.__doc__ or '')}\n")
            parts.append(table(_HEAD, _settings_rows(group, f"{name}__")))
    return "\n".join(parts)


def _settings_rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            variable = f"`{ENV_PREFIX}{(prefix + name).upper()}`"
            yield f"`{name}`", variable, _default(field), _bounds(field), field.description or ""


def _default(field: FieldInfo) -> str:
    value = field.get_default()
    if value is None or value == ():
        return "none"
    if isinstance(value, SecretStr):
        return "secret"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"`{value}` ({value >> 20} MiB)"
    return f"`{value}`"


def _bounds(field: FieldInfo) -> str:
    said = []
    for rule in _constraints(field):
        match rule:
            case Ge(ge=low):
                said.append(f"≥ {low}")
            case Gt(gt=low):
                said.append(f"> {low}")
            case Le(le=high):
                said.append(f"≤ {high}")
            case Lt(lt=high):
                said.append(f"< {high}")
            case MinLen(min_length=low):
                said.append(f"length ≥ {low}")
            case MaxLen(max_length=high):
                said.append(f"length ≤ {high}")
            case _:
                pass
    return ", ".join(said)


def _constraints(field: FieldInfo) -> Iterator[object]:
    for item in field.metadata:
        if isinstance(item, FieldInfo):
            yield from _constraints(item)
        else:
            yield item
