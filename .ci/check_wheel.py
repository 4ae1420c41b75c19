"""Prove a built wheel: it holds what it must, and serves a ledger from a bare environment without any extra.

    python .ci/check_wheel.py dist

The environment is made anew in a temporary folder, with the packages that constraints.txt pins.
"""

import base64
import csv
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

MUST_HOLD = (
    "ledger_server/_commit.txt",
    "ledger_server/_client/crypto.js",
    "ledger_server/_migrations/env.py",
    "ledger_server/_migrations/versions/0001_journal.py",
    "fl_simulator/data/digits.csv.gz",
    "fl_client/client_template.txt",
    *(f"{package}/py.typed" for package in ("fl_core", "ledger_server", "fl_client", "fl_simulator", "dag_acfl")),
)
PACKAGES = frozenset({"fl_core", "ledger_server", "fl_client", "fl_simulator", "dag_acfl"})
FIRST_MODEL = """
import sys
from pathlib import Path
import numpy as np
from fl_core.models import ModelLayout, encode_model
arrays = {"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.zeros(2, np.float32)}
Path(sys.argv[1]).write_bytes(encode_model(ModelLayout.of_arrays(arrays), arrays))
"""
NO_EXTRAS = """
from importlib.util import find_spec
found = [name for name in ("torch", "matplotlib", "pandas", "psycopg", "pytest", "httpx", "httpx2") if find_spec(name)]
assert not found, f"the bare install brought {found}"
"""
READY_WITHIN_S = 60.0
ROOT = Path(__file__).resolve().parents[1]
CONSOLE = (
    (ROOT / "ledger_server/console", "ledger_server/console", ""),
    (ROOT / "clients/js/src", "ledger_server/_client", "client/"),
)
"""The console's files: where they lie here, in the wheel, and under ``/ui/``."""
FOR_NODE = "folder.js"
"""Of the JavaScript client what no browser can use; it lies in the wheel and is not served."""


def check_content(wheel: Path) -> None:
    """The files that are no modules came along, and nothing came that is not ours."""
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in MUST_HOLD if name not in names]
    strays = sorted({name.partition("/")[0] for name in names} - PACKAGES - {f"{wheel_stem(wheel)}.dist-info"})
    licences = [name for name in names if name.endswith((".dist-info/licenses/LICENSE", ".dist-info/licenses/NOTICE"))]
    if missing or strays or len(licences) != 2:
        sys.exit(f"error: {wheel.name}: missing {missing}, strays {strays}, licences {licences}")


def wheel_stem(wheel: Path) -> str:
    """``name-version`` of a wheel's file name."""
    return "-".join(wheel.name.split("-")[:2])


def free_port() -> int:
    """A port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> dict[str, object]:
    """What ``/readyz`` answers once it answers 200."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                content: dict[str, object] = json.load(answer)
                return content
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    process.kill()
    sys.exit(f"error: the server was not ready within {READY_WITHIN_S:.0f} s (exit code {process.poll()})")


def check_console(wheel: Path, port: int) -> None:
    """Every file of the console that this clone has is served with the SHA-256 that the wheel's RECORD states.

    Others' files have those of ``vendor/files.json``, too; their licences, which are not served, lie in the wheel.
    """
    with zipfile.ZipFile(wheel) as held:
        recorded = recorded_digests(held, wheel)
        vendor = "ledger_server/console/vendor"
        for package in json.loads(held.read(f"{vendor}/files.json")):
            for name, digest in package["files"].items():
                if recorded.get(f"{vendor}/{name}") != digest:
                    sys.exit(f"error: {wheel.name}: {name} is not the file that vendor/files.json has")
    served = 0
    for folder, place, prefix in CONSOLE:
        for file in sorted(path for path in folder.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")):
            if file.name == FOR_NODE:
                continue
            path = file.relative_to(folder).as_posix()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ui/{prefix}{path}", timeout=5) as answer:
                digest = hashlib.sha256(answer.read()).hexdigest()
            if recorded.get(f"{place}/{path}") != digest:
                sys.exit(f"error: /ui/{prefix}{path} is not what the wheel's RECORD says of {place}/{path}")
            served += 1
    print(f"console: {served} files served with their recorded SHA-256")


def recorded_digests(held: zipfile.ZipFile, wheel: Path) -> dict[str, str]:
    """What the wheel's RECORD says of its files: SHA-256 in hexadecimal, by name."""
    lines = held.read(f"{wheel_stem(wheel)}.dist-info/RECORD").decode().splitlines()
    rows = [(name, stated.removeprefix("sha256=")) for name, stated, _ in csv.reader(lines) if stated]
    return {name: base64.urlsafe_b64decode(f"{stated}==").hex() for name, stated in rows}


def main(dist: Path) -> None:
    """Check the one wheel in ``dist``."""
    (wheel,) = dist.glob("*.whl")
    check_content(wheel)
    constraints = Path("constraints.txt").resolve()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DAG_ACFL_", "PYTHON"))}
    environment["DAG_ACFL_DRAIN_DELAY_S"] = "0"  # no load balancer has to notice
    with tempfile.TemporaryDirectory(prefix="dag-acfl-wheel-") as temporary:
        folder = Path(temporary)
        venv.create(folder / "venv")
        python, command = folder / "venv/bin/python", str(folder / "venv/bin/dag-acfl")

        def run(*arguments: str | Path) -> str:
            done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                shown = " ".join(map(str, arguments))
                sys.exit(f"error: {shown[:200]} ended with {done.returncode}\n{done.stdout}{done.stderr}")
            return done.stdout.strip()

        quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
        what = ("--constraint", constraints, wheel.resolve())
        uv = (Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--system-certs", "--python", python)
        # By uv in seconds, by pip where uv finds no way, as in the Makefile.
        if not uv[0].exists() or subprocess.run((*uv, *what), env=environment, check=False).returncode:
            venv.create(folder / "venv", with_pip=True)
            run(python, "-m", "pip", *quiet, "install", *what)
        run(python, "-c", NO_EXTRAS)
        print(version := run(command, "--version"))
        run(command, "capacity", "--devices", "50", "--model-mb", "13")  # reads a file that is no module
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        if commit.stdout.strip() not in version:
            sys.exit(f"error: the wheel does not say that it is of commit {commit.stdout.strip()}")
        run(python, "-c", FIRST_MODEL, "first.safetensors")
        print(run(command, "ledger", "init", "--name", "wheel", "--model", "first.safetensors").splitlines()[0])
        port = free_port()
        server = subprocess.Popen(
            [command, "serve", "--port", str(port)], cwd=folder, env=environment, stderr=subprocess.DEVNULL
        )
        try:
            print(f"/readyz: {json.dumps(wait_until_ready(server, port))}")
            check_console(wheel, port)
            server.send_signal(signal.SIGTERM)
            if (code := server.wait(timeout=30)) != 0:
                sys.exit(f"error: the server ended with {code} after SIGTERM")
        finally:
            server.kill()
        print(run(command, "ledger", "verify"))
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, works on its own")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
