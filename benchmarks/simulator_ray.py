"""What a Ray cluster costs a round of simulated training, beside the trainer that it has inside.

A round: 90 clients with 533 images of 28 x 28, batches of ten, one epoch, the paper's MLP (DAG-ACFL, Sec. IV), 37 MB of
models; and the evaluation of each client's model on 107 images. Without Ray this process trains with a worker for each
of two cores; with Ray the same two cores are two nodes with a process each, and models go there and come back. One
machine gains nothing by that: the ratio is the cost of the seam, which more machines must earn first. A round of one
batch for each client shows the cost alone.

Contenders run in turn; the ratios are of the fastest repeats, because other work on the machine only ever adds time.

    python benchmarks/simulator_ray.py
    python benchmarks/simulator_ray.py --repeats 15
"""

import os
import sys
from collections.abc import Callable

import harness
import numpy as np
import ray
from ray.cluster_utils import Cluster

from fl_simulator.engine.population import Population
from fl_simulator.seeds import Seeds
from fl_simulator.training import Backend, Recipe, Task, build_trainer

CLIENTS, TRAIN, TEST, BATCH_SIZE = 90, 533, 107, 10
NODES = 2
ROUNDING = 1e-4
"""Largest difference of a weight; weights are about 0.03, and sums of float32 come in another order."""
TARGETS = {"training": 1.25, "evaluation": 2.0}


def population() -> Population:
    """Noise: no time depends on what is in the images."""
    rng = np.random.default_rng(3)
    count = CLIENTS * (TRAIN + TEST)
    starts = [client * (TRAIN + TEST) for client in range(CLIENTS)]
    return Population(
        images=rng.random((count, 28, 28), dtype=np.float32),
        labels=rng.integers(0, 10, count),
        train=tuple(np.arange(at, at + TRAIN) for at in starts),
        test=tuple(np.arange(at + TRAIN, at + TRAIN + TEST) for at in starts),
        clusters=np.zeros(CLIENTS, dtype=np.int64),
        num_classes=10,
    )


def compare(result: harness.Result, *, repeats: int) -> None:
    data = population()
    backends: tuple[Backend, ...] = ("batched", "ray")
    trainers = {
        backend: build_trainer(
            "mlp",
            data,
            recipe=Recipe(BATCH_SIZE, 0.05),
            seeds=Seeds(1),
            device="cpu",
            workers=NODES,
            backend=backend,
        )
        for backend in backends
    }
    start = np.repeat(trainers["batched"].initial(np.random.default_rng(0))[None], CLIENTS, axis=0)
    whole = [Task(rows, (client, 0), 1) for client, rows in enumerate(data.train)]
    one_batch = [Task(rows[:BATCH_SIZE], (client, 0), 1) for client, rows in enumerate(data.train)]
    found = {backend: start.copy() for backend in backends}
    for backend, trainer in trainers.items():
        trainer.train(found[backend], whole)
    apart = float(np.abs(found["ray"] - found["batched"]).max())
    if apart > ROUNDING:
        sys.exit(f"the models differ by {apart}")

    work: dict[str, Callable[[], object]] = {}
    for backend, trainer in trainers.items():
        models = found[backend]
        work[f"training, {backend}"] = lambda trainer=trainer, models=models: trainer.train(models, whole)  # type: ignore[misc]
        work[f"one batch, {backend}"] = lambda trainer=trainer, models=models: trainer.train(models, one_batch)  # type: ignore[misc]
        work[f"evaluation, {backend}"] = lambda trainer=trainer, models=models: trainer.evaluate(  # type: ignore[misc]
            models, range(CLIENTS), data.test
        )
    result.timings |= harness.interleave(work, repeats=repeats)
    for trainer in trainers.values():
        trainer.close()

    fastest = {name: timing.min_s for name, timing in result.timings.items()}
    for kind, target in TARGETS.items():
        ratio = fastest[f"{kind}, ray"] / fastest[f"{kind}, batched"]
        basis = f"fastest of {repeats}: {NODES} nodes of one core / this process with {NODES} workers"
        result.ratios.append(harness.Ratio(f"{kind} on Ray", ratio, target, "at most", basis))
    result.facts |= {
        "ray": ray.__version__,
        "clients": CLIENTS,
        "model_bytes": int(start.nbytes),
        "overhead_ms": {
            kind: round((fastest[f"{kind}, ray"] - fastest[f"{kind}, batched"]) * 1e3, 1)
            for kind in ("training", "one batch", "evaluation")
        },
        "apart": apart,
    }


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    result = harness.Result("simulator_ray", "Training of simulated clients on a Ray cluster", options.date)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(NODES - 1):
            cluster.add_node(num_cpus=1)
        ray.init(cluster.address, log_to_driver=False)
        compare(result, repeats=options.repeats)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(result.write())


if __name__ == "__main__":
    main()
