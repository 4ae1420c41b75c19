"""Rows of a file: read as they were written, in any order; a full disk is said to be one."""

from pathlib import Path

import numpy as np
import pytest

from ledger_server.row_file import RowFile
from ledger_server.store.errors import StoreUnavailableError


def test_rows_are_read_as_they_were_written_and_leave_no_file(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for row in (2, 0, 1):
        rows.write(row, values[row])
    rows.write(1, values[0])
    assert rows.read([2, 1]).tolist() == values[[2, 0]].tolist()
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_is_a_store_that_is_not_available(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    with Path("/dev/full").open("wb") as full:
        rows.number = full.fileno()
        with pytest.raises(StoreUnavailableError, match=r"cannot be kept: .*No space left"):
            rows.write(0, np.zeros(4, np.float32))


def test_a_row_that_is_cut_off_is_no_row(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    rows.write(0, np.ones(4, np.float32))
    with pytest.raises(StoreUnavailableError, match="cannot be read"):
        rows.read([0, 1])
