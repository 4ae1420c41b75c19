"""The doctor's checks. Each looks at one thing, changes nothing, and never raises.

``fail`` means that something will not work until it is mended, ``note`` that a person may want to know.
"""

import email.utils
import errno
import http.client
import json
import math
import shutil
import socket
import ssl
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
from ledger_server.build import build
from ledger_server.http.peer_signature import WINDOW_S
from ledger_server.keys import load_key
from ledger_server.settings import Settings, is_loopback

State = Literal["ok", "note", "fail"]

MIN_PYTHON: Final = (3, 11)
MIN_FREE_BYTES: Final = 1 << 30
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
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < MIN_PYTHON:
        return Check("python", "fail", f"{found} is too old", "install Python 3.11 or newer")
    return Check("python", "ok", "{}, dag-acfl {version}, commit {commit}".format(found, **build()))


def check_packages() -> Check:
    versions: list[str] = []
    missing: list[str] = []
    for name in _NEEDED:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "fail", f"missing: {', '.join(missing)}", f"run: pip install {' '.join(missing)}")
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
    return any(_lives(url) for url in urls)


def _lives(url: str) -> bool:
    """Whether a server answers there, ready or not."""
    with suppress(OSError, ValueError, http.client.HTTPException), _get(url, "/healthz"):
        return True
    return False


def _get(url: str, path: str) -> http.client.HTTPResponse:
    answer: http.client.HTTPResponse = urllib.request.urlopen(f"{url.rstrip('/')}{path}", timeout=_TIMEOUT_S)  # noqa: S310
    return answer


def check_access(settings: Settings) -> Check:
    """Who would be answered, and whether it could be read on the way; ``serve`` says the same when it starts."""
    if not settings.is_reached_by_others:
        return Check("access", "ok", f"{settings.host}: this machine only")
    asked = sorted(settings.needs_token_for)
    who = (
        f"{', '.join(asked)} ask for a token (dag-acfl tokens create)"
        if asked
        else "everybody who reaches the server may read and write"
    )
    message = f"{settings.host} is reached by others: {who}"
    if settings.tls.certificate is None and not settings.trusted_proxies:
        fix = "set --tls-certificate and --tls-key, or put a proxy with TLS in front"
        return Check("access", "note", f"{message}, and without TLS tokens and models can be read on the way", fix)
    return Check("access", "ok", message)


def check_database(settings: Settings) -> Check:
    """The database answers, and its schema is this release's."""
    from ledger_server.admin.store_source import how_to_begin  # noqa: PLC0415
    from ledger_server.store import schema  # noqa: PLC0415

    path = settings.data_dir / "ledger.sqlite3"
    if settings.database_url is None and not path.exists():
        return Check("database", "note", f"no ledger in {settings.data_dir}", how_to_begin(settings))
    try:
        current, newest = schema.current(settings.resolved_database_url), schema.head()
    except DagAcflError as error:
        return Check("database", "fail", " ".join(str(error).split()), "check DAG_ACFL_DATABASE_URL")
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
        blobs = S3Blobs(address)
        blobs.owner()
        servers = [key for key, _ in blobs.objects("servers")] if address.shared else []
    except DagAcflError as error:
        return Check("bucket", "fail", " ".join(str(error).split()))
    return Check("bucket", "ok", f"{address} answers" + f", shared by {len(servers)} servers" * address.shared)


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
    """A running server would serve a client, by TLS beyond this machine, and its clock is near enough for its peers."""
    if url is None:
        return Check("server", "ok", "not asked; name one with --server")
    try:
        if not url.startswith(("http://", "https://")):
            raise ValueError("no http:// or https:// URL")
        before = time.time()
        with _get(url, "/readyz") as answer:
            stamp = answer.headers.get("date")
        ours = (before + time.time()) / 2
        with _get(url, "/version") as answer:
            its = json.load(answer)
        ready = f"{url} is ready, dag-acfl {its['version']}, commit {its['commit']}"
    except urllib.error.HTTPError as error:
        return Check("server", "fail", f"{url} answers {error.code}{_detail(error)}", "its log has more")
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        is_strange = isinstance(reason, ssl.SSLError)
        fix = "name its authority's PEM in SSL_CERT_FILE" if is_strange else "start it with: dag-acfl serve"
        return Check("server", "fail", f"{url} does not answer ({reason})", fix)
    ahead = ours - email.utils.parsedate_to_datetime(stamp).timestamp() if stamp else 0.0
    if abs(ahead) > WINDOW_S:  # peers refuse what is signed further off
        return Check("server", "fail", f"this clock is {ahead:+.0f} s off {url}'s", "set the clock, e.g. by NTP")
    # The Date header is up to a second behind, so nothing finer can be said.
    within = math.ceil(max(abs(ahead), 1))
    clocks = f"clocks agree within {within} s (the header counts whole seconds)" if stamp else "it sends no date"
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        fix = "tokens and models can be read on the way: give it TLS, and ask it by https://"
        return Check("server", "note", f"{ready}, {clocks}", fix)
    return Check("server", "ok", f"{ready}, {clocks}")


def _detail(error: urllib.error.HTTPError) -> str:
    """What a server says is wrong, if it is one of ours."""
    try:
        return f": {json.load(error)['detail']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _existing(folder: Path) -> Path:
    absolute = folder.absolute()
    return next(parent for parent in (absolute, *absolute.parents) if parent.is_dir())
