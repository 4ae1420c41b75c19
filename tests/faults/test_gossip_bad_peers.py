"""One server, one honest peer, one bad peer with much to say: nothing gets in, and memory stays bounded."""

import random
from typing import Any

import pytest

from fl_core.sync.effects import Incident
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    Changes,
    GetChanges,
    GetTransactions,
    Peer,
    Request,
    Response,
    TransactionBundle,
    Transactions,
)
from fl_core.sync.request_queue import MAX_LISTED
from fl_core.types import TxId
from tests.builders import TinyLedger, key_from_seed, model
from tests.faults.gossip.bad_peers import BadPeer, EndlessChain, Silent, Withholder, mutated
from tests.faults.gossip.disk import Entry
from tests.faults.gossip.network import Clock, Network
from tests.faults.gossip.server import Party, Server


class Meeting:
    """A server that holds nothing, a peer with ten transactions, and a bad peer."""

    def __init__(self, bad_type: type[BadPeer], **named: Any) -> None:
        rng = random.Random(3)
        start = TinyLedger()
        self.clock = Clock()
        network = Network(self.clock, rng, slowest_s=0.02, loss=0.0, doubled=0.0)
        parties: dict[Peer, Party] = {}
        keys = [key_from_seed(100 + i) for i in range(3)]
        self.servers: list[Server] = []
        self.bad = bad_type(keys[2], start, victims=self.servers, clock=self.clock, network=network, rng=rng, **named)
        limits = GossipLimits(pending_per_peer=100)
        for key, other in ((keys[0], keys[1]), (keys[1], keys[0])):
            peers = (Peer(other.public_key().public_bytes_raw().hex()), self.bad.name)
            self.servers.append(
                Server(
                    key,
                    start,
                    peers=peers,
                    clock=self.clock,
                    network=network,
                    rng=rng,
                    limits=limits,
                    parties=parties,
                )
            )
        self.server, self.peer = self.servers
        self.start, self.limits = start, limits
        parent = start.genesis_id
        for number in range(10):
            data = model(1.0, number)
            parent = start.publish("ann", [parent], data)
            self.peer.disk.append(Entry(TransactionBundle(start.transactions[parent]), data, start.norm(data)))
        for party in (*self.servers, self.bad):
            parties[party.name] = party

    def run(self, for_s: float) -> None:
        """Let time pass, and hold the bounds at every step."""
        for party in (self.server, self.peer, self.bad):
            party.started()
        while self.clock.now_s < for_s:
            self.clock.step()
            assert len(self.server.node.inbound.pending) <= 2 * self.limits.pending_per_peer + 10
            assert len(self.server.node.inbound.queue) <= 2 * MAX_LISTED

    def incidents(self, incident: Incident) -> int:
        return self.server.notices[self.bad.name, incident]


class TenThousandMutants(BadPeer):
    """Lists mutants page by page; each id is that of the mutated bytes, so that it is asked for."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        ledger, rng = TinyLedger(), random.Random(4)
        honest = [
            ledger.transactions[ledger.publish(f"author {n}", [ledger.genesis_id], model(1.0, n))] for n in range(20)
        ]
        mutants = [mutated(TransactionBundle(honest[n % 20]), rng) for n in range(10_000)]
        self.mutants = {mutant.transaction.id: mutant for mutant in mutants}

    def serve(self, request: Request, asker: Peer) -> Response | None:
        match request:
            case GetChanges(after, limit):
                start = int(after or 0)
                ids = list(self.mutants)
                return Changes(tuple(ids[start : start + limit]), str(start + limit), more=start + limit < len(ids))
            case GetTransactions(ids):
                return Transactions(tuple(self.mutants[identity] for identity in ids))
        return None


def test_of_ten_thousand_mutated_transactions_none_is_stored_and_their_sender_is_banned_at_the_twentieth() -> None:
    meeting = Meeting(TenThousandMutants)
    meeting.run(60)
    assert len(meeting.server.ledger) == 11, "what the honest peer has, and nothing else"
    assert meeting.incidents(Incident.INVALID) == 20
    assert meeting.incidents(Incident.BANNED) == 1
    assert len(meeting.server.node.inbound.pending) == 0


class LongChain(EndlessChain):
    length = 5000


def test_an_endless_chain_of_ancestors_ends_where_its_room_does() -> None:
    meeting = Meeting(LongChain)
    asked: list[TxId] = []
    serve = meeting.bad.serve

    def counting(request: Request, asker: Peer) -> Response | None:
        if isinstance(request, GetTransactions) and asker == meeting.server.name:
            asked.extend(request.ids)
        return serve(request, asker)

    meeting.bad.serve = counting  # type: ignore[method-assign]
    meeting.run(40)
    assert len(meeting.server.ledger) == 11
    assert 90 <= len(asked) <= 100 + 10 * 40, "one orphan's room each, and a few tries when it is full"
    assert meeting.server.bytes_fetched == 10 * meeting.start.genesis.layout.nbytes, "orphans' models are not fetched"


def test_a_peer_that_withholds_parents_fills_its_own_share_only() -> None:
    meeting = Meeting(Withholder)
    meeting.run(200)
    assert len(meeting.server.ledger) == 11
    assert 0 < len(meeting.server.node.inbound.pending) <= 61, "one a second comes, and each leaves after 60"


def test_a_peer_that_advertises_and_never_serves_delays_nobody_for_long() -> None:
    meeting = Meeting(Silent)
    meeting.run(20)
    assert len(meeting.server.ledger) == 11
    assert meeting.incidents(Incident.UNSERVED) > 0
    assert not meeting.server.node.is_banned(meeting.bad.name), "silence may be the network's fault"


@pytest.mark.parametrize("n_bits", [1, 8])
def test_a_model_with_changed_bits_is_never_admitted(n_bits: int) -> None:
    class Corrupting(Silent):
        def serve(self, request: Request, asker: Peer) -> Response | None:
            peer = meeting.peer
            match request:
                case GetChanges():
                    ids = tuple(entry.id for entry in peer.disk.entries)
                    return Changes(ids, "corrupting", more=False)
                case GetTransactions(ids):
                    found = [peer.disk.bundle(identity) for identity in ids]
                    return Transactions(tuple(bundle for bundle in found if bundle is not None))
            return None

        def blob(self, request: Any) -> bytes | None:
            data = bytearray(meeting.peer.disk.model(request.digest) or b"")
            for _ in range(n_bits):
                data[self.rng.randrange(len(data))] ^= 255
            return bytes(data)

    meeting = Meeting(Corrupting)
    meeting.run(30)
    assert len(meeting.server.ledger) == 11
    assert meeting.server.notices[meeting.peer.name, Incident.INVALID] == 0
