"""Files that are for the server's user alone, whoever writes them."""

import os
from pathlib import Path

import pytest

from ledger_server.private_files import replace_private, write_private


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"secret")
    replace_private(tmp_path / "tokens", "digests")
    assert {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {"key": 0o600, "tokens": 0o600}


def test_what_root_writes_belongs_to_whom_the_folder_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda _, user, group: given.append((user, group)))
    replace_private(tmp_path / "tokens", "digests")
    assert given == [(tmp_path.stat().st_uid, tmp_path.stat().st_gid)]
