"""docs/commands.md: every command of `dag-acfl`, from its own help."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from dag_acfl.cli import app
from docs.parts.markdown import table

_COMMANDS_INTRODUCTION: Final = """\
Exit codes: 0 done, 1 it failed (one line says what, and how to mend it), 2 the command was written wrongly, 130 Ctrl-C.
`--debug`, or `DAG_ACFL_DEBUG=1`, shows a failure's traceback.
"""


def commands_page() -> str:
    """The whole of docs/commands.md."""
    parts = [
        "# The command `dag-acfl`\n",
        "<!-- Written by `make docs` from dag_acfl/commands/; change it there. -->\n",
        _COMMANDS_INTRODUCTION,
    ]
    for words, command in commands().items():
        parts.append(f"## `dag-acfl {words}`\n")
        paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        examples = [each.removeprefix("Example: ") for each in paragraphs if each.startswith("Example: ")]
        parts += [f"{each}\n" for each in paragraphs if not each.startswith("Example: ")]
        parts.append("\n".join(["```bash", *examples, "```\n"]))
        rows = [(_spelling(each), _help_of(each)) for each in command.params if each.name != "help"]
        if rows:
            parts.append(table(("argument or option", "meaning"), rows))
    return "\n".join(parts)


def commands() -> dict[str, Any]:
    """Every command that does something, by its words: ``ledger init``; typer may bring a click of its own."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, each in getattr(command, "commands", {}).items():
            yield from below(each, (*words, name))
        if not hasattr(command, "commands"):
            yield " ".join(words), command

    return dict(below(typer.main.get_command(app), ()))


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    names = " / ".join((*parameter.opts, *parameter.secondary_opts))
    return f"`{names}`" + (" (required)" if parameter.required else "")


def _help_of(parameter: Any) -> str:
    said, default = parameter.help or "", parameter.default
    plain = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    return f"{said} Default: `{default}`." if plain and "Default" not in said else said
