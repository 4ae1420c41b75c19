"""Data sets as NumPy arrays: digits that come along; MNIST, Fashion-MNIST, CIFAR-10, EMNIST letters. Never torch."""

from fl_simulator.data.catalogue import DATA_SETS, DataFile, DataSet, Download
from fl_simulator.data.digits import load_digits
from fl_simulator.data.errors import (
    DataDigestError,
    DataDownloadError,
    DataError,
    DataFileMalformedError,
    DataSetMissingError,
)
from fl_simulator.data.fetch import (
    ImageData,
    data_folder,
    fetch,
    is_available,
    load,
)
from fl_simulator.data.rotated import ClientData, rotated_digits

__all__ = [
    "DATA_SETS",
    "ClientData",
    "DataDigestError",
    "DataDownloadError",
    "DataError",
    "DataFile",
    "DataFileMalformedError",
    "DataSet",
    "DataSetMissingError",
    "Download",
    "ImageData",
    "data_folder",
    "fetch",
    "is_available",
    "load",
    "load_digits",
    "rotated_digits",
]
