import subprocess
from pathlib import Path

import pytest

import ledger_server.build as module
from ledger_server.build import build, commit
from ledger_server.store.schema import head

ROOT = Path(__file__).parents[3]


def test_a_build_is_told_by_release_commit_and_schema() -> None:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    assert build()["commit"].removesuffix("-dirty") == found
    assert build()["schema"] == head() >= "0001"
    assert build()["version"][0].isdigit()


def test_a_wheel_says_what_its_builder_wrote_and_a_copy_of_the_source_that_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PACKAGE", tmp_path / "ledger_server")
    assert commit.__wrapped__() == "unknown"
    (tmp_path / "ledger_server").mkdir()
    (tmp_path / "ledger_server" / "_commit.txt").write_text("0123456789ab\n")
    assert commit.__wrapped__() == "0123456789ab"
