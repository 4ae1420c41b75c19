"""docs/openapi.json for those who generate clients: ``make openapi``, whose tools have an environment of their own.

The commands and the client are those of docs/devices.md; the client runs without anything of ours.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from fl_client import LedgerClient
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.docs.test_docs import ROOT, code_blocks
from tests.live import run_app

TOOLS = Path(os.environ["OPENAPI_TOOLS"]).absolute()
"""The environment's folder of programs."""
PAGE = ROOT / "docs" / "devices.md"


def block(language: str, word: str) -> str:
    """The one block of the page in which the word stands."""
    (found,) = [each for each in code_blocks(PAGE, language) if word in each]
    return found


def ran(command: str | Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, shell=isinstance(command, str), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_document_is_valid() -> None:
    assert ran([str(TOOLS / "openapi-spec-validator"), str(ROOT / "docs" / "openapi.json")], ROOT).endswith(": OK\n")


def test_a_generated_client_joins_and_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, init, _ = block("bash", "ledger init").strip().rsplit("\n", 2)
    ran(first.replace("python", sys.executable, 1), tmp_path)
    assert main(shlex.split(init)[1:]) == 0
    ran(block("bash", "samples.txt"), tmp_path)
    (tmp_path / "generator.yml").write_text(block("yaml", "content_type_overrides"))
    (tmp_path / "join.py").write_text(block("python", "dag_acfl_api"))
    settings = load_settings()
    with run_app(create_app(settings), settings) as live:

        def run(word: str) -> str:
            command = block("bash", word).replace("http://127.0.0.1:8900", live.url)
            return ran(command.replace("client/bin/", f"{TOOLS}/"), tmp_path)

        run("openapi-python-client generate")
        said = run("join.py")
        with LedgerClient(live.url) as client:
            (newest,) = client.clients().items
    assert (newest.sequence, newest.num_examples, newest.author[:5]) == (2, 200, "hash:")
    errors = [float(each) for each in re.findall(r"mean squared error (\S+)", said)]
    assert len(errors) == 4
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 2, "it has learnt"
