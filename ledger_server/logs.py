"""Logging of a server process: every event one line, with the request's id, safe to show on a terminal.

``configure_logging`` is for the command that owns the process; importing the package configures nothing. Code logs
through the standard library: a fixed phrase, and its fields in ``extra``. Model weights and secrets are never logged.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from ledger_server.settings import LogLevel

_REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
"""What every record has; whatever else it has came by ``extra`` (but uvicorn's coloured copy of its message)."""
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_LINE_BREAKS: Final = re.compile("[\t\n]")
_HANDLER: Final = "dag-acfl"
_OURS: Final = ("ledger_server", "fl_core", "dag_acfl")


@contextmanager
def logging_request(request_id: str) -> Iterator[None]:
    """Within the block, everything that this task and its threads log carries ``request_id``."""
    token = _REQUEST_ID.set(request_id)
    try:
        yield
    finally:
        _REQUEST_ID.reset(token)


class EventFormatter(logging.Formatter):
    """A record as one JSON object, or as text for a person; control characters are escaped in either.

    Args:
        console: Text instead of JSON.
    """

    def __init__(self, *, console: bool) -> None:
        super().__init__()
        self._console = console

    def format(self, record: logging.LogRecord) -> str:
        """The record's line; as text, a traceback follows on lines of its own."""
        request_id = _REQUEST_ID.get()
        event = {
            "event": record.getMessage(),
            **({} if request_id is None else {"request_id": request_id}),
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            **{name: value for name, value in vars(record).items() if name not in _ATTRIBUTES},
        }
        event = {escape(name): _escaped(value) for name, value in event.items()}
        if record.exc_info:
            event["exception"] = escape(self.formatException(record.exc_info), multiline=True)
        return _text(event) if self._console else json.dumps(event)


def _text(event: dict[str, Any]) -> str:
    exception = event.pop("exception", None)
    lead = [event.pop(name) for name in ("timestamp", "level", "event")]
    line = " ".join([lead[0], f"{lead[1]:<7}", lead[2], *(f"{name}={value}" for name, value in event.items())])
    return line if exception is None else f"{line}\n{exception}"


def configure_logging(level: LogLevel, *, console: bool | None = None, stream: TextIO | None = None) -> None:
    """Send the process's log to ``stream``, replacing an earlier configuration.

    Args:
        level: Least important events to log.
        console: Text instead of JSON lines; None: text where ``stream`` is a terminal.
        stream: None is standard error.
    """
    target = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(target)
    handler.set_name(_HANDLER)
    handler.setFormatter(EventFormatter(console=target.isatty() if console is None else console))
    root = logging.getLogger()
    for old in [each for each in root.handlers if each.get_name() == _HANDLER]:
        root.removeHandler(old)
    root.addHandler(handler)
    # Of what libraries say, warnings are of use here, at any level; urllib3's hold whole URLs of peers' requests.
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)  # NumPy's, too, are lines of the same form


def _escaped(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {escape(str(key)): _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_escaped(item) for item in value]
    return escape(str(value))


def escape(text: str, *, multiline: bool = False) -> str:
    r"""``text`` with control and direction-changing characters written as ``\x1b`` or ``\u202e``.

    Line breaks and tabs too, unless ``multiline``.
    """
    if text.isprintable():  # nearly all
        return text
    text = _CONTROLS.sub(_as_escape, text)
    return text if multiline else _LINE_BREAKS.sub(_as_escape, text)


def _as_escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
