"""How alike a client's model is to every tip: two cosines from one matrix-vector product.

Rows are kept as *updates*, c - g: a tip's compared layers minus genesis's. The product with the client's
own update u = x - g gives the update cosine directly, and the paper's cosine of the raw parameters (Eq. 5)
from the same numbers, since <x, c> = <u, c - g> + <u, g> + <g, c - g> + <g, g>. Kept this way round no
digits are lost early in training, when models are nearly equal to genesis.

Norms and products with genesis are computed once, when a row comes in, and combined in float64. A vector
without length has no direction: its similarity to anything is 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_core.errors import ShapeMismatchError
from fl_core.types import Matrix32, TxId, Vector32, Vector64

_FIRST_CAPACITY: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """One model against ``n`` tips, in the order that was asked for.

    Attributes:
        raw: Cosine of the parameters (Eq. 5), shape ``(n,)``, in [-1, 1].
        update: Cosine after genesis was subtracted from both, shape ``(n,)``, in [-1, 1].
        genesis: Cosine of the model's parameters to genesis's.
    """

    raw: Vector64
    update: Vector64
    genesis: float


class TipVectors:
    """The compared layers of all tips: float32, shape ``(n, d)``, contiguous, grown and shrunk a row at a time.

    Args:
        genesis: Genesis's similarity vector, shape ``(d,)``.
    """

    def __init__(self, genesis: Vector32) -> None:
        self._genesis = np.ascontiguousarray(genesis, np.float32)
        self._genesis_squared = _dot(self._genesis, self._genesis)
        self._rows: Matrix32 = np.empty((_FIRST_CAPACITY, genesis.size), np.float32)
        self._squared: Vector64 = np.empty(_FIRST_CAPACITY)  # <c - g, c - g>
        self._along_genesis: Vector64 = np.empty(_FIRST_CAPACITY)  # <c - g, g>
        self._row_of: dict[TxId, int] = {}
        self._ids: list[TxId] = []

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, transaction: TxId) -> bool:
        return transaction in self._row_of

    @property
    def nbytes(self) -> int:
        """Memory of the rows, free capacity included."""
        return int(self._rows.nbytes)

    def add(self, transaction: TxId, vector: Vector32) -> None:
        """Add a tip's similarity vector, shape ``(d,)``; one that is here already stays as it is.

        Raises:
            ShapeMismatchError: The vector has another length than genesis's.
        """
        if vector.shape != self._genesis.shape:
            raise ShapeMismatchError(f"vector of shape {vector.shape}, genesis has {self._genesis.shape}")
        if transaction in self._row_of:
            return
        at = len(self._ids)
        if at == len(self._rows):
            self._resize(2 * at)
        np.subtract(vector, self._genesis, out=self._rows[at])
        self._squared[at] = _dot(self._rows[at], self._rows[at])
        self._along_genesis[at] = _dot(self._rows[at], self._genesis)
        self._row_of[transaction] = at
        self._ids.append(transaction)

    def discard(self, transaction: TxId) -> None:
        """Take a tip out, if it is here; the last row moves into its place."""
        at = self._row_of.pop(transaction, None)
        if at is None:
            return
        last = self._ids.pop()
        if last != transaction:
            end = len(self._ids)
            self._rows[at] = self._rows[end]
            self._squared[at] = self._squared[end]
            self._along_genesis[at] = self._along_genesis[end]
            self._ids[at] = last
            self._row_of[last] = at
        if len(self._ids) < len(self._rows) // 4 and len(self._rows) > _FIRST_CAPACITY:
            self._resize(len(self._rows) // 2)

    def compare(self, vector: Vector32, tips: Sequence[TxId]) -> Similarities:
        """Compare one model, given by its similarity vector of shape ``(d,)``, with the named tips.

        Raises:
            ShapeMismatchError: The vector has another length than genesis's.
            KeyError: A tip is not here (a caller's mistake).
        """
        if vector.shape != self._genesis.shape:
            raise ShapeMismatchError(f"vector of shape {vector.shape}, genesis has {self._genesis.shape}")
        update = vector - self._genesis  # (d,)
        squared, along = _dot(update, update), _dot(update, self._genesis)
        model_squared = squared + 2 * along + self._genesis_squared
        picked = np.fromiter((self._row_of[tip] for tip in tips), np.intp, len(tips))  # (n,)
        products = (self._rows[: len(self._ids)] @ update).astype(np.float64)[picked]  # (n,)
        tip_squared, tip_along = self._squared[picked], self._along_genesis[picked]
        raw = products + along + tip_along + self._genesis_squared
        raw_squared = tip_squared + 2 * tip_along + self._genesis_squared
        return Similarities(
            raw=_cosines(raw, model_squared * raw_squared),
            update=_cosines(products, squared * tip_squared),
            genesis=float(
                _cosines(
                    np.array([along + self._genesis_squared]), np.array([model_squared * self._genesis_squared])
                )[0]
            ),
        )

    def _resize(self, capacity: int) -> None:
        count = len(self._ids)
        for name in ("_rows", "_squared", "_along_genesis"):
            old = getattr(self, name)
            new = np.empty((capacity, *old.shape[1:]), old.dtype)
            new[:count] = old[:count]
            setattr(self, name, new)


def _dot(left: Vector32, right: Vector32) -> float:
    return float(np.dot(left.astype(np.float64), right.astype(np.float64)))


def _cosines(products: Vector64, squared_norms: Vector64) -> Vector64:
    # Below float32's resolution a squared length is rounding, not direction.
    norms = np.sqrt(np.maximum(squared_norms, 0.0))
    cosines = np.divide(products, norms, out=np.zeros(len(products)), where=norms > 0)
    return np.clip(cosines, -1.0, 1.0)
