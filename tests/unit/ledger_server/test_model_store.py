from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest

from fl_core.aggregation import ArraySource, FedAvg
from fl_core.aggregation.protocol import VectorSource
from fl_core.errors import ModelUnknownError
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.types import Digest, digest_of
from ledger_server.model_store import CachedModelStore, ModelCorruptError
from ledger_server.store.blobs.protocol import ModelReader
from ledger_server.store.journal import Store

SIZE = 250_000  # values: more than two blocks of an average
LAYOUT = ModelLayout.of([TensorSpec("w", "F32", (SIZE,))])
HALF = ModelLayout.of([TensorSpec("w", "BF16", (4,))])


@dataclass
class Disk:
    """Models in a dict, in place of a database; counts what is read and which readers were closed."""

    models: dict[Digest, bytes] = field(default_factory=dict)
    pruned: set[Digest] = field(default_factory=set)
    reads: int = 0
    open: int = 0

    def keep(self, data: bytes) -> Digest:
        self.models[digest_of(data)] = data
        return digest_of(data)

    def damage(self, digest: Digest, *, at: int = -1) -> None:
        data = bytearray(self.models[digest])
        data[at] ^= 1
        self.models[digest] = bytes(data)

    def model(self, digest: Digest) -> bytes | None:
        self.reads += 1
        return self.models.get(digest)

    def small_models(self, digests: Collection[Digest]) -> dict[Digest, bytes]:
        self.reads += 1
        return {digest: self.models[digest] for digest in digests if digest in self.models}

    @property
    def removal(self) -> "Disk":
        """What says which models have left it."""
        return self

    def is_pruned(self, digest: Digest) -> bool:
        return digest in self.pruned

    def open_model(self, digest: Digest) -> "Reader | None":
        return Reader(self, self.models[digest]) if digest in self.models else None


class Reader(ModelReader):
    def __init__(self, disk: Disk, data: bytes) -> None:
        super().__init__(len(data))
        self._disk, self._data = disk, data
        disk.open += 1

    def _read(self, start: int, stop: int) -> bytes:
        return self._data[start:stop]

    def close(self) -> None:
        self._disk.open -= 1


def numbered(first: float, *, layout: ModelLayout = LAYOUT) -> bytes:
    return encode_flat(layout, np.arange(layout.num_parameters, dtype=np.float32) % 7 + np.float32(first))


def models_on(disk: Disk, *, cache_bytes: int = 0, layout: ModelLayout = LAYOUT) -> CachedModelStore:
    return CachedModelStore(cast("Store", disk), layout, cache_bytes=cache_bytes)


def test_memory_is_asked_first() -> None:
    disk = Disk()
    digest = disk.keep(numbered(1))
    models = models_on(disk, cache_bytes=LAYOUT.nbytes)
    assert models.cached(digest) is None
    assert models.get(digest) == numbered(1)
    assert models.get(digest) == models.cached(digest) == numbered(1)
    assert (disk.reads, models.cached_bytes) == (1, LAYOUT.nbytes)


def test_what_is_forgotten_is_read_again() -> None:
    disk = Disk()
    digests = [disk.keep(numbered(first)) for first in (1, 2)]
    models = models_on(disk, cache_bytes=2 * LAYOUT.nbytes)
    for digest in digests:
        models.get(digest)
    models.forget([digests[0], Digest("0" * 64)])
    assert [models.cached(digest) is None for digest in digests] == [True, False]
    assert models.cached_bytes == LAYOUT.nbytes
    models.get(digests[0])
    assert disk.reads == 3


def test_the_least_recently_used_model_goes_first() -> None:
    models = models_on(Disk(), cache_bytes=8)
    a, b, c = (Digest(letter * 64) for letter in "abc")
    models.put(a, b"1234")
    models.put(b, b"1234")
    assert models.cached(a) == b"1234"
    models.put(c, b"1234")
    assert [models.cached(each) for each in (a, b, c)] == [b"1234", None, b"1234"]
    models.put(b, b"larger than all")
    assert [models.cached(each) for each in (a, b, c)] == [b"1234", None, b"1234"], "not kept, and pushes nothing out"


def test_models_that_are_read_together_are_in_memory_but_for_damaged_ones() -> None:
    disk = Disk()
    digests = [disk.keep(numbered(first)) for first in (1, 2, 3)]
    disk.damage(digests[2])
    models = models_on(disk, cache_bytes=3 * LAYOUT.nbytes)
    models.read_together([*digests, Digest("0" * 64)])
    assert [models.cached(digest) for digest in digests] == [numbered(1), numbered(2), None]
    models.read_together(digests[:2])
    assert disk.reads == 1


def test_without_memory_every_question_reads() -> None:
    disk = Disk()
    digest = disk.keep(numbered(1))
    models = models_on(disk)
    assert models.get(digest) == models.get(digest) == numbered(1)
    assert (disk.reads, models.cached_bytes) == (2, 0)


def test_an_unknown_model_is_none_and_has_no_vector() -> None:
    models = models_on(Disk())
    nothing = Digest("0" * 64)
    assert models.get(nothing) is None
    with pytest.raises(ModelUnknownError):
        models.vector(nothing)
    with pytest.raises(ModelUnknownError), models.sources([nothing], beside={}):
        pass


@pytest.mark.parametrize("at", [0, 9, -1])
def test_a_damaged_model_is_not_found_nor_remembered(at: int) -> None:
    disk = Disk()
    digest = disk.keep(numbered(1))
    disk.damage(digest, at=at)
    models = models_on(disk, cache_bytes=LAYOUT.nbytes)
    for _ in range(2):
        with pytest.raises(ModelCorruptError) as refused:
            models.get(digest)
        assert refused.value.digest == digest
    assert models.cached(digest) is None


def average(models: CachedModelStore, digests: list[Digest]) -> np.ndarray:
    with models.sources(digests, beside={}) as sources:
        return FedAvg().aggregate(sources, [1.0] * len(sources))


def test_an_average_of_streamed_models_is_that_of_models_in_memory() -> None:
    disk = Disk()
    digests = [disk.keep(numbered(first)) for first in (1, 2, 4)]
    in_memory = FedAvg().aggregate([ArraySource(flat(LAYOUT, numbered(first))) for first in (1, 2, 4)], [1.0] * 3)
    assert average(models_on(disk), digests).tobytes() == in_memory.tobytes()
    mixed = models_on(disk, cache_bytes=LAYOUT.nbytes)
    mixed.get(digests[1])
    assert average(mixed, digests).tobytes() == in_memory.tobytes()
    assert (disk.reads, disk.open) == (1, 0), "streamed models are not read as a whole, and their readers are closed"


@pytest.mark.parametrize(
    "at", [3, LAYOUT.nbytes - 4 * SIZE, LAYOUT.nbytes // 2, -1], ids=["head", "first", "middle", "last"]
)
def test_a_damaged_model_spoils_no_average(at: int) -> None:
    disk = Disk()
    digests = [disk.keep(numbered(first)) for first in (1, 2)]
    disk.damage(digests[1], at=at)
    with pytest.raises(ModelCorruptError) as refused:
        average(models_on(disk), digests)
    assert refused.value.digest == digests[1]
    assert disk.open == 0


def backwards(source: VectorSource) -> None:
    source.read(SIZE // 2, SIZE)
    source.read(0, SIZE // 2)


def twice(source: VectorSource) -> None:
    source.read(0, 10)
    source.read(0, 10)


def a_part(source: VectorSource) -> None:
    source.read(100, 200)


@pytest.mark.parametrize("read", [backwards, twice, a_part])
def test_the_order_of_reading_hides_no_damage(read: Callable[[VectorSource], None]) -> None:
    disk = Disk()
    sound, broken = disk.keep(numbered(1)), disk.keep(numbered(2))
    with models_on(disk).sources([sound], beside={}) as sources:
        read(sources[0])
    disk.damage(broken)
    with pytest.raises(ModelCorruptError), models_on(disk).sources([broken], beside={}) as sources:
        read(sources[0])


def test_a_model_that_nobody_read_is_not_read_only_to_be_checked() -> None:
    disk = Disk()
    broken = disk.keep(numbered(2))
    disk.damage(broken)
    with models_on(disk).sources([broken], beside={}) as sources:
        assert sources[0].size == SIZE


def test_a_model_that_lost_its_end_is_damaged() -> None:
    disk = Disk()
    digest = disk.keep(numbered(1))
    disk.models[digest] = disk.models[digest][:-4]
    with pytest.raises(ModelCorruptError):
        average(models_on(disk), [digest])


def test_a_model_of_half_the_precision_is_converted_and_checked() -> None:
    disk = Disk()
    digest = disk.keep(numbered(1, layout=HALF))
    models = models_on(disk, layout=HALF)
    assert list(average(models, [digest])) == [1, 2, 3, 4]
    disk.damage(digest)
    with pytest.raises(ModelCorruptError):
        average(models, [digest])


def test_readers_are_closed_when_the_average_fails() -> None:
    disk = Disk()
    digests: Sequence[Digest] = [disk.keep(numbered(first)) for first in (1, 2)]
    with pytest.raises(ZeroDivisionError), models_on(disk).sources(list(digests), beside={}):
        raise ZeroDivisionError
    assert disk.open == 0
