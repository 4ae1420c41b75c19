"""docs/devices.md: its ledger is founded and its device runs as printed, and the device's bytes are the vectors'."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from dag_acfl.__main__ import main
from fl_client import LedgerClient
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.docs.test_conformance import VECTORS
from tests.docs.test_docs import ROOT, code_blocks
from tests.live import Live, run_app

PAGE = ROOT / "docs" / "devices.md"
DEVICE = ROOT / "examples" / "device.c"
COMPILED = ["-lcurl", "-lcrypto"]


def block(language: str, word: str) -> str:
    """The one block of the page in which the word stands."""
    (found,) = [each for each in code_blocks(PAGE, language) if word in each]
    return found


def ran(command: str | Sequence[str], folder: Path) -> str:
    """What a command says that must succeed."""
    shell = isinstance(command, str)
    done = subprocess.run(command, cwd=folder, shell=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def founded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """The page's ledger, served, with its samples in the folder."""
    monkeypatch.chdir(folder)
    first, init, serve = block("bash", "ledger init").strip().rsplit("\n", 2)
    ran(first.replace("python", shlex.quote(sys.executable), 1), folder)
    assert main(shlex.split(init)[1:]) == 0
    assert serve == "dag-acfl serve"
    ran(block("bash", "awk"), folder)
    settings = load_settings()
    with run_app(create_app(settings), settings) as live:
        yield live


def can_compile() -> bool:
    try:
        includes = [part for name in ("curl/curl.h", "openssl/evp.h") for part in ("-include", name)]
        asked = subprocess.run(["cc", "-E", *includes, "-xc", "/dev/null"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return asked.returncode == 0


compiles = pytest.mark.skipif(
    not can_compile() and not os.environ.get("CI"), reason="no C compiler, libcurl4-openssl-dev, libssl-dev"
)


@compiles
def test_two_devices_learn_together_and_go_on_after_a_cut_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy(DEVICE, tmp_path)
    build, make_key, run = block("bash", "device.key").strip().splitlines()
    with founded(tmp_path, monkeypatch) as live:
        run = run.replace("http://127.0.0.1:8900", live.url)
        first = ran(f"{build} && {make_key} && {run}", tmp_path)
        ids = re.findall(r"^#\d ([0-9a-f]{12}) approves 1$", first, re.MULTILINE)
        errors = [float(each) for each in re.findall(r"^mean squared error (\S+)$", first, re.MULTILINE)]
        assert len(ids) == 3
        assert len(errors) == 4
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] < errors[0] / 2, "it has learnt"

        with LedgerClient(live.url) as client:
            newest = client.clients().items[0].newest
            last = client.transaction(newest)
        (tmp_path / "device.state").write_text(f"2 {last.parents[0]}\n")
        after = ran(run.removesuffix("3") + "2", tmp_path)
        assert re.findall(r"^#(\d) ([0-9a-f]{12})", after, re.MULTILINE)[0] == ("2", ids[2]), "the one of before"

        other = tmp_path / "other"
        other.mkdir()
        ran(f"cp ../device ../samples.txt . && {make_key} && {run}", other)
        with LedgerClient(live.url) as client:
            assert sorted(each.sequence for each in client.clients().items) == [2, 3]
            assert all(each.author.startswith("key:") for each in client.clients().items)
            authors = {each.id: each.author for each in client.transactions().items}
            used = {(each.author, authors[parent]) for each in client.transactions().items for parent in each.parents}
        others = {author for author in authors.values() if author != last.author}
        assert used & {(other, last.author) for other in others}, "the second trained from the first's model"
        assert main(["ledger", "verify", live.url]) == 0
    assert "sound: 8 transactions" in capsys.readouterr().out


def little(header: int) -> bytes:
    """A safetensors file's first eight bytes."""
    return header.to_bytes(8, "little")


class _Liar(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        model: bytes = getattr(self.server, "model")  # noqa: B009 -- the standard library's class has none
        reference = {"digest": sha256(model).hexdigest()}
        said = {"ledger": ZEROS, "id": ZEROS, "model": reference, "aggregate": reference, "parents": [ZEROS]}
        body = model if "/models/" in self.path else json.dumps(said, separators=(",", ":")).encode()
        body = getattr(self.server, "body", body)
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 -- the base class names it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        """Say nothing."""


ZEROS = "0" * 64
NOT_THE_MODEL = "the ledger's model is not a bias and 3 weights"


@pytest.fixture(scope="module")
def strict_device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The device, which undefined behaviour ends; with its key and samples of three inputs."""
    folder = tmp_path_factory.mktemp("strict")
    checked = ["-Wall", "-Wextra", "-fsanitize=undefined", "-fno-sanitize-recover"]
    ran(["cc", "-O1", *checked, "-o", str(folder / "device"), str(DEVICE), *COMPILED], ROOT)
    (folder / "device.key").write_bytes(bytes(range(32)))
    (folder / "samples.txt").write_text("1 2 3 4\n5 6 7 8\n")
    return folder


@compiles
@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"body": b""}, 'no "ledger":"'),
        ({"body": b"\0"}, 'no "ledger":"'),
        ({"body": b"x" * (1 << 21)}, "more than 1048576 bytes"),
        ({"body": f'{{"ledger":"{ZEROS}'.encode()}, 'no "ledger":"'),
        ({"model": b""}, NOT_THE_MODEL),
        ({"model": b"short"}, NOT_THE_MODEL),
        ({"model": little(2**64 - 16)}, NOT_THE_MODEL),
        ({"model": little(3) + b"{} " + bytes(16)}, NOT_THE_MODEL),
    ],
    ids=["nothing", "a NUL", "endless", "cut", "no model", "short", "a length that wraps", "values at an odd address"],
)
def test_a_device_refuses_what_a_hostile_server_says(strict_device: Path, lie: dict[str, bytes], message: str) -> None:
    with HTTPServer(("127.0.0.1", 0), _Liar) as server:
        vars(server).update({"model": b""} | lie)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the device hangs up
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = ["./device", f"http://127.0.0.1:{server.server_port}", "samples.txt", "1"]
        done = subprocess.run(command, cwd=strict_device, capture_output=True, text=True, check=False)
        server.shutdown()
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert len(done.stderr) < 400


@pytest.fixture(scope="module")
def on_vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that asks the device's own functions; a warning stops the compiler, undefined behaviour the program."""
    program = tmp_path_factory.mktemp("device") / "vectors"
    checked = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover"]
    source = Path(__file__).with_name("device_vectors.c")
    ran(["cc", "-O2", *checked, f"-I{DEVICE.parent}", "-o", str(program), str(source), *COMPILED], ROOT)
    return program


OF_A_DEVICE = [
    case
    for case in VECTORS["headers"]
    if case["fields"]["kind"] == 1 and case["author_signature"] and not case["fields"]["metrics"]
]


@compiles
@pytest.mark.parametrize("case", OF_A_DEVICE, ids=[case["name"] for case in OF_A_DEVICE])
def test_the_devices_headers_are_those_of_the_vectors(on_vectors: Path, case: dict[str, Any]) -> None:
    fields = case["fields"]
    (seed,) = [key["seed"] for key in VECTORS["keys"] if f"key:{key['public_key']}" == fields["author"]]
    names = (
        "ledger",
        "start",
        "model_digest",
        "attachment_digest",
        "sequence",
        "created_at_ms",
        "num_examples",
        "model_size",
    )
    said = ran([str(on_vectors), seed, *(str(fields[name]) for name in names), *fields["parents"]], ROOT)
    assert said.split() == [fields["author"][4:], case["header"], case["id"], case["author_signature"]]


@compiles
@pytest.mark.parametrize("case", VECTORS["models"], ids=[case["layout"] for case in VECTORS["models"]])
def test_the_devices_digests_are_those_of_the_vectors(on_vectors: Path, case: dict[str, Any]) -> None:
    assert ran([str(on_vectors), case["model"]], ROOT).strip() == case["digest"]
