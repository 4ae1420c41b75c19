"""The IDX format of MNIST, Fashion-MNIST and EMNIST: a big-endian header, then unsigned bytes.

Header: two zero bytes, the type (8: unsigned byte, the only one that these data sets use), the number of
dimensions, then one 32-bit size per dimension. A file is read only when its size is exactly what its header
promises.
"""

import math
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_simulator.data.errors import DataFileMalformedError

_UNSIGNED_BYTE: Final = 0x08
_MAX_DIMENSIONS: Final = 4
MAX_IDX_BYTES: Final = 1 << 30
"""No IDX file of these data sets comes near; a header that claims more is a mistake, not a reason to
allocate."""


def parse_idx(data: bytes, *, name: str = "IDX data") -> NDArray[np.uint8]:
    """The array in IDX bytes, shape as its header says, read-only; ``name`` is for messages.

    Raises:
        DataFileMalformedError: They are not IDX of unsigned bytes, or fewer or more than their header says.
    """
    if len(data) < 4:
        raise DataFileMalformedError(f"{name}: {len(data)} bytes are too few for an IDX header")
    zeros, kind, dimensions = struct.unpack_from(">HBB", data)
    if zeros == 0x1F8B:
        raise DataFileMalformedError(f"{name} is still compressed: unpack it with gunzip")
    if zeros != 0 or kind != _UNSIGNED_BYTE or not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise DataFileMalformedError(f"{name} is not an IDX file of unsigned bytes: it starts with {data[:4].hex()}")
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise DataFileMalformedError(f"{name} ends inside its header of {dimensions} dimensions")
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    size = math.prod(shape)
    if size > MAX_IDX_BYTES or len(data) - start != size:
        raise DataFileMalformedError(
            f"{name} promises {' x '.join(map(str, shape))} = {size} bytes and holds {len(data) - start}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
