"""Logging of a server process: every event one line, with the request's id, safe to show on a terminal.

``configure_logging`` is for the command that owns the process; importing the package configures nothing. Code
logs through the standard library, a fixed phrase with fields in ``extra``; structlog turns all of it, uvicorn's
lines included, into JSON or console text. Model weights and secrets are never logged.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final, TextIO

from ledger_server.lean_structlog import structlog
from ledger_server.settings import LogFormat, LogLevel

if TYPE_CHECKING:
    from structlog.types import EventDict, Processor

_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_LINE_BREAKS: Final = re.compile("[\t\n]")
_MULTILINE: Final = frozenset({"exception", "stack"})
_HANDLER: Final = "dag-acfl"


def configure_logging(level: LogLevel, log_format: LogFormat, *, stream: TextIO | None = None) -> None:
    """Send the process's log to ``stream`` (default: standard error); replaces an earlier configuration."""
    target = stream if stream is not None else sys.stderr
    console = log_format == "console" or (log_format == "auto" and target.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(
            colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback, sort_keys=False
        )
        if console
        else structlog.processors.JSONRenderer()
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            drop_noise,
            structlog.processors.format_exc_info,
            escape_controls,
            renderer,
        ],
    )
    handler = logging.StreamHandler(target)
    handler.set_name(_HANDLER)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in [each for each in root.handlers if each.get_name() == _HANDLER]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        foreign = logging.getLogger(name)
        foreign.handlers.clear()
        foreign.propagate = True
    for name in ("uvicorn.error", "alembic.runtime.plugins"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def drop_noise(_logger: Any, _method: str, event: "EventDict") -> "EventDict":
    """Remove uvicorn's second, coloured copy of its message."""
    event.pop("color_message", None)
    return event


def escape_controls(_logger: Any, _method: str, event: "EventDict") -> "EventDict":
    r"""Write control and direction-changing characters as ``\x1b`` or ``\u202e``, also inside containers."""
    return {escape(key): _escaped(value, multiline=key in _MULTILINE) for key, value in event.items()}


def _escaped(value: object, *, multiline: bool = False) -> object:
    if isinstance(value, str):
        return escape(value, multiline=multiline)
    if isinstance(value, MutableMapping):
        return {escape(str(key)): _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_escaped(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return escape(str(value))


def escape(text: str, *, multiline: bool = False) -> str:
    r"""``text`` without characters that act on a terminal; line breaks and tabs too unless ``multiline``."""
    text = _CONTROLS.sub(_as_escape, text)
    return text if multiline else _LINE_BREAKS.sub(_as_escape, text)


def _as_escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
