"""The binary version of CIFAR-10: records of one label byte and 3,072 pixel bytes (red, green, blue
planes).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_simulator.data.errors import DataFileMalformedError

RECORD_BYTES: Final = 1 + 3 * 32 * 32
_NUM_CLASSES: Final = 10


def parse_cifar10_batch(data: bytes, *, name: str = "CIFAR-10 data") -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images ``(n, 3, 32, 32)`` and labels ``(n,)`` of one file's bytes, both read-only; ``name`` is for messages.

    Raises:
        DataFileMalformedError: The file is empty, no whole number of records, or has a label above 9.
    """
    if not data or len(data) % RECORD_BYTES:
        raise DataFileMalformedError(
            f"{name} has {len(data)} bytes; the binary version has records of {RECORD_BYTES}"
            " (the Python version, a pickle, is not read)"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD_BYTES)
    labels = records[:, 0]
    if labels.max() >= _NUM_CLASSES:
        at = int(np.argmax(labels >= _NUM_CLASSES))
        raise DataFileMalformedError(f"{name}: record {at} has label {labels[at]}; classes are 0 to 9")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels
