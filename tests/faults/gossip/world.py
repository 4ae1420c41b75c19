"""Some servers, five unless told otherwise, their writers and their misfortunes, all by one seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from fl_core.dag.signature import public_key_of
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import Peer
from fl_core.types import PublicKey
from ledger_server.gossip.overlay import OVERLAYS
from tests.builders import TinyLedger, key_from_seed
from tests.faults.gossip.bad_peers import BAD_PEERS, BadPeer
from tests.faults.gossip.invariants import BrokenInvariantError, History, Watch, are_equal
from tests.faults.gossip.network import Clock, Network
from tests.faults.gossip.server import Party, Server
from tests.faults.gossip.writer import Writer

N_SERVERS = 5
START = TinyLedger()
HEALED_WITHIN_S = 150.0
"""Two comparisons, 60 s and a quarter each, which leave nothing for a model that waits for a checkpoint: where servers
prune, it is ``checkpoint_interval_s`` more, for what a peer pruned after its checkpoint waits for its next one.
"""
MAX_STEPS = 400_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to.

    Attributes:
        broken: The invariant that did not hold, and then nothing else counts; None when all did.
        transfer_ratio: Model bytes fetched, against those that had to be fetched.
    """

    seed: int
    bad_peer: str | None
    broken: str | None = None
    steps: int = 0
    checks: int = 0
    transactions: int = 0
    acknowledged: int = 0
    faults: int = 0
    converged_after_s: float = 0.0
    banned: int = 0
    transfer_ratio: float = 1.0


class World:
    """One run.

    Args:
        seed: Decides everything.
        server_type: The servers' class; a test of the harness plants its bug here.
        bad_peer: A key of ``BAD_PEERS`` for who is the last; None to let the seed decide.
        topology: Who is whose peer, a name in the product's ``OVERLAYS``; by default everybody is everybody's.
        n_servers: Servers, the bad peer included.
        is_pruned: Whether the servers prune again and again, and the last of them comes late.
    """

    def __init__(
        self,
        seed: int,
        *,
        server_type: type[Server] = Server,
        bad_peer: str | None = None,
        topology: str = "complete",
        n_servers: int = N_SERVERS,
        is_pruned: bool = False,
    ) -> None:
        self.is_pruned = is_pruned
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.clock = Clock()
        self.faulty_s = rng.uniform(15, 60)
        self.faults = 0
        self.network = Network(
            self.clock,
            rng,
            slowest_s=rng.choice([0.02, 0.2, 1.0]),
            loss=rng.choice([0.0, 0.02, 0.2]),
            doubled=rng.choice([0.0, 0.05]),
        )
        self.history = History()
        self.watch = Watch(self.history, START.genesis_id)
        self.parties: dict[Peer, Party] = {}
        drawn = [each for each in BAD_PEERS if each != "pretender"]  # which came later: a seed's run stays what it was
        kind = bad_peer or rng.choice([*drawn, *[None] * len(drawn)])
        n_honest = n_servers - (kind is not None)
        keys = [key_from_seed(100 + i) for i in range(n_servers)]
        self.names = names = [PublicKey(public_key_of(key)) for key in keys]
        distances = OVERLAYS[topology](n_servers)
        limits = _some_limits(rng)
        self.servers = [
            server_type(
                keys[i],
                START,
                peers=tuple(names[other] for other in sorted((i + distance) % n_servers for distance in distances)),
                clock=self.clock,
                network=self.network,
                rng=random.Random(rng.random()),
                limits=limits,
                parties=self.parties,
                relay=len(distances) < n_servers - 1,
            )
            for i in range(n_honest)
        ]
        self.bad_peer: BadPeer | None = None
        if kind is not None:
            self.bad_peer = BAD_PEERS[kind](
                keys[-1], START, victims=self.servers, clock=self.clock, network=self.network, rng=rng
            )
        self.bad_kind = kind
        for server in self.servers:
            server.changed = self.watch.look
            self.parties[server.name] = server
        if self.bad_peer is not None:
            self.parties[self.bad_peer.name] = self.bad_peer
        self.writers = [
            Writer(
                number,
                self.servers,
                clock=self.clock,
                rng=rng,
                history=self.history,
                until_s=self.faulty_s,
                pause_s=rng.choice([0.7, 2.0, 6.0]),
            )
            for number in range(rng.randint(1, 6))
        ]

    def run(self) -> Outcome:
        """As ``play``; a broken invariant is part of the outcome."""
        try:
            return self.play()
        except BrokenInvariantError as error:
            return Outcome(self.seed, self.bad_kind, broken=str(error))

    def play(self) -> Outcome:
        """Faults, then peace, then the final look.

        Raises:
            BrokenInvariantError: One of ``tests.faults.gossip.invariants`` does not hold.
        """
        for party in self.parties.values():
            # One in five comes late, and finds a ledger to catch up with.
            late_s = self.rng.uniform(0, self.faulty_s) if self.rng.random() < 0.2 else self.rng.random()
            if self.is_pruned and party is self.servers[-1]:
                late_s = 0.8 * self.faulty_s
            self.clock.after(late_s, party.started)
        if self.is_pruned:
            for server in self.servers[:-1]:
                self._prune_now_and_again(server)
        for writer in self.writers:
            self.clock.after(1 + self.rng.random(), writer.act)
        self._plan_faults()
        steps = 0
        while self.clock.now_s < self.faulty_s:
            self._step()
            steps += 1
        self._heal()
        within_s = HEALED_WITHIN_S + self.is_pruned * self.servers[0].limits.checkpoint_interval_s
        while not are_equal(self.servers) or self._is_writing():
            self._step()
            steps += 1
            if self.clock.now_s > self.faulty_s + within_s or steps > MAX_STEPS:
                raise BrokenInvariantError(f"ledgers differ {within_s:.0f} s after healing")
        converged_after_s = self.clock.now_s - self.faulty_s
        self.watch.finish(self.servers)
        return self._outcome(steps, converged_after_s)

    def _step(self) -> None:
        self.clock.step()
        self.watch.step(self.servers)

    def _is_writing(self) -> bool:
        """Whether an append is under way that began before the peace."""
        return any(server.is_writing for server in self.servers)

    def _outcome(self, steps: int, converged_after_s: float) -> Outcome:
        n = len(self.servers[0].ledger) - 1
        needed = sum(max(n - server.published, 0) for server in self.servers) * START.genesis.layout.nbytes
        fetched = sum(server.bytes_fetched for server in self.servers)
        bad = None if self.bad_peer is None else self.bad_peer.name
        banned = sum(bad in server.peers and server.node.is_banned(bad) for server in self.servers if bad is not None)
        return Outcome(
            seed=self.seed,
            bad_peer=self.bad_kind,
            steps=steps,
            checks=self.watch.checks,
            transactions=n,
            acknowledged=len(self.history.acknowledged),
            faults=self.faults,
            converged_after_s=round(converged_after_s, 3),
            banned=banned,
            transfer_ratio=round(fetched / needed, 4) if needed else 1.0,
        )

    def _prune_now_and_again(self, server: Server) -> None:
        def prune() -> None:
            if server.is_up:
                server.prune()
            self._prune_now_and_again(server)

        self.clock.after(self.rng.uniform(1, 5), prune)

    # -- misfortunes

    def _plan_faults(self) -> None:
        at_s = 2.0
        while (at_s := at_s + self.rng.expovariate(1 / 5)) < self.faulty_s:
            self.faults += 1
            kind = self.rng.choice([self._crash, self._crash, self._split, self._one_way, self._flap, self._fill_disk])
            self.clock.after(at_s, kind)

    def _heal(self) -> None:
        self.network.heal()
        for server in self.servers:
            server.disk.is_full = False
            if not server.is_up:
                server.started()

    def _crash(self) -> None:
        server = self.rng.choice(self.servers)
        if server.is_up:
            server.crash()
            self.clock.after(self.rng.uniform(0.2, 10), lambda: None if server.is_up else server.started())

    def _split(self) -> None:
        group = set(self.rng.sample(self.names, self.rng.randint(1, 2)))
        self._cut({(a, b) for a in self.names for b in self.names if (a in group) != (b in group)})

    def _one_way(self) -> None:
        a, b = self.rng.sample(self.names, 2)
        self._cut({(a, b)})

    def _flap(self) -> None:
        a, b = self.rng.sample(self.names, 2)
        for round_number in range(self.rng.randint(2, 5)):
            self.clock.after(round_number * 1.5, lambda: self._cut({(a, b), (b, a)}, for_s=0.7))

    def _cut(self, links: set[tuple[Peer, Peer]], *, for_s: float | None = None) -> None:
        if self.clock.now_s < self.faulty_s:
            self.network.cut |= links
            self.clock.after(for_s or self.rng.uniform(0.5, 20), lambda: self.network.cut.difference_update(links))

    def _fill_disk(self) -> None:
        server = self.rng.choice(self.servers)
        server.disk.is_full = self.clock.now_s < self.faulty_s
        self.clock.after(self.rng.uniform(0.5, 8), self._freeing(server))

    @staticmethod
    def _freeing(server: Server) -> Callable[[], None]:
        def free() -> None:
            server.disk.is_full = False

        return free


def _some_limits(rng: random.Random) -> GossipLimits:
    """Small bounds in some runs, so that what happens at a bound happens."""
    if rng.random() < 0.5:
        return GossipLimits()
    return GossipLimits(
        pending_per_peer=rng.choice([2, 10]),
        models_per_peer=rng.choice([1, 2]),
        models_ahead_bytes=1,
        orphan_lifetime_s=rng.choice([5.0, 20.0]),
    )
