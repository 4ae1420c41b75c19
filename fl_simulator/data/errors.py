"""What can go wrong between a data set and its arrays."""

from fl_core.errors import DagAcflError


class DataError(DagAcflError):
    """A data set cannot be used."""


class DataSetMissingError(DataError):
    """A data set's files are in none of the places that are searched; the message says where to put which."""

    code = "data-set-missing"


class DataFileMalformedError(DataError):
    """A file is not in the format that its name promises, or not the one that its authors published."""

    code = "data-file-malformed"


class DataDownloadError(DataError):
    """No host gave the file; the message names each host's answer and the folder to put it in by hand."""

    code = "data-download-failed"
