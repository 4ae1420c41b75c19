"""What a client can run into beyond what the ledger refuses, and how a problem becomes an exception again.

    fl_core.errors.DagAcflError
    ├── (every class of fl_core.errors: raised here again when a server answers with its code)
    ├── training.TrainingError           training (see fl_client.training.errors)
    └── ClientError
        ├── ApiError                     api-error: a refusal of a kind that this version does not know
        ├── TransportError               no usable answer
        │   ├── ConnectionFailedError        connection-failed: one server, one attempt
        │   ├── CertificateRefusedError      certificate-refused: the server is not who its address says
        │   ├── AnswerInvalidError           answer-invalid: not what the protocol says
        │   └── ServerUnavailableError       server-unavailable: every server tried, time is up
        ├── StateError                   the participant's folder
        │   ├── StateCorruptError            state-corrupt
        │   └── StateLockedError             state-locked
        └── UserModuleError              user-module: the file with the user's trainer

Catch ``DagAcflError`` for everything, ``TransportError`` for the network, a class of ``fl_core.errors`` for
one refusal. ``error_from_response`` trusts nothing in a problem but its types.
"""

import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from fl_core.errors import ERRORS_BY_CODE, DagAcflError
from fl_core.wire.v1 import PROBLEM

_TYPE_PREFIX: Final = PROBLEM.format(code="")
_MAX_TEXT: Final = 500
_MAX_ITEMS: Final = 1024


class ClientError(DagAcflError):
    """Base of what only a client can run into."""

    code: ClassVar[str] = "client"


class ApiError(ClientError):
    """A server refused with a code that this version does not know; ``problem`` is the body's content."""

    code = "api-error"

    def __init__(self, message: str, *, status: int, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status: int = status
        self.problem: dict[str, Any] = dict(problem or {})


class TransportError(ClientError):
    """No usable answer came back."""

    code = "transport"


class ConnectionFailedError(TransportError):
    """One attempt at one server failed."""

    code = "connection-failed"


class CertificateRefusedError(TransportError):
    """The server's TLS certificate is not trusted for its address."""

    code = "certificate-refused"


class AnswerInvalidError(TransportError):
    """An answer is not what the protocol says: too long, encoded, no JSON, other fields."""

    code = "answer-invalid"


class ServerUnavailableError(TransportError):
    """No server answered in time.

    Attributes:
        tried: Each server's address, and its last fault.
        after_s: For how long the call was tried, in seconds.
    """

    code = "server-unavailable"

    def __init__(self, tried: Mapping[str, str]) -> None:
        faults = "; ".join(f"{url}: {fault}" for url, fault in tried.items())
        super().__init__(f"no server can be used ({faults}); check --server and whether it runs")
        self.tried: dict[str, str] = dict(tried)
        self.after_s: float = 0.0


class StateError(ClientError):
    """The participant's folder cannot be used."""

    code = "state"

    def __init__(self, message: str, *, path: Path) -> None:
        super().__init__(message)
        self.path = path


class StateCorruptError(StateError):
    """A file in the folder is not what was written; the message names it and the remedy."""

    code = "state-corrupt"


class StateLockedError(StateError):
    """Another process uses the folder."""

    code = "state-locked"


class UserModuleError(ClientError):
    """The user's file cannot be loaded, or has no usable ``trainer``."""

    code = "user-module"


def error_from_response(status: int, headers: Mapping[str, str], body: bytes, *, server: str) -> DagAcflError:
    """The exception that a refusal stands for: the class of its problem's code with its fields, else ``ApiError``.

    Args:
        status: HTTP status.
        headers: Of the response.
        body: A problem (RFC 9457), or anything else; unknown members are ignored, mistyped ones left at their defaults.
        server: Who answered; noted on the exception together with the request id.
    """
    problem: Any = None
    if "json" in headers.get("content-type", ""):
        with suppress(ValueError, RecursionError):
            problem = json.loads(body)
    if not isinstance(problem, dict):
        problem = {}
    kind = problem.get("type")
    code = kind.removeprefix(_TYPE_PREFIX) if isinstance(kind, str) else ""
    detail = _text(problem.get("detail")) or _text(problem.get("title")) or f"status {status}"
    cls = ERRORS_BY_CODE.get(code)
    error = _restored(cls, detail, problem) if cls is not None else None
    if error is None:
        shown = _text(code)[:64] or "no problem type"
        error = ApiError(f"{server} answered {status} ({shown}): {detail}", status=status, problem=problem)
    request = _text(problem.get("request_id"))[:64]
    error.add_note(f"answered by {server} with status {status}" + (f", request {request}" if request else ""))
    return error


def _restored(cls: type[DagAcflError], detail: str, problem: Mapping[str, Any]) -> DagAcflError | None:
    if cls.__init__ is Exception.__init__ or "__init__" not in vars(cls):
        return cls(detail)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        if name == "message":
            fields[name] = detail
        elif (value := _typed(problem.get(name), parameter)) is not None:
            fields[name] = value
        elif parameter.default is parameter.empty:
            return None
    return cls(**fields)


def _typed(value: object, parameter: inspect.Parameter) -> object:
    """``value`` if it is of the parameter's type (that of its default; text or a list where it has none)."""
    default = parameter.default
    if isinstance(value, list) and (default is parameter.empty or isinstance(default, tuple)):
        return tuple(_text(item) for item in value[:_MAX_ITEMS])
    if default is parameter.empty or isinstance(default, str):
        return _text(value) if isinstance(value, str) else None
    if isinstance(default, float) and type(value) in (int, float):
        return float(value)  # type: ignore[arg-type]  # narrowed by the line above
    return value if type(value) is type(default) else None


def _text(value: object) -> str:
    """Printable text of bounded length: a server's words end in a terminal."""
    if not isinstance(value, str):
        return ""
    return "".join(char if char.isprintable() else "?" for char in value[:_MAX_TEXT])
