"""Selections among 1,000, 10,000 and 100,000 candidates, which grow in one node: time, memory, and what is missed.

The models are trained: a network of 64, 128 and 10 neurons (9,610 values, all compared) on 30 digits for three epochs,
each client from its cluster's average as that was at the start, after two rounds, or after twelve. There are fifty
clusters, which see the digits turned, mirrored, or under other labels. A process of its own trains them, into a file.

The node is a server's (``LedgerNode`` with its file of rows), without database, HTTP and averages. Every author has one
update, and two hundred askers ask: a *selection* is the question and what the ledger's selector chooses. *New* is an
update of an author who has one already, and the selection after it. The crowds are timed one after the other, so the
ratio is of processor time, which other work on the machine changes less. *Recall* is how many of the sixty-four models
of the asker's cluster that are most like its own, by an exact scan of all models (a NumPy product), are compared, of
fifty askers. *Cold* are selections each after the kernel was told to forget the file.

    python benchmarks/selection_crowd.py --seed 11
"""

import argparse
import hashlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import harness
import numpy as np
from built_ledger import KEY, STARTED_MS
from numpy.typing import NDArray
from tip_pile import resident_mb

from fl_core.dag.author import AuthorKind
from fl_core.dag.building import build_genesis
from fl_core.dag.genesis import Component, Genesis, compare_all
from fl_core.dag.graph import Node, NodesInMemory
from fl_core.dag.profiles import SELECTOR
from fl_core.dag.signature import public_key_of
from fl_core.models import ModelLayout, TensorSpec, encode_flat
from fl_core.node import LedgerNode, VectorsMissing
from fl_core.selection import SELECTORS
from fl_core.similarity import IN_MEMORY
from fl_core.types import Matrix32, TxId, Vector32, digest_of
from fl_simulator.data.digits import load_digits
from ledger_server.row_file import RowFile

CROWDS = (1_000, 10_000, 100_000)
CLUSTERS, BEST = 50, 64
INPUTS, HIDDEN, CLASSES = 64, 128, 10
SIZES = (INPUTS * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES)
LAYOUT = ModelLayout.of([TensorSpec("network", "F32", (sum(SIZES),))])
ISSUER = public_key_of(KEY)
AGES = (0, 2, 12)
"""Rounds that the averages have behind them from which clients train."""
AT_ONCE, SCANNED = 500, 50
"""Models that are trained, and that the exact scan reads, at a time."""
ASKERS = 200
TARGET_TIMES, TARGET_RECALL, TARGET_MB = 3.0, 0.99, 300.0


class Network:
    """Trains stacks of perceptrons by plain SGD, written out."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        images, labels = load_digits()
        squares = np.asarray(images, np.float32).reshape(-1, 8, 8) / np.max(images)
        views = [*(np.rot90(squares, turns, (1, 2)) for turns in range(4)), squares[:, :, ::-1]]
        self.views = np.stack([view.reshape(-1, INPUTS) for view in views])
        self.labels = np.asarray(labels)
        drawn = [self.rng.standard_normal(size) / np.sqrt(size / HIDDEN) for size in (SIZES[0], SIZES[2])]
        self.initial = np.concatenate([drawn[0], np.zeros(HIDDEN), drawn[1], np.zeros(CLASSES)]).astype(np.float32)

    def train(self, starts: Matrix32, clusters: NDArray[np.int64], *, images: int = 30, epochs: int = 3) -> Matrix32:
        """Train each of the models, shape ``(n, d)``, on digits as its cluster sees them."""
        first, bias, second, last = np.split(starts.copy(), np.cumsum(SIZES)[:-1], axis=1)
        first, second = first.reshape(-1, INPUTS, HIDDEN).copy(), second.reshape(-1, HIDDEN, CLASSES).copy()
        bias, last = bias.copy(), last.copy()
        chosen = self.rng.integers(0, len(self.labels), (len(starts), images))
        inputs = self.views[(clusters % len(self.views))[:, None], chosen]
        shift = (clusters // len(self.views))[:, None]
        answers = (self.labels[chosen] * np.where(shift < 5, 1, 3) + shift) % CLASSES
        wanted = np.eye(CLASSES, dtype=np.float32)[answers]
        for batch in itertools.chain.from_iterable([range(0, images, 10)] * epochs):
            seen = inputs[:, batch : batch + 10]
            hidden = np.maximum(seen @ first + bias[:, None], 0)
            scores = np.exp(hidden @ second + last[:, None])
            wrong = (scores / scores.sum(-1, keepdims=True) - wanted[:, batch : batch + 10]) * np.float32(0.01)
            back = (wrong @ second.transpose(0, 2, 1)) * (hidden > 0)
            second -= hidden.transpose(0, 2, 1) @ wrong
            last -= wrong.sum(1)
            first -= seen.transpose(0, 2, 1) @ back
            bias -= back.sum(1)
        parts = first.reshape(len(starts), -1), bias, second.reshape(len(starts), -1), last
        return np.concatenate(parts, axis=1)


def train_all(file: Path, *, clients: int, seed: int) -> None:
    """Write genesis's model and then every client's, client after client of cluster after cluster."""
    network = Network(seed)
    averages = {0: np.repeat(network.initial[None], CLUSTERS, axis=0)}
    for round_ in range(1, max(AGES) + 1):
        clusters = np.repeat(np.arange(CLUSTERS), 8)
        trained = network.train(averages[round_ - 1][clusters], clusters)
        averages[round_] = trained.reshape(CLUSTERS, 8, -1).mean(axis=1)
    ages = network.rng.choice(AGES, clients)
    with file.open("wb") as out:
        out.write(network.initial.data)
        for start in range(0, clients, AT_ONCE):
            several = np.arange(start, min(start + AT_ONCE, clients))
            clusters = several % CLUSTERS
            starts = np.stack([averages[ages[each]][cluster] for each, cluster in zip(several, clusters, strict=True)])
            out.write(np.ascontiguousarray(network.train(starts, clusters), dtype=np.float32).data)


class Models:
    """The models of a file, read as they are asked for: memory is what is measured here."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("rb", buffering=0)
        self.genesis = self._read(0, 1)[0]

    def client(self, number: int) -> Vector32:
        found: Vector32 = self._read(1 + number, 1)[0]
        return found

    def most_alike(self, askers: Iterable[int], clients: int) -> dict[int, list[int]]:
        """The other models of each asker's cluster whose updates are most like its own, by an exact scan."""
        found: dict[int, list[int]] = {}
        asking = np.stack([self.client(asker) for asker in askers]).astype(np.float64) - self.genesis
        cosines = np.empty((len(asking), clients))
        for start in range(0, clients, SCANNED):
            updates = self._read(1 + start, min(SCANNED, clients - start)).astype(np.float64) - self.genesis
            norms = np.linalg.norm(updates, axis=1)
            cosines[:, start : start + len(updates)] = asking @ updates.T / norms
        for asker, row in zip(askers, cosines, strict=True):
            own = np.arange(asker % CLUSTERS, clients, CLUSTERS)
            ranked = own[np.argsort(-row[own], kind="stable")]
            found[asker] = [int(each) for each in ranked if each != asker][:BEST]
        return found

    def _read(self, first: int, count: int) -> Matrix32:
        models = np.empty((count, LAYOUT.num_parameters), np.float32)
        os.preadv(self._file.fileno(), [models.data], first * models[0].nbytes)
        return models


class Lately(NodesInMemory):
    """The last node alone, as a server looks old ones up in its journal."""

    def add(self, node: Node) -> None:
        self._nodes = {node.id: node}


class Crowd:
    """A node, and authors who have one update each; the n-th has the n-th model."""

    def __init__(self, models: Models, folder: Path) -> None:
        genesis = Genesis(
            name="crowd",
            layout=LAYOUT,
            comparison=compare_all(LAYOUT),
            selector=SELECTOR,
            aggregator=Component("fedavg"),
        )
        digest = digest_of(encode_flat(LAYOUT, models.genesis))
        unsigned = build_genesis(genesis, key=KEY, model_digest=digest, created_at_ms=STARTED_MS)
        first = unsigned.issue(KEY, author_signature=unsigned.sign_as_author(KEY), received_at_ms=STARTED_MS)
        self.file = RowFile(folder)
        self.node = LedgerNode(genesis, first, models.genesis, nodes=Lately(), file=self.file)
        self.models, self.ids = models, list[TxId]()
        self.selector = SELECTORS.build(SELECTOR.name, SELECTOR.params)

    def update(self, author: int, sequence: int = 0) -> None:
        """An author's next update."""
        name = hashlib.sha256(f"{author}".encode()).hexdigest()
        node = Node(
            id=TxId(hashlib.sha256(f"{author} {sequence}".encode()).hexdigest()),
            parents=(self.node.id,),
            author=AuthorKind.SECRET.author(name),
            sequence=sequence,
            num_examples=30,
            recorded=b"",
            depth=1,
            model_digest=digest_of(name.encode()),
            received_at_ms=STARTED_MS,
            issuer=ISSUER,
        )
        self.node.graph.add(node)
        for retired in self.node.candidate_rule.admit(node):
            self.node._vectors.discard(retired)  # noqa: SLF001 -- as ``LedgerNode.admit`` does, which wants signatures
        self.node.bring(node.id, self.models.client(author))
        self.ids[author : author + 1] = [node.id]

    def renew(self, author: int, sequence: int) -> None:
        """An author's next update, and its next selection."""
        self.update(author, sequence)
        self.select(author)

    def select(self, asker: int) -> set[TxId]:
        """What is compared with an author's model, and chosen from."""
        name = hashlib.sha256(f"{asker}".encode()).hexdigest()
        request = self.node.question(AuthorKind.SECRET.author(name), self.models.client(asker))
        assert not isinstance(request, VectorsMissing)
        self.selector.choose(request)
        return {each.transaction for each in request.candidates}


def timed(
    act: Callable[[], object], *, repeats: int = ASKERS, before: Callable[[], object] = lambda: None
) -> tuple[list[float], list[float]]:
    """Seconds of an act, each after something else: by the clock, and of the processor."""
    wall, processor = [], []
    for _ in range(repeats):
        before()
        start = time.perf_counter(), time.process_time()
        act()
        wall.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    return wall, processor


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where 8 GB have room")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--most", type=int, default=CROWDS[-1], help="leave larger crowds out")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train_all(options.train, clients=options.most, seed=options.seed)
        return
    crowds = [crowd for crowd in CROWDS if crowd <= options.most]
    result = harness.Result("selection_crowd", f"One selection among up to {crowds[-1]:,} candidates", options.date)
    result.facts |= {"seed": options.seed, "values_of_a_model": LAYOUT.num_parameters, "clusters": CLUSTERS}
    with tempfile.TemporaryDirectory(dir=options.folder) as held:
        trained = Path(held) / "models"
        arguments = [__file__, "--train", str(trained), "--most", str(crowds[-1]), "--seed", str(options.seed)]
        subprocess.run([sys.executable, *arguments], check=True)
        crowd = Crowd(Models(trained), Path(held))
        result.facts["resident_MB_without_updates"] = resident_mb()
        for size in crowds:
            for author in range(len(crowd.ids), size):
                crowd.update(author)
            askers, sequences = itertools.cycle(range(ASKERS)), itertools.count(size)
            select = partial(next, map(crowd.select, askers))
            wall, processor = timed(select)
            memory = resident_mb()
            _, renewed = timed(partial(next, map(crowd.renew, askers, sequences)))
            best = crowd.models.most_alike(range(CLUSTERS), size)
            shares = []
            for asker, own in best.items():
                compared = crowd.select(asker)
                shares.append(sum(crowd.ids[each] in compared for each in own) / len(own))
            result.timings[f"selection among {size:,}"] = harness.Timing(tuple(wall))
            result.facts[f"{size:,} candidates"] = {
                "selection_p50_ms": p50_ms(wall),
                "selection_processor_p50_ms": p50_ms(processor),
                "new_processor_p50_ms": p50_ms(renewed),
                "resident_MB": memory,
                "recall": round(statistics.mean(shares), 5),
                "least_recall": round(min(shares), 4),
            }
            print(f"{size:,}: {result.facts[f'{size:,} candidates']}", flush=True)
        if crowds[-1] > IN_MEMORY:
            cold, _ = timed(select, repeats=10, before=partial(forget, crowd.file))
            result.facts[f"{crowds[-1]:,} candidates"]["cold_selection_p50_ms"] = p50_ms(cold)
    few, many = (result.facts[f"{size:,} candidates"] for size in (crowds[0], crowds[-1]))
    times = many["selection_processor_p50_ms"] / few["selection_processor_p50_ms"]
    most = f"{crowds[-1]:,}"
    result.ratios += [
        harness.Ratio(f"selection, {most} / 1,000", times, TARGET_TIMES, "at most", "p50, processor time"),
        harness.Ratio(f"recall of {most}", many["recall"], TARGET_RECALL, "at least", "mean of fifty askers"),
        harness.Ratio(f"memory with {most}, MB", many["resident_MB"], TARGET_MB, "at most", "VmRSS"),
    ]
    print(result.write())


def p50_ms(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1e3, 2)


def forget(file: RowFile) -> None:
    """Have the kernel drop the rows from its page cache."""
    os.fsync(file.number)
    os.posix_fadvise(file.number, 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
