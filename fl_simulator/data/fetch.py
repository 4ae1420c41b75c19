"""Brings data sets to this machine, checks them, and loads them.

``fetch`` downloads from the data set's hosts in order, unless a Debian package has brought the files. A download that
breaks off is kept as ``<name>.part`` and continued next time. What was unpacked takes its final name only after its
SHA-256 was found right, by a rename, so a file that is there is whole. Without a network the error says which files to
put where; files put there by hand are as good as downloaded ones, because only their digests count.
"""

import fcntl
import gzip
import hashlib
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

import numpy as np

from fl_client.training.errors import told
from fl_core.errors import DagAcflError
from fl_simulator.data.catalogue import DATA_SETS, DataFile, DataSet, Download, loader_of
from fl_simulator.data.cifar import parse_cifar10_batch
from fl_simulator.data.errors import (
    DataDownloadError,
    DataError,
    DataFileMalformedError,
    DataSetMissingError,
)
from fl_simulator.data.idx import parse_idx
from fl_simulator.data.image_data import ImageData

_CHUNK_BYTES: Final = 1 << 18
_SLACK_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 30.0
"""Seconds without a byte after which a host counts as dead."""


Progress: TypeAlias = Callable[[str, int, int], None]
"""Told of a file how many bytes have arrived, and of how many; 0 when the host does not say."""


def data_folder() -> Path:
    """``$DAG_ACFL_DATA``, or ``~/.cache/dag-acfl/data`` when that is unset or empty."""
    chosen = os.environ.get("DAG_ACFL_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "dag-acfl" / "data"


def is_available(name: str, *, folder: Path | None = None) -> bool:
    """Whether ``load`` would find the files, judged by name and size only (fast; ``fetch`` hashes them)."""
    data_set = DATA_SETS[name]
    home = (folder or data_folder()) / data_set.name
    return all(_has_size(home / file.name, file) for file in data_set.files)


def fetch(name: str, *, folder: Path | None = None, progress: Progress | None = None) -> Path:
    """Bring a data set into the data folder; files that are there and right are left alone.

    Raises:
        UnknownNameError: No such data set.
        DataDownloadError: No host gave what was asked for; the message says what to put where by hand.
    """
    data_set = DATA_SETS[name]
    home = (folder or data_folder()) / data_set.name
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process would spoil a download that both continue
        for download in data_set.downloads:
            wanted = [data_set.file(content) for content in download.contents]
            wanted = [file for file in wanted if not _is_right(home / file.name, file)]
            if wanted and not _unpack_system_copy(data_set, download, wanted, home):
                _download(data_set, download, wanted, home, progress)
    return home


def load(name: str, *, folder: Path | None = None) -> ImageData:
    """Read a data set from the data folder, or let its function make it.

    Digests are not computed here (``fetch`` does); formats and sizes are checked.

    Raises:
        UnknownNameError: No such data set.
        DataError: What the function made is no data set, or it failed.
        DataSetMissingError: Files are missing; the message says how to get them, with and without a network.
        DataFileMalformedError: A file is not what its name promises.
    """
    if (loader := loader_of(name)) is not None:
        return _made_by(loader, name)
    data_set = DATA_SETS[name]
    home = (folder or data_folder()) / data_set.name
    for file in data_set.files:
        if not _has_size(home / file.name, file):
            problem = "has another size than published" if (home / file.name).exists() else "is not there"
            raise DataSetMissingError(f"{name}: {home / file.name} {problem}; {how_to_get(data_set, folder=folder)}")
    contents = {file.name: (home / file.name).read_bytes() for file in data_set.files}
    if data_set.format == "cifar-10":
        batches = [parse_cifar10_batch(data, name=file) for file, data in contents.items() if file != "test_batch.bin"]
        test_x, test_y = parse_cifar10_batch(contents["test_batch.bin"], name="test_batch.bin")
        train_x = np.concatenate([images for images, _ in batches])
        train_y = np.concatenate([labels for _, labels in batches])
    else:
        train_x, train_y, test_x, test_y = (parse_idx(data, name=file) for file, data in contents.items())
    for images, labels in ((train_x, train_y), (test_x, test_y)):
        if labels.ndim != 1 or images.ndim < 3 or len(images) != len(labels):
            raise DataFileMalformedError(
                f"{data_set.name}: images of shape {images.shape} do not go with labels of shape {labels.shape}"
            )
        first, last = data_set.first_label, data_set.first_label + data_set.num_classes - 1
        if labels.size and not first <= int(labels.min()) <= int(labels.max()) <= last:
            raise DataFileMalformedError(
                f"{data_set.name}: labels lie in {first} to {last}, not {labels.min()} to {labels.max()}"
            )
    if data_set.is_transposed:
        train_x, test_x = (np.ascontiguousarray(images.swapaxes(1, 2)) for images in (train_x, test_x))
    train_labels, test_labels = (labels.astype(np.int64) - data_set.first_label for labels in (train_y, test_y))
    return ImageData(train_x, train_labels, test_x, test_labels)


def _made_by(loader: Callable[[], ImageData], name: str) -> ImageData:
    try:
        data = loader()
    except DagAcflError:
        raise
    except Exception as error:
        raise DataError(f"data set {name!r} failed: {told(error)}") from error
    if not isinstance(data, ImageData):
        raise DataError(f"data set {name!r} is a {type(data).__name__}; its function returns ImageData")
    data.check(name)
    return data


def how_to_get(data_set: DataSet, *, folder: Path | None = None) -> str:
    """What a person does to have this data set here, with and without a network."""
    home = (folder or data_folder()) / data_set.name
    unpacked = ", ".join(file.name for file in data_set.files)
    packed = ", ".join(download.name for download in data_set.downloads)
    ways = (
        f"get it with `dag-acfl data fetch {data_set.name}`; without a network, put these files into {home}"
        f" (or set DAG_ACFL_DATA): {unpacked}; they are unpacked from {packed} at {data_set.mirrors[0]}"
    )
    if data_set.system_package:
        ways += f"; on Debian and Ubuntu it takes what `apt-get install {data_set.system_package}` has brought"
    return ways


def _has_size(path: Path, file: DataFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size_bytes


def _is_right(path: Path, file: DataFile) -> bool:
    """Whether these are the bytes that the authors published, as far as that is known."""
    if not _has_size(path, file):
        return False
    with path.open("rb") as stream:
        return not file.sha256 or hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


def _unpack_system_copy(data_set: DataSet, download: Download, wanted: list[DataFile], home: Path) -> bool:
    for system in data_set.system_folders:
        if (system / download.name).is_file():
            try:
                _unpack(system / download.name, download, wanted, home)
            except DataError:
                continue  # an older or damaged package: the hosts have the right one
            return True
    return False


def _download(
    data_set: DataSet, download: Download, wanted: list[DataFile], home: Path, progress: Progress | None
) -> None:
    part = home / f"{download.name}.part"
    contents = sum(data_set.file(content).size_bytes for content in download.contents)
    limit = (download.size_bytes or contents) + _SLACK_BYTES
    answers: list[str] = []
    last: Exception | None = None
    for mirror in data_set.mirrors:
        # A part that was begun elsewhere or long ago may not fit this host's file: then once more from the start.
        for _ in range(2 if part.exists() else 1):
            try:
                _receive(mirror + download.name, part, limit, progress)
                _check_archive(part, download)
                _unpack(part, download, wanted, home)
            except DataFileMalformedError as error:
                part.unlink(missing_ok=True)
                last = error
            except (OSError, HTTPException, ValueError) as error:
                last = error
                break
            else:
                part.unlink(missing_ok=True)
                return
        answers.append(f"{mirror}{download.name}: {last}")
    tried = "; ".join(answers)
    raise DataDownloadError(
        f"{data_set.name} could not be downloaded ({tried}); {how_to_get(data_set, folder=home.parent)}"
    ) from last


def _receive(url: str, part: Path, limit: int, progress: Progress | None) -> None:
    """Append what is missing of ``url`` to ``part``; raises ``OSError`` when the connection breaks off."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("not an http or https address")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url)  # noqa: S310 (the scheme was checked)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
                return  # the part has all there is; its digest will tell
            raise OSError(f"{error.code} {error.reason}") from error
    with response:
        continues = response.status == HTTPStatus.PARTIAL_CONTENT and (
            response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        )
        if not continues:
            have = 0  # this host does not continue downloads
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else 0
        with part.open("ab" if continues else "wb") as out:
            while chunk := response.read(_CHUNK_BYTES):
                have += len(chunk)
                if have > limit:
                    raise DataFileMalformedError(f"the host sends more than {limit} bytes")
                out.write(chunk)
                if progress is not None:
                    progress(part.name.removesuffix(".part"), have, total)
    if total and have < total:
        raise OSError(f"the connection broke off after {have} of {total} bytes; run it again to continue")


def _check_archive(part: Path, download: Download) -> None:
    """Refuse other bytes than were published, where the archive is what has a published digest."""
    if not download.md5:
        return
    with part.open("rb") as stream:
        found = hashlib.file_digest(stream, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
    if found != download.md5:
        raise DataFileMalformedError(f"{download.name} is not the published file: MD5 {found}, expected {download.md5}")


def _unpack(packed: Path, download: Download, wanted: list[DataFile], home: Path) -> None:
    """Unpack the wanted files of a download, each under its final name only when its digest is right."""
    left = {file.name: file for file in wanted}
    try:
        for name, stream in _members(packed, download):
            if file := left.pop(name, None):
                _install(stream, file, home)
    except (EOFError, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise DataFileMalformedError(f"{packed.name} is damaged: {error}") from error
    if left:
        raise DataFileMalformedError(f"{packed.name} lacks {', '.join(sorted(left))}")


def _members(packed: Path, download: Download) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and contents of each file; of paths the base names only, so that an archive cannot choose where files go."""
    if download.packing == "gzip":
        with gzip.open(packed) as stream:
            yield download.contents[0], cast("IO[bytes]", stream)
    elif download.packing == "tar":
        with tarfile.open(packed, "r:gz") as tar:
            for member in tar:
                if member.isfile() and (content := tar.extractfile(member)):
                    yield Path(member.name).name, content
    else:
        with zipfile.ZipFile(packed) as archive:
            for inside in archive.infolist():
                with archive.open(inside) as inner, gzip.open(inner) as stream:  # a zip holds each as a gzip file
                    yield Path(inside.filename).name.removesuffix(".gz"), cast("IO[bytes]", stream)


def _install(stream: IO[bytes], file: DataFile, home: Path) -> None:
    digest, size = hashlib.sha256(), 0
    with tempfile.NamedTemporaryFile(dir=home, prefix=f".{file.name}.", delete=False) as out:
        try:
            while size <= file.size_bytes and (chunk := stream.read(_CHUNK_BYTES)):
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            if size != file.size_bytes or (file.sha256 and digest.hexdigest() != file.sha256):
                raise DataFileMalformedError(
                    f"{file.name} is not the published file: SHA-256 {digest.hexdigest()}, expected "
                    f"{file.sha256 or f'{file.size_bytes} bytes'}"
                )
            Path(out.name).chmod(0o644)
            Path(out.name).replace(home / file.name)
        except BaseException:
            Path(out.name).unlink(missing_ok=True)
            raise
