"""Peers that are on the list and lie, over real HTTP: nothing of theirs gets in, and honest peers hardly notice.

Each scenario is a meeting of a server, an honest peer and bad peers; honest publications go on at both servers. What a
quiet meeting takes for them to arrive is among the figures, to hold the others against.

The scenarios are those of ``tests/faults/test_gossip_bad_peers.py``, which has them in virtual time and without HTTP.
"""

import http.client
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from fl_core.models import ModelLayout, TensorSpec
from fl_core.sync.messages import Announcement, TransactionBundle
from fl_core.sync.peer_table import BANNED_AFTER
from fl_core.types import TxId
from fl_core.wire import gossip_v1 as wire
from fl_core.wire import v1
from tests.builders import LAYOUT
from tests.faults.harness.bad_peer_server import BadPeer, Line
from tests.faults.harness.meeting import Meeting, bad_key, forget_peak, meeting, memory_bytes
from tests.faults.harness.misconduct import (
    MUTATIONS,
    WAYS,
    Announcing,
    EndlessChain,
    Forge,
    Mutant,
    Mutator,
    NoAnswers,
    NoModels,
    ParentHider,
    Withholder,
    World,
)
from tests.faults.report import Report

MUTATORS = 25
"""Bad peers at once; each is banned after 20 mutants, so that 10,000 take 20 lives of the server."""
RSS_GROWTH_BYTES = 64 << 20
MIB = 1 << 20
LAYOUT_600_KB = ModelLayout.of(
    [
        TensorSpec("body.weight", "F32", (300, 500)),
        TensorSpec("fc.weight", "F32", (1, 3)),
        TensorSpec("fc.bias", "F32", (1,)),
    ]
)
"""Too large to be fetched together with others: these models are streamed, one by one."""
SMALL_CACHE = {"DAG_ACFL_CACHE__MODEL_BYTES": str(8 << 20)}
"""Where models are large, those of honest publications would fill a cache while the memory is looked at."""
Figures = dict[str, Any]
Scenario = Callable[[Path, int, random.Random], tuple[Figures, list[str]]]


def seconds_of(size: int) -> float:
    """How long an attack of the others goes on when ``size`` mutants are sent: 60 s in full."""
    return max(1.5, 60 * size / 10_000)


def quiet(folder: Path, size: int, rng: random.Random) -> tuple[Figures, list[str]]:
    """A peer that holds nothing: what honest publications take."""
    with meeting(folder, [BadPeer("bad-0", bad_key(0))]) as met:
        met.publish()
        time.sleep(seconds_of(size) / 2)
        met.settle()
        figures = met.judged(least=3)
    met.history.write(folder.parent / f"{folder.name}.jsonl")
    return figures, met.broken


# -- (a) byzantine ----------------------------------------------------------------------------------


def mutants(folder: Path, size: int, rng: random.Random) -> tuple[Figures, list[str]]:
    """``size`` mutants from as many bad peers and in as many lives of the server as it takes to have them looked at."""
    bad = [Mutator(f"bad-{number}", bad_key(number)) for number in range(min(MUTATORS, -(-size // BANNED_AFTER)))]
    sent: Counter[str] = Counter()
    lives = 0
    with meeting(folder, bad) as met:
        forges = {peer.name: Forge(met.ledger, met.layout, peer.key, rng) for peer in bad}
        kinds = cycle(MUTATIONS)
        undealt: deque[Callable[[Forge], Mutant]] = deque(islice(kinds, size))
        met.publish(at_target=False)
        peak_bytes = 0
        while undealt:
            forget_peak(met.target)
            hands: dict[str, list[tuple[Callable[[Forge], Mutant], Mutant]]] = {}
            for peer in bad:
                dealt = [undealt.popleft() for _ in range(min(BANNED_AFTER, len(undealt)))]
                hands[peer.name] = [(mutation, mutation(forges[peer.name])) for mutation in dealt]
                rng.shuffle(hands[peer.name])
                peer.deal([mutant for _, mutant in hands[peer.name]])
            _hand_out(met, [peer for peer in bad if hands[peer.name]], forges)
            for peer in bad:
                hand = hands[peer.name]
                delivered = [mutant for _, mutant in hand if mutant.is_delivered]
                sent.update(mutant.kind for mutant in delivered)
                undealt.extend(mutation for mutation, mutant in hand if not mutant.is_delivered)
                if len(delivered) == BANNED_AFTER:
                    met.broken += _fate(met, peer)
            peak_bytes = max(peak_bytes, memory_bytes(met.target))
            lives += 1
            if lives > 3 + 2 * size // (BANNED_AFTER * len(bad)):
                met.broken.append(f"{len(undealt)} mutants could not be handed out")
                break
            if undealt:
                met.restart_target()
        met.settle()
        figures = met.judged(least=3, within_s=60.0)
    met.history.write(folder.parent / f"{folder.name}.jsonl")
    return {**figures, "sent": sum(sent.values()), "kinds": dict(sorted(sent.items())), "lives": lives}, met.broken


def _hand_out(met: Meeting, peers: Sequence[Mutator], forges: dict[str, Forge], *, idle_s: float = 5.0) -> None:
    """Announce until every peer is banned or has nothing more, or nothing moves any more."""
    lines = {peer.name: met.line(peer) for peer in peers}
    active = list(peers)
    moved_s = time.monotonic()
    while active and time.monotonic() < moved_s + idle_s:
        for peer in list(active):
            statuses = [lines[peer.name].announce(forges[peer.name].claim(each)) for each in peer.claims()]
            if statuses:
                moved_s = time.monotonic()
            if http.client.FORBIDDEN in statuses or peer.is_done:
                active.remove(peer)
        time.sleep(0.005)
    for line in lines.values():
        line.hang_up()


def _fate(met: Meeting, peer: Mutator, *, within_s: float = 10.0) -> Iterator[str]:
    """What is wrong with how the server treats a peer that has sent 20 mutants: it must be refused."""
    line = met.line(peer)
    until_s = time.monotonic() + within_s
    while line.say("GET", wire.SUMMARY) != http.client.FORBIDDEN:
        if time.monotonic() > until_s:
            yield f"{peer.name} sent {BANNED_AFTER} mutants and is not banned"
            break
        time.sleep(0.05)
    line.hang_up()


def no_answers(folder: Path, size: int, rng: random.Random) -> tuple[Figures, list[str]]:
    """For each way of not answering, a peer that does so to everything, and one that does so to requests of models."""
    bad: list[BadPeer] = []
    forge = Forge(TxId("0" * 64), LAYOUT_600_KB, bad_key(0), rng)
    for way in WAYS:
        bad.append(NoAnswers(f"all-{way}", bad_key(len(bad)), way=way, forge=forge))
        bad.append(NoModels(f"models-{way}", bad_key(len(bad)), way=way, forge=forge))
    with meeting(folder, bad, layout=LAYOUT_600_KB, environment=SMALL_CACHE) as met:
        for peer in bad:
            assert isinstance(peer, NoAnswers)
            peer.forge = Forge(met.ledger, met.layout, peer.key, rng)
        announcing = Announcing(
            [(met.line(peer), peer.next_claim) for peer in bad if isinstance(peer, NoAnswers)], forge=forge, pause_s=0.5
        )
        met.publish(pause_s=0.3)
        before_bytes = forget_peak(met.target)
        announcing.start()
        time.sleep(max(4.0, seconds_of(size)))
        peak_bytes = memory_bytes(met.target)
        announcing.ending.set()
        announcing.join(20)
        met.settle()
        figures = met.judged(least=3)
        banned = sorted(peer.name for peer in bad if met.is_banned(peer))
        met.broken += _bounded(peak_bytes - before_bytes)
    met.history.write(folder.parent / f"{folder.name}.jsonl")
    return {
        **figures,
        "announced": announcing.made,
        "banned": banned,
        "asked": sum(sum(peer.asked.values()) for peer in bad),
        "rss_growth_mib": round((peak_bytes - before_bytes) / MIB, 1),
    }, met.broken


def _bounded(grown_bytes: int) -> list[str]:
    if grown_bytes <= RSS_GROWTH_BYTES:
        return []
    return [f"memory grew by {grown_bytes / MIB:.0f} MiB; {RSS_GROWTH_BYTES // MIB} are allowed"]


# -- (b) withholding --------------------------------------------------------------------------------


def withholding(folder: Path, size: int, rng: random.Random) -> tuple[Figures, list[str]]:
    """Peers that advertise all that there is, faster than the honest one, and serve no transactions, models or parents."""
    keeps = ("transactions", "models", "models-silently")
    withholders = [Withholder(f"keeps-{each}", bad_key(number), keeps=each) for number, each in enumerate(keeps)]
    hider = ParentHider("keeps-parents", bad_key(9), forge=Forge(TxId("0" * 64), LAYOUT, bad_key(9), rng))
    with meeting(folder, [*withholders, hider]) as met:
        hider.forge = forge = Forge(met.ledger, met.layout, hider.key, rng)
        lines = {peer.name: met.line(peer) for peer in withholders}

        def tell(bundle: TransactionBundle) -> None:
            for peer in withholders:
                peer.world[bundle.transaction.id] = bundle
                lines[peer.name].announce(Announcement.of(bundle))

        world = World(met.honest, tell)
        announcing = Announcing([(met.line(hider), hider.next_claim)], forge=forge, pause_s=0.1)
        for thread in (world, announcing):
            thread.start()
        met.publish()
        time.sleep(max(3.0, seconds_of(size)))
        for thread in (world, announcing):
            thread.ending.set()
            thread.join(20)
        for line in lines.values():
            line.hang_up()
        met.settle()
        figures = met.judged(least=3)
    met.history.write(folder.parent / f"{folder.name}.jsonl")
    asked = {peer.name: dict(sorted(peer.asked.items())) for peer in met.bad}
    return {**figures, "orphans_announced": announcing.made, "asked": asked}, met.broken


# -- (c) endless ancestors --------------------------------------------------------------------------


def endless_chain(
    folder: Path, size: int, rng: random.Random, *, attachment_bytes: int = 0
) -> tuple[Figures, list[str]]:
    """A chain of 20 times ``size`` ancestors that never leads to genesis, listed and announced from its end."""
    # The chain is the ledger's, and the meeting makes the ledger: its id is the same every time.
    peer = BadPeer("bad-chain", bad_key(0))
    with meeting(folder, [peer]) as met:
        chain = EndlessChain(
            peer.name,
            peer.key,
            forge=Forge(met.ledger, met.layout, peer.key, rng),
            length=max(20 * size, 2000),
            attachment_bytes=attachment_bytes,
        )
        met.listener.peers[str(chain.public_key)] = chain
        tips = iter(range(10**9))
        announcing = Announcing(
            [(met.line(chain), lambda: chain.tip(100 * next(tips)))], forge=chain.forge, pause_s=0.02
        )
        met.publish()
        time.sleep(0.5)
        before_bytes = forget_peak(met.target)
        announcing.start()
        time.sleep(max(2.0, 2 * seconds_of(size)))
        peak_bytes = memory_bytes(met.target)
        announcing.ending.set()
        announcing.join(20)
        met.settle()
        figures = met.judged(least=3)
        met.broken += _bounded(peak_bytes - before_bytes)
        if chain.served < 100:
            met.broken.append(f"only {chain.served} headers of the chain were asked for; the run shows nothing")
    met.history.write(folder.parent / f"{folder.name}.jsonl")
    return {
        **figures,
        "length": chain.length,
        "headers_served": chain.served,
        "ids_listed": chain.listed,
        "announced": announcing.made,
        "asked": dict(sorted(chain.asked.items())),
        "rss_growth_mib": round((peak_bytes - before_bytes) / MIB, 1),
    }, met.broken


def heavy_chain(folder: Path, size: int, rng: random.Random) -> tuple[Figures, list[str]]:
    """The same with attachments of half a megabyte."""
    return endless_chain(folder, max(size // 10, 100), rng, attachment_bytes=MIB // 2)


# -- (d) floods -------------------------------------------------------------------------------------


def _announcements(line: Line, forge: Forge) -> None:
    line.announce(forge.claim(forge.random_id()))


def _wanted(line: Line, forge: Forge) -> None:
    ids = ",".join(f'"{forge.random_id()}"' for _ in range(100))
    line.say("POST", wire.TRANSACTIONS, f'{{"ids":[{ids}]}}'.encode())


def _frames(line: Line, forge: Forge) -> None:
    line.say("POST", wire.RECONCILIATION, forge.rng.randbytes(1 << 20))


def _too_large(line: Line, forge: Forge) -> None:
    line.say("POST", forge.rng.choice([wire.ANNOUNCEMENTS, wire.TRANSACTIONS, wire.RECONCILIATION]), bytes(3 << 20))


def _endless_body(line: Line, forge: Forge) -> None:
    fields = line.signed("POST", wire.ANNOUNCEMENTS, b"") | {"content-type": "application/json"}
    line.say("POST", wire.ANNOUNCEMENTS, (bytes(65_536) for _ in range(1000)), fields=fields)


def _claimed(line: Line, forge: Forge) -> None:
    """A length of gigabytes, of which nothing comes."""
    fields = line.signed("POST", wire.RECONCILIATION, b"") | {"content-length": str(1 << 33)}
    line.say("POST", wire.RECONCILIATION, b"", fields=fields)


def _replays(line: Line, forge: Forge) -> None:
    fields = line.signed("GET", f"{wire.CHANGES}?limit=1000")
    for _ in range(10):
        line.say("GET", f"{wire.CHANGES}?limit=1000", fields=fields)


def _unsigned(line: Line, forge: Forge) -> None:
    fields = line.signed("POST", wire.ANNOUNCEMENTS, forge.rng.randbytes(100))
    line.say("POST", wire.ANNOUNCEMENTS, forge.rng.randbytes(50_000), fields=fields)


FLOODS = (_announcements, _announcements, _wanted, _frames, _too_large, _endless_body, _claimed, _replays, _unsigned)


class Flood(threading.Thread):
    """One kind of request, as fast as it is answered."""

    def __init__(self, line: Line, forge: Forge, request: Callable[[Line, Forge], None]) -> None:
        super().__init__(daemon=True)
        self.line, self._forge, self._request = line, forge, request
        self.ending = threading.Event()

    def run(self) -> None:
        """Until told to end."""
        while not self.ending.is_set():
            self._request(self.line, self._forge)
        self.line.hang_up()


def floods(folder: Path, size: int, rng: random.Random) -> tuple[Figures, list[str]]:
    """A peer that sends requests as fast as it can, over a connection for each kind: many, huge, endless, replayed."""
    peer = BadPeer("bad-flood", bad_key(0))
    with meeting(folder, [peer]) as met:
        met.publish()
        time.sleep(1.0)
        before_bytes = forget_peak(met.target)
        floods = [
            Flood(met.line(peer), Forge(met.ledger, met.layout, peer.key, random.Random(rng.random())), request)
            for request in FLOODS
        ]
        for flood in floods:
            flood.start()
        time.sleep(max(3.0, seconds_of(size)))
        peak_bytes = memory_bytes(met.target)
        for flood in floods:
            flood.ending.set()
        for flood in floods:
            flood.join(30)
        met.settle()
        figures = met.judged(least=3, may_be_busy=True)
        met.broken += _bounded(peak_bytes - before_bytes)
        status, _ = met.target.ask(v1.TIPS)
        if status != http.client.OK:
            met.broken.append(f"after the flood the server answers {status}")
    met.history.write(folder.parent / f"{folder.name}.jsonl")
    by_kind = {
        request.__name__.strip("_"): dict(sorted(flood.line.statuses.items()))
        for request, flood in zip(FLOODS, floods, strict=True)
    }
    return {**figures, "answers": by_kind, "rss_growth_mib": round((peak_bytes - before_bytes) / MIB, 1)}, met.broken


SCENARIOS: Sequence[Scenario] = (
    quiet,
    mutants,
    no_answers,
    withholding,
    endless_chain,
    heavy_chain,
    floods,
)


def run(folder: Path, size: int, seed: int, *, scenarios: Sequence[Scenario] = SCENARIOS) -> Report:
    """``size`` mutants; the other scenarios last as long as suits that."""
    report = Report(
        "bad_peers",
        "peers that are on the list, sign their requests, and send mutants, no answers, endless ancestors and floods",
        "nothing of theirs is stored, no 5xx and no traceback, memory is bounded, and honest publications arrive",
        size,
        seed,
    )
    for scenario in scenarios:
        name = scenario.__name__
        began_s = time.monotonic()
        figures, broken = scenario(folder / name, size, random.Random(f"{seed} {name}"))
        report.figures[name] = {**figures, "took_s": round(time.monotonic() - began_s, 1)}
        report.broken += [f"{name}: {fault}" for fault in broken]
        report.histories.append(f"{name}.jsonl")
    return report
