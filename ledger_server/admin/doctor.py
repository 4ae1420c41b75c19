"""The doctor's checks. Each looks at one thing, changes nothing, and never raises.

``fail`` means that something will not work until it is mended, ``note`` that a person may want to know.
"""

import email.utils
import errno
import math
import shutil
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from fl_core.errors import DagAcflError
from fl_core.version import installed_version
from ledger_server.keys import load_key
from ledger_server.settings import Settings

State = Literal["ok", "note", "fail"]

MIN_PYTHON: Final = (3, 11)
MIN_FREE_BYTES: Final = 1 << 30
MAX_CLOCK_SKEW_S: Final = 300
"""Receipts say when an update came, and peers' requests are refused at 60 seconds."""
_NEEDED: Final = ("numpy", "safetensors", "cryptography", "Rbeast", "fastapi", "sqlalchemy", "alembic", "urllib3")
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report; ``fix`` is what a person would do, empty where there is nothing to do."""

    name: str
    state: State
    message: str
    fix: str = ""


def check_python() -> Check:
    """Python is new enough."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < MIN_PYTHON:
        return Check("python", "fail", f"{found} is too old", "install Python 3.11 or newer")
    return Check("python", "ok", f"{found}, dag-acfl {installed_version()}")


def check_packages() -> Check:
    """What the base needs is installed."""
    versions: list[str] = []
    missing: list[str] = []
    for name in _NEEDED:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "fail", f"missing: {', '.join(missing)}", "run: pip install dag-acfl")
    return Check("packages", "ok", ", ".join(versions))


def check_folder(folder: Path) -> Check:
    """The data folder, or the folder in which it would be made, can be written."""
    existing = _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Check(
            "folder", "fail", f"{existing} cannot be written ({error.strerror})", "choose another with --data-dir"
        )
    made = "" if folder.is_dir() else " (it will be made)"
    return Check("folder", "ok", f"{folder.absolute()} can be written{made}")


def check_disk(folder: Path) -> Check:
    """There is room for a ledger to grow."""
    free = shutil.disk_usage(_existing(folder)).free
    message = f"{free / 1e9:.1f} GB free"
    if free < MIN_FREE_BYTES:
        return Check("disk", "fail", message, "free at least 1 GB or choose another place with --data-dir")
    return Check("disk", "ok", message)


def check_port(host: str, port: int, *, server: str | None = None) -> Check:
    """The port can be had, or a ledger server has it: one that answers there, or ``server`` on this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and _is_served(host, port, server):
            return Check("port", "note", f"{host}:{port} is the running server's; a second one needs another --port")
        return Check("port", "fail", f"{host}:{port} cannot be had ({error.strerror})", "choose another with --port")
    return Check("port", "ok", f"{host}:{port} is free")


def _is_served(host: str, port: int, server: str | None) -> bool:
    shown = f"[{host}]" if ":" in host else host
    urls = [f"http://{shown}:{port}"]
    with suppress(ValueError):  # no URL; check_server says so
        asked = urllib.parse.urlsplit(server or "")
        if asked.port == port and asked.hostname in (host, "localhost", "127.0.0.1", "::1", socket.getfqdn()):
            urls.append(str(server))  # which may have a certificate
    return any(check_server(url).state == "ok" for url in urls)


def check_database(settings: Settings) -> Check:
    """The database answers, and its schema is this release's."""
    from ledger_server.store import schema  # noqa: PLC0415

    path = settings.data_dir / "ledger.sqlite3"
    if settings.database_url is None and not path.exists():
        return Check("database", "note", f"no ledger in {settings.data_dir}", "make one with: dag-acfl ledger init")
    try:
        current, newest = schema.current(settings.resolved_database_url), schema.head()
    except DagAcflError as error:
        return Check("database", "fail", " ".join(str(error).split()), "check --database-url")
    if current != newest:
        return Check(
            "database", "fail", f"revision {current or 'none'}, newest is {newest}", "run: dag-acfl db upgrade"
        )
    return Check("database", "ok", f"revision {current}")


def check_bucket(settings: Settings) -> Check:
    """The models' bucket, where one is set, is there and opens to the credentials in the environment."""
    from ledger_server.store.blobs.s3 import S3Blobs  # noqa: PLC0415

    address = settings.blobs.s3
    if address is None:
        return Check("bucket", "ok", "none set; models lie beside or in the database")
    try:
        S3Blobs(address).check()
    except DagAcflError as error:
        return Check("bucket", "fail", " ".join(str(error).split()))
    return Check("bucket", "ok", f"{address} answers")


def check_keys(paths: Sequence[Path]) -> Check:
    """Private keys are readable, sound, and their owner's only."""
    for path in paths:
        try:
            load_key(path)
        except DagAcflError as error:
            return Check("keys", "fail", str(error))
    if not paths:
        return Check("keys", "ok", "none yet; a server or client makes its own when it starts")
    return Check("keys", "ok", ", ".join(path.name for path in paths))


def check_server(url: str | None) -> Check:
    """A running server answers, and its clock agrees with ours to within a few minutes."""
    if url is None:
        return Check("server", "ok", "not asked; name one with --server")
    try:
        if not url.startswith(("http://", "https://")):
            raise ValueError("no http:// or https:// URL")
        before = time.time()
        with urllib.request.urlopen(f"{url.rstrip('/')}/readyz", timeout=_TIMEOUT_S) as answer:  # noqa: S310
            stamp = answer.headers.get("date")
        ours = (before + time.time()) / 2
    except urllib.error.HTTPError as error:
        return Check("server", "fail", f"{url} answers {error.code}", "look at its log, or at /readyz")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Check("server", "fail", f"{url} does not answer ({reason})", "start it with: dag-acfl serve")
    if stamp is None:
        return Check("server", "ok", f"{url} is ready; it sends no date to compare clocks with")
    return _compare_clocks(url, ours, email.utils.parsedate_to_datetime(stamp).timestamp())


def _compare_clocks(url: str, ours: float, theirs: float) -> Check:
    ahead = ours - theirs
    if abs(ahead) > MAX_CLOCK_SKEW_S:
        return Check("server", "fail", f"this clock is {ahead:+.0f} s off {url}'s", "set the clock, e.g. by NTP")
    # The Date header is up to a second behind, so nothing finer can be said.
    within = math.ceil(max(abs(ahead), 1))
    return Check("server", "ok", f"{url} is ready, clocks agree within {within} s (the header counts whole seconds)")


def _existing(folder: Path) -> Path:
    absolute = folder.absolute()
    return next(parent for parent in (absolute, *absolute.parents) if parent.is_dir())
