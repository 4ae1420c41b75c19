"""Fetching data sets from a host on this machine: whole, resumed, wrong, absent."""

import dataclasses
import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from fl_core.registry import Registry
from fl_simulator.data.catalogue import DATA_SETS, DataFile, DataSet, Download
from fl_simulator.data.cifar import RECORD_BYTES
from fl_simulator.data.errors import DataDownloadError, DataFileMalformedError, DataSetMissingError
from fl_simulator.data.fetch import data_folder, fetch, is_available, load

fetching = import_module("fl_simulator.data.fetch")  # of which ``data.fetch`` is a function

IMAGES, LABELS = (np.random.default_rng(4).integers(0, 10, shape, dtype=np.uint8) for shape in ((6, 4, 4), (6,)))
TINY = {
    f"{part}-{kind}-ubyte": (b"\0\0\x08" + bytes([len(array.shape)]))
    + b"".join(side.to_bytes(4, "big") for side in array.shape)
    + array.tobytes()
    for part in ("train", "t10k")
    for kind, array in (("images-idx3", IMAGES), ("labels-idx1", LABELS))
}
BATCHES = {f"data_batch_{i}.bin": bytes([i]) * RECORD_BYTES for i in range(1, 6)}
BATCHES["test_batch.bin"] = bytes(RECORD_BYTES)


def described(contents: dict[str, bytes]) -> tuple[DataFile, ...]:
    return tuple(DataFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items())


def tar_of(contents: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


class Host(ThreadingHTTPServer):
    """Serves ``files``; ``break_after`` cuts the next answer, ``resumes`` honours Range, ``asked`` is the log."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.break_after: int | None = None
        self.resumes = True
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        name, wanted = self.path[1:], self.headers.get("Range", "")
        self.server.asked.append((name, wanted))
        data = self.server.files.get(name)
        if data is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.resumes else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        body = data[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, self.server.break_after = self.server.break_after, None
        self.wfile.write(body if cut is None else body[:cut])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def host() -> Iterator[Host]:
    server = Host()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, host: Host) -> DataSet:
    """Two small data sets under the names of the real ones, and a host that has them."""
    files = described(TINY)
    downloads = tuple(Download(f"{file.name}.gz", "gzip", (file.name,)) for file in files)
    idx = dataclasses.replace(
        DATA_SETS["fashion-mnist"], files=files, downloads=downloads, mirrors=(host.url,), system_folders=()
    )
    cifar = dataclasses.replace(DATA_SETS["cifar-10"], files=described(BATCHES), mirrors=(host.url,))
    known = Registry("data set", {"fashion-mnist": idx, "cifar-10": cifar})
    monkeypatch.setattr(fetching, "DATA_SETS", known)
    host.files = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in TINY.items()}
    host.files["cifar-10-binary.tar.gz"] = tar_of(BATCHES)
    return idx


def wrong_files(name: str, folder: Path) -> list[str]:
    """Those of a data set that are missing or have other bytes than published."""
    files = fetching.DATA_SETS[name].files
    return [file.name for file in files if not fetching._is_right(folder / name / file.name, file)]


def test_a_fetched_data_set_is_verified_and_loads(tiny: DataSet, host: Host, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    home = fetch("fashion-mnist", folder=tmp_path, progress=lambda *told: seen.append(told))
    assert home == tmp_path / "fashion-mnist"
    assert wrong_files("fashion-mnist", tmp_path) == []
    data = load("fashion-mnist", folder=tmp_path)
    assert np.array_equal(data.train_x, IMAGES)
    assert np.array_equal(data.test_y, LABELS)
    assert data.train_y.dtype == np.int64
    assert {file for file, _, _ in seen} == {download.name for download in tiny.downloads}
    assert all(received <= total for _, received, total in seen)
    assert not list(home.glob("*.part"))


def test_a_second_fetch_asks_nobody_and_mends_only_what_is_wrong(tiny: DataSet, host: Host, tmp_path: Path) -> None:
    home = fetch("fashion-mnist", folder=tmp_path)
    host.asked.clear()
    fetch("fashion-mnist", folder=tmp_path)
    assert host.asked == []
    broken = home / "t10k-labels-idx1-ubyte"
    broken.write_bytes(bytes(len(TINY[broken.name])))
    assert wrong_files("fashion-mnist", tmp_path) == [broken.name]
    fetch("fashion-mnist", folder=tmp_path)
    assert host.asked == [(f"{broken.name}.gz", "")]
    assert broken.read_bytes() == TINY[broken.name]


def test_a_tar_is_unpacked_by_base_name_only(tiny: DataSet, host: Host, tmp_path: Path) -> None:
    home = fetch("cifar-10", folder=tmp_path)
    data = load("cifar-10", folder=tmp_path)
    assert data.train_y.tolist() == [1, 2, 3, 4, 5]
    assert data.test_x.shape == (1, 3, 32, 32)
    assert sorted(path.name for path in home.iterdir() if path.suffix) == sorted(BATCHES)


def test_a_download_that_broke_off_is_continued(tiny: DataSet, host: Host, tmp_path: Path) -> None:
    host.break_after = 30
    with pytest.raises(DataDownloadError, match="broke off after 30 of"):
        fetch("fashion-mnist", folder=tmp_path)
    name = host.asked[0][0]
    assert (tmp_path / "fashion-mnist" / f"{name}.part").stat().st_size == 30
    host.asked.clear()
    fetch("fashion-mnist", folder=tmp_path)
    assert host.asked[0] == (name, "bytes=30-")
    assert wrong_files("fashion-mnist", tmp_path) == []


def test_a_host_that_cannot_continue_starts_over(tiny: DataSet, host: Host, tmp_path: Path) -> None:
    host.break_after, host.resumes = 30, False
    with pytest.raises(DataDownloadError):
        fetch("fashion-mnist", folder=tmp_path)
    fetch("fashion-mnist", folder=tmp_path)
    assert wrong_files("fashion-mnist", tmp_path) == []


@pytest.mark.parametrize("rest", [b"garbage from elsewhere", bytes(5000)], ids=["shorter", "longer than the file"])
def test_a_part_of_another_file_is_thrown_away_and_loaded_anew(
    rest: bytes, tiny: DataSet, host: Host, tmp_path: Path
) -> None:
    home = tmp_path / "fashion-mnist"
    home.mkdir()
    (home / f"{tiny.downloads[0].name}.part").write_bytes(rest)
    fetch("fashion-mnist", folder=tmp_path)
    assert wrong_files("fashion-mnist", tmp_path) == []


def test_wrong_bytes_never_get_the_files_name(tiny: DataSet, host: Host, tmp_path: Path) -> None:
    name = tiny.files[0].name
    host.files[f"{name}.gz"] = gzip.compress(bytes(tiny.files[0].size_bytes))
    with pytest.raises(DataDownloadError, match="is not the published file: SHA-256"):
        fetch("fashion-mnist", folder=tmp_path)
    assert [path.name for path in (tmp_path / "fashion-mnist").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>not here</html>", id="a web page"),
        pytest.param(gzip.compress(b"x" * 100)[:-9], id="a cut gzip file"),
        pytest.param(gzip.compress(bytes(1 << 24)), id="a bomb"),
        pytest.param(bytes((1 << 20) + 5000), id="more than the file can have"),
    ],
)
def test_damaged_answers_are_refused_and_cleaned_up(body: bytes, tiny: DataSet, host: Host, tmp_path: Path) -> None:
    host.files[tiny.downloads[0].name] = body
    with pytest.raises(DataDownloadError) as caught:
        fetch("fashion-mnist", folder=tmp_path)
    assert caught.value.code == "data-download-failed"
    assert [path.name for path in (tmp_path / "fashion-mnist").iterdir()] == [".lock"]


def test_an_archive_that_lacks_a_file_says_which(tiny: DataSet, host: Host, tmp_path: Path) -> None:
    host.files["cifar-10-binary.tar.gz"] = tar_of({"test_batch.bin": BATCHES["test_batch.bin"]})
    with pytest.raises(DataDownloadError, match=r"lacks data_batch_1.bin"):
        fetch("cifar-10", folder=tmp_path)


def with_mirrors(monkeypatch: pytest.MonkeyPatch, data_set: DataSet, *mirrors: str) -> None:
    known = {data_set.name: dataclasses.replace(data_set, mirrors=mirrors)}
    monkeypatch.setattr(fetching, "DATA_SETS", Registry("data set", known))


def test_the_next_mirror_is_asked_when_the_first_has_nothing(
    tiny: DataSet, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mirrors(monkeypatch, tiny, f"{host.url}gone/", host.url)
    fetch("fashion-mnist", folder=tmp_path)
    assert host.asked[0][0].startswith("gone/")
    assert wrong_files("fashion-mnist", tmp_path) == []


def test_offline_the_error_says_which_files_go_where(
    tiny: DataSet, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = host.url.replace(str(host.server_port), "1")  # port 1: nobody listens
    with_mirrors(monkeypatch, tiny, unused, "file:///etc/")
    with pytest.raises(DataDownloadError) as caught:
        fetch("fashion-mnist", folder=tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "fashion-mnist") in message
    assert all(name in message for name in TINY)
    assert "dataset-fashion-mnist" in message
    assert "not an http or https address" in message


def test_loading_what_is_not_there_says_how_to_get_it(tiny: DataSet, tmp_path: Path) -> None:
    assert not is_available("fashion-mnist", folder=tmp_path)
    with pytest.raises(DataSetMissingError, match="dag-acfl data fetch fashion-mnist"):
        load("fashion-mnist", folder=tmp_path)


def test_debians_package_is_unpacked_without_a_network(
    tiny: DataSet, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "system"
    system.mkdir()
    for name, data in TINY.items():
        (system / f"{name}.gz").write_bytes(gzip.compress(data))
    packaged = dataclasses.replace(tiny, system_folders=(system,))
    monkeypatch.setattr(fetching, "DATA_SETS", Registry("data set", {"fashion-mnist": packaged}))
    mine = tmp_path / "mine"
    fetch("fashion-mnist", folder=mine)
    assert is_available("fashion-mnist", folder=mine)
    assert wrong_files("fashion-mnist", mine) == []
    assert host.asked == []


def test_the_data_folder_is_the_environments_or_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAG_ACFL_DATA", "/srv/data")
    assert data_folder() == Path("/srv/data")
    monkeypatch.delenv("DAG_ACFL_DATA")
    monkeypatch.setenv("HOME", "/home/someone")
    assert data_folder() == Path("/home/someone/.cache/dag-acfl/data")


def test_the_catalogue_describes_files_of_the_formats_sizes() -> None:
    for data_set in DATA_SETS.values():
        assert {content for each in data_set.downloads for content in each.contents} == {
            file.name for file in data_set.files
        }
        assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in data_set.mirrors)
        vouched = {content for each in data_set.downloads if len(each.md5) == 32 for content in each.contents}
        assert all(len(file.sha256) == 64 or file.name in vouched for file in data_set.files)
    for name in ("mnist", "fashion-mnist"):
        sizes = [file.size_bytes for file in DATA_SETS[name].files]
        assert sizes == [16 + 60_000 * 784, 8 + 60_000, 16 + 10_000 * 784, 8 + 10_000]
    sizes = [file.size_bytes for file in DATA_SETS["emnist-letters"].files]
    assert sizes == [16 + 124_800 * 784, 8 + 124_800, 16 + 20_800 * 784, 8 + 20_800]
    assert {file.size_bytes for file in DATA_SETS["cifar-10"].files} == {10_000 * RECORD_BYTES}


def test_real_data_sets_load_where_they_are_installed() -> None:
    for name in filter(is_available, DATA_SETS):  # a machine without any has the digits alone, and skips nothing
        assert wrong_files(name, data_folder()) == [], name
        data = load(name)
        assert len(data.train_x) == len(data.train_y) in {50_000, 60_000, 124_800}, name
        assert sorted(set(data.test_y.tolist())) == list(range(DATA_SETS[name].num_classes)), name


LETTER_IMAGES = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)
"""Two images, 2 x 3: what is written of an image that stands 3 x 2."""


def letters(labels: bytes = b"\x01\x1a") -> dict[str, bytes]:
    images = b"\0\0\x08\x03" + b"".join(side.to_bytes(4, "big") for side in (2, 2, 3)) + LETTER_IMAGES.tobytes()
    return {
        f"emnist-letters-{part}-{kind}-ubyte": data
        for part in ("train", "test")
        for kind, data in (("images-idx3", images), ("labels-idx1", b"\0\0\x08\x01\0\0\0\x02" + labels))
    }


def zip_of(contents: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("gzip/emnist-mnist-mapping.txt", "0 48")
        for name, data in contents.items():
            archive.writestr(f"gzip/{name}.gz", gzip.compress(data, mtime=0))
    return out.getvalue()


@pytest.fixture
def offer_letters(monkeypatch: pytest.MonkeyPatch, host: Host) -> Callable[[bytes], None]:
    """Put an archive on the host, and say so in the catalogue."""

    def offer(packed: bytes) -> None:
        (download,) = DATA_SETS["emnist-letters"].downloads
        known = dataclasses.replace(
            DATA_SETS["emnist-letters"],
            files=tuple(DataFile(name, len(data)) for name, data in letters().items()),
            downloads=(dataclasses.replace(download, size_bytes=len(packed), md5=hashlib.md5(packed).hexdigest()),),
            mirrors=(host.url,),
        )
        monkeypatch.setattr(fetching, "DATA_SETS", Registry("data set", {"emnist-letters": known}))
        host.files = {"gzip.zip": packed}

    return offer


def test_emnist_letters_come_upright_and_from_zero(offer_letters: Callable[[bytes], None], tmp_path: Path) -> None:
    offer_letters(zip_of(letters()))
    fetch("emnist-letters", folder=tmp_path)
    assert wrong_files("emnist-letters", tmp_path) == []
    data = load("emnist-letters", folder=tmp_path)
    # The first image is written 0 1 2 / 3 4 5.
    assert data.train_x[0].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert data.test_x.shape == (2, 3, 2)
    assert data.train_y.tolist() == data.test_y.tolist() == [0, 25]


def test_an_archive_with_other_bytes_than_published_is_refused(
    offer_letters: Callable[[bytes], None], host: Host, tmp_path: Path
) -> None:
    offer_letters(zip_of(letters()))
    host.files = {"gzip.zip": zip_of(letters(b"\x02\x03"))}
    with pytest.raises(DataDownloadError, match="MD5"):
        fetch("emnist-letters", folder=tmp_path)
    assert [path.name for path in (tmp_path / "emnist-letters").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("packed", "problem"),
    [(zip_of({}), "lacks emnist-letters-test-images"), (b"nothing", "damaged")],
    ids=["no letters", "no archive"],  # an archive's bytes hold the time: no two workers would name the test alike
)
def test_an_archive_without_the_letters_and_what_is_no_archive_are_refused(
    packed: bytes, problem: str, offer_letters: Callable[[bytes], None], tmp_path: Path
) -> None:
    offer_letters(packed)
    with pytest.raises(DataDownloadError, match=problem):
        fetch("emnist-letters", folder=tmp_path)


@pytest.mark.parametrize("labels", [b"\x00\x01", b"\x01\x1b"])
def test_letters_beyond_the_alphabet_are_refused(
    labels: bytes, offer_letters: Callable[[bytes], None], tmp_path: Path
) -> None:
    offer_letters(zip_of(letters(labels)))
    fetch("emnist-letters", folder=tmp_path)
    with pytest.raises(DataFileMalformedError, match="labels lie in 1 to 26"):
        load("emnist-letters", folder=tmp_path)
