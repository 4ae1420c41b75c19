"""The server over a real database and the simulator's virtual servers, given one history, give the same answers."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fl_core.dag.signature import Role, sign
from fl_core.models import encode_flat
from fl_core.node import Publication
from fl_core.selection import SELECTORS
from fl_core.types import JsonScalar, TxId, Vector32
from fl_simulator.ledgers.network import LocalUpdate, VirtualServers
from fl_simulator.ledgers.record import model_digest
from fl_simulator.seeds import Seeds
from ledger_server.founding import create_ledger
from ledger_server.history import JournalNodes
from ledger_server.publishing import LedgerService
from ledger_server.reading import LedgerView
from ledger_server.store import open_store
from tests.builders import LAYOUT, START, make_genesis

CLIENTS = 8
STEPS = 40
INITIAL = np.array([1, 0, 0, 0], np.float32)


class Both:
    """A ledger server and a simulated one with the same keys, told the same things."""

    def __init__(self, service: LedgerService, network: VirtualServers) -> None:
        self.service, self.network = service, network
        self.newest: dict[int, TxId] = {}
        self.now = 0.0
        self.sequence = [0] * CLIENTS
        self._selector = SELECTORS.build(network.genesis.selector.name, network.genesis.selector.params)

    def select(self, client: int, model: Vector32) -> tuple[tuple[TxId, ...], Vector32]:
        """Ask both for one client, compare all that they say, and return parents and the average."""
        (request,) = self.network.questions({client: model}).values()
        expected = self._selector.choose(request)
        if client in self.newest:
            record, _ = self.service.selections.select_for(self.newest[client])
        else:
            record, _ = self.service.selections.select_with(encode_flat(LAYOUT, model))
        found = record.evidence
        offered = self.service.node.candidate_rule.candidates(self.network.authors[client])
        assert offered == request.candidates
        assert found.selection == expected  # parents, rule, cut; similarities and probabilities to the bit
        average = model if expected.source == "own" else self.network.aggregate(expected.parents)
        assert found.aggregate == model_digest(LAYOUT, average)
        assert bytes(self.service.aggregates.model(found.aggregate)) == encode_flat(LAYOUT, average)
        return expected.parents, average

    def publish(self, client: int, model: Vector32, parents: tuple[TxId, ...], *, now: float) -> None:
        """Publish one update on both; its id holds every byte of its header."""
        self.now = now
        (expected,) = self.network.publish([LocalUpdate(client, model, parents, 10 + client, START)], now=now)
        published = self.service.publish(
            Publication(
                num_examples=10 + client,
                parents=parents,
                start=START,
                author=self.network.authors[client],
                sequence=self.sequence[client],
                created_at_ms=int(now * 1000),
                signature=sign(self.network._keys[client], expected, role=Role.AUTHOR),
                claimed_id=expected,
            ),
            encode_flat(LAYOUT, model),
        )
        assert published.transaction == expected
        self.newest[client], self.sequence[client] = expected, self.sequence[client] + 1


@pytest.mark.parametrize(
    ("selector", "params"),
    [("top-k", {"k": 3}), ("beast", {}), ("beast", {"rule": "literal"}), ("least-squares", {}), ("largest-gap", {})],
)
def test_one_history_has_one_set_of_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selector: str, params: dict[str, JsonScalar]
) -> None:
    # The simulator keeps no evidence, without which a server takes nobody else's updates as parents.
    for check in ("check_parents", "check_publication"):
        monkeypatch.setattr(f"fl_core.node.{check}", lambda *_, **__: None)
    # As in a ledger of a million: nearly nothing is in memory, and a start goes on from what is summed up.
    monkeypatch.setattr("ledger_server.reading.JournalNodes", partial(JournalNodes, remembered=3))
    monkeypatch.setattr("ledger_server.reading.SUMMED_UP_EVERY", 7)
    rng = np.random.default_rng(7)
    rules: dict[str, int] = {"max_parents": 4, "max_candidates": 5, "freshness_s": 12}
    genesis = make_genesis(selector=selector, selector_params=params, **rules)
    network = VirtualServers(genesis, INITIAL, seeds=Seeds(3), num_clients=CLIENTS)
    with open_store(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", data_dir=tmp_path) as store:
        key = network._server_keys[0]
        create_ledger(store, genesis, encode_flat(LAYOUT, INITIAL), key=key, now_ms=0)
        service = LedgerService(store, key=key, now_ms=lambda: int(both.now * 1000), cache_bytes=1 << 20)
        both = Both(service, network)
        assert service.id == network.id
        camps = rng.normal(size=(2, 4))
        for step in range(STEPS):
            client = int(rng.integers(CLIENTS))
            own = network.newest(client)
            joined = (INITIAL + camps[client % 2] + rng.normal(size=4) / 8).astype(np.float32)
            parents, average = both.select(client, joined if own is None else own)
            trained = (0.5 * average + 0.5 * (INITIAL + camps[client % 2]) + rng.normal(size=4) / 8).astype(np.float32)
            both.publish(client, trained, parents, now=float(step))
        (node,) = network.nodes
        assert service.tips() == (len(node.ledger), node.graph.tips())
        assert [*service.ledger] == [*node.ledger]
        summed_up = store.summary()
        assert summed_up is not None
        for damaged in (b"", summed_up):  # who starts reads all of the journal, or what came since
            store.keep_summary(damaged or b'{"version":0}')
            again = LedgerView(store, cache_bytes=0)
            assert again.node.graph.summed_up() == service.node.graph.summed_up()
            assert again.node.candidate_rule.front() == service.node.candidate_rule.front()
            assert [*again.items] == [*service.items] == sorted((each.depth, each.id) for each in node.ledger)
            assert (again.items.total_sum, again.header_bytes()) == (service.items.total_sum, service.header_bytes())
        assert rules["freshness_s"] < STEPS, "some candidates went stale"
        service.close()
    network.close()
