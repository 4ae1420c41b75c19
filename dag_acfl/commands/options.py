"""What several commands read alike: where a ledger is, and ``name=value`` settings."""

import json
import logging
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import urlsplit

import typer

from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_core.types import JsonScalar
    from ledger_server.peers import Peer
    from ledger_server.settings import Settings

ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 (compared, not listened on)
LOOPBACK = ("127.0.0.1", "::1", "localhost")
DEFAULT_SERVER = "http://127.0.0.1:8900"
STATUS_TIMEOUT_S = 10.0
"""Of a question to a server that a person waits for."""

DataDir: TypeAlias = Annotated[
    Path | None, typer.Option("--data-dir", help="Data folder of the server. Default: ./dag-acfl-data.")
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help="File with the bearer token, where the server asks for one. Default: DAG_ACFL_TOKEN."
    ),
]

NodeConfig: TypeAlias = Annotated[
    str,
    typer.Option("--node-config", help='What tells this node from others, such as "partition-id=0 num-partitions=8".'),
]
RunConfig: TypeAlias = Annotated[
    str,
    typer.Option(
        "--run-config", help='In place of values in the app\'s pyproject.toml, such as "local-epochs=2 lr=0.05".'
    ),
]


def token_of(token_file: Path | None) -> str | None:
    """The bearer token to send: the file's, else the environment's; None where there is none."""
    return os.environ.get("DAG_ACFL_TOKEN") or None if token_file is None else read_secret(token_file)


def read_secret(path: Path) -> str:
    """The one line of a file that holds a secret."""
    try:
        secret = path.read_text("ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not ASCII text"
        raise ParameterError(f"cannot read the token in {path}: {reason}") from error
    if not secret or not secret.isprintable():
        raise ParameterError(f"{path} must hold one line, the token")
    return secret


def settings_for(data_dir: Path | None) -> "Settings":
    """The server's settings, as ``serve`` with the same options would have them."""
    from ledger_server.settings import load_settings  # noqa: PLC0415

    return load_settings(data_dir=data_dir)


def settings_of_ledger(data_dir: Path | None) -> "Settings":
    """The same, where there is a ledger already."""
    from ledger_server.admin.store_source import require_ledger  # noqa: PLC0415

    settings = settings_for(data_dir)
    require_ledger(settings)
    return settings


def own_entry(settings: "Settings", *, url: str | None, name: str | None, host: str | None = None) -> "Peer":
    """A server as other servers are told of it; makes its key if there is none yet.

    Args:
        settings: The server's.
        url: Address under which others reach it; None: the one that `ledger join --url` noted, else host and port.
        name: None: the one noted with it, else the address's host, or where that is a number the data folder's name.
        host: In place of the one that it listens on.
    """
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from ledger_server.keys import server_key  # noqa: PLC0415
    from ledger_server.peers import noted_address, parse_peer  # noqa: PLC0415

    if url is None and (noted := noted_address(settings.data_dir)) is not None:
        url, name = noted.url, name or noted.name
    if url is None:
        host = host or settings.host
        if host in ANY_HOST:
            raise ParameterError("this server listens on all addresses; name the URL under which others reach it")
        scheme = "http" if settings.tls.certificate is None else "https"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"
    own = parse_peer(f"server={url}#{public_key_of(server_key(settings))}")
    if name is None:
        place = urlsplit(own.url).hostname or ""
        if not re.search(r"[a-z]", place) or ":" in place or place == "localhost":  # no name of a machine
            place = settings.data_dir.resolve().name.lower()
        name = re.sub(r"[^a-z0-9.]+", "-", place).strip("-.")[:63] or own.name
    return parse_peer(f"{name}={own.url}#{own.public_key}")


def find_own_parts() -> None:
    """Let ``module:Class`` name modules in the current folder, behind whatever is installed: they replace nothing."""
    sys.path.append(str(Path.cwd()))


def scalars(pairs: Sequence[str], *, option: str) -> "dict[str, JsonScalar]":
    """``name=value`` pairs; numbers, true and false are read as JSON, anything else is text."""
    read: dict[str, str | int | float | bool] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ParameterError(f"{option} {pair!r} must be name=value, such as {option} alpha=0.5")
        if name in read:
            raise ParameterError(f"{option} gives {name!r} twice")
        read[name] = _scalar(text)
    return read


def set_options(settings: "Mapping[str, JsonScalar]") -> list[str]:
    """The words of a command line, ``--set`` and a pair for each, that ``scalars`` reads as these."""
    written = ((name, value if isinstance(value, str) else json.dumps(value)) for name, value in settings.items())
    return [word for name, text in written for word in ("--set", f"{name}={text}")]


def _scalar(text: str) -> "JsonScalar":
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text


_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(text: str) -> float:
    """``90``, ``90s``, ``10m``, ``2h`` or ``1d``, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise ParameterError(f"{text!r} is no duration; write it as 90s, 10m, 2h or 1d")
    return float(match[1]) * _UNITS_S[match[2]]


def as_called(text: str) -> str:
    """A hint whose commands work as they are shown: where the shell finds no dag-acfl, as this one was started."""
    if Path(sys.argv[0]).stem != "dag-acfl" or shutil.which("dag-acfl"):
        return text
    return re.sub(r"(?<![\w./-])dag-acfl(?= [a-z])", lambda _: shlex.quote(sys.argv[0]), text)


def now_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def number_of(number: int, noun: str) -> str:
    """As people read it: 1 author, 2 authors, 1,000 authors."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def figure(value: float) -> str:
    """A measured number as people read it: 0.753, 12.500, 1.25e+06."""
    return f"{value:.3f}" if value == 0 or 0.001 <= abs(value) < 10_000 else f"{value:.3g}"


@contextmanager
def retries_shown() -> "Iterator[Callable[[str], None]]":
    """One line on standard error for each call that is tried again in this block, and for what else the SDK logs.

    Yields what shows on a terminal what is being done now: on a line that is overwritten; no text clears it.
    """
    shown, next_s = "", 0.0

    def show(text: str) -> None:
        nonlocal shown, next_s
        moment_s = time.monotonic()
        # A hundred batches a second are more than anybody reads.
        if not sys.stderr.isatty() or (text.partition(":")[0] == shown.partition(":")[0] and moment_s < next_s):
            return
        next_s = moment_s + 0.1
        room = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r" + text[:room].ljust(len(shown)) + ("" if text else "\r"))
        sys.stderr.flush()
        shown = text[:room]

    class Lines(logging.StreamHandler[Any]):
        def emit(self, record: logging.LogRecord) -> None:
            show("")
            super().emit(record)

    logger, handler = logging.getLogger("fl_client"), Lines(sys.stderr)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield show
    finally:
        show("")
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def progress_bar(what: str = "", *, quiet: bool = False) -> "Iterator[Callable[..., None]]":
    """A progress bar on a terminal's standard error; yields what to tell it: done, in all, and what is done now."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int | None, doing: str = what) -> None:
            bar.update(task, description=doing, completed=done, total=total)

        yield show
