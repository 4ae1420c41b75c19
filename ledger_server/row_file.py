"""Where a server keeps what is compared of many models: rows of a file, as memory has room for their sketches only.

The file has no name and ends with the process: a start reads the models again. What was read or written lately is in
the kernel's page cache while there is memory for it, and counts as nobody's.
"""

import os
import tempfile
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from fl_core.types import Matrix32, Vector32
from ledger_server.store.errors import StoreUnavailableError


class RowFile:
    """Rows of float32 values, one as long as the other; meets ``fl_core.similarity.RowFile``.

    Args:
        folder: Where the file is made when the first row is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._width = folder, 0

    def write(self, row: int, values: Vector32) -> None:
        """Keep a row.

        Raises:
            StoreUnavailableError: There is no room for it, or the disk fails.
        """
        self._width = len(values)
        try:
            if os.pwrite(self.number, values.data, row * values.nbytes) < values.nbytes:
                raise OSError("the disk is full")
        except OSError as error:
            raise StoreUnavailableError("what is compared of a model cannot be kept", private=str(error)) from error

    def read(self, rows: Sequence[int]) -> Matrix32:
        """Rows that were written, shape ``(len(rows), d)``.

        Raises:
            StoreUnavailableError: The disk fails.
        """
        found = np.empty((len(rows), self._width), dtype=np.float32)
        try:
            for place, row in enumerate(rows):
                if os.preadv(self.number, [found[place].data], row * found[place].nbytes) < found[place].nbytes:
                    raise OSError("the file is cut off")
        except OSError as error:
            raise StoreUnavailableError("what is compared of models cannot be read", private=str(error)) from error
        return found

    @cached_property
    def number(self) -> int:
        """The open file's, which is closed with the last use of this."""
        with tempfile.TemporaryFile(dir=self._folder) as file:
            number = os.dup(file.fileno())
        weakref.finalize(self, os.close, number)
        return number
