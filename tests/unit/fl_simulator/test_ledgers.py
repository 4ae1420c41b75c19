"""Virtual servers: what is on which of them when, which models they keep, and what a bundle of them is."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.models import encode_flat
from fl_core.selection import SelectionRequest
from fl_core.types import TxId, Vector32, digest_of
from fl_core.verify import verify
from fl_simulator.errors import SimulationError
from fl_simulator.ledgers.network import LocalUpdate, VirtualServers
from fl_simulator.ledgers.record import Record, model_digest
from fl_simulator.ledgers.server import VirtualServer
from fl_simulator.seeds import Seeds
from ledger_server.admin.bundle import Bundle, write_bundle
from tests.builders import LAYOUT, START, make_genesis

GENESIS = make_genesis(max_norm=1e6, max_first_step=1e300, max_step_growth=1e300)
INITIAL = np.array([1, 0, 0, 0], np.float32)


def vector(*values: float) -> Vector32:
    filled = np.zeros(4, np.float32)
    filled[: len(values)] = values
    return filled


@contextmanager
def servers(
    *, clients: int = 4, count: int = 1, delay: Callable[[int, int], float] | None = None, seed: int = 0
) -> Iterator[VirtualServers]:
    made = VirtualServers(GENESIS, INITIAL, seeds=Seeds(seed), num_clients=clients, count=count, delay=delay)
    try:
        yield made
    finally:
        made.close()


def publish(network: VirtualServers, client: int, *values: float, parents: Sequence[TxId] = (), now: float = 0) -> TxId:
    """One client's transaction, on genesis unless told."""
    update = LocalUpdate(client, vector(*values), tuple(sorted(parents)) or (network.id,), 1, START)
    return network.publish([update], now=now)[0]


def receive(server: VirtualServer, record: Record, transaction: TxId) -> None:
    server.receive(record.transaction(transaction), record.get(transaction), record.figures_of(transaction))


def known(network: VirtualServers, server: int) -> set[TxId]:
    return {node.id for node in network.nodes[server].graph}


def question(request: SelectionRequest) -> tuple[Any, ...]:
    return (
        request.candidates,
        request.similarities.tolist(),
        request.update_similarities.tolist(),
        request.genesis_similarity,
        request.own_averaged,
        request.own_newest,
    )


def questions(network: VirtualServers, clients: int) -> dict[int, tuple[Any, ...]]:
    asking = {client: network.newest(client) for client in range(clients)}
    asked = {client: INITIAL if newest is None else newest for client, newest in asking.items()}
    return {client: question(request) for client, request in network.questions(asked).items()}


def faults(record: Record) -> list[str]:
    return [f"{finding.kind}: {finding.message}" for finding in verify(record)]


# -- one server -----------------------------------------------------------------------------------------


def test_what_a_client_publishes_is_the_next_ones_candidate_and_never_its_own() -> None:
    with servers() as network:
        first = publish(network, 0, 1, 1)
        asked = network.questions({0: vector(1, 1), 1: vector(1, 0)})
        assert asked[0].candidates == ()
        assert (asked[0].own_averaged, asked[0].own_newest) == (first, first)
        assert [each.transaction for each in asked[1].candidates] == [first]
        assert asked[1].similarities == pytest.approx([np.sqrt(0.5)])
        assert (asked[1].own_newest, asked[1].genesis) == (None, network.id)
        assert asked[1].genesis_similarity == pytest.approx(1)


def test_similarity_of_updates_is_that_of_what_was_learnt_since_genesis() -> None:
    with servers() as network:
        publish(network, 0, 1, 1)  # learnt (0, 1, 0, 0)
        (request,) = network.questions({1: vector(3, 2)}).values()  # learnt (2, 2, 0, 0)
        assert request.update_similarities == pytest.approx([np.sqrt(0.5)])


def test_an_approved_transaction_is_no_candidate_any_more() -> None:
    with servers() as network:
        first = publish(network, 0, 1, 1)
        second = publish(network, 1, 1, 2, parents=[first])
        assert [each.transaction for each in network.questions({2: INITIAL})[2].candidates] == [second]
        assert network.questions({0: INITIAL})[0].own_averaged is None
        assert network.questions({0: INITIAL})[0].own_newest == first


def test_sequences_count_each_clients_transactions_and_times_are_what_the_caller_says() -> None:
    with servers() as network:
        mine = publish(network, 0, 1, now=1.5)
        other = publish(network, 1, 2, now=2)
        again = publish(network, 0, 3, parents=[mine, other], now=2.25)
        headers = [network.record.transaction(each).header for each in (mine, other, again)]
        assert [header.sequence for header in headers] == [0, 0, 1]
        assert [header.created_at_ms for header in headers] == [1500, 2000, 2250]
        assert headers[2].parents == tuple(sorted([mine, other]))
        newest = network.newest(0)
        assert newest is not None
        assert newest.tolist() == [3, 0, 0, 0]


def test_a_mean_weighs_by_examples_and_one_model_comes_back_as_it_is() -> None:
    with servers() as network:
        updates = [
            LocalUpdate(0, vector(4), (network.id,), 3, START),
            LocalUpdate(1, vector(0, 8), (network.id,), 1, START),
        ]
        parents = network.publish(updates, now=0)
        assert network.aggregate(parents).tolist() == [3, 2, 0, 0]
        assert network.aggregate(parents[::-1]).tolist() == [3, 2, 0, 0]
        assert network.aggregate(parents[:1]).tolist() == [4, 0, 0, 0]


def test_clients_of_the_same_seed_have_the_same_keys_and_those_of_another_have_others() -> None:
    with servers() as one, servers() as same, servers(seed=1) as other:
        assert one.authors == same.authors
        assert one.id == same.id
        assert not set(one.authors) & set(other.authors)
        assert [one.client_of(author) for author in one.authors] == [0, 1, 2, 3]
        assert one.client_of(other.authors[0]) is None


def test_a_model_that_is_not_finite_is_told_by_its_client_and_changes_nothing() -> None:
    with servers() as network:
        with pytest.raises(SimulationError, match=r"client 2 is not finite.*lower learning_rate"):
            publish(network, 2, float("nan"))
        assert (len(network.record), network.newest(2)) == (1, None)


def test_a_models_norm_beyond_the_policys_is_refused_as_on_a_real_server_and_counted() -> None:
    with servers() as network:
        update = LocalUpdate(0, vector(2e6), (network.id,), 1, START)
        assert network.publish([update], now=0) == []
        assert network.newest(0) is None
        assert network.refused.tolist()[:2] == [1, 0]


# -- several servers --------------------------------------------------------------------------------------


def test_what_overtakes_its_parents_waits_for_them() -> None:
    delays = iter([10.0, 10.0, 1.0, 1.0])  # the first transaction travels long, its child is quick
    with servers(count=3, delay=lambda _from, _to: next(delays)) as network:
        first = publish(network, 0, 1, 1, now=0)
        second = publish(network, 0, 1, 2, parents=[first], now=1)
        network.advance(9)
        assert known(network, 1) == {network.id}
        network.advance(10)
        assert known(network, 1) == {network.id, first, second}
        offered = network.questions({1: INITIAL})[1]
        assert [each.transaction for each in offered.candidates] == [second]
        assert offered.similarities == pytest.approx([1 / np.sqrt(5)])


def test_a_long_chain_that_came_in_reverse_is_released_by_its_first_link() -> None:
    with servers() as network:
        chain = [network.id]
        for value in range(1, 6):
            chain.append(publish(network, 0, value, parents=[chain[-1]]))
        late = VirtualServer(GENESIS, network.record.update(network.id))
        for each in reversed(chain[2:]):
            receive(late, network.record, each)
        assert {node.id for node in late.node.graph} == {network.id}
        assert late.wanted() >= set(chain[2:])
        receive(late, network.record, chain[1])
        assert {node.id for node in late.node.graph} == set(chain)
        assert late.wanted() == {chain[-1]}


def test_the_same_transaction_twice_is_the_same_as_once() -> None:
    with servers() as network:
        first = publish(network, 0, 1, 1)
        receive(network._servers[0], network.record, first)
        (request,) = network.questions({1: INITIAL}).values()
        assert [each.transaction for each in request.candidates] == [first]


# -- which models are kept ----------------------------------------------------------------------------------


def test_pruning_keeps_what_waits_and_what_travels() -> None:
    delays = iter([10.0, 1.0, 20.0])
    with servers(clients=2, count=2, delay=lambda _from, _to: next(delays)) as network:
        first = publish(network, 0, 1, 1, now=0)
        second = publish(network, 0, 1, 2, parents=[first], now=0)
        third = publish(network, 0, 1, 3, parents=[second], now=0)
        network.advance(1)  # the second waits for the first on server 1; the first and the third travel
        network.prune()
        assert all(network.record.get(each) is not None for each in (first, second, third))
        network.advance(20)
        network.prune()
        assert [network.record.get(each) is not None for each in (first, second, third)] == [False, False, True]


def test_a_dropped_model_is_gone_and_its_norm_and_transaction_are_not() -> None:
    with servers() as network:
        first = publish(network, 0, 3, 4)
        publish(network, 0, 6, 8, parents=[first])
        before = network.record.ledger_bytes
        network.prune()
        with pytest.raises(KeyError):
            network.record.vector(first)
        assert network.record.figures_of(first).norm == 5
        assert network.record.transaction(first).id == first
        assert network.record.pruned == 1
        assert network.record.ledger_bytes == before


def test_a_ledgers_bytes_are_those_of_its_transactions_and_models() -> None:
    with servers() as network:
        publish(network, 0, 1)
        said = [network.record.transaction(each) for each in network.record]
        signatures = 64 + 112 + 32  # the author's, the receipt, the id
        assert all(each.author_signature is not None for each in said)
        expected = sum(len(each.header_bytes) + signatures + LAYOUT.nbytes for each in said)
        assert network.record.ledger_bytes == expected
        assert network.record.newest_information_bytes == len(said[-1].header_bytes) + signatures


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=4, max_size=4))
def test_a_models_digest_is_that_of_its_file(values: list[float]) -> None:
    model = vector(*values)
    assert model_digest(LAYOUT, model) == digest_of(encode_flat(LAYOUT, model))


# -- against a naive account ----------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, float, list[float]]]:
    """Who publishes after how long, and how long that travels to each server."""
    steps = st.tuples(
        st.integers(0, 3),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=3, max_size=3),
    )
    return draw(st.lists(steps, min_size=1, max_size=12))


class Account:
    """When each transaction reaches each server, by arithmetic; a server knows it once its ancestors have come, too."""

    def __init__(self, genesis: TxId) -> None:
        self.arrival: dict[TxId, list[float]] = {genesis: [0.0] * 3}
        self.parents: dict[TxId, tuple[TxId, ...]] = {genesis: ()}

    def add(self, transaction: TxId, parents: tuple[TxId, ...], arrival: list[float]) -> None:
        self.arrival[transaction], self.parents[transaction] = arrival, parents

    def known(self, server: int, now: float) -> set[TxId]:
        here = {each for each, arrival in self.arrival.items() if arrival[server] <= now}
        while lacking := {each for each in here if not here.issuperset(self.parents[each])}:
            here -= lacking
        return here


def parents_for(network: VirtualServers, client: int) -> tuple[TxId, ...]:
    (request,) = network.questions({client: INITIAL}).values()
    own = [] if request.own_averaged is None else [request.own_averaged]
    return tuple(sorted([each.transaction for each in request.candidates[:2]] + own)) or (network.id,)


def play(
    history: list[tuple[int, float, list[float]]], *, prune: bool = False, stop_at: int | None = None
) -> tuple[VirtualServers, Account, float]:
    """Publish it all; after ``stop_at`` steps on servers that were restored from the first ones' state."""
    travel: Mapping[int, list[float]] = dict(enumerate(each[2] for each in history))
    number = 0

    def delay(_origin: int, server: int) -> float:
        return travel[number][server]

    def new() -> VirtualServers:
        return VirtualServers(GENESIS, INITIAL, seeds=Seeds(0), num_clients=4, count=3, delay=delay)

    network, now = new(), 0.0
    account = Account(network.id)
    for number, (client, pause, _) in enumerate(history):
        if number == stop_at:
            state = {name: value.copy() for name, value in network.state().items()}
            network.close()
            network = new()
            network.restore(state)
        now += pause
        network.advance(now)
        parents = parents_for(network, client)
        home = network.server_of(client)
        transaction = publish(network, client, 1, number + 1, parents=parents, now=now)
        arrival = [now if server == home else now + travel[number][server] for server in range(3)]
        account.add(transaction, parents, arrival)
        for server in range(3):
            assert known(network, server) == account.known(server, now)
        if prune:
            network.prune()
    return network, account, now


@settings(max_examples=60, deadline=None)
@given(history=histories(), prune=st.booleans())
def test_servers_know_what_has_reached_them_and_end_equal_whatever_the_delays(
    *, history: list[tuple[int, float, list[float]]], prune: bool
) -> None:
    network, account, now = play(history, prune=prune)
    network.advance(now + 3)
    assert known(network, 0) == known(network, 1) == known(network, 2) == set(account.arrival)
    fresh = VirtualServer(GENESIS, network.record.update(network.id))
    for each in list(network.record)[1:]:
        receive(fresh, network.record, each)
    for node in (*network.nodes, fresh.node):
        offered = [each.transaction for each in node.candidate_rule.candidates(None)]
        assert offered == [each.transaction for each in network.nodes[0].candidate_rule.candidates(None)]
        assert all(network.record.get(each) is not None for each in offered), "what is offered has its model"
    assert faults(network.record) == []
    network.close()


@settings(max_examples=60, deadline=None)
@given(history=histories(), prune=st.booleans(), data=st.data())
def test_restored_servers_go_on_as_if_nothing_had_been(
    *, history: list[tuple[int, float, list[float]]], prune: bool, data: st.DataObject
) -> None:
    stop_at = data.draw(st.integers(0, len(history) - 1))
    whole, _, now = play(history, prune=prune)
    resumed, _, _ = play(history, prune=prune, stop_at=stop_at)
    assert list(resumed.record) == list(whole.record)
    for moment in (now, now + 3):
        whole.advance(moment)
        resumed.advance(moment)
        assert questions(resumed, 4) == questions(whole, 4)
    left, right = whole.state(), resumed.state()
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)
    whole.close()
    resumed.close()


# -- the bundle -------------------------------------------------------------------------------------------


def some_history() -> VirtualServers:
    network = VirtualServers(GENESIS, INITIAL, seeds=Seeds(0), num_clients=4, count=2)
    for number in range(12):
        publish(network, number % 4, 1, number + 1, parents=parents_for(network, number % 4), now=number)
    return network


@pytest.mark.parametrize("prune", [False, True])
def test_a_records_bundle_is_a_ledger_that_verifies(tmp_path: Path, *, prune: bool) -> None:
    network = some_history()
    if prune:
        network.prune()
        assert network.record.pruned > 0
    assert faults(network.record) == []
    file = tmp_path / "ledger.dagacfl"
    assert write_bundle(network.record, file) == 13
    with Bundle(file) as bundle:
        assert list(verify(bundle)) == []
        assert (bundle.ledger, bundle.count, bundle.pruned) == (network.id, 13, network.record.pruned)
        kinds = defaultdict(list)
        for identity, transaction in bundle.transactions():
            kinds[transaction.header.kind].append(identity)
    assert {kind.name: len(those) for kind, those in kinds.items()} == {"GENESIS": 1, "UPDATE": 12}
    network.close()


def test_a_changed_model_in_a_record_is_found() -> None:
    network = some_history()
    newest = list(network.record)[-1]
    network.record.vector(newest)[0] += 1
    assert [finding.transaction for finding in verify(network.record)] == [newest]
    network.close()


def test_a_record_is_restored_whole() -> None:
    network = some_history()
    network.prune()
    state = {name: value.copy() for name, value in network.record.state().items()}
    again = Record.restore(GENESIS, state)
    assert list(again) == list(network.record)
    assert [again.figures_of(each) for each in again] == [network.record.figures_of(each) for each in again]
    assert (again.pruned, again.ledger_bytes, again.ledger) == (
        network.record.pruned,
        network.record.ledger_bytes,
        network.id,
    )
    assert faults(again) == []
    assert all(not value.dtype.hasobject for value in state.values())
    network.close()
