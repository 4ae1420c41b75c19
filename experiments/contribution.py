"""Contribution by leave-one-out averages beside exact Shapley values: eight clients of one cluster with noisy labels.

Clients 0 and 1 have no wrong labels, 2 and 3 a fifth, 4 and 5 two fifths, 6 and 7 four fifths, among the samples that
they train on and among those that they test on: nobody knows better. All eight train from their common average, round
after round. At every so-manieth update each measures what four of the others' models contribute to the average on its
own test samples, by the loss, and writes it into its header; ``fl_core.trust.contribution`` sums them up.

Exact Shapley values are of the published models, without training anew (as GTG-Shapley reconstructs them): in each
round all 2⁸ coalitions' averages are evaluated on clean samples that are nobody's; a coalition's value is minus the
loss there, the empty one's that of the round's start; values are summed over rounds.

    python -m experiments.contribution        a minute on two cores; writes results/contribution/figures.json
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from fl_core.dag.building import build_update
from fl_core.dag.transaction import Header
from fl_core.trust.contribution import contributions_of, measured, metrics_of, to_measure
from fl_core.types import AuthorId, Digest, Matrix32, TxId, Vector64, digest_of
from fl_simulator.config.scenario import read_scenario
from fl_simulator.engine.world import World
from fl_simulator.run.prepare import build_world
from fl_simulator.training.protocol import Evaluation, Rows

HERE: Final = Path(__file__).resolve().parent
SEEDS: Final = (0, 1, 2, 3, 4)
ROUNDS: Final = 40
EVERY: Final = (1, 5, 10)
"""At which of its updates a client measures; 10 is a client's default."""
NOISE: Final = (0.0, 0.0, 0.2, 0.2, 0.4, 0.4, 0.8, 0.8)
CLIENTS: Final = len(NOISE)
SCENARIO: Final = {
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": CLIENTS + 2, "samples": 170},  # the last two judge
    "model": {"name": "digits-mlp", "similarity_layers": "all"},
    "training": {"epochs": 2, "initial_epochs": 2, "learning_rate": 0.1, "batch_size": 10},
    "run": {"train_fraction": 0.6},
}
COALITIONS: Final = [[who for who in range(CLIENTS) if number >> who & 1] for number in range(2**CLIENTS)]


@dataclass(frozen=True, slots=True)
class Figures:
    """One seed.

    Attributes:
        shapley: Of each client, by minus the loss.
        contribution: Of each client, by how often clients measure.
        spearman: Of contribution and ``shapley``, likewise.
        accuracy: Of the last average on the clean samples.
    """

    seed: int
    shapley: list[float]
    contribution: dict[int, list[float]]
    spearman: dict[int, float]
    accuracy: float


def play(seed: int) -> Figures:
    """Train, measure, and compare."""
    scenario = {**SCENARIO, "run": {**SCENARIO["run"], "seed": seed}}
    world = build_world(read_scenario(scenario), workers=1)
    people, rng = world.population, np.random.default_rng(seed)
    for client, share in enumerate(NOISE):
        rows = np.concatenate([people.train[client], people.test[client]])
        wrong = rows[rng.random(len(rows)) < share]
        people.labels[wrong] = rng.integers(0, people.num_classes, len(wrong))
    clean = np.concatenate([*people.train[CLIENTS:], *people.test[CLIENTS:]])
    start = world.initial_model()
    shapley = np.zeros(CLIENTS)
    headers: dict[int, list[Header]] = {every: [] for every in EVERY}
    authors: dict[TxId, AuthorId] = {}
    for number in range(ROUNDS):
        models = np.repeat(start[None], CLIENTS, 0)
        world.train(models, range(CLIENTS), round_index=number)
        averages = np.stack([models[those].mean(axis=0) if those else start for those in COALITIONS])
        judged = world.trainer.evaluate(averages, range(len(averages)), [clean] * len(averages))
        shapley += shapley_values(-judged.loss)
        ids = [_name("update", number, client) for client in range(CLIENTS)]
        authors.update(zip(ids, map(_author, range(CLIENTS)), strict=True))
        for client in range(CLIENTS):
            said = _header(client, number, ids, _measured(world, models, client, ids, number))
            for every in EVERY:
                if (number + 1) % every == 0:
                    headers[every].append(said)
        start = models.mean(axis=0)
    world.close()
    contribution: dict[int, list[float]] = {}
    for every in EVERY:
        found = {row.author: row.mean for row in contributions_of(headers[every], authors.get)}
        contribution[every] = [found.get(_author(client), 0.0) for client in range(CLIENTS)]
    return Figures(
        seed,
        shapley.tolist(),
        contribution,
        {every: spearman(values, shapley) for every, values in contribution.items()},
        float(judged.accuracy[-1]),
    )


def _measured(world: World, models: Matrix32, client: int, ids: Sequence[TxId], number: int) -> dict[TxId, float]:
    """What one client measures of the average of all, on its own test samples."""
    asked = to_measure(Digest(_name("selection", number, client)), ids, own=ids[client])
    left = [np.delete(models, ids.index(each), axis=0).mean(axis=0) for each in asked]
    samples: list[Rows] = [world.population.test[client]] * (1 + len(left))
    averages = np.stack([models.mean(axis=0), *left])
    given, *without = _figures(world.trainer.evaluate(averages, range(len(averages)), samples))
    found = {each: measured(given, figures) for each, figures in zip(asked, without, strict=True)}
    return {each: value for each, value in found.items() if value is not None}


def _figures(evaluation: Evaluation) -> list[dict[str, float]]:
    return [{"loss": float(loss)} for loss in evaluation.loss]


def _header(client: int, number: int, ids: Sequence[TxId], measured: dict[TxId, float]) -> Header:
    """What the client publishes next, as far as its contribution is read."""
    parents = tuple(sorted(ids))
    return build_update(
        ledger=_name("ledger"),
        author=_author(client),
        sequence=number,
        created_at_ms=0,
        num_examples=1,
        start=Digest(_name("start", number)),
        model_digest=Digest(_name("model", number, client)),
        model_size=1,
        parents=parents,
        metrics=metrics_of(parents, measured),
    ).header


def _author(client: int) -> AuthorId:
    return AuthorId(f"hash:{client:064x}")


def _name(*parts: object) -> TxId:
    return TxId(digest_of(repr(parts).encode()))


def shapley_values(values: Vector64) -> Vector64:
    """Exact Shapley values of a game.

    Args:
        values: Of each of ``COALITIONS``, shape ``(2⁸,)``.

    Returns:
        Shape ``(8,)``; their sum is the value of all less that of none.
    """
    found = np.zeros(CLIENTS)
    for number, those in enumerate(COALITIONS):
        share = math.factorial(len(those)) * math.factorial(CLIENTS - len(those) - 1) if len(those) < CLIENTS else 0
        for who in range(CLIENTS):
            if not number >> who & 1:
                found[who] += (values[number | 1 << who] - values[number]) * share / math.factorial(CLIENTS)
    return found


def spearman(left: Sequence[float] | Vector64, right: Sequence[float] | Vector64) -> float:
    """Correlation of ranks; no two values of one side are equal."""
    ranks = [np.argsort(np.argsort(values)) for values in (left, right)]
    return float(np.corrcoef(*ranks)[0, 1])


def main() -> None:
    rows = [play(seed) for seed in SEEDS]
    folder = HERE / "results" / "contribution"
    folder.mkdir(parents=True, exist_ok=True)
    summary: dict[str, Any] = {
        "rounds": ROUNDS,
        "noise": NOISE,
        "spearman": {
            every: {
                "mean": round(float(np.mean([row.spearman[every] for row in rows])), 3),
                "least": round(min(row.spearman[every] for row in rows), 3),
            }
            for every in EVERY
        },
        "seeds": [
            {
                "seed": row.seed,
                "accuracy": round(row.accuracy, 3),
                "shapley": np.round(row.shapley, 4).tolist(),
                "contribution": {every: np.round(values, 4).tolist() for every, values in row.contribution.items()},
                "spearman": {every: round(value, 3) for every, value in row.spearman.items()},
            }
            for row in rows
        ],
    }
    (folder / "figures.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    for every, found in summary["spearman"].items():
        print(f"measured at every {every}. update: Spearman {found['mean']} (least {found['least']})")


if __name__ == "__main__":
    main()
