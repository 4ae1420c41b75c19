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
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

from fl_core.sync.messages import Announcement, TransactionBundle
from fl_core.sync.peer_table import BANNED_AFTER
from fl_core.wire import gossip_v1 as wire
from fl_core.wire import v1
from tests.builders import LAYOUT, transaction_of
from tests.faults.harness.bad_peer_server import BadPeer, Line
from tests.faults.harness.follower import Follower
from tests.faults.harness.meeting import Meeting, bad_key, meeting
from tests.faults.harness.misconduct import (
    MUTATIONS,
    WAYS,
    Announcing,
    EndlessChain,
    Forge,
    Mutator,
    NoAnswers,
    NoModels,
    ParentHider,
    Withholder,
)
from tests.faults.harness.writers import layout_with
from tests.faults.report import Report

MUTATORS = 25
"""Bad peers at once; each is banned after 20 mutants, so that 10,000 take 20 lives of the server."""
LAYOUT_600_KB = layout_with(300, 500)
"""Too large to be fetched together with others: these models are streamed, one by one."""
SMALL_CACHE = {"DAG_ACFL_CACHE__MODEL_BYTES": str(8 << 20)}
"""Where models are large, those of honest publications would fill a cache while the memory is looked at."""
Outcome = tuple[dict[str, Any], list[str]]
"""Figures, and what was broken."""
Scenario = Callable[[Path, int, random.Random], Outcome]


def seconds_of(size: int) -> float:
    """How long an attack of the others goes on when ``size`` mutants are sent: 60 s in full."""
    return max(1.5, 60 * size / 10_000)


def quiet(folder: Path, size: int, rng: random.Random) -> Outcome:
    """A peer that holds nothing: what honest publications take."""
    with meeting(folder, [BadPeer("bad-0", bad_key(0))]) as met:
        met.publish()
        time.sleep(seconds_of(size) / 2)
        met.settle()
        return met.judged(), met.broken


# -- (a) byzantine ----------------------------------------------------------------------------------


def mutants(folder: Path, size: int, rng: random.Random) -> Outcome:
    """``size`` mutants from as many bad peers and in as many lives of the server as it takes to have them looked at."""
    peers = min(MUTATORS, -(-size // BANNED_AFTER))
    bad = [Mutator(f"bad-{number}", Forge(LAYOUT, bad_key(number), rng)) for number in range(peers)]
    undealt = deque(islice(cycle(MUTATIONS), size))
    sent: Counter[str] = Counter()
    lives = 0
    with meeting(folder, bad) as met:
        met.publish(at_target=False)
        while undealt:
            for peer in bad:
                peer.deal([undealt.popleft() for _ in range(min(BANNED_AFTER, len(undealt)))])
            _hand_out(met, [peer for peer in bad if peer.hand])
            for peer in bad:
                delivered = [mutant.kind for mutant in peer.hand if mutant.is_delivered]
                sent.update(delivered)
                undealt.extend(mutant.kind for mutant in peer.hand if not mutant.is_delivered)
                if len(delivered) == BANNED_AFTER and all(mutant.is_blamed for mutant in peer.hand):
                    met.broken += _fate(met, peer)
            lives += 1
            if lives > 3 + 2 * size // (BANNED_AFTER * len(bad)):
                met.broken.append(f"{len(undealt)} mutants could not be handed out")
                break
            if undealt:
                met.restart_target()
        met.settle()
        figures = met.judged(within_s=60.0)
    return {**figures, "sent": sum(sent.values()), "kinds": dict(sorted(sent.items())), "lives": lives}, met.broken


def _hand_out(met: Meeting, peers: Sequence[Mutator], *, idle_s: float = 5.0) -> None:
    """Announce until every peer is banned or has nothing more, or nothing moves any more."""
    lines = {peer: met.line(peer) for peer in peers}
    active = list(peers)
    moved_s = time.monotonic()
    while active and time.monotonic() < moved_s + idle_s:
        for peer in list(active):
            statuses = [lines[peer].claim(each) for each in peer.claims()]
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


def no_answers(folder: Path, size: int, rng: random.Random) -> Outcome:
    """For each way of not answering, a peer that does so to everything, and one that does so to requests of models."""
    bad: list[NoAnswers] = []
    for way in WAYS:
        for kind, what in ((NoAnswers, "all"), (NoModels, "models")):
            bad.append(kind(f"{what}-{way}", Forge(LAYOUT_600_KB, bad_key(len(bad)), rng), way=way))
    with meeting(folder, bad, layout=LAYOUT_600_KB, environment=SMALL_CACHE) as met:
        announcing = Announcing([(met.line(peer), peer.next_claim) for peer in bad], pause_s=0.5)
        met.publish(pause_s=0.3)
        with met.bounded_memory():
            announcing.start()
            time.sleep(max(4.0, seconds_of(size)))
        announcing.stop()
        met.settle()
        figures = met.judged()
        banned = sorted(peer.name for peer in bad if met.is_banned(peer))
    asked = sum(sum(peer.asked.values()) for peer in bad)
    return {**figures, "announced": announcing.made, "banned": banned, "asked": asked}, met.broken


# -- (b) withholding --------------------------------------------------------------------------------


def withholding(folder: Path, size: int, rng: random.Random) -> Outcome:
    """Peers that advertise all that there is, faster than the honest one, and serve no transactions, models or parents."""
    keeps = ("transactions", "models", "models-silently")
    withholders = [Withholder(f"keeps-{each}", bad_key(number), keeps=each) for number, each in enumerate(keeps)]
    hider = ParentHider("keeps-parents", Forge(LAYOUT, bad_key(9), rng))
    with meeting(folder, [*withholders, hider]) as met:
        lines = [(peer, met.line(peer)) for peer in withholders]

        def tell(item: dict[str, Any]) -> None:
            if not item["parents"]:
                return
            bundle = TransactionBundle(transaction_of(item))
            for peer, line in lines:
                peer.world[bundle.transaction.id] = bundle
                line.announce(Announcement.of(bundle))

        follower = Follower(met.honest, pause_s=0.01, on_new=tell)
        announcing = Announcing([(met.line(hider), hider.next_claim)], pause_s=0.1)
        for thread in (follower, announcing):
            thread.start()
        met.publish()
        time.sleep(max(3.0, seconds_of(size)))
        for ending in (follower, announcing):
            ending.stop()
        for _, line in lines:
            line.hang_up()
        met.settle()
        figures = met.judged()
    asked = {peer.name: dict(sorted(peer.asked.items())) for peer in met.bad}
    return {**figures, "orphans_announced": announcing.made, "asked": asked}, met.broken


# -- (c) endless ancestors --------------------------------------------------------------------------


def endless_chain(folder: Path, size: int, rng: random.Random, *, attachment_bytes: int = 0) -> Outcome:
    """A chain of 20 times ``size`` ancestors that never leads to genesis, listed and announced from its end."""
    forge, length = Forge(LAYOUT, bad_key(0), rng), max(20 * size, 2000)
    chain = EndlessChain("bad-chain", forge, length=length, attachment_bytes=attachment_bytes)
    with meeting(folder, [chain]) as met:
        tips = count()
        announcing = Announcing([(met.line(chain), lambda: chain.tip(100 * next(tips)))], pause_s=0.02)
        met.publish()
        time.sleep(0.5)
        with met.bounded_memory():
            announcing.start()
            time.sleep(max(2.0, 2 * seconds_of(size)))
        announcing.stop()
        met.settle()
        figures = met.judged()
        if chain.served < 100:
            met.broken.append(f"only {chain.served} headers of the chain were asked for; the run shows nothing")
    return {
        **figures,
        "length": chain.length,
        "headers_served": chain.served,
        "ids_listed": chain.listed,
        "announced": announcing.made,
        "asked": dict(sorted(chain.asked.items())),
    }, met.broken


def heavy_chain(folder: Path, size: int, rng: random.Random) -> Outcome:
    """The same with attachments of half a megabyte."""
    return endless_chain(folder, max(size // 10, 100), rng, attachment_bytes=1 << 19)


# -- (d) floods -------------------------------------------------------------------------------------


def _announcements(line: Line, forge: Forge) -> None:
    line.claim(forge.random_id())


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


def floods(folder: Path, size: int, rng: random.Random) -> Outcome:
    """A peer that sends requests as fast as it can, over a connection for each kind: many, huge, endless, replayed."""
    peer = BadPeer("bad-flood", bad_key(0))
    with meeting(folder, [peer]) as met:
        met.publish()
        time.sleep(1.0)
        floods = [
            Flood(met.line(peer), Forge(LAYOUT, peer.key, random.Random(rng.random())), request) for request in FLOODS
        ]
        with met.bounded_memory():
            for flood in floods:
                flood.start()
            time.sleep(max(3.0, seconds_of(size)))
        for flood in floods:
            flood.ending.set()
        for flood in floods:
            flood.join(30)
        met.settle()
        figures = met.judged(may_be_busy=True)
        status, _ = met.target.ask(v1.TIPS)
        if status != http.client.OK:
            met.broken.append(f"after the flood the server answers {status}")
    by_kind = {
        request.__name__.strip("_"): dict(sorted(flood.line.statuses.items()))
        for request, flood in zip(FLOODS, floods, strict=True)
    }
    return {**figures, "answers": by_kind}, met.broken


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
