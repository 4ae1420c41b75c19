"""Training of a simulated federation against an ordinary PyTorch loop, one client after the other.

A round: 90 clients with 533 images of 28 x 28, batches of ten, one epoch, the paper's MLP (DAG-ACFL, Sec. IV); of the
CNNs a few clients. And a round of decentralised learning as the paper on uncoordinated initialisation has it (Table 1):
50 nodes, eight batches of 16, the MLP with hidden layers of 512, 256 and 128 neurons, momentum 0.5 or AdamW.

The loop is what anybody would write: one ``nn.Module``, ``torch.optim``, tensors in memory, one thread (torch's own
threads make it slower). Ours: ``build_trainer`` with a worker for each core. Both give the same models, which is
checked. Images are noise: neither side's time depends on them.

The limit of logistic regression and the paper's MLP is their matrix products alone, of the same shapes, in a thread for
each core: of a layer forward, back, and straight into the weights.

Contenders run in turn, with a calibration (float32 products, one thread) between them; ratios are of the fastest
repeats, because other work on the machine only ever adds time. Two workers suffer twice from it, so the ratio of
processor seconds, which does not depend on other work, stands in the facts. Memory is measured in processes of their
own: the most that training adds to the resident size, held against the rows and the data.

pfl 0.6 and Flower 1.41's simulation (``peers/``) train the same round, where their environment is there::

    python -m venv build/simulation-peers
    build/simulation-peers/bin/pip install -r benchmarks/peers/requirements-simulation.txt

    python benchmarks/simulator_training.py
    python benchmarks/simulator_training.py --repeats 15 --peers
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from torch import nn

from fl_core.types import Matrix32
from fl_simulator.engine.population import Population
from fl_simulator.models.catalogue import MODELS
from fl_simulator.models.classifiers import classifier
from fl_simulator.seeds import Seeds
from fl_simulator.training import build_trainer
from fl_simulator.training.parameter_vectors import unflatten
from fl_simulator.training.protocol import Task
from fl_simulator.training.recipe import Recipe
from fl_simulator.training.threads import Workers


@dataclass(frozen=True, slots=True)
class Round:
    """What is trained.

    Attributes:
        model: Its name in a scenario.
        clients: How many train.
        images: Of each.
        recipe: How.
        steps: Batches of each; 0: one epoch.
        target: How many times as fast as the loop a worker for each core is to be.
    """

    model: str
    clients: int
    images: int
    recipe: Recipe
    steps: int = 0
    target: float | None = None

    def tasks(self, data: Population) -> list[Task]:
        """One for each client."""
        return [Task(rows, (client, 0), 1, self.steps) for client, rows in enumerate(data.train)]


PEERS_PYTHON = harness.ROOT / "build" / "simulation-peers" / "bin" / "python"
BATCH_SIZE = 10
PLAIN = Recipe(BATCH_SIZE, learning_rate=0.05)
ROUNDS = {
    "lr": Round("lr", 90, 533, PLAIN),
    "mlp": Round("mlp", 90, 533, PLAIN, target=4.0),
    "mnist-cnn": Round("mnist-cnn", 4, 250, PLAIN, target=1.8),
    "cifar-cnn": Round("cifar-cnn", 4, 250, PLAIN, target=1.8),
    "fashion-cnn": Round("fashion-cnn", 4, 250, Recipe(10, 0.05, momentum=0.5)),
    "gn-lenet": Round("gn-lenet", 4, 250, Recipe(20, 0.002, momentum=0.9)),
    "mlp-512-256-128": Round(
        "mlp-512-256-128",
        50,
        512,
        Recipe(16, 0.001, momentum=0.5),
        steps=8,
        target=3.0,
    ),
    "mlp-512-256-128, adamw": Round(
        "mlp-512-256-128",
        50,
        512,
        Recipe(16, 0.001, optimizer="adamw"),
        steps=8,
    ),
}
"""Of the CNNs a part of a round, for a whole one takes a minute."""
MEMORY_TARGET = 2.0
LIMIT_TARGET = 0.7
STACKS = (3, 5, 9, 15, 45)
"""Models that products are tried with at a time, of 90; the fastest is the limit."""
ROUNDING = 1e-6
PEER_TARGETS = {"pfl": 8.0, "flower": 20.0}


def population(name: str, clients: int, size: int) -> Population:
    """Noise; ``size`` training images for each client."""
    model = MODELS[name]
    shape = model.image or (28, 28)
    rng = np.random.default_rng(3)
    return Population(
        images=rng.random((clients * size, *shape), dtype=np.float32),
        labels=rng.integers(0, 10, clients * size),
        train=tuple(np.arange(client * size, (client + 1) * size) for client in range(clients)),
        test=tuple(np.arange(0) for _ in range(clients)),
        clusters=np.zeros(clients, dtype=np.int64),
        num_classes=10,
    )


class Loop:
    """Training as a PyTorch program does it."""

    def __init__(self, what: Round, data: Population, seeds: Seeds, *, dtype: torch.dtype = torch.float32) -> None:
        self.module = classifier(MODELS[what.model], data.images.shape[1:]).to(dtype)
        self.recipe = what.recipe
        self.images, self.labels = torch.from_numpy(data.images).to(dtype), torch.from_numpy(data.labels)
        self.seeds = seeds

    def train(self, models: Matrix32, tasks: list[Task], trainer_layout: Any) -> None:
        for row, task in zip(torch.from_numpy(models), tasks, strict=True):
            views = unflatten(trainer_layout, row)
            self.module.load_state_dict(views)
            optimizer = self.optimizer()
            for places in task.batches(self.recipe.batch_size, self.seeds):
                batch = torch.from_numpy(places)
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.module(self.images[batch]), self.labels[batch]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            for key, value in self.module.state_dict().items():
                views[key].copy_(value)

    def optimizer(self) -> torch.optim.Optimizer:
        parameters, rate = self.module.parameters(), self.recipe.learning_rate
        if self.recipe.optimizer == "adamw":
            return torch.optim.AdamW(parameters, rate, weight_decay=self.recipe.weight_decay)
        return torch.optim.SGD(parameters, rate, momentum=self.recipe.momentum)


class Products:
    """The products of a round of multi-layer perceptrons, and nothing else: no softmax, sum, ReLU or image is read.

    Args:
        what: The round.
        weights: Shape of each layer's, ``(out, in)``.
        rows: Models of a stack.
        workers: Threads.
    """

    def __init__(self, what: Round, weights: list[tuple[int, int]], *, rows: int, workers: Workers) -> None:
        self._steps, batch = -(-what.images // what.recipe.batch_size), what.recipe.batch_size
        self._workers = workers
        self._stacks = [
            [
                (torch.zeros(rows, out, entering), torch.ones(rows, batch, entering), torch.ones(rows, batch, out))
                for out, entering in weights
            ]
            for _ in range(what.clients // rows)
        ]

    def __call__(self) -> None:
        self._workers.share(self._multiply, self._stacks)

    @torch.no_grad()
    def _multiply(self, layers: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> None:
        for _ in range(self._steps):
            for weight, value, _delta in layers:
                torch.bmm(value, weight.transpose(1, 2))
            for weight, _value, delta in layers[:0:-1]:
                torch.bmm(delta, weight)
            for weight, value, delta in layers:
                weight.baddbmm_(delta.transpose(1, 2), value, alpha=0.001)


def compare(name: str, result: harness.Result, *, repeats: int) -> None:
    """Time this round by the loop, by ours with all workers, and by ours with one."""
    what = ROUNDS[name]
    data, seeds = population(what.model, what.clients, what.images), Seeds(1)
    trainers = {
        label: build_trainer(what.model, data, recipe=what.recipe, seeds=seeds, device="cpu", **options)
        for label, options in (
            ("ours", {}),
            ("ours, 1 worker", {"workers": 1}),
            ("ours, bfloat16", {"precision": "bfloat16"}),
        )
    }
    layout = trainers["ours"].layout
    loop = Loop(what, data, seeds)
    start = np.repeat(trainers["ours"].initial(np.random.default_rng(0))[None], what.clients, axis=0)
    tasks = what.tasks(data)
    scratch = start.copy()
    cpu_s: dict[str, float] = {}

    def counted(label: str, train: Callable[[], None]) -> Callable[[], None]:
        def work() -> None:
            began = time.process_time()
            train()
            cpu_s[label] = min(cpu_s.get(label, float("inf")), time.process_time() - began)

        return work

    limits = {}
    weights = [(each.shape[0], each.shape[1]) for each in layout.tensors if len(each.shape) == 2]
    is_dense = len(layout.tensors) == 2 * len(weights)
    workers = Workers(0)
    if is_dense and what.recipe == PLAIN:
        limits = {f"products, {rows} models": Products(what, weights, rows=rows, workers=workers) for rows in STACKS}
    product = np.ones((512, 512), np.float32)
    work: dict[str, Callable[[], object]] = {
        "loop": counted("loop", lambda: loop.train(scratch, tasks, layout)),
        **{
            label: counted(label, lambda trainer=trainer: trainer.train(scratch, tasks))  # type: ignore[misc]
            for label, trainer in trainers.items()
        },
        **limits,
        "calibration": lambda: [product @ product for _ in range(20)],
    }
    times = harness.interleave(work, repeats=repeats)
    for trainer in trainers.values():
        trainer.close()
    workers.close()
    result.timings |= {f"{name}, {label}": timing for label, timing in times.items()}
    steps = sum(task.num_steps(what.recipe.batch_size) for task in tasks)
    result.facts[name] = {
        "clients": what.clients,
        "images_each": what.images,
        "recipe": asdict(what.recipe),
        "steps": steps,
        "ms_per_step": {label: round(times[label].min_s / steps * 1e3, 4) for label in cpu_s},
        "cpu_s": {label: round(value, 4) for label, value in cpu_s.items()},
        "cpu_ratio_1_worker": round(cpu_s["loop"] / cpu_s["ours, 1 worker"], 3),
        "cpu_ratio_all_workers": round(cpu_s["loop"] / cpu_s["ours"], 3),
        "ratio_1_worker": round(times["loop"].min_s / times["ours, 1 worker"].min_s, 3),
        "ratio_bfloat16": round(times["loop"].min_s / times["ours, bfloat16"].min_s, 3),
        "largest_difference_in_float64": check(what, data, tasks[:4]),
        "calibration_slowdown": round(times["calibration"].max_s / times["calibration"].min_s, 2),
    }
    if what.target is not None:
        ratio = times["loop"].min_s / times["ours"].min_s
        basis = f"fastest of {repeats}: PyTorch loop, 1 thread / ours, a worker for each core"
        result.ratios.append(harness.Ratio(f"{name} training", ratio, what.target, "at least", basis))
    if limits:
        fastest = min(limits, key=lambda each: times[each].min_s)
        share = times[fastest].min_s / times["ours"].min_s
        basis = f"fastest of {repeats}: {fastest} at a time, alone / ours; a worker for each core"
        result.ratios.append(harness.Ratio(f"{name}, share of its products", share, LIMIT_TARGET, "at least", basis))


def check(what: Round, data: Population, tasks: list[Task]) -> float:
    """Ours and the loop train the same models; in float64, where rounding moves nothing over a ReLU's edge."""
    ours = build_trainer(
        what.model,
        data,
        recipe=what.recipe,
        seeds=Seeds(1),
        device="cpu",
        precision="float64",
    )
    found = np.repeat(ours.initial(np.random.default_rng(0))[None], len(tasks), axis=0)
    start, expected = found.copy(), found.copy()
    ours.train(found, tasks)
    Loop(what, data, Seeds(1), dtype=torch.float64).train(expected, tasks, ours.layout)
    ours.close()
    apart = float(np.abs(expected - found).max())
    moved = float(np.abs(expected - start).max())
    if apart > ROUNDING or moved < 100 * ROUNDING:
        sys.exit(f"{what.model}: ours and the loop's models differ by {apart}; training moved them by {moved}")
    return apart


def memory(name: str, clients: int, size: int) -> dict[str, float]:
    """What training adds to the resident size at most, measured in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure_memory, args=(name, clients, size, theirs))
    process.start()
    found: dict[str, float] = ours.recv()
    process.join()
    return found


def _measure_memory(name: str, clients: int, size: int, answer: Connection) -> None:
    data = population(name, clients, size)
    trainer = build_trainer(name, data, recipe=PLAIN, seeds=Seeds(1), device="cpu")
    rows = np.repeat(trainer.initial(np.random.default_rng(0))[None], clients, axis=0)
    warm_up = rows[:2].copy()
    trainer.train(warm_up, [Task(data.train[client][:BATCH_SIZE], (client, 0), 1) for client in range(2)])
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    before = _status("VmRSS")
    trainer.train(rows, [Task(samples, (client, 0), 1) for client, samples in enumerate(data.train)])
    added = _status("VmHWM") - before
    answer.send({"rows_bytes": rows.nbytes, "data_bytes": data.images.nbytes, "added_bytes": added})


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def peer(program: str, result: harness.Result, *, key: str, ours_s: float, rounds: int) -> None:
    """Let a peer train the MLP's round, and state how much longer its fastest takes than ours."""
    command = [str(PEERS_PYTHON), str(harness.HERE / "peers" / program), "--rounds", str(rounds)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if run.returncode:
        sys.exit(f"{program} failed:\n{run.stderr[-2000:]}")
    found = json.loads(run.stdout.splitlines()[-1])
    timing = harness.Timing(tuple(found.pop("rounds_s")))
    result.timings[f"mlp, {key}"] = timing
    result.facts[key] = found
    result.ratios.append(
        harness.Ratio(
            f"mlp round against {found['version']}",
            timing.min_s / ours_s,
            PEER_TARGETS[key],
            "at least",
            "fastest round of theirs / of ours",
        )
    )


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--models", nargs="+", choices=ROUNDS, default=list(ROUNDS))
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=PEERS_PYTHON.exists())
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = harness.Result("simulator_training", "Training of simulated clients", options.date)
    result.facts["torch"] = torch.__version__
    for name in options.models:
        compare(name, result, repeats=options.repeats)
    result.facts["memory"] = {}
    for name, clients, size in (("mlp", 90, 533), ("mnist-cnn", 20, 20)):
        found = memory(name, clients, size)
        result.facts["memory"][name] = found
        share = (found["rows_bytes"] + found["added_bytes"]) / found["rows_bytes"]
        basis = f"{clients} rows and what training them adds at most / the rows; data not counted"
        result.ratios.append(harness.Ratio(f"{name} memory", share, MEMORY_TARGET, "at most", basis))
    if options.peers and "mlp" in options.models:
        ours_s = result.timings["mlp, ours"].min_s
        peer("pfl_simulation.py", result, key="pfl", ours_s=ours_s, rounds=5)
        peer("flower_simulation.py", result, key="flower", ours_s=ours_s, rounds=4)
    print(result.write())


if __name__ == "__main__":
    main()
