"""When does a client resemble nobody? Selection rules compared in asynchronous training with churn.

Every rule is run in the same virtual time: a client asks, trains on what it is given, publishes and waits;
about two of sixteen train at once, a fifth of the pauses is eight times as long, and all members of one cluster but
one stop after their third transaction, so that the last one sees foreign tips only. Training is plain SGD
on a one-hidden-layer perceptron in NumPy; similarity covers all layers. Tasks: rotated digits (in the
package) and, when MNIST's IDX files lie in the data cache, label clusters with like (type I) and unlike
(type II) label shares, and rotated MNIST.

Per rule, over all selections of all seeds:

* foreign: share of selections that took a foreign cluster's model;
* foreign_when_alone: the same among those where no tip of the own cluster was on offer;
* alone: share of selections that took nobody although the own cluster had a tip;
* joiner_alone: the same among first selections;
* mr: mean satisfaction rate (Eq. 7);
* found: share of runs whose Louvain clusters are the true ones;
* accuracy: of the clients' last models on their own test samples, and its standard deviation over seeds;
  last_of_cluster: of the one left behind.

First with tips on offer (ADR 4). Then with each author's newest, as ledgers have it by default (ADR 74), by least
squares with ``min_tips`` 4: there those who stop stay on offer, and hardly anybody meets foreign updates only.

Writes ``benchmarks/results/selection_keep_own.json``. About five minutes on one core.

    OMP_NUM_THREADS=1 python benchmarks/selection_keep_own.py
"""

import heapq
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from numpy.typing import NDArray

from fl_core import clusters
from fl_core.dag.profiles import SELECTOR
from fl_core.selection import SELECTORS, Candidate, SelectionRequest
from fl_core.similarity import CandidateVectors
from fl_core.types import AuthorId, TxId, Vector32
from fl_simulator.data.rotated import ClientData, rotated_digits

SEEDS = (10, 11, 12)
TRANSACTIONS = 12
EPOCHS = 5
LEARNING_RATE = 0.1
BATCH = 10
AT_ONCE = 2.0
LONG_PAUSES, LONG_PAUSE = 0.2, 8.0
LEFT_BEHIND = 1
MAX_SELECTED = 30
GENESIS = TxId("0" * 64)
OUT = Path(__file__).resolve().parent / "results" / "selection_keep_own.json"

Compared = Callable[[Vector32], Vector32]
"""What of a model is compared."""
Chooser = Callable[[SelectionRequest, "np.ndarray[Any, np.dtype[np.bool_]]"], Sequence[int]]


@dataclass(frozen=True)
class Perceptron:
    """One hidden layer of ReLUs; all weights in one flat vector."""

    inputs: int
    hidden: int
    labels: int = 10

    def initial(self, rng: np.random.Generator) -> Vector32:
        first, second = 1 / np.sqrt(self.inputs), 1 / np.sqrt(self.hidden)
        return np.concatenate(
            [
                rng.uniform(-first, first, (self.inputs + 1) * self.hidden),
                rng.uniform(-second, second, (self.hidden + 1) * self.labels),
            ]
        ).astype(np.float32)

    def parts(self, weights: Vector32) -> tuple[Vector32, Vector32, Vector32, Vector32]:
        a = self.inputs * self.hidden
        b = a + self.hidden
        c = b + self.hidden * self.labels
        return (
            weights[:a].reshape(self.inputs, self.hidden),
            weights[a:b],
            weights[b:c].reshape(self.hidden, self.labels),
            weights[c:],
        )

    def train(self, weights: Vector32, data: ClientData, epochs: int, rng: np.random.Generator) -> Vector32:
        weights = weights.copy()
        w1, b1, w2, b2 = self.parts(weights)
        inputs, targets = flat(data.train_x), np.eye(self.labels, dtype=np.float32)[data.train_y]
        for _ in range(epochs):
            order = rng.permutation(len(inputs))
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                x = inputs[rows]
                before = x @ w1 + b1
                after = np.maximum(before, 0)
                scores = after @ w2 + b2
                odds = np.exp(scores - scores.max(axis=1, keepdims=True))
                error = (odds / odds.sum(axis=1, keepdims=True) - targets[rows]) / len(rows)
                back = (error @ w2.T) * (before > 0)
                w2 -= LEARNING_RATE * (after.T @ error)
                b2 -= LEARNING_RATE * error.sum(axis=0)
                w1 -= LEARNING_RATE * (x.T @ back)
                b1 -= LEARNING_RATE * back.sum(axis=0)
        return weights

    def accuracy(self, weights: Vector32, data: ClientData) -> float:
        w1, b1, w2, b2 = self.parts(weights)
        scores = np.maximum(flat(data.test_x) @ w1 + b1, 0) @ w2 + b2
        return float((scores.argmax(axis=1) == data.test_y).mean())


def flat(images: Vector32) -> Vector32:
    return images.reshape(len(images), -1)


@dataclass
class Site:
    """A published model; ``id`` counts publications, so that ids ascend with time."""

    id: TxId
    author: int
    sequence: int
    model: Vector32
    approved: bool = False


@dataclass(frozen=True)
class Event:
    """One selection: tips of the own cluster on offer, taken from it, taken in all."""

    joiner: bool
    own_offered: int
    own_taken: int
    taken: int


class Run:
    """One federation in virtual time."""

    def __init__(
        self,
        data: Sequence[ClientData],
        model: Any,
        choose: Chooser,
        seed: int,
        compared: Compared = lambda each: each,
        *,
        by_newest: bool = False,
    ) -> None:
        self.data, self.model, self.choose, self.compared = data, model, choose, compared
        self.by_newest = by_newest
        self.rng = np.random.default_rng(seed)
        self.genesis = model.initial(self.rng)
        self.tips = CandidateVectors(compared(self.genesis))
        self.newest: list[Site | None] = [None] * len(data)
        self.events: list[Event] = []
        self.approvals: list[tuple[AuthorId, list[AuthorId | None]]] = []
        self.published = 0
        self.levels: dict[str, list[float]] = {"own": [], "foreign": []}

    def go(self) -> None:
        idle = len(self.data) / AT_ONCE - 1
        order = count()
        queue: list[tuple[float, int, str, int, Any]] = []
        for client in range(len(self.data)):
            joins = self.rng.uniform(0, len(self.data) / AT_ONCE)
            heapq.heappush(queue, (joins, next(order), "ask", client, None))
        while queue:
            now, _, what, client, given = heapq.heappop(queue)
            if what == "ask":
                done = now + self.rng.uniform(0.5, 1.5)
                heapq.heappush(queue, (done, next(order), "publish", client, self.work(client)))
                continue
            site = self.publish(client, *given)
            left = self.data[client].cluster == LEFT_BEHIND and client != LEFT_BEHIND and site.sequence >= 2
            if site.sequence + 1 < TRANSACTIONS and not left:
                wait = self.rng.exponential(idle)
                if self.rng.random() < LONG_PAUSES:
                    wait += self.rng.exponential(idle * LONG_PAUSE)
                heapq.heappush(queue, (now + wait, next(order), "ask", client, None))

    def work(self, client: int) -> tuple[Vector32, list[Site]]:
        own = self.newest[client]
        data = self.data[client]
        mine = self.model.train(self.genesis, data, EPOCHS, self.rng) if own is None else own.model
        offered = sorted(
            (site for site in self.newest if site and site.author != client and (self.by_newest or not site.approved)),
            key=lambda site: site.id,
        )
        request = self.ask(client, mine, offered)
        same = np.array([self.data[site.author].cluster == data.cluster for site in offered], dtype=bool)
        for level, is_own in zip(request.update_similarities, same, strict=True):
            self.levels["own" if is_own else "foreign"].append(float(level))
        taken = [offered[place] for place in self.choose(request, same)]
        own_taken = sum(self.data[site.author].cluster == data.cluster for site in taken)
        self.events.append(Event(own is None, int(same.sum()), own_taken, len(taken)))
        parents = taken + ([own] if request.own_averaged is not None and own is not None and taken else [])
        start = np.stack([site.model for site in parents]).mean(axis=0, dtype=np.float32) if parents else mine
        if not taken and own is not None:
            parents = [own]
        return self.model.train(start, data, EPOCHS, self.rng), parents

    def ask(self, client: int, mine: Vector32, offered: Sequence[Site]) -> SelectionRequest:
        own = self.newest[client]
        (similar,) = self.tips.compare(self.compared(mine)[None], [[site.id for site in offered]])
        own_averaged = own.id if own is not None and not own.approved else None
        return SelectionRequest(
            candidates=tuple(
                Candidate(site.id, name(site.author), site.sequence, site.sequence + 1) for site in offered
            ),
            similarities=similar.models,
            update_similarities=similar.updates,
            genesis_similarity=similar.genesis,
            own_averaged=own_averaged,
            own_newest=own.id if own else None,
            genesis=GENESIS,
            max_selected=MAX_SELECTED,
        )

    def publish(self, client: int, model: Vector32, parents: list[Site]) -> Site:
        before = self.newest[client]
        self.published += 1
        site = Site(TxId(f"{self.published:064x}"), client, 0 if before is None else before.sequence + 1, model)
        if before is not None:
            self.tips.discard(before.id)
        self.tips.add(site.id, self.compared(model))
        self.newest[client] = site
        for parent in parents:
            parent.approved = True
        self.approvals.append((name(client), [name(parent.author) for parent in parents]))
        return site


def name(client: int) -> AuthorId:
    return AuthorId(f"client-{client:02}")


def by_selector(name: str = "beast", /, **params: Any) -> Chooser:
    selector = SELECTORS.build(name, params)

    def choose(request: SelectionRequest, _: object) -> list[int]:
        place = {each.transaction: index for index, each in enumerate(request.candidates)}
        return [place[each.transaction] for each in selector.choose(request).candidates if each.selected]

    return choose


RULES: dict[str, Chooser] = {
    "truth": lambda _, same: np.flatnonzero(same).tolist(),
    "literal, nt 1": by_selector(rule="literal"),
    "literal, nt 2, alpha .3": by_selector(rule="literal", alpha=0.3, min_tips=2),
    "robust without floor": by_selector(min_update_similarity=-1.0),
    "nearer than genesis (Eq. 5)": lambda request, _: np.flatnonzero(
        request.similarities > request.genesis_similarity
    ).tolist(),
    **{f"robust, floor {floor}": by_selector(min_update_similarity=floor) for floor in (0.4, 0.45, 0.5, 0.55, 0.6)},
    "floor 0.5 without change point": lambda request, _: np.flatnonzero(request.update_similarities >= 0.5).tolist(),
}


RULES_BY_NEWEST: dict[str, Chooser] = {
    "truth": RULES["truth"],
    "floor 0.5": by_selector(SELECTOR.name, **SELECTOR.params),
    "floor 0.35": by_selector(SELECTOR.name, **SELECTOR.params, min_update_similarity=0.35),
    "alone 0.35": by_selector(SELECTOR.name, **SELECTOR.params, min_update_similarity_alone=0.35),
    "alone 0.2": by_selector(SELECTOR.name, **SELECTOR.params, min_update_similarity_alone=0.2),
}
"""As the profiles of new ledgers have it, and with other floors."""


def images_of(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The training part of MNIST or Fashion-MNIST; nothing where its files are not here."""
    root = Path(os.environ.get("DAG_ACFL_DATA", Path.home() / ".cache/dag-acfl/data")) / name
    images, labels = root / "train-images-idx3-ubyte", root / "train-labels-idx1-ubyte"
    if not (images.exists() and labels.exists()):
        return np.zeros(0, np.float32), np.zeros(0, np.int64)
    pixels = np.fromfile(images, dtype=np.uint8)[16:].reshape(-1, 28, 28)
    return pixels.astype(np.float32) / np.float32(255), np.fromfile(labels, dtype=np.uint8)[8:].astype(np.int64)


def label_clusters(seed: int, *, alike: bool, name: str = "mnist") -> list[ClientData]:
    """The paper's superclasses {0,1,2}, {3,4,5}, {6..9}; ``alike`` is type I, else Dirichlet(0.7) shares."""
    images, labels = images_of(name)
    rng, groups = np.random.default_rng(seed), ((0, 1, 2), (3, 4, 5), (6, 7, 8, 9))
    clients = []
    for client in range(12):
        group = groups[client % 3]
        shares = np.full(len(group), 1 / len(group)) if alike else rng.dirichlet([0.7] * len(group))
        counts = rng.multinomial(160, shares)
        rows = np.concatenate(
            [
                rng.choice(np.flatnonzero(labels == label), each, replace=False)
                for label, each in zip(group, counts, strict=True)
            ]
        )
        rows = rng.permutation(rows)
        train, test = rows[:60], rows[60:]
        clients.append(ClientData(images[train], labels[train], images[test], labels[test], client % 3))
    return clients


def rotated_images(seed: int, *, name: str = "mnist") -> list[ClientData]:
    images, labels = images_of(name)
    rng, clients = np.random.default_rng(seed), []
    for client in range(12):
        rows = rng.choice(len(labels), 260, replace=False)
        turned = np.ascontiguousarray(np.rot90(images[rows], client % 4, axes=(1, 2)))
        clients.append(ClientData(turned[:160], labels[rows[:160]], turned[160:], labels[rows[160:]], client % 4))
    return clients


def turned_digits(train: int) -> Callable[[int], list[ClientData]]:
    return lambda seed: rotated_digits(train_per_client=train, seed=seed)


def tasks() -> dict[str, tuple[Perceptron, Callable[[int], Sequence[ClientData]]]]:
    listed: dict[str, tuple[Perceptron, Callable[[int], Sequence[ClientData]]]] = {
        f"rotated digits, {train} samples, {hidden} hidden": (
            Perceptron(64, hidden),
            turned_digits(train),
        )
        for train, hidden in ((60, 32), (20, 32), (60, 16))
    }
    if len(images_of("mnist")[1]):
        listed["MNIST labels, type I"] = (Perceptron(784, 32), lambda seed: label_clusters(seed, alike=True))
        listed["MNIST labels, type II"] = (
            Perceptron(784, 32),
            lambda seed: label_clusters(seed, alike=False),
        )
        listed["rotated MNIST"] = (Perceptron(784, 64), rotated_images)
    return listed


def measure(
    model: Any,
    load: Callable[[int], Sequence[ClientData]],
    choose: Chooser,
    compared: Compared = lambda each: each,
    *,
    by_newest: bool = False,
) -> dict[str, float]:
    events: list[Event] = []
    accuracy, last, found = [], [], []
    levels: dict[str, list[float]] = {"own": [], "foreign": []}
    for seed in SEEDS:
        data = load(seed)
        run = Run(data, model, choose, seed, compared, by_newest=by_newest)
        run.go()
        events += run.events
        for whose, values in run.levels.items():
            levels[whose] += values
        models = [site.model for site in run.newest if site is not None]
        each = [model.accuracy(weights, mine) for weights, mine in zip(models, data, strict=True)]
        accuracy.append(np.mean(each))
        last.append(each[LEFT_BEHIND])
        truth = {name(client): mine.cluster for client, mine in enumerate(data)}
        partition = clusters.find_clusters(clusters.count_approvals(run.approvals))
        found.append(partition == clusters.partition_by(truth))
    offered = [event for event in events if event.own_offered]
    joiners = [event for event in offered if event.joiner]
    without = [event for event in events if not event.own_offered]
    figures = {
        "foreign": np.mean([event.taken > event.own_taken for event in events]),
        "foreign_when_alone": np.mean([event.taken > 0 for event in without]),
        "alone": np.mean([event.own_taken == 0 for event in offered]),
        "joiner_alone": np.mean([event.own_taken == 0 for event in joiners]),
        "mr": np.mean([event.own_taken / event.own_offered for event in offered]),
        "found": np.mean(found),
        "accuracy": np.mean(accuracy),
        "accuracy_sd": np.std(accuracy, ddof=1),
        "last_of_cluster": np.mean(last),
        "own_similarity_p05": np.quantile(levels["own"], 0.05),
        "foreign_similarity_p95": np.quantile(levels["foreign"], 0.95),
    }
    return {key: round(float(value), 3) for key, value in figures.items()}


def main() -> None:
    results: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for offered, rules in (("tips", RULES), ("newest", RULES_BY_NEWEST)):
        results[offered] = {}
        for task, (model, load) in tasks().items():
            results[offered][task] = {}
            for rule, choose in rules.items():
                found = measure(model, load, choose, by_newest=offered == "newest")
                results[offered][task][rule] = found
                print(f"{offered:6} {task:38} {rule:32} {found}", flush=True)
    document = {
        "what": "selection rules in asynchronous training with churn",
        "seeds": SEEDS,
        "transactions_per_client": TRANSACTIONS,
        "epochs": EPOCHS,
        "learning_rate": LEARNING_RATE,
        "batch": BATCH,
        "training_at_once": AT_ONCE,
        "results": results,
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
