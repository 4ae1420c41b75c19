"""Gossip keeps its invariants under faults that a seed decides; and the simulation notices when it does not."""

import re
from collections.abc import Callable

import pytest

from fl_core.dag.figures import Figures
from fl_core.ledger import AlreadyKnown, WaitingForParents
from fl_core.sync.effects import Admit
from tests.faults.gossip.bad_peers import BAD_PEERS
from tests.faults.gossip.disk import Entry
from tests.faults.gossip.server import Server
from tests.faults.gossip.world import World

SEEDS = 20
CHUNK = 5


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_five_servers_keep_every_invariant_and_become_equal(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = World(seed).run()
        assert outcome.broken is None, f"seed {seed}: {outcome.broken}"
        assert outcome.transactions >= outcome.acknowledged
        assert outcome.checks > outcome.transactions


@pytest.mark.parametrize("kind", BAD_PEERS)
def test_a_bad_peer_gets_nothing_in_and_keeps_nobody_from_becoming_equal(kind: str) -> None:
    for seed in range(5000, 5002):
        outcome = World(seed, bad_peer=kind).run()
        assert outcome.broken is None, f"seed {seed}: {outcome.broken}"


def test_a_server_joins_after_pruning_and_becomes_equal() -> None:
    taken = 0
    for seed in range(8000, 8008):
        world = World(seed, is_pruned=True)
        assert world.run().broken is None, f"seed {seed}"
        taken += len(world.servers[-1].disk.checkpoints)
    assert taken, "somebody was gone by"


def test_the_same_seed_is_the_same_run() -> None:
    assert World(7).run() == World(7).run()


class AcknowledgesBeforeItIsDurable(Server):
    def _append(self, entry: Entry, *, shown: Callable[[], None], failed: Callable[[], None]) -> None:
        self._show(entry)
        self.is_writing += 1
        shown()
        super()._append(entry, shown=lambda: None, failed=failed)


class ForgetsWhatItHeld(Server):
    def crash(self) -> None:
        super().crash()
        if len(self.disk.entries) > 1:
            entry = self.disk.entries.pop()
            del self.disk._by_id[entry.id]


class ShowsBeforeItsParents(Server):
    def _show(self, entry: Entry) -> None:
        answer = self.replica.admit(entry.bundle.transaction, None, figures=Figures(entry.norm))
        assert not isinstance(answer, WaitingForParents)
        if not isinstance(answer, AlreadyKnown) and len(self.ledger) == 4:
            nodes = self.ledger.graph.nodes._nodes  # type: ignore[attr-defined]
            nodes.pop(next(iter(answer.node.parents)), None)  # genesis is not among them
        self.is_writing -= 1
        self.changed(self)


class NeverAdmitsTheThird(Server):
    def _admit(self, effect: Admit) -> None:
        if len(self.ledger) != 3:
            super()._admit(effect)


class LosesTheModel(Server):
    def _show(self, entry: Entry) -> None:
        self.disk._models.clear()
        super()._show(entry)


@pytest.mark.parametrize(
    ("bug", "what"),
    [
        (AcknowledgesBeforeItIsDurable, "not on the disk"),
        (ForgetsWhatItHeld, "not on the disk|shrank"),
        (ShowsBeforeItsParents, "before its parents|shrank"),
        (NeverAdmitsTheThird, "after healing"),
        (LosesTheModel, "without its model"),
    ],
)
def test_a_planted_bug_is_caught(bug: type[Server], what: str) -> None:
    broken = [World(seed, server_type=bug).run().broken for seed in range(10)]
    assert any(each is not None and re.search(what, each) for each in broken), broken


@pytest.mark.parametrize(("topology", "n_servers"), [("ring", 5), ("small-world", 9)])
def test_servers_that_know_their_neighbours_only_become_equal_as_well(topology: str, n_servers: int) -> None:
    for seed in range(7000, 7004):
        world = World(seed, topology=topology, n_servers=n_servers)
        assert all(len(server.peers) < n_servers - 1 for server in world.servers), "nobody knows everybody"
        assert world.run().broken is None
