"""What is offered while something is quarantined, and what clients are led back to."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.candidates import CANDIDATE_RULES
from fl_core.dag.acts import Effect, acts_in_effect
from fl_core.dag.author_list import AuthorList
from fl_core.dag.figures import Figures, step_from
from fl_core.ledger import Admitted
from fl_core.models import encode_flat, flat, model_norm
from fl_core.node import LedgerNode
from fl_core.selection import SELECTORS, SelectionRequest
from fl_core.trust.lineage import Lineage, Suspects
from fl_core.trust.quarantine import NO_QUARANTINE, Quarantine
from fl_core.trust.report import Healing, affected, descents
from fl_core.types import TxId
from tests.builders import TinyLedger, make_genesis, model

both_rules = pytest.mark.parametrize("rule", [*CANDIDATE_RULES])


def nothing_decided(tiny: TinyLedger) -> Effect:
    return acts_in_effect((), founders=[member.key for member in tiny.genesis.members], threshold="majority")


def quarantine(tiny: TinyLedger, *updates: TxId, author: str | None = None) -> Quarantine:
    authors = [] if author is None else [tiny.author(author)]
    return Quarantine(Suspects(frozenset(authors), frozenset(updates)))


def go_by(tiny: TinyLedger, decided: Quarantine, node: LedgerNode | None = None) -> None:
    (node or tiny.node).go_by(nothing_decided(tiny), AuthorList(), decided)


def offered(node: LedgerNode) -> set[TxId]:
    return {each.transaction for each in node.candidate_rule.candidates(None)}


@both_rules
def test_a_quarantined_authors_updates_and_their_descendants_are_not_offered_until_it_is_lifted(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule))
    eve = tiny.publish("eve", [tiny.genesis_id], model(1))
    bob = tiny.publish("bob", [tiny.genesis_id], model(2))
    ann = tiny.publish("ann", [eve], model(3))
    before = offered(tiny.node)
    go_by(tiny, quarantine(tiny, author="eve"))
    assert offered(tiny.node) == {bob}
    late = tiny.publish("eve", [bob], model(4))
    assert offered(tiny.node) == {bob}, "neither what comes later, nor does it hide what it names"
    go_by(tiny, NO_QUARANTINE)
    assert offered(tiny.node) == (before | {late}) - ({eve, bob} if rule == "tips" else {eve})
    assert ann in offered(tiny.node)


@both_rules
def test_the_last_clean_update_is_offered_again_and_asked_with(rule: str) -> None:
    tiny = TinyLedger(make_genesis(candidates=rule))
    clean = tiny.publish("ann", [tiny.genesis_id], model(1))
    eve = tiny.publish("eve", [tiny.genesis_id], model(2))
    tainted = tiny.publish("ann", [clean, eve], model(3))
    go_by(tiny, quarantine(tiny, eve))
    assert offered(tiny.node) == {clean}
    (asked,) = tiny.node.nodes_of([tainted])
    assert tiny.node.compared_for(asked).id == clean
    assert tiny.node.candidate_rule.own(tiny.author("ann")) == clean
    (lost,) = tiny.node.nodes_of([eve])
    assert tiny.node.compared_for(lost).id == tiny.genesis_id, "it has no clean one: it begins anew"
    healed = tiny.publish("ann", [clean], model(4))
    assert offered(tiny.node) == {healed}


def test_the_own_newest_of_a_question_is_the_last_clean_one() -> None:
    tiny = TinyLedger(make_genesis(candidates="newest"))
    clean = tiny.publish("ann", [tiny.genesis_id], model(1))
    eve = tiny.publish("eve", [tiny.genesis_id], model(2))
    tiny.publish("ann", [clean, eve], model(3))
    bob = tiny.publish("bob", [tiny.genesis_id], model(4))
    go_by(tiny, quarantine(tiny, author="eve"))
    tiny.node.bring(bob, flat(tiny.genesis.layout, model(4)))
    tiny.node.bring(clean, flat(tiny.genesis.layout, model(1)))
    request = tiny.node.question(tiny.author("ann"), np.ones(4, np.float32))
    assert isinstance(request, SelectionRequest)
    assert (request.own_newest, request.own_averaged) == (clean, clean)
    assert [each.transaction for each in request.candidates] == [bob]


def test_an_erased_authors_updates_are_not_offered_and_taint_nobody() -> None:
    tiny = TinyLedger(make_genesis(candidates="newest"))
    site = tiny.publish("site", [tiny.genesis_id], model(1))
    ann = tiny.publish("ann", [site], model(2))
    go_by(tiny, Quarantine(erased=frozenset({tiny.author("site")})))
    assert offered(tiny.node) == {ann}


def test_a_report_says_what_each_client_goes_on_from() -> None:
    tiny = TinyLedger(make_genesis(candidates="newest"))
    clean = tiny.publish("ann", [tiny.genesis_id], model(1))
    eve = tiny.publish("eve", [tiny.genesis_id], model(2))
    bob = tiny.publish("bob", [eve], model(3))
    ann = tiny.publish("ann", [clean, eve], model(4))
    cid = tiny.publish("cid", [eve], model(5))
    go_by(tiny, quarantine(tiny, author="eve"))
    healed = tiny.publish("cid", [tiny.genesis_id], model(6))
    found = {each.author: each for each in affected(tiny.ledger.graph, tiny.node.offering)}
    state = {name: found[tiny.author(name)] for name in ("ann", "bob", "cid", "eve")}
    assert [(each.state, each.clean, each.newest) for each in state.values()] == [
        (Healing.LED_BACK, clean, ann),
        (Healing.LED_BACK, None, bob),
        (Healing.HEALED, healed, healed),
        (Healing.QUARANTINED, None, eve),
    ]
    assert cid not in offered(tiny.node)
    assert tiny.node.offering.descendants == 4
    would = {each.author: each for each in descents(tiny.ledger.graph, Suspects(updates=frozenset({eve})), max_taint=0)}
    assert {author: (each.descendants, each.beyond, each.clean) for author, each in would.items()} == {
        each.author: (each.withheld, each.withheld, each.clean) for each in found.values()
    }


class Round:
    """Clients that ask, average, train by a step of their own, and publish: all against one node."""

    def __init__(self, max_taint: float) -> None:
        self.tiny = TinyLedger(make_genesis(candidates="newest", max_taint=max_taint))
        self.node, self.rng = self.tiny.node, np.random.default_rng(7)
        self.models = {self.tiny.genesis_id: flat(self.tiny.genesis.layout, self.tiny.genesis_model)}
        self.selector = SELECTORS.build("top-k", {"k": 8})

    def take_part(self, name: str, length: float) -> None:
        author = self.tiny.author(name)
        newest = self.node.graph.newest_of(author)
        compared = self.node.graph.genesis if newest is None else self.node.compared_for(newest)
        for each in self.node.missing_vectors():
            self.node.bring(each, self.models[each])
        request = self.node.question(author if compared.parents else None, self.models[compared.id])
        assert isinstance(request, SelectionRequest)
        selection = self.selector.choose(request)
        averaged = self.node.parents_to_average(selection) or (compared.id,)
        average = np.mean([self.models[each] for each in averaged], axis=0, dtype=np.float32)
        step = self.rng.normal(size=4)
        trained = (average + length * step / np.linalg.norm(step)).astype(np.float32)
        transaction = self.tiny.draft(name, selection.parents, encode_flat(self.tiny.genesis.layout, trained))
        step = step_from(average, trained, layout=self.tiny.genesis.layout)
        figures = Figures(model_norm(trained), step, self.node.shares(selection.parents))
        assert isinstance(self.node.admit(transaction, self.node.compared(trained), figures=figures), Admitted)
        self.models[transaction.id] = trained


@pytest.mark.parametrize("max_taint", [0.0, 0.05])
def test_after_ten_poisoned_rounds_and_a_quarantine_three_publications_heal_everybody(max_taint: float) -> None:
    clients, honest = Round(max_taint), "abcdefg"
    for _ in range(10):
        for name in honest:
            clients.take_part(name, 0.1)
        clients.take_part("eve", 0.5)
    taints = Lineage(clients.tiny.genesis_id, Suspects(authors=frozenset({clients.tiny.author("eve")})))
    for node in [*clients.tiny.ledger][1:]:
        taints.add(node)
    assert min(taints.taint(each) for each in offered(clients.node)) > 0.1, "everybody descends from her"
    go_by(clients.tiny, quarantine(clients.tiny, author="eve"))
    for _ in range(3):
        for name in (*honest, "eve"):
            clients.take_part(name, 0.1)
            found = clients.node.nodes_of(sorted(offered(clients.node)))
            assert all(clients.node.offering.taint(each) <= max_taint for each in found)
            assert clients.tiny.author("eve") not in {each.author for each in found}
    states = {each.author: each.state for each in affected(clients.tiny.ledger.graph, clients.node.offering)}
    assert states.pop(clients.tiny.author("eve")) == Healing.QUARANTINED
    assert len(states) == len(honest)
    assert {*states.values()} == {Healing.HEALED}
    assert {each.author for each in found} == {*map(clients.tiny.author, honest)}


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([*CANDIDATE_RULES]))
def test_any_order_of_updates_and_decisions_comes_to_the_same(seed: int, rule: str) -> None:
    rng = random.Random(seed)
    tiny = TinyLedger(make_genesis(candidates=rule, max_candidates=4, freshness_s=6))
    ids, names = [tiny.genesis_id], "abcdef"
    for _ in range(15):
        tiny.now_s += rng.random()
        parents = rng.sample(ids[-6:], k=min(len(ids), rng.randint(1, 3)))
        ids.append(tiny.publish(rng.choice(names), parents, model(rng.uniform(-1, 1))))
    decided = quarantine(tiny, *rng.sample(ids[1:], k=2), author=rng.choice(names))
    go_by(tiny, decided)
    other = LedgerNode(tiny.genesis, tiny.genesis_transaction, flat(tiny.genesis.layout, tiny.genesis_model))
    arriving, at = rng.sample(ids[1:], k=len(ids) - 1), rng.randrange(15)
    while arriving:
        for each in list(arriving):
            transaction = tiny.transactions[each]
            if isinstance(other.admit(transaction, None, figures=Figures(1.0)), Admitted):
                arriving.remove(each)
            if len(other.ledger) == 1 + at:
                go_by(tiny, decided, other)
    go_by(tiny, decided, other)
    for asker in (None, *map(tiny.author, names)):
        assert other.candidate_rule.candidates(asker) == tiny.node.candidate_rule.candidates(asker)
        if asker is not None:
            assert other.candidate_rule.own(asker) == tiny.node.candidate_rule.own(asker)
