"""Robust aggregation of 30 models of 13 MB against what one would write in NumPy, and how each rule stands attacks.

Time: each rule against the naive expression over a stacked array, in turn, one thread and two. For Krum there are
three: each row against the stacked array (what broadcasting gives), a loop over pairs with ``np.linalg.norm``, and a
Gram matrix. The latter two use BLAS, whose sums differ between CPUs; they stand beside as information.
Memory: the peak of one call (``tracemalloc``) with models that are read in pieces, against all models held at once.
Attacks: f of 30 models are replaced, and the error is the distance of the aggregate from the honest models' mean, in
units of an honest model's own distance from it: 1 is as bad as one honest model taken at random.
Writes ``benchmarks/results/robust_aggregation.json``.

    python benchmarks/robust_aggregation.py
"""

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import harness
import numpy as np
from numpy.typing import NDArray

from fl_core.aggregation import AGGREGATORS, ArraySource, VectorSource
from fl_core.aggregation.span_pool import SpanPool
from fl_core.types import JsonScalar, Vector32

MODELS = 30
VALUES = 13_000_000 // 4
FASTER = 2.0
SHARE_OF_MODELS = 0.1

FEW = 20_000
LIARS = (0, 1, 3, 6, 9, 12, 14, 15, 18)
PREPARED_FOR = 9
"""Liars that the parameters reckon with: a share of 0.3 is trimmed at either end, f = 9."""
RULES: Mapping[str, tuple[str, Mapping[str, JsonScalar]]] = {
    "fedavg": ("fedavg", {}),
    "median": ("median", {}),
    "trimmed-mean": ("trimmed-mean", {"trim_share": PREPARED_FOR / MODELS}),
    "krum": ("krum", {"byzantine": PREPARED_FOR}),
    "multi-krum": ("multi-krum", {"byzantine": PREPARED_FOR}),
}


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    what = f"Robust aggregation of {MODELS} models of {VALUES * 4:,} bytes"
    result = harness.Result("robust_aggregation", what, options.date)
    stacked = np.random.default_rng(7).standard_normal((MODELS, VALUES), dtype=np.float32)
    measure_time(result, stacked, repeats=options.repeats)
    measure_memory(result, stacked)
    del stacked
    table = errors_under_attack()
    result.facts["error under attack"] = table
    print(result.write())
    for attack, rows in table.items():
        print(f"\n{attack}: error by number of liars among {MODELS}")
        harness.print_table(("rule", *map(str, LIARS)), [(rule, *map(shown, row)) for rule, row in rows.items()])


# -- time and memory ------------------------------------------------------------------------------


def measure_time(result: harness.Result, stacked: NDArray[np.float32], *, repeats: int) -> None:
    sources = [ArraySource(row) for row in stacked]
    weights = [1.0] * MODELS
    naive: dict[str, Callable[[], object]] = {
        "median": lambda: np.median(stacked, axis=0),
        "trimmed-mean": lambda: np.partition(stacked, (6, 23), axis=0)[6:24].mean(axis=0),
        "krum": lambda: [((stacked - row) ** 2).sum(axis=1) for row in stacked],
    }
    ours = {
        f"{name}, {threads} thread{'s' * (threads > 1)}": AGGREGATORS.build(name, {}, pool=SpanPool(threads))
        for name in naive
        for threads in (1, 2)
    }
    work: dict[str, Callable[[], object]] = {f"naive {name}": call for name, call in naive.items()}
    work |= {name: partial(rule.aggregate, sources, weights) for name, rule in ours.items()}
    work["distances by BLAS, pair by pair, for information"] = lambda: by_pairs(stacked)
    work["distances by BLAS, Gram matrix, for information"] = lambda: by_gram(stacked)
    times = harness.interleave(work, repeats=repeats)
    result.timings |= times
    basis = "p50 of the naive expression, which has one thread / of ours"
    for name, rule in ours.items():
        ratio = times[f"naive {rule.name}"].median_s / times[name].median_s
        result.ratios.append(harness.Ratio(f"{name}, times as fast", ratio, FASTER, "at least", basis))
    for name in ("pair by pair", "Gram matrix"):
        blas = times[f"distances by BLAS, {name}, for information"].median_s
        result.facts[f"BLAS {name} / krum, 1 thread"] = round(blas / times["krum, 1 thread"].median_s, 2)
        result.facts[f"BLAS {name} / krum, 2 threads"] = round(blas / times["krum, 2 threads"].median_s, 2)


def by_pairs(stacked: NDArray[np.float32]) -> None:
    for one in range(MODELS):
        for other in range(one + 1, MODELS):
            np.linalg.norm(stacked[one] - stacked[other])


def by_gram(stacked: NDArray[np.float32]) -> None:
    norms = np.square(stacked).sum(axis=1)
    _ = norms[:, None] + norms - 2 * stacked @ stacked.T


@dataclass(frozen=True, slots=True, eq=False)
class CopyingSource:
    """A model whose pieces are new arrays, as those read from a store are."""

    values: Vector32

    @property
    def size(self) -> int:
        return len(self.values)

    def read(self, start: int, stop: int) -> Vector32:
        return self.values[start:stop].copy()


def measure_memory(result: harness.Result, stacked: NDArray[np.float32]) -> None:
    sources = [CopyingSource(row) for row in stacked]
    for name in ("median", "trimmed-mean", "krum", "multi-krum"):
        rule = AGGREGATORS.build(name, {})
        tracemalloc.start()
        rule.aggregate(sources, [1.0] * MODELS)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        result.facts[f"peak bytes, {name}"] = peak
        result.ratios.append(
            harness.Ratio(
                f"{name}, peak memory with the result",
                peak / stacked.nbytes,
                SHARE_OF_MODELS,
                "at most",
                "bytes of one call that reads in pieces / of all models",
            )
        )


# -- attacks --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """Genesis, and what honest authors have made of it."""

    genesis: Vector32
    honest: NDArray[np.float32]
    rng: np.random.Generator


Attack = Callable[[Scene, int], NDArray[np.float32]]


def scaled_copy(scene: Scene, liars: int) -> NDArray[np.float32]:
    """An honest model a million times as large: its cosine is 1."""
    return np.repeat(1e6 * scene.honest[:1], liars, axis=0)


def grown_copy(scene: Scene, liars: int) -> NDArray[np.float32]:
    """Ten times as large: what the default policy lets by."""
    return np.repeat(10 * scene.honest[:1], liars, axis=0)


def sign_flip(scene: Scene, liars: int) -> NDArray[np.float32]:
    """What was learned, in the other direction."""
    return np.repeat(2 * scene.genesis[None] - scene.honest.mean(axis=0), liars, axis=0)


def gaussian(scene: Scene, liars: int) -> NDArray[np.float32]:
    """Noise around genesis, three times the length of an honest update, each liar another."""
    length = float(3 * np.sqrt(np.square(scene.honest[0] - scene.genesis).mean()))
    return scene.genesis + length * scene.rng.standard_normal((liars, FEW), dtype=np.float32)


def a_little(scene: Scene, liars: int) -> NDArray[np.float32]:
    """All liars at the honest mean less one standard deviation (Baruch et al., A Little Is Enough, 2019)."""
    shifted = scene.honest.mean(axis=0) - scene.honest.std(axis=0)
    return np.repeat(shifted[None], liars, axis=0)


ATTACKS: Mapping[str, Attack] = {
    "scaled copy, 10^6": scaled_copy,
    "scaled copy, 10": grown_copy,
    "sign flip": sign_flip,
    "Gaussian noise": gaussian,
    "a little is enough": a_little,
}


def errors_under_attack() -> dict[str, dict[str, list[float]]]:
    """Of each attack and rule, the error for every number of ``LIARS``."""
    return {name: {rule: [error(attack, rule, f) for f in LIARS] for rule in RULES} for name, attack in ATTACKS.items()}


def error(attack: Attack, rule: str, liars: int) -> float:
    rng = np.random.default_rng(liars)
    genesis = rng.standard_normal(FEW, dtype=np.float32)
    learned = genesis + 0.5 * rng.standard_normal(FEW, dtype=np.float32)
    honest = learned + 0.2 * rng.standard_normal((MODELS - liars, FEW), dtype=np.float32)
    lies = attack(Scene(genesis, honest, rng), liars).astype(np.float32)
    models = rng.permutation(np.concatenate([lies, honest]))
    name, params = RULES[rule]
    sources: Sequence[VectorSource] = [ArraySource(model) for model in models]
    aggregate = AGGREGATORS.build(name, params).aggregate(sources, [1.0] * MODELS).astype(np.float64)
    middle = honest.mean(axis=0, dtype=np.float64)
    own = np.sqrt(np.square(honest - middle).sum(axis=1).mean())
    return round(float(np.linalg.norm(aggregate - middle) / own), 3)


def shown(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0e}"


if __name__ == "__main__":
    main()
