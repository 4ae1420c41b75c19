"""The digits, the rotated federation, and the readers of the canonical formats."""

import struct
import subprocess
import sys

import numpy as np
import pytest

from fl_core.errors import ParameterError
from fl_simulator.data.cifar import RECORD_BYTES, parse_cifar10_batch
from fl_simulator.data.digits import load_digits
from fl_simulator.data.errors import DataFileMalformedError
from fl_simulator.data.idx import parse_idx
from fl_simulator.data.rotated import rotated_digits


def test_the_data_package_needs_neither_torch_nor_scikit_learn() -> None:
    code = (
        "import sys; from fl_simulator.data.digits import load_digits; load_digits();"
        "assert not {'torch', 'sklearn', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_digits_are_all_there() -> None:
    images, labels = load_digits()
    assert images.shape == (1797, 8, 8)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    # The first image, a zero, starts with 0 0 5 13 9 1 0 0 sixteenths.
    assert (images[0, 0] * 16).tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert labels[0] == 0


def test_the_shared_digits_cannot_be_written_to() -> None:
    images, _ = load_digits()
    with pytest.raises(ValueError, match="read-only"):
        images[0, 0, 0] = 1.0


def upright(images: np.ndarray, cluster: int) -> set[bytes]:
    return {np.rot90(image, -cluster).tobytes() for image in images}


def test_no_sample_belongs_to_two_clients_or_to_train_and_test() -> None:
    """Distinct images, turned back, are counted: the data set itself has no two equal images."""
    everything, _ = load_digits()
    assert len(upright(everything, 0)) == 1797
    clients = rotated_digits(seed=3)
    seen: set[bytes] = set()
    for client in clients:
        for images in (client.train_x, client.test_x):
            seen |= upright(images, client.cluster)
    assert len(seen) == 16 * (60 + 50)
    assert seen <= upright(everything, 0)


def test_images_are_turned_by_their_clusters_angle_and_keep_their_labels() -> None:
    everything, truth = load_digits()
    label_of = {image.tobytes(): int(label) for image, label in zip(everything, truth, strict=True)}
    for number, client in enumerate(rotated_digits(seed=1)):
        assert client.cluster == number % 4
        for image, label in zip(client.test_x, client.test_y, strict=True):
            assert label_of[np.rot90(image, -client.cluster).tobytes()] == label


@pytest.mark.parametrize(("train", "test"), [(60, 50), (25, 50), (7, 3)])
def test_every_client_has_every_label_in_its_share(train: int, test: int) -> None:
    clients = rotated_digits(train_per_client=train, test_per_client=test, seed=2)
    for client in clients:
        assert (len(client.train_y), len(client.test_y)) == (train, test)
        for labels in (client.train_y, client.test_y):
            counts = np.bincount(labels, minlength=10)
            assert abs(counts - len(labels) / 10).max() <= 2


def test_the_seed_alone_decides_the_federation() -> None:
    first, again, other = (rotated_digits(seed=seed) for seed in (5, 5, 6))
    assert all(np.array_equal(a.train_x, b.train_x) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].train_x, other[0].train_x)


def test_more_samples_than_there_are_digits_are_refused_with_the_numbers() -> None:
    with pytest.raises(ParameterError, match="need 1840 digits; there are 1797"):
        rotated_digits(train_per_client=65, test_per_client=50)


def test_angles_between_right_angles_are_refused() -> None:
    with pytest.raises(ParameterError, match="multiples of 90"):
        rotated_digits(rotations=(0, 45))
    with pytest.raises(ParameterError, match="at least 1"):
        rotated_digits(train_per_client=0)


def idx(*shape: int, kind: int = 8) -> bytes:
    size = int(np.prod(shape))
    return struct.pack(f">HBB{len(shape)}I", 0, kind, len(shape), *shape) + bytes(i % 256 for i in range(size))


def test_an_idx_file_is_read_in_its_shape() -> None:
    assert parse_idx(idx(2, 3, 4)).tolist() == np.arange(24).reshape(2, 3, 4).tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "too few", id="empty"),
        pytest.param(idx(2, 3)[:-1], "promises 2 x 3 = 6 bytes and holds 5", id="one byte short"),
        pytest.param(idx(2, 3) + b"x", "promises 2 x 3 = 6 bytes and holds 7", id="one byte long"),
        pytest.param(idx(2, 3)[:9], "ends inside its header", id="half a header"),
        pytest.param(idx(2, kind=9), "not an IDX file", id="signed bytes"),
        pytest.param(b"\0\0\x08\0", "not an IDX file", id="no dimension"),
        pytest.param(b"\x1f\x8b\x08\0", "gunzip", id="still compressed"),
        pytest.param(struct.pack(">HBB3I", 0, 8, 3, *[2**32 - 1] * 3), "holds 0", id="absurd sizes"),
    ],
)
def test_a_damaged_idx_file_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(DataFileMalformedError, match=message):
        parse_idx(data)


def test_a_cifar_batch_is_labels_and_colour_planes() -> None:
    data = b"".join(bytes([label]) + bytes([label * 10]) * 3072 for label in (3, 9))
    images, labels = parse_cifar10_batch(data)
    assert images.shape == (2, 3, 32, 32)
    assert labels.tolist() == [3, 9]
    assert images[1, 2, 31, 31] == 90


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "has 0 bytes", id="empty"),
        pytest.param(bytes(RECORD_BYTES - 1), "records of 3073", id="short"),
        pytest.param(bytes(RECORD_BYTES) + b"\x0a" + bytes(3072), "record 1 has label 10", id="label 10"),
    ],
)
def test_a_damaged_cifar_batch_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(DataFileMalformedError, match=message):
        parse_cifar10_batch(data)
