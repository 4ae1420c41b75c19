"""Cosines by the book, in Python floats; and as they are specified, in fractions: what every processor must arrive at."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Eq. 5; 0 when either vector is zero."""
    norms = math.sqrt(math.fsum(a * a for a in left)) * math.sqrt(math.fsum(b * b for b in right))
    return math.fsum(a * b for a, b in zip(left, right, strict=True)) / norms if norms else 0.0


def update_cosine(left: Sequence[float], right: Sequence[float], genesis: Sequence[float]) -> float:
    """Eq. 5 after genesis was subtracted from both."""
    return cosine(
        [a - g for a, g in zip(left, genesis, strict=True)],
        [b - g for b, g in zip(right, genesis, strict=True)],
    )


def on_grid(vector: Sequence[float]) -> list[Fraction]:
    """Each value rounded, ties to even, to a multiple of 2^(e-26), where 2^e is the least power above the norm."""
    square = sum((Fraction(value) ** 2 for value in vector), Fraction(0))
    exponent = (square.numerator.bit_length() - square.denominator.bit_length()) // 2 - 1
    while Fraction(4) ** exponent <= square:
        exponent += 1
    grid = Fraction(2) ** (exponent - 26)
    return [round(Fraction(value) / grid) * grid for value in vector]


def product(left: Sequence[Fraction], right: Sequence[Fraction]) -> float:
    """The exact sum; that it is a float64, too, is the point."""
    exact = sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))
    assert Fraction(float(exact)) == exact
    return float(exact)


@dataclass(frozen=True)
class Specified:
    """Of one model and one other: cosines of the models, of their updates, and of the model and genesis."""

    models: float
    updates: float
    genesis: float


def specified(
    update: Sequence[float],
    other: Sequence[float],
    genesis: Sequence[float],
    *,
    noise_std: float = 0.0,
    other_noise_std: float = 0.0,
) -> Specified:
    """From two updates (differences that float32 holds) and genesis; after the products, float64 in this order."""
    v, u, g = on_grid(update), on_grid(other), on_grid(genesis)
    vu, vv, uu, vg, ug, gg = (product(*pair) for pair in ((v, u), (v, v), (u, u), (v, g), (u, g), (g, g)))
    mine = math.sqrt(max(vv + 2 * vg + gg, 0.0))
    theirs = math.sqrt(max(uu + 2 * ug + gg, 0.0))
    return Specified(
        models=_quotient(vu + ug + vg + gg, theirs * mine),
        updates=_quotient(
            vu,
            math.sqrt(_less_noise(uu, len(u), other_noise_std)) * math.sqrt(_less_noise(vv, len(v), noise_std)),
        ),
        genesis=_quotient(vg + gg, mine * math.sqrt(gg)),
    )


def _less_noise(square: float, count: int, std: float) -> float:
    return square - min(count * std * std, 0.96 * square)


def _quotient(value: float, norms: float) -> float:
    return min(max(value / norms, -1.0), 1.0) if norms > 0 else 0.0
