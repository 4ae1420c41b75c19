"""Small simulations for tests: a population whose clusters contradict each other, and a world around it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fl_core.types import JsonScalar
from fl_simulator.attacks.attack import Attack, Places, seat
from fl_simulator.attacks.protocol import Attacker
from fl_simulator.engine.evaluation import Interval
from fl_simulator.engine.population import Population, Share, gather
from fl_simulator.engine.world import LocalTraining, World
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.links import Links
from fl_simulator.seeds import Seeds
from tests.reference.point_trainer import PointTrainer
from tests.reference.softmax_trainer import SoftmaxTrainer


def two_camps(*, clients: int = 6, samples: int = 40, seed: int = 0) -> Population:
    """Images of two pixels, of which the brighter decides the label; client i of the odd camp calls it the other way.

    A model that is right in one camp is wrong in the other: learning with the wrong clients is seen at once.
    """
    rng = np.random.default_rng(seed)
    images = rng.random((clients * samples, 1, 2), dtype=np.float32)
    brighter = images[:, 0].argmax(axis=1)
    camps = np.arange(clients) % 2
    labels = brighter ^ np.repeat(camps, samples)
    middle = samples * 3 // 4
    shares = [
        Share(np.arange(low, low + middle), np.arange(low + middle, low + samples), cluster=int(camp))
        for low, camp in zip(range(0, clients * samples, samples), camps, strict=True)
    ]
    return gather(images, labels, shares, num_classes=2)


def circle(count: int) -> Graph:
    """Each node hears the one before it and the one after it."""
    return Graph.from_edges(count, [(node, node + 1) for node in range(count - 1)] + [(0, count - 1)] * (count > 2))


def make_world(
    population: Population | None = None,
    *,
    seed: int = 0,
    epochs: int = 1,
    graph: Graph | None = None,
    links: Links | None = None,
    attacker: Attacker | None = None,
    places: Places | None = None,
) -> World:
    """A world whose training is the naive twin's, and whose graph is a ring unless told; with attackers where told."""
    people, seeds, attack = population or two_camps(), Seeds(seed), None
    if attacker is not None:
        where = places or Places(clients="4,5")
        people, poisoned, triggered = seat(attacker, where, people, seeds)
    trainer = SoftmaxTrainer(people, batch_size=4, learning_rate=1.0, seeds=seeds)
    if attacker is not None:
        attack = Attack(attacker, where, people.clusters, trainer.layout, seeds, poisoned, triggered)
    return World(
        people,
        trainer,
        seeds,
        LocalTraining(epochs=epochs, initial_epochs=epochs, learning_rate=1.0),
        ("fc1.weight", "fc1.bias"),
        graph=graph or circle(people.num_clients),
        graph_links=links or Links(),
        attack=attack,
    )


def make_point_world(
    points: Sequence[Sequence[float]],
    *,
    samples: Sequence[int] | None = None,
    spread: float = 0.0,
    seed: int = 0,
    graph: Graph | None = None,
    links: Links | None = None,
) -> World:
    """A world of clients who each draw a model half the way to a point of their own, from the origin.

    Args:
        points: Where each client's samples lie, all of them on one spot.
        samples: Training samples of each; one, unless told.
        spread: First models lie so far from the origin at most, in each direction.
        seed: The run's.
        graph: Who hears whom; nobody anybody, unless told.
        links: How reliable the graph's links are.
    """
    counts = samples or [1] * len(points)
    starts = np.cumsum([0, *counts])
    shares = [
        Share(np.arange(start, start + count), np.zeros(0, np.int64))
        for start, count in zip(starts, counts, strict=False)
    ]
    images = np.repeat(np.array(points, np.float32)[:, None, :], counts, axis=0)  # (samples, 1, d)
    people = gather(images, np.zeros(len(images), np.int64), shares, num_classes=1)
    return World(
        people,
        PointTrainer(people, spread=spread),
        Seeds(seed),
        LocalTraining(learning_rate=0.5),
        graph=graph,
        graph_links=links or Links(),
    )


def availability_trace(folder: Path, text: str) -> dict[str, JsonScalar]:
    """What virtual time says of clients that come and go as these lines have it."""
    (folder / "trace.csv").write_text("client,from_s,to_s\n" + text, encoding="utf-8")
    return {"availability": "trace", "availability.path": str(folder / "trace.csv")}


def shown(intervals: Sequence[Interval]) -> list[object]:
    """All that intervals show, comparable."""
    return [
        (
            interval.number, interval.virtual_time_s, interval.participants.tolist(), interval.results, interval.lost,
            interval.traffic, interval.evaluated.tolist(),
            None if interval.evaluation is None else interval.evaluation.loss_sum.tolist(),
        )
        for interval in intervals
    ]  # fmt: skip
