"""A data set in memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_simulator.data.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class ImageData:
    """Images, upright, and their labels; a loader of one's own makes it, too.

    Attributes:
        train_x: Bytes in 0..255, or float32 in [0, 1], of shape ``(n, height, width)`` or with channels before height.
        train_y: Whole numbers from 0, shape ``(n,)``.
        test_x: The set's own test part, likewise; may be empty.
        test_y: Its labels.
    """

    train_x: NDArray[np.uint8] | NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8] | NDArray[np.float32]
    test_y: NDArray[np.int64]

    def check(self, name: str) -> None:
        """That it is what it says."""
        if len(self.train_y) == 0:
            raise DataError(f"data set {name!r} has no training samples")
        for images, labels in ((self.train_x, self.train_y), (self.test_x, self.test_y)):
            if labels.ndim != 1 or images.ndim < 3 or len(images) != len(labels):
                raise DataError(
                    f"data set {name!r}: images of shape {images.shape} do not go with labels of shape {labels.shape}"
                )
            if images.shape[1:] != self.train_x.shape[1:] or images.dtype not in (np.uint8, np.float32):
                raise DataError(
                    f"data set {name!r}: images are of one size, uint8 or float32, not {images.dtype} {images.shape}"
                )
            if labels.dtype.kind not in "iu" or (labels.size and labels.min() < 0):
                raise DataError(f"data set {name!r}: labels are whole numbers from 0, not {labels.dtype}")
            if images.size and images.dtype == np.float32 and not (images.min() >= 0 and images.max() <= 1):
                raise DataError(f"data set {name!r}: float32 images lie in [0, 1]")
