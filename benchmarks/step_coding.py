"""Coded models (``fl_core.step_coding``) beside whole ones: share of the bytes, and CPU of coding and decoding.

The models are really trained: MNIST's CNN of 13 MB, by eight clients with 300 images each that are averaged after each
of six rounds. Coded are one client's models of rounds 0, 3 and 5: by the average that its training began from, as it is
published; by its next model, as a server keeps it; and by none. CPU is that of one thread, beside SHA-256 of the model,
which who publishes and who receives cannot do without. Writes ``benchmarks/results/step_coding.json``. MNIST is to be
in the data folder (docs/simulator.md).

    python benchmarks/step_coding.py
"""

import hashlib
import time
from collections.abc import Callable
from functools import partial

import harness
import numpy as np

from fl_core.models import ModelLayout, encode_flat
from fl_core.step_coding import decode_step, encode_step, round_step
from fl_core.types import ZERO_ID, Digest, Vector32, digest_of
from fl_simulator.data.fetch import load
from fl_simulator.engine.population import Population
from fl_simulator.models.catalogue import MODELS
from fl_simulator.seeds import Seeds
from fl_simulator.training import build_trainer
from fl_simulator.training.protocol import Task
from fl_simulator.training.recipe import Recipe

CLIENTS, IMAGES, ROUNDS = 8, 300, (0, 3, 5)
UPLOAD_TARGETS = {"rounded": 0.25, "exact": 0.55}


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    result = harness.Result("step_coding", "Coded models of 13 MB beside whole ones", options.date)
    layout, averages, models = trained()
    published = {
        "exact": models,
        "rounded": [round_step(layout, model, average) for model, average in zip(models, averages, strict=True)],
    }
    shares: dict[str, list[float]] = {}
    for kind, vectors in published.items():
        files = [encode_flat(layout, vector) for vector in vectors]
        starts = [encode_flat(layout, average) for average in averages]
        for number in ROUNDS:
            file, following = files[number], files[number + 1]
            for by, base in (("its average", starts[number]), ("the author's next", following), ("none", None)):
                digest = Digest(ZERO_ID) if base is None else digest_of(base)
                coding: Callable[[], bytes] = partial(encode_step, layout, file, base, base_digest=digest)
                coded = coding()
                if decode_step(layout, coded, base) != file:
                    raise SystemExit("what is decoded is not what was coded")
                shares.setdefault(f"{kind}, by {by}", []).append(len(coded) / len(file))
                if number == ROUNDS[1]:
                    decoding = partial(decode_step, layout, coded, base)
                    hashing = partial(lambda data: hashlib.sha256(data).digest(), file)
                    result.facts[f"CPU ms, {kind}, by {by}"] = {
                        "encode": cpu_ms(coding, options.repeats),
                        "decode": cpu_ms(decoding, options.repeats),
                        "SHA-256": cpu_ms(hashing, options.repeats),
                    }
        rounding = partial(round_step, layout, models[ROUNDS[1]], averages[ROUNDS[1]])
        result.facts["CPU ms, rounding"] = cpu_ms(rounding, options.repeats)
    result.facts["share of bytes, rounds " + ", ".join(map(str, ROUNDS))] = {
        name: [round(each, 4) for each in found] for name, found in shares.items()
    }
    result.facts["cosine of the step kept"] = [
        round(cosine(published["rounded"][number] - averages[number], models[number] - averages[number]), 6)
        for number in ROUNDS
    ]
    for kind, target in UPLOAD_TARGETS.items():
        worst = max(shares[f"{kind}, by its average"])
        result.ratios.append(
            harness.Ratio(f"{kind}, upload", worst, target, "at most", "largest of the rounds / whole")
        )
    print(result.write())


def trained() -> tuple[ModelLayout, list[Vector32], list[Vector32]]:
    """The layout, each round's average, and what the first client made of it."""
    images = load("mnist")
    chosen = np.random.default_rng(1).choice(len(images.train_y), CLIENTS * IMAGES, replace=False)
    parts = np.arange(CLIENTS * IMAGES).reshape(CLIENTS, IMAGES)
    data = Population(
        images=images.train_x[chosen].astype(np.float32) / np.float32(255),
        labels=images.train_y[chosen].astype(np.int64),
        train=tuple(parts),
        test=tuple(np.arange(0) for _ in range(CLIENTS)),
        clusters=np.zeros(CLIENTS, dtype=np.int64),
        num_classes=10,
    )
    trainer = build_trainer(
        MODELS["mnist-cnn"].name, data, recipe=Recipe(10, learning_rate=0.05), seeds=Seeds(1), device="cpu", workers=1
    )
    average = trainer.initial(np.random.default_rng(0))
    averages, models = [], []
    for number in range(max(ROUNDS) + 2):
        rows = np.repeat(average[None], CLIENTS, axis=0)
        trainer.train(rows, [Task(part, (client, number), 1, 0) for client, part in enumerate(parts)])
        averages.append(average)
        models.append(rows[0].copy())
        average = rows.mean(axis=0)
    trainer.close()
    return trainer.layout, averages, models


def cpu_ms(work: Callable[[], object], repeats: int) -> list[float]:
    """Least and median CPU time of a call, milliseconds."""
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        taken.append((time.process_time() - began) * 1e3)
    return [round(min(taken), 1), round(sorted(taken)[len(taken) // 2], 1)]


def cosine(left: Vector32, right: Vector32) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


if __name__ == "__main__":
    main()
