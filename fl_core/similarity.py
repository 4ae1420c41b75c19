"""How alike models are: cosines of one model to many, from a single matrix-vector product.

What is kept per model is its *update*, u = c - g (model minus genesis), as a float32 row, with the float64
scalars ``u.g`` and ``u.u`` beside it. For a client's model x with update v the one product is ``U v``; all
else is scalar:

    cos(v, u) = u.v / (|v| |u|)
    cos(x, c) = (u.v + u.g + v.g + g.g) / (|x| |c|)        |c|^2 = u.u + 2 u.g + g.g

Updates rather than models, because models that began alike differ by little: the difference of two float32
products would lose it, and the sum above does not. Products are float32, combined in float64. A zero
vector has no direction and scores 0.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_core.errors import ShapeMismatchError
from fl_core.types import Matrix32, TxId, Vector32, Vector64

_FIRST_CAPACITY: Final = 16
_BLOCK: Final = 1 << 15
_MODELS_AT_ONCE: Final = 128
"""Of many models compared with many, so many are combined in one float64 matrix."""


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """One model compared with n others.

    Attributes:
        models: Cosine of the models (Eq. 5), shape ``(n,)``, in [-1, 1].
        updates: Cosine after genesis was subtracted from both, shape ``(n,)``, in [-1, 1].
        genesis: Cosine of the asking model to genesis.
    """

    models: Vector64
    updates: Vector64
    genesis: float


def cosine(left: Vector32, right: Vector32) -> float:
    """Cosine similarity of two vectors, in float64 (Eq. 5); 0 when either has no direction.

    Raises:
        ShapeMismatchError: the shapes differ or are not ``(d,)``.
    """
    _same_shape(left, right)
    a, b = left.astype(np.float64), right.astype(np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(a @ b / norms, -1.0, 1.0)) if norms > 0 else 0.0


class TipMatrix:
    """The similarity vectors of tips that can be candidates, so that one question is one matrix-vector product.

    Rows come and go with the candidates: adding is amortised constant (the matrix doubles), removing moves the
    last row into the gap. Rows are contiguous float32, so 1,000 tips of 20,000 values take 80 MB. Not safe
    for concurrent use; its owner locks.
    """

    def __init__(self, genesis: Vector32) -> None:
        """``genesis``: the genesis model's similarity vector, shape ``(d,)``."""
        if genesis.ndim != 1 or genesis.dtype != np.float32:
            raise ShapeMismatchError(f"a similarity vector is float32 of shape (d,), not {genesis.shape}")
        self._genesis = genesis.copy()
        wide = self._genesis.astype(np.float64)
        self._genesis_square = float(wide @ wide)
        self._rows: dict[TxId, int] = {}
        self._ids: list[TxId] = []
        self._updates: Matrix32 = np.empty((0, len(genesis)), dtype=np.float32)  # (capacity, d)
        self._scalars = np.empty((0, 2))  # u.g and u.u; (capacity, 2)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, transaction: object) -> bool:
        return transaction in self._rows

    @property
    def nbytes(self) -> int:
        """Memory that the rows take, spare capacity included."""
        return self._updates.nbytes + self._scalars.nbytes

    def add(self, transaction: TxId, vector: Vector32) -> None:
        """Keep a tip's similarity vector, shape ``(d,)``; a tip that is here already stays as it is.

        Raises:
            ShapeMismatchError: ``vector`` is not of genesis's shape.
        """
        _same_shape(vector, self._genesis)
        if transaction in self._rows:
            return
        row = len(self._ids)
        if row == len(self._updates):
            self._resize(max(_FIRST_CAPACITY, 2 * row))
        update = self._updates[row]
        np.subtract(vector, self._genesis, out=update)
        self._scalars[row] = self._products(update)
        self._rows[transaction] = row
        self._ids.append(transaction)

    def discard(self, transaction: TxId) -> None:
        """Forget a tip; unknown ones are no error, as tips are forgotten by more than one rule."""
        row = self._rows.pop(transaction, None)
        if row is None:
            return
        last = self._ids.pop()
        if last != transaction:
            self._updates[row] = self._updates[len(self._ids)]
            self._scalars[row] = self._scalars[len(self._ids)]
            self._ids[row], self._rows[last] = last, row
        if len(self._updates) > max(_FIRST_CAPACITY, 4 * len(self._ids)):
            self._resize(max(_FIRST_CAPACITY, 2 * len(self._ids)))

    def retain(self, transactions: Collection[TxId]) -> None:
        """Forget all tips but these."""
        for transaction in [each for each in self._ids if each not in transactions]:
            self.discard(transaction)

    def compare(self, vector: Vector32, candidates: Sequence[TxId]) -> Similarities:
        """Compare a client's model with ``candidates``, in their order.

        Args:
            vector: The model's similarity vector, shape ``(d,)``.
            candidates: Tips that were added, in any order.

        Raises:
            ShapeMismatchError: ``vector`` is not of genesis's shape.
            KeyError: a candidate was not added.

        All rows are multiplied, also those of tips that are no candidates: gathering rows costs more than
        multiplying them. When few of many are asked for, those few are gathered.
        """
        _same_shape(vector, self._genesis)
        rows = np.fromiter((self._rows[each] for each in candidates), dtype=np.intp, count=len(candidates))
        update = vector - self._genesis  # (d,)
        if 4 * len(rows) < len(self._ids):
            products = self._updates[rows] @ update
        else:
            products = (self._updates[: len(self._ids)] @ update)[rows]
        with_genesis, square = self._products(update)
        models, updates, genesis = self._combine(
            products.astype(np.float64)[None, :], self._scalars[rows], np.array([with_genesis]), np.array([square])
        )
        return Similarities(models[0], updates[0], float(genesis[0]))

    def compare_many(self, vectors: Matrix32, candidates: Sequence[Sequence[TxId]]) -> list[Similarities]:
        """Compare several clients' models, each with its own candidates, by one matrix product.

        What each is told is what ``compare`` tells it, to float32's rounding. For clients whose candidates are nearly
        the same: the product is of all models with all candidates of any of them.

        Args:
            vectors: The models' similarity vectors, shape ``(k, d)``.
            candidates: Of each, tips that were added, in any order.

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
        column = np.empty(len(self._ids), dtype=np.intp)  # of a row, in the products
        column[used] = np.arange(len(used))
        updates = vectors - self._genesis  # (k, d)
        products = updates @ self._updates[used].T  # (k, used)
        found: list[Similarities] = []
        for start in range(0, len(updates), _MODELS_AT_ONCE):
            part = slice(start, start + _MODELS_AT_ONCE)
            scalars = np.array([self._products(update) for update in updates[part]])  # (part, 2)
            rows = self._combine(products[part].astype(np.float64), self._scalars[used], scalars[:, 0], scalars[:, 1])
            found += [
                Similarities(models[column[mine]], update[column[mine]], float(genesis))
                for models, update, genesis, mine in zip(*rows, places[part], strict=True)
            ]
        return found

    def _combine(
        self, products: Vector64, scalars: Vector64, with_genesis: Vector64, squares: Vector64
    ) -> tuple[Vector64, Vector64, Vector64]:
        """Cosines of k models with n rows: of models and of updates, ``(k, n)`` each, and with genesis, ``(k,)``.

        ``products`` of updates: ``(k, n)``; ``scalars`` of the rows: ``(n, 2)``; v.g and v.v of the models: ``(k,)``.
        """
        row_genesis, row_square = scalars[:, 0], scalars[:, 1]  # (n,), (n,)
        genesis_square = self._genesis_square
        model_norms = np.sqrt(np.maximum(squares + 2 * with_genesis + genesis_square, 0.0))  # (k,)
        row_norms = np.sqrt(np.maximum(row_square + 2 * row_genesis + genesis_square, 0.0))  # (n,)
        return (
            _quotient(
                products + row_genesis + with_genesis[:, None] + genesis_square, row_norms * model_norms[:, None]
            ),
            _quotient(products, np.sqrt(row_square) * np.sqrt(squares)[:, None]),
            _quotient(with_genesis + genesis_square, model_norms * np.sqrt(genesis_square)),
        )

    def _products(self, update: Vector32) -> tuple[float, float]:
        """u.g and u.u in float64, by blocks: whole float64 copies of a large layer would cost more than the sums."""
        with_genesis = square = 0.0
        for start in range(0, len(update), _BLOCK):
            wide = update[start : start + _BLOCK].astype(np.float64)
            with_genesis += float(wide @ self._genesis[start : start + _BLOCK].astype(np.float64))
            square += float(wide @ wide)
        return with_genesis, square

    def _resize(self, capacity: int) -> None:
        used = len(self._ids)
        updates = np.empty((capacity, len(self._genesis)), dtype=np.float32)
        scalars = np.empty((capacity, 2))
        updates[:used], scalars[:used] = self._updates[:used], self._scalars[:used]
        self._updates, self._scalars = updates, scalars


def _quotient(products: Vector64, norms: Vector64) -> Vector64:
    zeros = np.zeros(products.shape)
    return np.clip(np.divide(products, norms, out=zeros, where=norms > 0), -1.0, 1.0)


def _same_shape(left: Vector32, right: Vector32) -> None:
    if left.ndim != 1 or left.shape != right.shape:
        raise ShapeMismatchError(f"similarity vectors of shapes {left.shape} and {right.shape}")
