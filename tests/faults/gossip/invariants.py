"""What must hold after every step, whatever the faults; and what must hold once they are over."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fl_core.aggregation import AGGREGATORS, ArraySource
from fl_core.aggregation.model import model_weights
from fl_core.dag.transaction import transaction_id
from fl_core.models import flat
from fl_core.sync.effects import Incident
from fl_core.sync.messages import Peer
from fl_core.types import TxId, digest_of

if TYPE_CHECKING:
    from tests.faults.gossip.server import Server


FAULTS_OF_PEERS = (Incident.INVALID, Incident.BANNED, Incident.ROLLED_BACK)


class BrokenInvariantError(AssertionError):
    """Something happened that never may."""


def _require(holds: object, what: str) -> None:
    if not holds:
        raise BrokenInvariantError(what)


@dataclass
class History:
    """What clients know."""

    attempted: set[TxId] = field(default_factory=set)
    acknowledged: dict[TxId, set[Peer]] = field(default_factory=lambda: defaultdict(set))

    def acknowledge(self, transaction: TxId, server: Peer) -> None:
        """A client read the answer of this server."""
        self.acknowledged[transaction].add(server)


@dataclass
class Watch:
    """Looks at a server after each change of it.

    Args:
        history: What clients know.
        ledger: The genesis id.
    """

    history: History
    ledger: TxId
    seen: dict[Peer, set[TxId]] = field(default_factory=lambda: defaultdict(set))
    checks: int = 0

    def step(self, servers: Sequence["Server"]) -> None:
        """After every step: nothing has changed but what was looked at."""
        for server in servers:
            if server.is_up and len(server.ledger) != len(self.seen[server.name]):
                self.look(server)
                raise BrokenInvariantError("a ledger changed behind the watch's back")

    def look(self, server: "Server") -> None:
        """A server's ledger, disk and set agree with each other, with its past, and with what it promised."""
        shown = {node.id for node in server.ledger}
        _require(shown >= self.seen[server.name], "a server's set shrank")
        _require(shown <= self.history.attempted | {self.ledger}, "a transaction that nobody published")
        promised = {transaction for transaction, servers in self.history.acknowledged.items() if server.name in servers}
        _require(all(transaction in server.disk for transaction in promised), "acknowledged and not on the disk")
        fresh = shown - self.seen[server.name]
        for node in server.ledger:
            if node.id in fresh:
                self._look_at(server, node.id, node.parents, shown)
        self.seen[server.name] = shown
        self.checks += 1

    def _look_at(self, server: "Server", identity: TxId, parents: Sequence[TxId], shown: set[TxId]) -> None:
        _require(all(parent in shown for parent in parents), "visible before its parents")
        bundle = server.disk.bundle(identity)
        _require(bundle is not None, "visible and not on the disk")
        assert bundle is not None
        header = bundle.transaction.header
        _require(transaction_id(bundle.transaction.header_bytes) == identity, "bytes that do not hash to the id")
        model = server.disk.model(header.model_digest)
        is_whole = model is not None and digest_of(model) == header.model_digest
        _require(is_whole or header.model_digest in server.disk.pruned, "visible without its model")

    def finish(self, servers: Sequence["Server"]) -> None:
        """Every server once more, whole, then all against each other."""
        self.seen.clear()
        for server in servers:
            self.look(server)
            ids = {node.id for node in server.ledger}
            _require(len(server.items) == len(ids), "the set of items is not the ledger")
        _require(are_equal(servers), "ledgers differ")
        honest = {server.name for server in servers}
        for server in servers:
            blamed = {peer for peer, incident in server.notices if incident in FAULTS_OF_PEERS}
            _require(not blamed & honest, "an honest server was blamed")
        everything = {node.id for node in servers[0].ledger}
        _require(everything >= self.history.acknowledged.keys(), "acknowledged and lost")
        _require(len({server.tips() for server in servers}) == 1, "same set, other tips")
        offers = {server.replica.candidate_rule.candidates(None) for server in servers}
        _require(len(offers) == 1, "same set, other candidates")
        _require(len({aggregate(server) for server in servers}) == 1, "same set, other aggregate")


def are_equal(servers: Sequence["Server"]) -> bool:
    """Whether all are up and hold the same."""
    if not all(server.is_up for server in servers):
        return False
    if len({len(server.ledger) for server in servers}) > 1:
        return False
    return len({frozenset(node.id for node in server.ledger) for server in servers}) == 1


def aggregate(server: "Server") -> bytes:
    """The average of all that the server offers, as it computes it."""
    genesis, graph = server.start.genesis, server.ledger.graph
    offered = [each.transaction for each in server.replica.candidate_rule.candidates(None)] or [graph.genesis.id]
    nodes = [node for each in offered if (node := graph.get(each)) is not None]
    weights = model_weights(genesis, [node.num_examples for node in nodes])
    models = [ArraySource(flat(genesis.layout, server.model_of(node.id))) for node in nodes]
    rule = AGGREGATORS.build(genesis.aggregator.name, genesis.aggregator.params)
    return rule.aggregate(models, weights).tobytes()
