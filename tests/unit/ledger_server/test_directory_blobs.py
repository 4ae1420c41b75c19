"""A folder of models: what is no model in it is passed over, and a model is read whole however little a read returns."""

import os
from pathlib import Path

import pytest

from fl_core.types import digest_of
from ledger_server.store.blobs.directory import DirectoryBlobs

DATA = b"a model of some bytes"
DIGEST = digest_of(DATA)


@pytest.fixture
def blobs(tmp_path: Path) -> DirectoryBlobs:
    blobs = DirectoryBlobs(tmp_path / "models")
    blobs.claim("journal", ledger="")
    blobs.prepare(DIGEST, DATA)
    return blobs


@pytest.mark.parametrize("name", [".nfs0000000000a1", "Thumbs.db", "0" * 61, "0" * 63, "G" * 62])
def test_a_stray_file_is_no_model(blobs: DirectoryBlobs, name: str) -> None:
    stray = blobs.folder / "ab" / name
    stray.touch()
    assert list(blobs.digests()) == [DIGEST]
    assert stray.exists()


def test_short_reads_are_continued(blobs: DirectoryBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: pread(file, min(size, 5), at))
    assert blobs.get(DIGEST, len(DATA)) == DATA
