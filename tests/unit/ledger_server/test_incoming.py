"""Models on their way: what came is kept when connections and servers end, and believed only once it hashes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fl_core.types import Digest, digest_of
from ledger_server.gossip.incoming import LEFT_S, MEMORY_BYTES, SMALLEST_IN_FILE, Incoming

SIZE = 600_000
DATA = bytes(range(200)) * 3000
DIGEST = digest_of(DATA)
HALF = SIZE // 2


def incoming(
    folder: Path, *, size: int = SIZE, memory_bytes: int = MEMORY_BYTES, now_s: Callable[[], float] | None = None
) -> Incoming:
    more = {} if now_s is None else {"now_s": now_s}
    return Incoming(folder, size=size, here=lambda _: None, memory_bytes=memory_bytes, **more)


def came(store: Incoming, data: bytes = DATA, *, digest: Digest = DIGEST, start: int = 0) -> bool | None:
    """Bytes from ``start`` on come in; the answer of ``finish``."""
    assert store.begin(digest, start=start)
    for at in range(start, len(data), 70_000):
        assert store.write(digest, data[at : at + 70_000])
    return store.finish(digest)


@pytest.mark.parametrize("memory_bytes", [MEMORY_BYTES, 0], ids=["in memory", "in the file alone"])
class TestWhereverItLies:
    def test_a_model_that_came_whole_is_handed_out(self, tmp_path: Path, memory_bytes: int) -> None:
        store = incoming(tmp_path, memory_bytes=memory_bytes)
        assert came(store) is True
        assert store.is_complete(DIGEST)
        assert bytes(store.data(DIGEST) or b"") == DATA

    def test_it_outlives_the_process_and_its_end(self, tmp_path: Path, memory_bytes: int) -> None:
        killed = incoming(tmp_path, memory_bytes=memory_bytes)
        came(killed)
        for _ in range(2):
            again = incoming(tmp_path, memory_bytes=memory_bytes)
            assert again.is_complete(DIGEST)
            assert bytes(again.data(DIGEST) or b"") == DATA
            again.close()

    def test_a_part_that_a_former_life_left_is_gone_on_from(self, tmp_path: Path, memory_bytes: int) -> None:
        before = incoming(tmp_path, memory_bytes=memory_bytes)
        assert came(before, DATA[:HALF]) is None
        before.close()
        after = incoming(tmp_path, memory_bytes=memory_bytes)
        assert not after.is_complete(DIGEST)
        assert after.bytes_held(DIGEST) == HALF
        assert came(after, start=HALF) is True
        assert bytes(after.data(DIGEST) or b"") == DATA
        again = incoming(tmp_path, memory_bytes=memory_bytes)
        assert again.is_complete(DIGEST), "the file has both parts"

    def test_what_does_not_hash_is_thrown_away(self, tmp_path: Path, memory_bytes: int) -> None:
        store = incoming(tmp_path, memory_bytes=memory_bytes)
        assert came(store, DATA[::-1]) is False
        assert store.bytes_held(DIGEST) == 0
        assert store.data(DIGEST) is None
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_changed_between_two_lives_is_thrown_away(self, tmp_path: Path, memory_bytes: int) -> None:
        came(incoming(tmp_path, memory_bytes=memory_bytes))
        (tmp_path / DIGEST).write_bytes(DATA[::-1])
        store = incoming(tmp_path, memory_bytes=memory_bytes)
        assert not store.is_complete(DIGEST)
        assert store.bytes_held(DIGEST) == 0
        assert list(tmp_path.iterdir()) == []

    def test_what_is_discarded_leaves_no_file(self, tmp_path: Path, memory_bytes: int) -> None:
        came(incoming(tmp_path, memory_bytes=memory_bytes))
        store = incoming(tmp_path, memory_bytes=memory_bytes)
        store.discard(DIGEST)
        assert not store.is_complete(DIGEST)
        assert list(tmp_path.iterdir()) == []

    def test_more_bytes_than_a_model_has_are_refused(self, tmp_path: Path, memory_bytes: int) -> None:
        store = incoming(tmp_path, memory_bytes=memory_bytes)
        store.begin(DIGEST, start=0)
        assert not store.write(DIGEST, DATA + b"x")
        assert store.bytes_held(DIGEST) == 0

    def test_bytes_must_begin_where_the_last_ended(self, tmp_path: Path, memory_bytes: int) -> None:
        store = incoming(tmp_path, memory_bytes=memory_bytes)
        assert came(store, DATA[:HALF]) is None
        assert not store.begin(DIGEST, start=HALF + 1)
        assert store.begin(DIGEST, start=HALF)
        store.close()


def test_a_file_that_changed_since_it_came_is_not_handed_out(tmp_path: Path) -> None:
    store = incoming(tmp_path, memory_bytes=0)
    came(store)
    (tmp_path / DIGEST).write_bytes(DATA[::-1])
    assert store.data(DIGEST) is None


def test_open_files_are_those_that_bytes_still_come_to(tmp_path: Path) -> None:
    store = incoming(tmp_path, memory_bytes=0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        data = bytes([number]) * SIZE
        came(store, data, digest=digest_of(data))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_disk_that_refuses_costs_nothing_while_there_is_memory(tmp_path: Path) -> None:
    folder = tmp_path / "incoming"
    folder.write_text("a file where the folder should be")
    assert came(incoming(folder)) is True
    with pytest.raises(OSError, match="exists"):
        incoming(folder, memory_bytes=0).begin(DIGEST, start=0)


def test_small_models_lie_in_memory_only(tmp_path: Path) -> None:
    data = bytes(SMALLEST_IN_FILE - 1)
    store = incoming(tmp_path, size=len(data))
    assert came(store, data, digest=digest_of(data)) is True
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_old_or_no_models_are_thrown_away(tmp_path: Path) -> None:
    came(incoming(tmp_path))
    for name, data in (("note.txt", b"x"), ("0" * 64, b""), ("1" * 64, bytes(SIZE + 1))):
        (tmp_path / name).write_bytes(data)
    written_s = (tmp_path / DIGEST).stat().st_mtime
    assert incoming(tmp_path, now_s=lambda: written_s + LEFT_S - 1).is_complete(DIGEST)
    assert [path.name for path in tmp_path.iterdir()] == [DIGEST]
    assert not incoming(tmp_path, now_s=lambda: written_s + LEFT_S + 1).is_complete(DIGEST)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_or_read_keeps_nobody_from_starting(tmp_path: Path) -> None:
    for name in ("folder", DIGEST):
        (tmp_path / name / "within").mkdir(parents=True)
    store = incoming(tmp_path)
    assert not store.is_complete(DIGEST)
    assert came(store) is True


def test_memory_comes_back_when_a_model_is_let_go(tmp_path: Path) -> None:
    store = incoming(tmp_path, memory_bytes=SIZE)
    for number in range(3):
        data = bytes([number]) * SIZE
        came(store, data, digest=digest_of(data))
        assert isinstance(store.data(digest_of(data)), memoryview), "in memory"
        store.discard(digest_of(data))


def test_a_model_that_came_with_its_announcement_is_here_until_it_is_discarded(tmp_path: Path) -> None:
    store = incoming(tmp_path, memory_bytes=SIZE)
    assert store.take_whole(DIGEST, DATA)
    assert store.is_complete(DIGEST)
    assert store.data(DIGEST) == DATA
    assert not store.take_whole(DIGEST, DATA), "it is here"
    assert not store.take_whole(digest_of(bytes(SIZE)), bytes(SIZE)), "no room"
    store.discard(DIGEST)
    assert not store.is_complete(DIGEST)
    assert store.take_whole(digest_of(bytes(SIZE)), bytes(SIZE))


def test_a_model_of_another_size_is_not_kept(tmp_path: Path) -> None:
    assert not incoming(tmp_path).take_whole(digest_of(DATA[:-1]), DATA[:-1])
