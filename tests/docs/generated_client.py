"""docs/openapi.json for those who generate clients: ``make openapi``, whose tools have an environment of their own.

The commands and the client are those of docs/devices.md; the client runs without anything of ours.
"""

import os
import re
from pathlib import Path

import pytest

from fl_client import LedgerClient
from tests.docs.test_devices_page import ROOT, block, founded, ran

TOOLS = Path(os.environ["OPENAPI_TOOLS"]).absolute()
"""The environment's folder of programs."""


def test_the_document_is_valid() -> None:
    assert ran([str(TOOLS / "openapi-spec-validator"), str(ROOT / "docs" / "openapi.json")], ROOT).endswith(": OK\n")


def test_a_generated_client_joins_and_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "generator.yml").write_text(block("yaml", "content_type_overrides"))
    (tmp_path / "join.py").write_text(block("python", "dag_acfl_api"))
    with founded(tmp_path, monkeypatch) as live:

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
