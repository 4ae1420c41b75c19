"""The selections of a run, beside its ledger: which one led to which update."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_core.dag.transaction import Transaction
from fl_core.types import Digest, TxId
from fl_simulator.errors import ResultsError
from fl_simulator.ledgers.network import LocalUpdate, VirtualServers
from fl_simulator.run.folder import EVIDENCE, LABEL
from fl_simulator.run.offers import Offers
from fl_simulator.run.record import RunLabel
from fl_simulator.seeds import Seeds
from tests.builders import make_genesis

SEED = 5


@pytest.fixture
def network() -> Iterator[VirtualServers]:
    made = VirtualServers(make_genesis(), np.zeros(4, np.float32), seeds=Seeds(SEED), num_clients=3)
    yield made
    made.close()


def publish(network: VirtualServers, client: int, *parents: TxId) -> TxId:
    update = LocalUpdate(client, np.ones(4, np.float32), tuple(sorted(parents)) or (network.id,), 1, Digest("a" * 64))
    return network.publish([update], now=0)[0]


def selection(client: int, offered: list[int], taken: list[int]) -> dict[str, Any]:
    scores = [round(0.9 - 0.5 * rank, 2) for rank in range(len(offered))]
    return {"round": 0, "client": client, "offered": offered, "similarities": scores, "taken": taken}


def offers(folder: Path, network: VirtualServers, updates: list[TxId], *lines: Any) -> Offers:
    label = RunLabel(experiment="e", setting="s", participation=1.0, method="DAG-ACFL", seed=SEED, rounds=2)
    (folder / LABEL).write_text(json.dumps(asdict(label)))
    (folder / EVIDENCE).write_text(
        "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines)
    )
    held: list[Transaction] = [network.record.transaction(each) for each in (network.id, *updates)]
    return Offers(folder, held)


def test_an_update_has_the_selection_of_its_clients_same_turn(tmp_path: Path, network: VirtualServers) -> None:
    firsts = [publish(network, client) for client in range(3)]
    second = publish(network, 0, firsts[2])
    lines = [selection(client, [], []) for client in range(3)]
    found = offers(tmp_path, network, [*firsts, second], *lines, selection(0, [2, 1], [2]))
    assert found.of(firsts[0]) is None, "nothing was compared"
    assert [(each.author, each.update, each.similarity) for each in found.of(second) or []] == [
        (network.authors[2], firsts[2], 0.9),
        (network.authors[1], None, 0.4),
    ]
    assert found.of(network.id) is None


def test_a_clients_own_update_among_the_parents_was_not_offered(tmp_path: Path, network: VirtualServers) -> None:
    firsts = [publish(network, client) for client in range(3)]
    both = publish(network, 0, firsts[0], firsts[1])
    found = offers(tmp_path, network, [*firsts, both], selection(0, [], []), selection(0, [1, 2], [1]))
    assert [each.update for each in found.of(both) or []] == [firsts[1], None]


@pytest.mark.parametrize("taken", [[], [1], [1, 2]])
def test_a_selection_that_took_others_than_the_parents_is_not_shown(
    tmp_path: Path, network: VirtualServers, taken: list[int]
) -> None:
    firsts = [publish(network, client) for client in range(3)]
    second = publish(network, 0, firsts[2])
    found = offers(tmp_path, network, [*firsts, second], selection(0, [], []), selection(0, [2, 1], taken))
    assert found.of(second) is None


def test_a_run_without_a_trace_has_none(tmp_path: Path, network: VirtualServers) -> None:
    first = publish(network, 0)
    found = offers(tmp_path, network, [first])
    (tmp_path / EVIDENCE).unlink()
    assert found.of(first) is None
    assert Offers(tmp_path, []).of(first) is None


@pytest.mark.parametrize(
    "line", ["{", "7", '{"client": 0}', json.dumps(selection(-1, [], [])), json.dumps(selection(0, [1], [2]))]
)
def test_a_damaged_line_is_named(tmp_path: Path, network: VirtualServers, line: str) -> None:
    with pytest.raises(ResultsError, match=r"evidence.jsonl, line 2: no selection"):
        offers(tmp_path, network, [], selection(0, [], []), line)
