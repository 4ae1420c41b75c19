"""Upload buffers: lent, used again, and never while anybody can still see their bytes."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ledger_server.buffers import UploadBuffers

MIB = 1 << 20


def address(buffer: bytearray | memoryview) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def test_a_buffer_is_used_again_once_nobody_refers_to_it() -> None:
    buffers = UploadBuffers(2 * MIB)
    first = buffers.lend(2 * MIB)
    where = address(first)
    del first
    assert buffers.spare == 1
    again = buffers.lend(2 * MIB)
    assert address(again) == where
    assert buffers.spare == 0


@pytest.mark.parametrize("keep", [lambda b: b[:5], lambda b: np.frombuffer(b, np.uint8)[7:9], memoryview])
def test_any_view_of_the_bytes_keeps_them(keep: object) -> None:
    buffers = UploadBuffers(2 * MIB)
    lent = buffers.lend(2 * MIB)
    view = keep(lent)  # type: ignore[operator]
    del lent
    gc.collect()
    assert buffers.spare == 0
    del view
    assert buffers.spare == 1


def test_two_that_are_lent_at_once_are_not_the_same() -> None:
    buffers = UploadBuffers(2 * MIB)
    lent = [buffers.lend(2 * MIB) for _ in range(3)]
    for number, each in enumerate(lent):
        each[:] = bytes([number]) * len(each)
    assert [each[0] for each in lent] == [each[-1] for each in lent] == [0, 1, 2]


def test_no_more_lies_ready_than_was_allowed() -> None:
    buffers = UploadBuffers(2 * MIB, spare_bytes=5 * MIB)
    lent = [buffers.lend(2 * MIB) for _ in range(4)]
    del lent
    assert buffers.spare == 2


@pytest.mark.parametrize(
    ("capacity", "size"),
    [(2 * MIB, 1000), (2 * MIB, 3 * MIB), (2 * MIB, 0), (1000, 1000), (100 * MIB, 100 * MIB)],
    ids=["small", "larger than expected", "nothing", "small models", "models larger than may lie ready"],
)
def test_what_does_not_fit_gets_memory_of_its_own(capacity: int, size: int) -> None:
    buffers = UploadBuffers(capacity)
    lent = buffers.lend(size)
    assert isinstance(lent, bytearray)
    assert len(lent) == size


def test_many_threads_never_share_a_buffer() -> None:
    buffers = UploadBuffers(MIB, spare_bytes=3 * MIB)
    together = threading.Barrier(8)

    def use(number: int) -> bool:
        together.wait(10)
        for _ in range(50):
            lent = np.frombuffer(buffers.lend(MIB), np.uint8)
            lent[:] = number
            if not (lent == number).all():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(8)))
    assert buffers.spare <= 3
