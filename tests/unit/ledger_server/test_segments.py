"""Models in segment files: what was put is read back, from its place, and nothing else is touched."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_core.types import digest_of
from ledger_server.store.blobs import segments
from ledger_server.store.blobs.protocol import Blob, Place
from ledger_server.store.blobs.segments import SegmentBlobs
from ledger_server.store.errors import StoreUnavailableError, SyncFailedError

BLOCK = 4096


def blob(seed: int, size: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def put(blobs: SegmentBlobs, data: bytes) -> Blob:
    digest = digest_of(data)
    return Blob(digest, len(data), blobs.put(digest, data))


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 100_000, (4 << 20) + 1, (9 << 20) + 5])
def test_what_was_put_comes_back(tmp_path: Path, size: int) -> None:
    blobs = SegmentBlobs(tmp_path / "models")
    stored = [(put(blobs, data), data) for data in (blob(seed, size) for seed in range(3))]
    for where, data in stored:
        assert blobs.get(where) == data
    blobs.close()


def test_a_file_system_without_direct_writing_is_written_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_O_DIRECT", 0)
    blobs = SegmentBlobs(tmp_path / "models")
    assert blobs.get(put(blobs, blob(1, 10_000))) == blob(1, 10_000)


def test_models_begin_at_block_boundaries_one_behind_another(tmp_path: Path) -> None:
    blobs = SegmentBlobs(tmp_path / "models")
    places = [put(blobs, blob(seed, BLOCK + 1)).place for seed in range(3)]
    assert places == [Place(1, 0), Place(1, 2 * BLOCK), Place(1, 4 * BLOCK)]


def test_a_range_is_read_without_the_rest(tmp_path: Path) -> None:
    blobs = SegmentBlobs(tmp_path / "models")
    put(blobs, blob(1, 5000))
    data = blob(2, 5000)
    with blobs.open(put(blobs, data)) or pytest.fail("gone") as reader:
        assert reader.size == 5000
        for start, stop in ((0, 0), (0, 5000), (4999, 6000), (10, 20), (6000, 7000)):
            assert reader.read(start, stop) == data[start:stop]
        with pytest.raises(ValueError, match="no bytes"):
            reader.read(2, 1)
    with pytest.raises(ValueError, match="closed"):
        reader.read(0, 1)


def test_a_full_segment_is_followed_by_the_next(tmp_path: Path) -> None:
    blobs = SegmentBlobs(tmp_path / "models", segment_bytes=2 * BLOCK)
    stored = [(put(blobs, data), data) for data in (blob(seed, BLOCK) for seed in range(5))]
    assert [where.place for where, _ in stored] == [
        Place(1, 0),
        Place(1, BLOCK),
        Place(2, 0),
        Place(2, BLOCK),
        Place(3, 0),
    ]
    assert all(blobs.get(where) == data for where, data in stored)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == [f"{n:08d}.segment" for n in (1, 2, 3)]


def test_a_restart_goes_on_behind_what_the_journal_knows_and_writes_over_the_rest(tmp_path: Path) -> None:
    before = SegmentBlobs(tmp_path / "models")
    known = put(before, blob(1, 5000))
    put(before, blob(2, 5000))  # a crash came before its row
    before.close()
    after = SegmentBlobs(tmp_path / "models", end=Place(1, 5000))
    new = put(after, blob(3, 100))
    assert new.place == Place(1, 2 * BLOCK)
    assert (after.get(known), after.get(new)) == (blob(1, 5000), blob(3, 100))


def test_a_dropped_model_gives_its_space_back_and_leaves_its_neighbours(tmp_path: Path) -> None:
    blobs = SegmentBlobs(tmp_path / "models")
    size = 1 << 20
    first, middle, last = (put(blobs, blob(seed, size)) for seed in range(3))
    before = blobs.stored_bytes()
    blobs.drop(middle)
    assert before - blobs.stored_bytes() == size
    assert (blobs.get(first), blobs.get(last)) == (blob(0, size), blob(2, size))
    assert blobs.get(middle) == bytes(size)


def test_eight_threads_write_eight_models(tmp_path: Path) -> None:
    blobs = SegmentBlobs(tmp_path / "models", segment_bytes=1 << 20)
    data = [blob(seed, 200_000 + seed) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda each: put(blobs, each), data))
    assert len({where.place for where in places}) == 40
    assert [blobs.get(where) for where in places] == data


@pytest.mark.parametrize(("call", "error"), [("pwrite", StoreUnavailableError), ("fdatasync", SyncFailedError)])
def test_a_failed_write_is_unavailable_and_its_space_is_taken_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: type[StoreUnavailableError]
) -> None:
    blobs = SegmentBlobs(tmp_path / "models")
    first = put(blobs, blob(1, 5000))

    def fail(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(StoreUnavailableError, match="No space left") as raised:
            put(blobs, blob(2, 5000))
        assert type(raised.value) is error
    second = put(blobs, blob(3, 5000))
    assert second.place == Place(1, 2 * BLOCK)
    assert (blobs.get(first), blobs.get(second)) == (blob(1, 5000), blob(3, 5000))


def test_a_folder_that_is_gone_is_unavailable_and_its_models_are_none(tmp_path: Path) -> None:
    blobs = SegmentBlobs(tmp_path / "models")
    blobs.check()
    where = put(blobs, b"x")
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailableError, match="is gone"):
        blobs.check()
    assert blobs.get(where) is None
    assert blobs.open(where) is None
