"""Selection rules on sequences whose truth is known: what each takes, what it costs, how far BEAST can be shortened.

Sequences are update similarities of other clients' tips to one client, of two kinds. Drawn: clusters of several
sizes, spreads (normal, even, skewed) and gaps, in gaps per standard deviation inside a cluster; every own tip above
every foreign one. Real: perceptrons on rotated digits, in asynchronous training with churn
(``selection_keep_own.py``, where few tips are offered, often none of them the own cluster's) and in rounds (60 clients
of four clusters, all tips offered), each given the average of its own cluster's tips.

Per rule and kind of sequence: *right*: it took all tips of the own cluster and no other; *foreign*: it took a foreign
one. Per BEAST setting: how often its cut is that of the full setting, where BEAST was asked at all; another seed at
full length is the most that can be hoped for. Times are of one search, thread pinned, in turn with ruptures 1.1
(``peers/ruptures_changes.py``). Writes ``benchmarks/results/change_points.json``, from which docs/selection.md has its
tables. Two minutes.

    python benchmarks/change_points.py
"""

import functools
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import harness
import numpy as np
import selection_keep_own as training
from service_round import PEERS, PEERS_PYTHON, make_peers

from fl_core.dag.profiles import SELECTOR
from fl_core.selection import SELECTORS, Candidate, SelectionRequest, TipSelector
from fl_core.selection.beast import BeastParams
from fl_core.selection.change_points import change_point_probabilities
from fl_core.selection.filters import answer_before, first_large, may_change
from fl_core.selection.least_squares import LeastSquares, LeastSquaresParams
from fl_core.selection.ranking import rank
from fl_core.similarity import CandidateVectors
from fl_core.types import AuthorId, TxId, Vector64
from fl_simulator.data.rotated import rotated_digits

SEED = 20
MAX_SELECTED = 1000
"""More than there are candidates, so that a cut is never hidden by the limit."""
SIZES = ((30, 30, 30), (5, 5), (100, 100, 100), (20, 30, 30, 20), (3, 3, 3), (10, 80))
QUICK = {
    "1200 x 2, thin 5": {"samples": 1200, "chains": 2, "thin": 5},
    "1200 x 1, thin 5": {"samples": 1200, "chains": 1, "thin": 5},
    "800 x 2, thin 5": {"samples": 800, "chains": 2, "thin": 5},
    "800 x 1, thin 5": {"samples": 800, "chains": 1, "thin": 5},
    "1200 x 2, thin 1 (default)": {"samples": 1200, "chains": 2, "thin": 1},
    "1200 x 1, thin 1": {"samples": 1200, "chains": 1, "thin": 1},
    "800 x 2, thin 1": {"samples": 800, "chains": 2, "thin": 1},
    "800 x 1, thin 1": {"samples": 800, "chains": 1, "thin": 1},
}
LONG = {"samples": 3000, "chains": 3, "thin": 5}
"""The rules are compared with chains that leave least to chance."""
FULL, OTHER_SEED = "3000 x 3, thin 5", "3000 x 3, thin 5, another seed"
SETTINGS: dict[str, dict[str, int]] = {FULL: LONG, OTHER_SEED: {**LONG, "seed": 7}, **QUICK}
LEAST_SQUARES, KERNEL, PELT = "least squares", "ruptures KernelCPD", "ruptures Pelt"
LENGTHS = (10, 90, 300, 1000)
TARGET_BEAST, TARGET_BEAST_LONG, TARGET_RUPTURES, TARGET_KERNEL, TARGET_AGREEMENT = 50.0, 10.0, 1.0, 0.2, 0.95


@dataclass(frozen=True, slots=True)
class Case:
    """One question, and which of its candidates are of the asking client's cluster."""

    request: SelectionRequest
    is_own: np.ndarray[Any, np.dtype[np.bool_]]


def case(updates: Vector64, is_own: Any, *, models: Vector64 | None = None) -> Case:
    """Similarities of models are the updates' where nothing else is known, as suits rules that see order and steps."""
    candidates = tuple(Candidate(TxId(f"{i:064x}"), AuthorId(f"hash:{i}"), 1, 1) for i in range(len(updates)))
    request = SelectionRequest(
        candidates=candidates,
        similarities=updates if models is None else models,
        update_similarities=updates,
        genesis_similarity=0.9,
        own_averaged=None,
        own_newest=None,
        genesis=TxId("f" * 64),
        max_selected=MAX_SELECTED,
    )
    return Case(request, np.asarray(is_own, dtype=bool))


# -- sequences ------------------------------------------------------------------------------------


def spread(rng: np.random.Generator, count: int) -> Vector64:
    """Noise of standard deviation 1: normal, even, or with a tail towards less similar."""
    match rng.integers(3):
        case 0:
            return rng.normal(size=count)
        case 1:
            return rng.uniform(-np.sqrt(3), np.sqrt(3), count)
    return 1.0 - rng.exponential(size=count)


def drawn(
    rng: np.random.Generator, sizes: Sequence[int], *, gaps_per_sd: tuple[float, float], gap: tuple[float, float]
) -> Case:
    """Clusters one below the other, the first the own one; drawn again until no foreign tip is above an own one."""
    while True:
        first = rng.uniform(*gap)
        sd, others = first / rng.uniform(*gaps_per_sd), rng.uniform(0.5, 2.0)
        levels = 0.92 - np.concatenate(([0.0, first], first + first * others * np.arange(1, len(sizes))))
        parts = [level + sd * spread(rng, size) for level, size in zip(levels, sizes, strict=False)]
        if parts[0].min() > max(part.max() for part in parts[1:]):
            is_own = np.repeat(np.arange(len(sizes)) == 0, sizes)
            return case(np.clip(np.concatenate(parts), -1.0, 1.0), is_own)


def one_cluster(rng: np.random.Generator) -> Case:
    count = int(rng.choice((10, 30, 90)))
    return case(np.clip(0.85 + rng.uniform(0.005, 0.03) * spread(rng, count), -1.0, 1.0), np.ones(count))


def churn(rng: np.random.Generator) -> Case:
    """Few tips, own ones among them or not, at the levels that ADR 0004 found in training."""
    own, foreign = int(rng.integers(0, 4)), int(rng.integers(1, 12))
    high, low = rng.uniform(0.6, 0.95), rng.uniform(0.0, 0.4)
    values = np.concatenate([high + rng.normal(0, 0.03, own), low + rng.normal(0, 0.05, foreign)])
    return case(np.clip(values, -1.0, 1.0), np.arange(own + foreign) < own)


def asynchronous_digits(count: int) -> list[Case]:
    """Questions of ``selection_keep_own.py``'s first task, in the run that selects by the true clusters."""
    seen: list[Case] = []

    def truth(request: SelectionRequest, same: Any) -> list[int]:
        if request.candidates:
            seen.append(case(request.update_similarities, same, models=request.similarities))
        return np.flatnonzero(same).tolist()

    model, load = training.tasks()["rotated digits, 60 samples, 32 hidden"]
    for seed in (SEED, SEED + 1):
        training.Run(load(seed), model, truth, seed).go()
    return some(seen, count)


def digits_in_rounds(count: int) -> list[Case]:
    """60 clients of four clusters, six rounds: all train, then each goes on from its cluster's average."""
    rng = np.random.default_rng(SEED)
    data = rotated_digits(num_clients=60, train_per_client=20, test_per_client=5, seed=SEED)
    clusters = np.array([each.cluster for each in data])
    model = training.Perceptron(64, 32)
    genesis = model.initial(rng)
    starts = [genesis] * len(data)
    seen: list[Case] = []
    for _ in range(6):
        models = [model.train(at, each, training.EPOCHS, rng) for at, each in zip(starts, data, strict=True)]
        tips = CandidateVectors(genesis)
        ids = [TxId(f"{i:064x}") for i in range(len(data))]
        for each, weights in zip(ids, models, strict=True):
            tips.add(each, weights)
        for client, weights in enumerate(models):
            others = [i for i in range(len(data)) if i != client]
            (similar,) = tips.compare(weights[None], [[ids[i] for i in others]])
            seen.append(case(similar.updates, clusters[others] == clusters[client], models=similar.models))
        means = [np.mean([models[i] for i in np.flatnonzero(clusters == k)], axis=0) for k in range(4)]
        starts = [means[k].astype(np.float32) for k in clusters]
    return some(seen, count)


def some(cases: list[Case], count: int) -> list[Case]:
    """``count`` of them, evenly over the run."""
    return [cases[i] for i in np.linspace(0, len(cases) - 1, min(count, len(cases))).astype(int)]


def kinds(count: int) -> dict[str, list[Case]]:
    rng = np.random.default_rng(SEED)
    wide, clear, weak = (0.1, 0.3), (10.0, 100.0), (3.0, 10.0)
    return {
        "30/30/30": [drawn(rng, SIZES[0], gaps_per_sd=clear, gap=wide) for _ in range(count)],
        "other sizes": [drawn(rng, SIZES[1 + i % 5], gaps_per_sd=clear, gap=wide) for i in range(count)],
        "weak": [drawn(rng, SIZES[i % 6], gaps_per_sd=weak, gap=wide) for i in range(count)],
        "one cluster": [one_cluster(rng) for _ in range(count)],
        "churn": [churn(rng) for _ in range(count)],
        "digits, asynchronous": asynchronous_digits(count),
        "digits, rounds": digits_in_rounds(count),
    }


# -- rules ----------------------------------------------------------------------------------------


@functools.cache
def _remembered(sequence: bytes, priors: Any) -> Vector64:
    return change_point_probabilities(np.frombuffer(sequence), priors)


def remembering(sequence: Vector64, priors: Any) -> Vector64:
    """BEAST, asked once about one sequence; rules that differ in alpha alone share the answer."""
    return _remembered(np.ascontiguousarray(sequence).tobytes(), priors)


def rules() -> dict[str, TipSelector]:
    listed: dict[str, tuple[str, dict[str, Any]]] = {
        **{
            f"literal, alpha {alpha}": ("beast", {**LONG, "rule": "literal", "alpha": alpha})
            for alpha in (0.3, 0.5, 0.9)
        },
        "literal, default of Rbeast's priors": (
            "beast",
            {
                **LONG,
                "rule": "literal",
                "trend_order_max": 1,
                "changepoints_max": 10,
                "min_segment_length": 3,
                "left_margin": 3,
                "right_margin": 3,
            },
        ),
        "robust": ("beast", {**LONG}),
        "robust, no floor": ("beast", {**LONG, "min_update_similarity": -1.0}),
        "least squares": ("least-squares", {}),
        "least squares, min_tips 4 (new ledgers)": ("least-squares", dict(SELECTOR.params)),
        "least squares, no floor": ("least-squares", {"min_update_similarity": -1.0}),
        "largest gap": ("largest-gap", {}),
        "largest gap, no floor": ("largest-gap", {"min_update_similarity": -1.0}),
        "first half gap": ("largest-gap", {"gap_filter": 0.5}),
        "floor alone": ("largest-gap", {"min_drop": 2.0}),
        "top-k, k 1": ("top-k", {"k": 1}),
        "top-k, k 5": ("top-k", {"k": 5}),
        "top-k, k 14": ("top-k", {"k": 14}),
    }
    return {title: SELECTORS.build(name, params, detect=remembering) for title, (name, params) in listed.items()}


def taken(selector: TipSelector, each: Case) -> list[int]:
    """Places of the candidates that a rule takes."""
    return [int(one.transaction, 16) for one in selector.choose(each.request).candidates if one.selected]


def judged(cases: Sequence[Case], takes: Sequence[Sequence[int]]) -> dict[str, float]:
    """Shares of the questions, and of the own tips on offer."""
    own = [int(each.is_own[list(took)].sum()) for each, took in zip(cases, takes, strict=True)]
    offered = [int(each.is_own.sum()) for each in cases]
    foreign = [len(took) > mine for took, mine in zip(takes, own, strict=True)]
    right = [mine == all_ and not bad for mine, all_, bad in zip(own, offered, foreign, strict=True)]
    share = [mine / all_ for mine, all_ in zip(own, offered, strict=True) if all_]
    figures = {"right": np.mean(right), "foreign": np.mean(foreign), "own_share": np.mean(share)}
    return {name: round(float(value), 3) for name, value in figures.items()}


# -- ruptures -------------------------------------------------------------------------------------


class Peer:
    """ruptures in its own environment, with some sequences in its hands."""

    def __init__(self, process: subprocess.Popen[str], sequences: Sequence[Vector64]) -> None:
        self._process = process
        self.spent_s: dict[str, list[float]] = {}
        self._tell(json.dumps({"sequences": [each.tolist() for each in sequences]}))

    def search(self, name: str) -> dict[str, Any]:
        """One pass over all sequences: its seconds by its own clock, and the changes of each."""
        answer = self._tell(name)
        self.spent_s.setdefault(name, []).append(answer["seconds"])
        return answer

    def _tell(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None, "a pipe"
        assert self._process.stdout is not None, "a pipe"
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("ruptures' process ended; is it installed? `make bench-peers`")
        return dict(json.loads(answer))


@contextmanager
def peer(sequences: Sequence[Vector64]) -> Iterator[Peer]:
    make_peers()
    command = [str(PEERS_PYTHON), str(PEERS / "ruptures_changes.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Peer(process, sequences)
        assert process.stdin is not None, "a pipe"
        process.stdin.close()


def taken_by_ruptures(cases: Sequence[Case]) -> list[list[int]]:
    """What KernelCPD's changes come to behind the same filters and floor."""
    heads = [ranked(each) for each in cases]
    filters = LeastSquaresParams()
    asked = [may_change(head, min_drop=filters.min_drop) for head in heads]
    with peer([head for head, is_asked in zip(heads, asked, strict=True) if is_asked]) as ruptures:
        answers = iter(ruptures.search("kernel")["changes"])
    takes = []
    for each, head, is_asked in zip(cases, heads, asked, strict=True):
        changes = np.array(next(answers) if is_asked else [], dtype=np.intp)
        selection = answer_before(
            each.request,
            rank(each.request.update_similarities),
            filters,
            change=first_large(head, changes, gap_filter=filters.gap_filter, min_drop=filters.min_drop),
            rule="ruptures",
        )
        takes.append([int(one.transaction, 16) for one in selection.candidates if one.selected])
    return takes


def ranked(each: Case) -> Vector64:
    return np.sort(each.request.update_similarities)[::-1]


# -- measurements ---------------------------------------------------------------------------------


def compare_rules(cases: Mapping[str, Sequence[Case]]) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for title, selector in rules().items():
        found[title] = {kind: judged(some_, [taken(selector, each) for each in some_]) for kind, some_ in cases.items()}
    found["KernelCPD, same filters"] = {kind: judged(some_, taken_by_ruptures(some_)) for kind, some_ in cases.items()}
    return found


def compare_settings(cases: Mapping[str, Sequence[Case]]) -> dict[str, dict[str, dict[str, float]]]:
    """Per setting and kind: share of cuts equal to the full setting's where BEAST is asked; right; foreign."""
    selectors = {name: SELECTORS.build("beast", params, detect=remembering) for name, params in SETTINGS.items()}
    selectors[LEAST_SQUARES] = SELECTORS.build("least-squares", {})
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in selectors}
    for kind, some_ in cases.items():
        asked = [each for each in some_ if may_change(ranked(each), min_drop=BeastParams().min_drop)]
        if not asked:
            continue
        reference: list[list[int]] = []
        for name, selector in selectors.items():
            takes = [taken(selector, each) for each in asked]
            reference = reference or takes
            same = float(np.mean([left == right for left, right in zip(takes, reference, strict=True)]))
            found[name][kind] = {"same": round(same, 3), "asked": len(asked), **judged(asked, takes)}
    return found


def overall(by_kind: Mapping[str, Mapping[str, float]]) -> float:
    """Share of equal cuts over all questions that were asked."""
    asked = sum(each["asked"] for each in by_kind.values())
    return sum(each["same"] * each["asked"] for each in by_kind.values()) / asked


def time_searches(result: harness.Result, *, repeats: int) -> dict[str, dict[str, float]]:
    """Milliseconds of one search by length, best of the repeats: the rest is the machine's other work.

    Three clusters of a third each, gap twenty times the spread.
    """
    rng = np.random.default_rng(SEED)
    milliseconds: dict[str, dict[str, float]] = {}
    for length in LENGTHS:
        third = length // 3
        levels = np.repeat((0.9, 0.7, 0.5), (third, third, length - 2 * third))
        sequences = [np.sort(levels + rng.normal(0, 0.01, length))[::-1] for _ in range(5)]
        with peer(sequences) as ruptures:
            work = searches(sequences, ruptures, with_pelt=length <= 90)
            timings = harness.interleave(work, repeats=repeats, warmup=1)
            for name, search in ((KERNEL, "kernel"), (PELT, "pelt")):
                if name in timings:  # without the way to its process and back
                    timings[name] = harness.Timing(tuple(ruptures.spent_s[search][1:]))
        for name, timing in timings.items():
            result.timings[f"{name}, n {length}, five sequences"] = timing
            milliseconds.setdefault(name, {})[str(length)] = round(timing.min_s / len(sequences) * 1e3, 4)
    return milliseconds


def searches(sequences: Sequence[Vector64], ruptures: Peer, *, with_pelt: bool) -> dict[str, Callable[[], object]]:
    """One pass over the sequences by each contender."""

    def beast(params: dict[str, int]) -> Callable[[], object]:
        priors = BeastParams(**params)  # type: ignore[arg-type]
        return lambda: [change_point_probabilities(each, priors) for each in sequences]

    rule = LeastSquares()
    work: dict[str, Callable[[], object]] = {
        **{name: beast(params) for name, params in SETTINGS.items() if name != OTHER_SEED},
        LEAST_SQUARES: lambda: [rule.changes(each) for each in sequences],
        KERNEL: lambda: ruptures.search("kernel"),
    }
    return {**work, PELT: lambda: ruptures.search("pelt")} if with_pelt else work


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200, help="sequences of each kind")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    result = harness.Result(
        "change_points", "Selection rules and change-point searches on known sequences", options.date
    )
    cases = kinds(options.cases)
    result.facts["sequences"] = {
        kind: {
            "count": len(some_),
            "longest": max(len(each.is_own) for each in some_),
            "shortest": min(len(each.is_own) for each in some_),
        }
        for kind, some_ in cases.items()
    }
    result.facts["milliseconds"] = time_searches(result, repeats=options.repeats)
    result.facts["rules"] = compare_rules(cases)
    result.facts["settings"] = compare_settings(cases)
    result.facts["same cut as the longest"] = {
        name: round(overall(by_kind), 4) for name, by_kind in result.facts["settings"].items()
    }
    milliseconds = result.facts["milliseconds"]
    for title, slow, length, target in (
        ("BEAST / least squares, n 90", FULL, "90", TARGET_BEAST),
        ("BEAST / least squares, n 1000", FULL, "1000", TARGET_BEAST_LONG),
        ("ruptures' Pelt (Python) / least squares, n 90", PELT, "90", TARGET_RUPTURES),
        ("ruptures' KernelCPD (C) / least squares, n 90", KERNEL, "90", TARGET_KERNEL),
    ):
        ratio = milliseconds[slow][length] / milliseconds[LEAST_SQUARES][length]
        result.ratios.append(harness.Ratio(title, ratio, target, "at least", "best of one search"))
    for name in (*QUICK, LEAST_SQUARES):
        same = result.facts["same cut as the longest"][name]
        result.ratios.append(
            harness.Ratio(
                f"same cut as BEAST's longest: {name}", same, TARGET_AGREEMENT, "at least", "where BEAST is asked"
            )
        )
    print(result.write())


if __name__ == "__main__":
    main()
