"""Taint against naive twins that follow every step's part in every model."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.aggregation import AGGREGATORS
from fl_core.dag.figures import Figures, Step
from fl_core.dag.graph import Node
from fl_core.trust.lineage import Lineage, Suspects
from fl_core.types import AuthorId, Digest, TxId

GENESIS = TxId("genesis")
BAD = Suspects(updates=frozenset({TxId("bad")}))


def update(
    name: str, *parents: str, step: float | None = 1.0, shares: tuple[float, ...] | None = None, author: str = ""
) -> Node:
    """An update that averages its parents, equally unless told."""
    return Node(
        id=TxId(name),
        parents=tuple(map(TxId, parents)),
        author=AuthorId(author or name),
        sequence=0,
        num_examples=1,
        recorded=Figures(
            1.0,
            None if step is None else Step(step, ()),
            (1 / len(parents),) * len(parents) if shares is None else shares,
        ).pack(),
        depth=1,
        model_digest=Digest(""),
    )


def taints(nodes: list[Node], suspects: Suspects) -> dict[str, float]:
    lineage = Lineage(GENESIS, suspects)
    for node in nodes:
        lineage.add(node)
    return {node.id: lineage.taint(node.id) for node in nodes}


def test_a_step_counts_once_and_fades_as_clean_ones_follow() -> None:
    nodes = [
        update("bad", GENESIS),
        update("good", GENESIS),
        update("both", "bad", "good"),  # a half of 1 + 1
        update("later", "both"),  # a half of 3
        update("elsewhere", "good"),
    ]
    expected = {"bad": 1.0, "good": 0.0, "both": 0.25, "later": pytest.approx(1 / 6), "elsewhere": 0.0}
    assert taints(nodes, BAD) == expected


def test_a_step_that_was_not_measured_or_is_short_counts_as_any_other() -> None:
    """A server that joined by a checkpoint, or took an update late, knows no step of it."""
    for step in (None, 0.0, 1e-9, 100.0):
        nodes = [update("bad", GENESIS, step=step), update("good", GENESIS), update("both", "bad", "good", step=step)]
        assert taints(nodes, BAD)["both"] == 0.25


def test_all_steps_of_an_author_count_and_those_of_others_upon_them_do_not() -> None:
    nodes = [update("a", GENESIS, author="ann"), update("b", "a", author="bob"), update("c", "b", author="ann")]
    found = taints(nodes, Suspects(authors=frozenset({AuthorId("ann")})))
    assert found == {"a": 1.0, "b": 0.5, "c": pytest.approx(2 / 3)}


def test_a_parent_counts_by_its_share_of_a_mean() -> None:
    nodes = [
        update("bad", GENESIS),
        update("good", GENESIS),
        update("both", "bad", "good", shares=(0.25, 0.75)),
    ]
    assert taints(nodes, BAD)["both"] == 0.125


@pytest.mark.parametrize(("rule", "params"), [("trimmed-mean", {"trim_share": 0.34}), ("median", {}), ("krum", {})])
def test_of_other_rules_each_parent_counts_alike(rule: str, params: dict[str, float]) -> None:
    shares = tuple(AGGREGATORS.build(rule, params).shares([1.0] * 4))
    assert sum(shares) > 1.5
    nodes = [
        *(update(name, GENESIS) for name in ("bad", "a", "b", "c")),
        update("all", "a", "b", "bad", "c", shares=shares),
    ]
    assert taints(nodes, BAD)["all"] == 0.125


def a_history(rng: random.Random) -> list[tuple[str, list[str], float]]:
    """Names, parents and steps (their signs included) of 20 updates."""
    names = [GENESIS]
    history = []
    for number in range(20):
        parents = sorted(rng.sample(names[-6:], k=rng.randint(1, min(5, len(names)))))
        history.append((f"t{number:02}", parents, rng.uniform(-2, 2)))
        names.append(TxId(f"t{number:02}"))
    return history


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_taint_of_means_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    nodes, parts = list[Node](), {GENESIS: dict[str, float]()}  # what is left of each step, in each model
    for name, parents, step in a_history(rng):
        counts = [rng.randint(1, 9) for _ in parents]
        shares = [count / sum(counts) for count in counts]
        parts[TxId(name)] = {name: 1.0}
        for parent, share in zip(parents, shares, strict=True):
            for other, part in parts[TxId(parent)].items():
                parts[TxId(name)][other] = parts[TxId(name)].get(other, 0.0) + share * part
        nodes.append(update(name, *parents, step=abs(step), shares=tuple(np.float32(shares).tolist())))
    bad = set(rng.sample([str(node.id) for node in nodes], k=rng.randint(0, 5)))
    for name, taint in taints(nodes, Suspects(updates=frozenset(map(TxId, bad)))).items():
        foul = math.fsum(part for each, part in parts[TxId(name)].items() if each in bad)
        assert taint == pytest.approx(foul / math.fsum(parts[TxId(name)].values()), abs=1e-5)
