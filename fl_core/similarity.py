"""How alike models are: cosines of one model to many, the same to the bit on every processor.

What is kept per model is its *update*, u = c - g (model minus genesis), as a float32 row, with the float64
scalars ``u.g`` and ``u.u`` beside it. For a client's model x with update v the one product is ``U v``; all
else is scalar:

    cos(v, u) = u.v / (|v| |u|)
    cos(x, c) = (u.v + u.g + v.g + g.g) / (|x| |c|)        |c|^2 = u.u + 2 u.g + g.g

Updates rather than models, because models that began alike differ by little: the difference of two float32
products would lose it, and the sum above does not. A zero vector has no direction and scores 0.

A selection may hang on the last bit of a cosine, and BLAS adds up in an order that depends on the processor, on
threads and on where a row stands. So no sum here rounds. Every v, u and g is first rounded to its *grid*: multiples of
2^(e-26), where 2^e is the least power of two above its norm. Counted in steps of the grid it is a vector of integers
whose norm is below 2^26, or, as rounding adds up to sqrt(d)/2, below 2^26.5 for any d up to 2^40. By Cauchy and Schwarz
the sum of any of the products of two such vectors is an integer below 2^53. float64 holds these exactly: in whatever
order BLAS adds, with fused multiplications or without, it arrives at the one sum. The rest is element-wise float64,
which IEEE 754 fixes. Rows stay float32: a float32 value rounded to a coarser grid is a float32 value.

Noise that an author added for privacy, and declares, lengthens its update by d s^2 and turns it nowhere on average. So
it is taken off the squares under the roots of cos(v, u): u.u - d s^2, and v.v likewise, but never more than
``MAX_NOISE_SHARE`` of either. Without noise nothing is taken off, to the bit. docs/adr/0048 has what it brings, and
what a false claim gains.

Rounding moves a value by at most 2^-26 of the norm: a cosine by some 1e-8 where these errors fall at random, by
sqrt(d) 2^-25 if all conspired. What else was tried, and what this costs: docs/adr/0023.

Of a hundred thousand updates only a small sketch each is in memory, by which those that are worth comparing are found
(``fl_core.small_sketches``), and the rows of the first 1,024; the others' lie in a file (docs/adr/0066).
"""

import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ShapeMismatchError
from fl_core.models import model_norm
from fl_core.small_sketches import SmallSketches, resized
from fl_core.types import Matrix32, TxId, Vector32, Vector64

MAX_NOISE_SHARE: Final = 0.96
"""Of an update's square, so much can be noise at most: a false claim makes a cosine at most 5 times as large,
1 / sqrt(1 - this)."""
_FIRST_CAPACITY: Final = 16
IN_MEMORY: Final = 1024
"""Updates that are kept in memory where there is a file for the others: what is compared where nobody is left out."""
_GATHERED_FOR_ONE: Final = 32
"""Rows that are gathered at a time: 1 MiB of 8,192 values, which is in a core's cache still when it is multiplied."""
_GATHERED_FOR_MANY: Final = 128
"""Each gathering widens all models anew."""
_GRID_BITS: Final = 26
"""Two norms of so many bits make a product of 52; rounding may add one, and float64 holds 53."""
_LEAST_BIT: Final = -149
"""Every float32 is a multiple of 2 to this power."""
_BLOCK: Final = 1 << 15
_ROOM: Final = 1 + 1e-9
"""For square roots that are rounded."""
_MODELS_AT_ONCE: Final = 128
"""Of many models compared with many, so many are combined in one float64 matrix."""
_TILE_FOR_ONE: Final = (32, 4096)
"""Rows and columns that are widened to float64 at a time: 1 MiB, which stays in a core's cache until multiplied."""
_TILE_FOR_MANY: Final = (1024, 1024)
"""8 MiB: with many models the matrix product is most of the work, and wants more rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """One model compared with n others.

    Attributes:
        models: Cosine of the models (Eq. 5), shape ``(n,)``, in [-1, 1].
        updates: Cosine after genesis was subtracted from both, shape ``(n,)``, in [-1, 1]; less declared noise.
        genesis: Cosine of the asking model to genesis.
    """

    models: Vector64
    updates: Vector64
    genesis: float


@dataclass(frozen=True, slots=True, eq=False)
class LatestVectors:
    """The vectors that came last, to be looked at without their owner's lock: which update a row is of may change
    meanwhile, so what is found is to be asked again (``CandidateVectors.distance``).

    Attributes:
        ids: Of the n updates.
        genesis: Shape ``(d,)``.
        updates: Model minus genesis, on their grids, shape ``(n, d)``; a view.
        squares: Of their norms, shape ``(n,)``; a view.
    """

    ids: tuple[TxId, ...]
    genesis: Vector32
    updates: Matrix32
    squares: Vector64

    def near(self, vector: Vector32, *, within: float) -> dict[TxId, float]:
        """The updates that lie within a Euclidean distance of a model, shape ``(d,)``, nearest first, and how far.

        What is longer or shorter by more is not measured.
        """
        update = _on_grid(vector - self.genesis)
        square = _product(update, update)
        places = np.flatnonzero(np.abs(np.sqrt(self.squares) - math.sqrt(square)) <= within * _ROOM)
        squares = self.squares[places] + square - 2 * _products(update[None], self.updates[places])[0]
        distances = np.sqrt(np.maximum(squares, 0.0))
        order = [each for each in np.argsort(distances, kind="stable") if distances[each] <= within]
        return {self.ids[places[each]]: float(distances[each]) for each in order}


class RowFile(Protocol):
    """Rows of d float32 values by number, outside memory."""

    def write(self, row: int, values: Vector32) -> None:
        """Keep a row, shape ``(d,)``."""

    def read(self, rows: Sequence[int]) -> Matrix32:
        """Rows that were written, shape ``(len(rows), d)``."""


class CandidateVectors:
    """The vectors of the updates that can be candidates, so that one question is one matrix-vector product.

    Rows come and go with the candidates: adding is amortised constant (the matrix doubles), removing moves the
    last row into the gap. Rows are contiguous float32, so 1,000 tips of 20,000 values take 80 MB. Not safe
    for concurrent use; its owner locks.
    """

    def __init__(
        self, genesis: Vector32, *, num_values: int | None = None, seed: int = 0, file: RowFile | None = None
    ) -> None:
        """Args:
        genesis: The genesis model's similarity vector, shape ``(d,)``.
        num_values: How many values of a model the vector is made of, where that is a sketch; None: d.
        seed: Of the small sketches.
        file: Where all rows but the first ``IN_MEMORY`` are kept; None: in memory, too.
        """
        if genesis.ndim != 1 or genesis.dtype != np.float32:
            raise ShapeMismatchError(f"a similarity vector is float32 of shape (d,), not {genesis.shape}")
        self._genesis = genesis.copy()
        self._num_values = float(len(genesis) if num_values is None else num_values)
        self._genesis_on_grid = _on_grid(self._genesis.copy())
        self._genesis_square = _product(self._genesis_on_grid, self._genesis_on_grid)
        self._rows: dict[TxId, int] = {}
        self._ids: list[TxId] = []
        self._file, self._most_in_memory = file, sys.maxsize if file is None else IN_MEMORY
        self._updates: Matrix32 = np.empty((0, len(genesis)), dtype=np.float32)  # on their grids; (capacity, d)
        self._scalars = np.empty((0, 3))  # u.g, u.u, and u.u less noise; (capacity, 3)
        self._seed = seed
        self._small: SmallSketches | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, transaction: object) -> bool:
        return transaction in self._rows

    def add(self, transaction: TxId, vector: Vector32, *, noise_std: float = 0.0) -> None:
        """Keep an update's vector, shape ``(d,)``; one that is here already stays as it is.

        Args:
            transaction: Its id.
            vector: What of its model is compared.
            noise_std: Of the noise in each value, as its author declares it.

        Raises:
            ShapeMismatchError: ``vector`` is not of genesis's shape.
        """
        _same_shape(vector, self._genesis)
        if transaction in self._rows:
            return
        row = len(self._ids)
        if row == len(self._scalars):
            self._resize(max(_FIRST_CAPACITY, 2 * row))
        update = _on_grid(vector - self._genesis)
        self._put(row, update)
        self._scalars[row] = self._scalar_products(update, noise_std)
        if self._small is not None:
            self._sketch(self._small, row, update)
        self._rows[transaction] = row
        self._ids.append(transaction)
        if len(self._ids) == IN_MEMORY:  # while all rows are at hand
            self._sketches()

    def discard(self, transaction: TxId) -> None:
        """Forget an update; an unknown one is no error."""
        row = self._rows.pop(transaction, None)
        if row is None:
            return
        last = self._ids.pop()
        if last != transaction:
            (moved,) = self._taken(np.array([len(self._ids)]))
            self._put(row, moved)
            self._scalars[row] = self._scalars[len(self._ids)]
            if self._small is not None:
                self._small.move(len(self._ids), row)
            self._ids[row], self._rows[last] = last, row
        if len(self._scalars) > max(_FIRST_CAPACITY, 4 * len(self._ids)):
            self._resize(max(_FIRST_CAPACITY, 2 * len(self._ids)))

    def retain(self, transactions: Collection[TxId]) -> None:
        """Forget all updates but these."""
        for transaction in [each for each in self._ids if each not in transactions]:
            self.discard(transaction)

    def compare(
        self, vectors: Matrix32, candidates: Sequence[Sequence[TxId]], *, noise_stds: Sequence[float] | None = None
    ) -> list[Similarities]:
        """Compare clients' models, each with its own candidates and in their order, by one matrix product.

        What each is told is to the bit what it would be told alone. For clients whose candidates are nearly the same:
        the product is of all models with all rows, also those of updates that are no candidates, since gathering rows
        costs more than multiplying them. When few of many are candidates, those few are gathered.

        Args:
            vectors: The models' similarity vectors, shape ``(k, d)``.
            candidates: Of each, updates that were added, in any order.
            noise_stds: Of each, the declared noise; None: there is none.

        Raises:
            ShapeMismatchError: ``vectors`` are not of genesis's shape, or not as many as ``candidates``.
            KeyError: a candidate was not added.
        """
        if vectors.ndim != 2 or vectors.shape != (len(candidates), len(self._genesis)):
            raise ShapeMismatchError(f"{vectors.shape} vectors and {len(candidates)} lists of candidates")
        if not candidates:
            return []
        places = [np.array([*map(self._rows.__getitem__, those)], dtype=np.intp) for those in candidates]
        used = np.unique(np.concatenate(places))
        if are_few := 4 * len(used) < len(self._ids) or len(self._ids) > self._most_in_memory:
            places = [np.searchsorted(used, mine) for mine in places]
        else:
            used = np.arange(len(self._ids))
        scalars = self._scalars[used]
        found: list[Similarities] = []
        for start in range(0, len(vectors), _MODELS_AT_ONCE):
            part = slice(start, start + _MODELS_AT_ONCE)
            updates = vectors[part] - self._genesis  # (part, d)
            noise = [0.0] * len(updates) if noise_stds is None else noise_stds[part]
            own = np.array(  # (part, 3)
                [self._scalar_products(_on_grid(update), std) for update, std in zip(updates, noise, strict=True)]
            )
            products = self._products_with(updates, used) if are_few else _products(updates, self._updates[: len(used)])
            rows = self._combine(products, scalars, own)
            found += [
                Similarities(models[mine], update[mine], float(genesis))
                for models, update, genesis, mine in zip(*rows, places[part], strict=True)
            ]
        return found

    def nearest(self, vector: Vector32, most: int) -> list[TxId]:
        """The updates whose small sketches are most like that of a model, shape ``(d,)``: the most alike first.

        Of equal ones the lower id is first.
        """
        _same_shape(vector, self._genesis)
        scores = self._sketches().scores(_on_grid(vector - self._genesis), len(self._ids))
        if most < len(scores):
            rows = np.flatnonzero(scores >= np.partition(scores, -most)[-most])
        else:
            rows = np.arange(len(scores))
        ranked = sorted(zip((-scores[rows]).tolist(), [self._ids[row] for row in rows], strict=True))
        return [transaction for _, transaction in ranked[:most]]

    def latest(self, most: int) -> LatestVectors:
        """Those that came last, at most so many."""
        return self._between(max(len(self._ids) - most, 0), len(self._ids))

    def distance(self, vector: Vector32, transaction: TxId) -> float | None:
        """Euclidean distance of a model, shape ``(d,)``, from an update's; None where that is not here."""
        row = self._rows.get(transaction)
        return None if row is None else self._between(row, row + 1).near(vector, within=math.inf)[transaction]

    def _between(self, first: int, end: int) -> LatestVectors:
        ids, rows = tuple(self._ids[first:end]), slice(first, end)
        updates = self._updates[rows] if end <= self._most_in_memory else self._taken(np.arange(first, end))
        return LatestVectors(ids, self._genesis, updates, self._scalars[rows, 1])

    def _sketches(self) -> SmallSketches:
        """Those of all rows, made when they are first asked for: a ledger of a hundred authors needs none."""
        if self._small is None:
            self._small = SmallSketches(len(self._genesis), seed=self._seed)
            self._small.resize(len(self._scalars), used=0)
            for row in range(len(self._ids)):
                self._sketch(self._small, row, self._updates[row])
        return self._small

    def _sketch(self, small: SmallSketches, row: int, update: Vector32) -> None:
        _, square, signal = self._scalars[row]
        small.put(row, update, lengthened=math.sqrt(square / signal) if signal else 1.0)

    def _put(self, row: int, update: Vector32) -> None:
        if self._file is not None and row >= IN_MEMORY:
            self._file.write(row - IN_MEMORY, update)
        else:
            self._updates[row] = update

    def _taken(self, rows: NDArray[np.intp]) -> Matrix32:
        """Copies of some updates; rows ascending."""
        held = int(np.searchsorted(rows, IN_MEMORY))
        if self._file is None or held == len(rows):
            return self._updates[rows]
        read = self._file.read((rows[held:] - IN_MEMORY).tolist())
        return np.concatenate([self._updates[rows[:held]], read]) if held else read

    def _products_with(self, updates: Matrix32, rows: NDArray[np.intp]) -> Vector64:
        """Products of k models with m rows, ascending, which are gathered a few at a time: shape ``(k, m)``."""
        products = np.empty((len(updates), len(rows)))
        gathered = _GATHERED_FOR_ONE if len(updates) == 1 else _GATHERED_FOR_MANY
        for start in range(0, len(rows), gathered):
            part = slice(start, start + gathered)
            products[:, part] = _products(updates, self._taken(rows[part]))
        return products

    def _combine(self, products: Vector64, rows: Vector64, own: Vector64) -> tuple[Vector64, Vector64, Vector64]:
        """Cosines of k models with n rows: of models and of updates, ``(k, n)`` each, and with genesis, ``(k,)``.

        ``products`` of updates: ``(k, n)``; scalars of the rows: ``(n, 3)``, of the models: ``(k, 3)``.
        """
        row_genesis, row_square, row_signal = rows.T  # (n,) each
        with_genesis, squares, signals = own.T  # (k,) each
        genesis_square = self._genesis_square
        model_norms = np.sqrt(np.maximum(squares + 2 * with_genesis + genesis_square, 0.0))  # (k,)
        row_norms = np.sqrt(np.maximum(row_square + 2 * row_genesis + genesis_square, 0.0))  # (n,)
        return (
            _quotient(
                products + row_genesis + with_genesis[:, None] + genesis_square, row_norms * model_norms[:, None]
            ),
            _quotient(products, np.sqrt(row_signal) * np.sqrt(signals)[:, None]),
            _quotient(with_genesis + genesis_square, model_norms * np.sqrt(genesis_square)),
        )

    def _scalar_products(self, update: Vector32, noise_std: float) -> tuple[float, float, float]:
        """u.g, u.u, and u.u less the noise's, of an update on its grid."""
        square = _product(update, update)
        noise = min(self._num_values * noise_std * noise_std, MAX_NOISE_SHARE * square)
        return _product(update, self._genesis_on_grid), square, square - noise

    def _resize(self, capacity: int) -> None:
        self._updates = resized(self._updates, min(capacity, self._most_in_memory), used=len(self._ids))
        self._scalars = resized(self._scalars, capacity, used=len(self._ids))
        if self._small is not None:
            self._small.resize(capacity, used=len(self._ids))


def _on_grid(vector: Vector32) -> Vector32:
    """Round a vector, in place, to multiples of 2^-26 of the least power of two above its norm; ties to even.

    Only ``rint`` rounds: the factors are powers of two, and the quotients and their integers fit float32.
    """
    exponent = math.frexp(model_norm(vector))[1] - _GRID_BITS
    grid = np.float32(math.ldexp(1.0, max(exponent, _LEAST_BIT)))
    np.divide(vector, grid, out=vector)
    np.rint(vector, out=vector)
    np.multiply(vector, grid, out=vector)
    return vector


def _product(left: Vector32, right: Vector32) -> float:
    """Exact product of two vectors on their grids, by blocks: float64 copies of a large layer would cost more."""
    total = 0.0
    for start in range(0, len(left), _BLOCK):
        part = slice(start, start + _BLOCK)
        total += float(left[part].astype(np.float64) @ right[part].astype(np.float64))
    return total


def _products(left: Matrix32, right: Matrix32) -> Vector64:
    """Exact products of k vectors with n, all on their grids: shapes ``(k, d)`` and ``(n, d)`` give ``(k, n)``.

    A tile of ``right`` at a time is widened to float64 and multiplied while it is in the cache. Rows kept in float64
    would take twice the memory and as long to read as widening takes.
    """
    height, width = _TILE_FOR_ONE if len(left) == 1 else _TILE_FOR_MANY
    total = np.zeros((len(left), len(right)))
    dimension = left.shape[1]
    height = max(height, height * width // max(dimension, 1))  # short rows: as many as fill a tile
    tile = np.empty((min(height, len(right)), min(width, dimension)))
    for column in range(0, dimension, width):
        columns = slice(column, column + width)
        wide = left[:, columns].astype(np.float64)  # (k, width)
        for row in range(0, len(right), height):
            rows = slice(row, row + height)
            narrow = right[rows, columns]
            widened = tile[: narrow.shape[0], : narrow.shape[1]]
            np.copyto(widened, narrow)
            total[:, rows] += wide @ widened.T
    return total


def _quotient(products: Vector64, norms: Vector64) -> Vector64:
    zeros = np.zeros(products.shape)
    return np.clip(np.divide(products, norms, out=zeros, where=norms > 0), -1.0, 1.0)


def _same_shape(left: Vector32, right: Vector32) -> None:
    if left.ndim != 1 or left.shape != right.shape:
        raise ShapeMismatchError(f"similarity vectors of shapes {left.shape} and {right.shape}")
