"""Entry of ``dag-acfl`` and ``python -m dag_acfl``: every failure is one line and an exit code.

0: done. 1: it failed (``error: what, and how to mend it``). 2: the command was written wrongly. 130: Ctrl-C.
``--debug``, or ``DAG_ACFL_DEBUG=1``, shows a failure's traceback instead.
"""

import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache

import typer

from dag_acfl.cli import app
from dag_acfl.commands.options import as_called
from fl_core.errors import DagAcflError, TokenRequiredError


def main(arguments: Sequence[str] | None = None, *, called: str = "dag-acfl") -> int:
    """Run one command; returns the exit code.

    Args:
        arguments: The words behind the command's name; None: those that the process was given.
        called: The command's name, as help shows it.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or os.environ.get("DAG_ACFL_DEBUG", "") not in {"", "0"}
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # into a file on Windows it is cp1252, which has no arrow
    given = [each for each in given if each != "--debug"]  # so that it may stand behind the command, too
    try:
        code = _commands()(given, prog_name=called, standalone_mode=False)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # `dag-acfl … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        # typer brings its own copy of click's usage errors, or click's, depending on its release.
        is_usage = hasattr(error, "format_message") and hasattr(error, "exit_code")
        if is_usage:
            # Without a word: a command that was given nothing has shown its help.
            return _fail(_usage(error, called), 2) if error.format_message() else 2  # type: ignore[attr-defined]
        if debug:
            raise
        return _fail(_explanation(error), 1)
    return code if isinstance(code, int) else 0


@cache
def _commands() -> Callable[..., object]:
    """All commands as typer builds them of their signatures, which takes 30 ms: once, however often one is run."""
    return typer.main.get_command(app)


def _explanation(error: Exception) -> str:
    if isinstance(error, typer.Abort):
        return "aborted"
    if isinstance(error, TokenRequiredError):
        return f"{_one_line(error)}; hand one over with --token-file"
    if isinstance(error, DagAcflError | OSError):
        return _one_line(error)
    return f"{type(error).__name__}: {_one_line(error)} (a bug; run again with --debug and report it)"


def _usage(error: Exception, called: str) -> str:
    message: str = error.format_message()  # type: ignore[attr-defined]
    message = message.replace("Value error, ", "")  # pydantic's lead: newer releases of typer check values with it
    context = getattr(error, "ctx", None)
    command = called if context is None else context.command_path
    return f"{' '.join(message.split()).rstrip('.')}; see: {command} --help"


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _fail(message: str, code: int) -> int:
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(as_called(message), err=True)
    return code


if __name__ == "__main__":
    sys.exit(main(called="python -m dag_acfl"))
