"""Models where a ledger's bytes are kept: read in pieces, averaged by the ledger's rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np

from fl_core.aggregation import Aggregator
from fl_core.aggregation.model import aggregate_model
from fl_core.dag.genesis import Genesis
from fl_core.models import DTYPE_BYTES, ModelLayout, values_of
from fl_core.types import Digest, Vector32


class ModelSource(Protocol):
    """A bundle, a database, a live server (``fl_core.verify.LedgerSource``)."""

    def read_model(self, digest: Digest, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` (exclusive) of a model that is there."""


def average_of(
    source: ModelSource, genesis: Genesis, aggregator: Aggregator, models: Sequence[tuple[Digest, int]]
) -> bytes:
    """A ledger's average of models that a source holds; of one, its bytes.

    Args:
        source: Holds them, in order.
        genesis: The ledger's rules.
        aggregator: Built from genesis.
        models: Digest and number of examples of each, in ascending order of their transactions.
    """
    if len(models) == 1:
        return source.read_model(models[0][0], 0, genesis.layout.nbytes)
    sources = [StoredModel(source, digest, genesis.layout) for digest, _ in models]
    return aggregate_model(genesis, aggregator, sources, num_examples=[count for _, count in models])


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in order, read from its source in pieces, as the float32 values that aggregators want."""

    source: ModelSource
    digest: Digest
    layout: ModelLayout

    @property
    def size(self) -> int:
        return self.layout.num_parameters

    def read(self, start: int, stop: int) -> Vector32:
        """Values ``start`` to ``stop`` of the flat vector."""
        pieces: list[Vector32] = []
        first, at = 0, len(self.layout.prefix)  # a run's first value; its offset in the file
        # Tensors of one dtype stand together, widest first, so a model has at most three runs.
        for dtype, tensors in groupby(self.layout.tensors, key=lambda tensor: tensor.dtype):
            size, width = sum(tensor.size for tensor in tensors), DTYPE_BYTES[dtype]
            low, high = max(start, first), min(stop, first + size)
            if low < high:
                offset = at + (low - first) * width
                data = self.source.read_model(self.digest, offset, offset + (high - low) * width)
                pieces.append(values_of(memoryview(data), dtype))
            first, at = first + size, at + size * width
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
