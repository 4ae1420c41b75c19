"""Strategies on a graph in their plainest form: node after node, neighbour after neighbour, in float64."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Model = NDArray[np.float64]
Arcs = Mapping[tuple[int, int], float]
"""The weight of each arc (hearer, source)."""
Pull = Callable[[Model, int], Model]
"""The gradient at a model of a node's loss."""


def decavg(models: Sequence[Model], heard: Arcs, examples: Sequence[int]) -> list[Model]:
    """DecDiff, Eq. 4, with its weights made to sum to 1."""
    after = []
    for node, own in enumerate(models):
        total, weighed = float(examples[node]), examples[node] * own
        for (hearer, source), omega in heard.items():
            if hearer == node:
                total += omega * examples[source]
                weighed = weighed + omega * examples[source] * models[source]
        after.append(weighed / total)
    return after


def metropolis(models: Sequence[Model], heard: Arcs) -> list[Model]:
    """D-Cliques, Eq. metro."""
    degree = [sum(hearer == node for hearer, _ in heard) for node in range(len(models))]
    after = []
    for node, own in enumerate(models):
        left, mixed = 1.0, np.zeros_like(own)
        for hearer, source in heard:
            if hearer == node:
                weight = 1 / (max(degree[node], degree[source]) + 1)
                mixed += weight * models[source]
                left -= weight
        after.append(mixed + left * own)
    return after


def neighbours_average(models: Sequence[Model], heard: Arcs, examples: Sequence[int], node: int) -> Model | None:
    """DecDiff, Eq. 6; None for who hears nobody."""
    those = [(source, omega) for (hearer, source), omega in heard.items() if hearer == node]
    if not those:
        return None
    total = sum(omega * examples[source] for source, omega in those)
    return np.asarray(sum(omega * examples[source] / total * models[source] for source, omega in those))


def decdiff(models: Sequence[Model], heard: Arcs, examples: Sequence[int], *, s: float = 1.0) -> list[Model]:
    """DecDiff, Eq. 5."""
    after = []
    for node, own in enumerate(models):
        average = neighbours_average(models, heard, examples, node)
        if average is None:
            after.append(own)
        else:
            after.append(own + (average - own) / (float(np.sqrt(((average - own) ** 2).sum())) + s))
    return after


def cfa(models: Sequence[Model], heard: Arcs, examples: Sequence[int], degrees: Sequence[int]) -> list[Model]:
    """DecDiff, Eq. 9, with Δ = |N(i)| of the whole graph."""
    after = []
    for node, own in enumerate(models):
        those = [source for hearer, source in heard if hearer == node]
        total = sum(examples[source] for source in those)
        moved = own
        for source in those:
            moved = moved + examples[source] / total * (models[source] - own) / degrees[node]
        after.append(moved)
    return after


def neighbours_gradients(
    sent_before: Sequence[Model], heard_before: Arcs, heard: Arcs, examples: Sequence[int], gradient: Pull
) -> list[Model]:
    """What each node of CFA-GE receives: gradients, at the model that it sent in the round before, of those who heard
    that and whom it hears now, by their examples.
    """
    received = []
    for node, model in enumerate(sent_before):
        those = [source for hearer, source in heard if hearer == node and (source, node) in heard_before]
        total = sum(examples[source] for source in those)
        pulled = np.zeros_like(model)
        for source in those:
            pulled = pulled + examples[source] / total * gradient(model, source)
        received.append(pulled)
    return received


def d_sgd_step(
    models: Sequence[Model],
    velocities: Sequence[Model],
    up: Arcs,
    participants: Sequence[int],
    gradient: Pull,
    *,
    learning_rate: float,
    momentum: float,
    clique_of: Sequence[int] | None,
) -> tuple[list[Model], list[Model]]:
    """D-Cliques' two algorithms; ``clique_of`` None: without averaging gradients."""
    gradients = {node: gradient(models[node], node) for node in participants}
    stepped, after = list(models), list(velocities)
    for node in participants:
        averaged = [gradients[node]]
        if clique_of is not None:
            averaged += [
                gradients[source] for hearer, source in up if hearer == node and clique_of[source] == clique_of[node]
            ]
        after[node] = momentum * velocities[node] + sum(averaged) / len(averaged)
        stepped[node] = models[node] - learning_rate * after[node]
    return metropolis(stepped, up), after
