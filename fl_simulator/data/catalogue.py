"""The data sets that are known by name: their files, sizes, digests, and usual hosts.

The digests are of the *unpacked* files, so it does not matter which host, package or archive they came from. EMNIST's
authors' archive has a published digest, its members have none: there the archive is checked when it is downloaded, and
files that were put in place by hand by their sizes.
The layout of the data folder (``$DAG_ACFL_DATA``, else ``~/.cache/dag-acfl/data``)::

    mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte          IDX
    fashion-mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte  IDX
    cifar-10/{data_batch_1..5,test_batch}.bin                   CIFAR-10, binary version
    emnist-letters/emnist-letters-{train,test}-{images-idx3,labels-idx1}-ubyte  IDX

The digits come with the package and need none of this, nor do other people's data sets: a function makes them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from fl_core.errors import UnknownNameError
from fl_core.registry import Registry
from fl_simulator.data.image_data import ImageData

Format: TypeAlias = Literal["idx", "cifar-10"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One unpacked file; ``sha256`` is empty where only the archive's digest is known."""

    name: str
    size_bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    """One packed file on a host, and the names of the files in it: a gzip file holds one, a tar more, and a zip holds
    each as a gzip file.

    ``size_bytes`` is the packed file's where it holds much besides, and ``md5`` its digest where it must vouch for its
    contents.
    """

    name: str
    packing: Literal["gzip", "tar", "zip"]
    contents: tuple[str, ...]
    size_bytes: int = 0
    md5: str = ""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set.

    ``mirrors`` are URLs that end in "/", tried in order; a ``system_package`` puts packed files into
    ``system_folders``. IDX files are named in the order training images, training labels, test images, test labels;
    their labels begin with ``first_label``, and where ``is_transposed`` their images lie on their sides, columns first.
    """

    name: str
    title: str
    format: Format
    files: tuple[DataFile, ...]
    downloads: tuple[Download, ...]
    mirrors: tuple[str, ...]
    system_folders: tuple[Path, ...] = ()
    system_package: str = ""
    num_classes: int = 10
    first_label: int = 0
    is_transposed: bool = False

    @property
    def size_bytes(self) -> int:
        """Of all unpacked files together."""
        return sum(file.size_bytes for file in self.files)

    def file(self, name: str) -> DataFile:
        """The file of that name; ``KeyError`` when there is none."""
        return {file.name: file for file in self.files}[name]


def _gzip_each(files: tuple[DataFile, ...]) -> tuple[Download, ...]:
    return tuple(Download(f"{file.name}.gz", "gzip", (file.name,)) for file in files)


_MNIST: Final = (
    DataFile(
        "train-images-idx3-ubyte",
        47_040_016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    DataFile("train-labels-idx1-ubyte", 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    DataFile(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    DataFile("t10k-labels-idx1-ubyte", 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
_FASHION_MNIST: Final = (
    DataFile(
        "train-images-idx3-ubyte",
        47_040_016,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    DataFile("train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    DataFile(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    DataFile("t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
)
_CIFAR_10: Final = (
    DataFile("data_batch_1.bin", 30_730_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    DataFile("data_batch_2.bin", 30_730_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    DataFile("data_batch_3.bin", 30_730_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    DataFile("data_batch_4.bin", 30_730_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    DataFile("data_batch_5.bin", 30_730_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    DataFile("test_batch.bin", 30_730_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
)
_EMNIST_LETTERS: Final = (
    DataFile("emnist-letters-train-images-idx3-ubyte", 97_843_216),
    DataFile("emnist-letters-train-labels-idx1-ubyte", 124_808),
    DataFile("emnist-letters-test-images-idx3-ubyte", 16_307_216),
    DataFile("emnist-letters-test-labels-idx1-ubyte", 20_808),
)

DATA_SETS: Final = Registry[DataSet](
    "data set",
    {
        "mnist": DataSet(
            name="mnist",
            title="MNIST: 70,000 handwritten digits, 28 x 28 (LeCun, Cortes, Burges)",
            format="idx",
            files=_MNIST,
            downloads=_gzip_each(_MNIST),
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
        ),
        "fashion-mnist": DataSet(
            name="fashion-mnist",
            title="Fashion-MNIST: 70,000 pieces of clothing, 28 x 28 (Zalando, MIT licence)",
            format="idx",
            files=_FASHION_MNIST,
            downloads=_gzip_each(_FASHION_MNIST),
            mirrors=(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            ),
            system_folders=(Path("/usr/share/datasets/fashion-mnist"),),
            system_package="dataset-fashion-mnist",
        ),
        "cifar-10": DataSet(
            name="cifar-10",
            title="CIFAR-10: 60,000 colour photographs of ten classes, 32 x 32 (Krizhevsky)",
            format="cifar-10",
            files=_CIFAR_10,
            downloads=(Download("cifar-10-binary.tar.gz", "tar", tuple(file.name for file in _CIFAR_10)),),
            mirrors=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        ),
        "emnist-letters": DataSet(
            name="emnist-letters",
            title="EMNIST letters: 145,600 handwritten letters of 26 classes, 28 x 28 (Cohen et al., NIST)",
            format="idx",
            files=_EMNIST_LETTERS,
            downloads=(
                Download(
                    "gzip.zip",
                    "zip",
                    tuple(file.name for file in _EMNIST_LETTERS),
                    size_bytes=561_753_746,
                    md5="58c8d27c78d21e728a6bc7b3cc06412e",
                ),
            ),
            mirrors=(
                "https://biometrics.nist.gov/cs_links/EMNIST/",
                "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/",
            ),
            num_classes=26,
            first_label=1,
            is_transposed=True,
        ),
    },
)
"""Every data set that ``dag-acfl data`` knows."""

LOADERS: Final = Registry[Callable[[], ImageData]](
    "data set", {"digits": "fl_simulator.data.digits:digits"}, group="dag_acfl.data_sets"
)
"""Data sets that a function makes."""


def loader_of(name: str) -> Callable[[], ImageData] | None:
    """The function that makes a data set; None for one that lies in files."""
    if name in DATA_SETS:
        return None
    if name not in LOADERS:
        raise UnknownNameError(LOADERS.kind, name, [*DATA_SETS, *LOADERS], group=LOADERS.group)
    return LOADERS[name]
