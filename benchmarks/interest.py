"""What servers would move and lose if each held only the models that its clients ask for, and two homes those of all.

Nothing of it is built; docs/adr/0063 decides. The simulation plays rounds in virtual time: a client asks at its server,
which must hold the newest model of each author of the client's cluster, and publishes there. Today every server takes
every model. By interest, all take header, evidence and sketch (without which candidates would differ from server to
server); the model is taken by a second home, drawn by digest among the other servers, and by who is asked for it.

First it is held against three real servers (the product's command, on loopback): the bytes that they moved, and from
the evidence in their journal which models each was asked for by its own clients. Then six servers are played, with
clients at servers of their cluster's own, anywhere, or half and half, and each server is lost once.

    python benchmarks/interest.py
"""

import argparse
import itertools
import json
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from device_client import Device
from gossip import Server, servers, wait_until_equal

from fl_core.selection.evidence import parse_evidence
from ledger_server.store import open_store

SKETCH_BYTES = 4 * 8192
RECEIPT_BYTES = 112 + 64
ANNOUNCED_BYTES, FETCHED_BYTES = 1100, 1600
"""HTTP of an announcement and of a model's fetch, both ways."""
MODELS = {"0.4 MB": 4 * harness.SMALL_MODEL_VALUES, "13 MB": 4 * harness.LARGE_MODEL_VALUES}
ROUNDS = 8
WITHIN = 0.15
MOST = 0.4
SEEDS = 5


@dataclass(frozen=True, slots=True)
class Client:
    """Where it asks and publishes, and whom it resembles."""

    server: int
    cluster: int


@dataclass(slots=True)
class Newest:
    """An author's newest update, who holds its model, and who was asked for it besides its issuer."""

    issuer: int
    holders: set[int]
    copied_s: float
    """When its second home has it."""
    askers: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Traffic:
    """What came to each server from its peers, and what is held."""

    bytes_today: list[float]
    bytes_by_interest: list[float]
    newest: dict[int, Newest] = field(default_factory=dict)
    """By author."""
    asked: int = 0
    """Pairs of an update and a server other than its issuer where a client's average took it."""
    fetched: int = 0
    """Of those, the ones that the server did not hold: a client waited for them."""
    lost: int = 0
    """Updates that one server alone held when it went, had it gone at the moment of any action: summed over servers."""
    moments: int = 0


def play(
    clients: Sequence[Client],
    *,
    num_servers: int,
    rounds: int,
    model_bytes: int,
    metadata_bytes: float,
    seed: int,
    copy_s: float = 0.5,
) -> Traffic:
    """Rounds of clients that each act once a minute, at a moment of their own.

    Args:
        clients: Who acts.
        num_servers: That serve the ledger.
        rounds: Of each client.
        model_bytes: Of one model.
        metadata_bytes: Of one update without it: header, signatures, evidence.
        seed: Of moments and homes.
        copy_s: Until an update has reached its second home, on average.
    """
    rng = random.Random(seed)
    moments = sorted((turn * 60 + rng.uniform(0, 60), who) for turn in range(rounds) for who in range(len(clients)))
    found = Traffic([0.0] * num_servers, [0.0] * num_servers)
    of_cluster: dict[int, dict[int, Newest]] = defaultdict(dict)
    on_their_way: list[Newest] = []
    model = model_bytes + FETCHED_BYTES
    for now_s, who in moments:
        client = clients[who]
        for author, update in of_cluster[client.cluster].items():
            if author == who or update.issuer == client.server or client.server in update.askers:
                continue
            update.askers.add(client.server)
            found.asked += 1
            if client.server not in update.holders:
                update.holders.add(client.server)
                found.bytes_by_interest[client.server] += model
                found.fetched += 1
        on_their_way = [each for each in on_their_way if each.copied_s > now_s]
        found.moments += 1
        found.lost += sum(not each.askers for each in on_their_way)
        others = [each for each in range(num_servers) if each != client.server]
        for each in others:
            found.bytes_today[each] += metadata_bytes + ANNOUNCED_BYTES + model
            found.bytes_by_interest[each] += metadata_bytes + ANNOUNCED_BYTES + SKETCH_BYTES
        home = rng.choice(others)
        found.bytes_by_interest[home] += model
        new = Newest(client.server, {client.server, home}, now_s + rng.expovariate(1 / copy_s))
        found.newest[who] = of_cluster[client.cluster][who] = new
        on_their_way.append(new)
    return found


# -- three real servers ------------------------------------------------------------------------------


def measured(folder: Path) -> dict[str, Any]:
    """Three servers and twelve devices, each of three clusters at two of the servers; and the same simulated."""
    clients = [Client((cluster + place % 2) % 3, cluster) for cluster in range(3) for place in range(4)]
    with servers(harness.SMALL_MODEL_VALUES, count=3, folder=folder) as (running, _, _):
        devices = [Device(running[client.server].port, number, client.cluster) for number, client in enumerate(clients)]
        before = sum(server.gossip_bytes() for server in running)
        for _ in range(ROUNDS):
            for device in devices:
                device.round()
                wait_until_equal(running)
        moved = sum(server.gossip_bytes() for server in running) - before
        asked, updates, metadata = _asked_for(running[0], len(running))
    simulated = [
        play(
            clients,
            num_servers=3,
            rounds=ROUNDS,
            model_bytes=MODELS["0.4 MB"],
            metadata_bytes=statistics.mean(metadata),
            seed=seed,
        )
        for seed in range(SEEDS)
    ]
    predicted = statistics.mean(sum(each.bytes_today) for each in simulated)
    predicted_asked = statistics.mean(each.asked for each in simulated)
    return {
        "updates": updates,
        "metadata_bytes": round(statistics.mean(metadata)),
        "bytes": {"measured": moved, "simulated": round(predicted), "ratio": round(predicted / moved, 3)},
        "asked_of_another": {
            "measured": asked,
            "simulated": round(predicted_asked, 1),
            "ratio": round(predicted_asked / asked, 3),
        },
    }


def _asked_for(server: Server, num_servers: int) -> tuple[int, int, list[int]]:
    """Pairs of an update and a server other than its issuer that a selection there took it at; how many updates there
    are; and what each takes without its model.
    """
    with open_store(f"sqlite:///{server.folder / 'ledger.sqlite3'}", data_dir=server.folder) as store:
        _, *rest = store.replay()
        issuer = {each.transaction.id: each.transaction.receipt.issuer for each in rest}
        pairs, metadata = set(), []
        for each in rest:
            header = each.transaction.header
            evidence = store.attachment(header.attachment_digest)
            metadata.append(len(each.transaction.header_bytes) + RECEIPT_BYTES + len(evidence or b""))
            if evidence is not None:  # the server that made the selection has issued the update here
                asker = each.transaction.receipt.issuer
                taken = parse_evidence(evidence).selection.parents
                pairs |= {(parent, asker) for parent in taken if issuer.get(parent, asker) != asker}
    assert len(set(issuer.values())) == num_servers, "each has issued some"
    return len(pairs), len(rest), metadata


# -- six ---------------------------------------------------------------------------------------------


def placed(how: str, *, num_clients: int, clusters: int, num_servers: int, rng: random.Random) -> list[Client]:
    """Clients of clusters at servers: each cluster's at one server, anybody anywhere, or half of them so."""
    placed: list[Client] = []
    for number in range(num_clients):
        cluster = number % clusters
        roams = {"at home": False, "half": number // clusters % 2 == 0, "anywhere": True}[how]
        placed.append(Client(rng.randrange(num_servers) if roams else cluster % num_servers, cluster))
    return placed


def six(metadata_bytes: float) -> list[dict[str, Any]]:
    """Shares of today's bytes at the best and the worst of six servers, and what the loss of any one would cost."""
    cases = itertools.product(MODELS, ("at home", "half", "anywhere"), (6, 12), (60, 600))
    return [_row(*case, metadata_bytes=metadata_bytes) for case in cases]


def _row(size: str, how: str, clusters: int, num_clients: int, *, metadata_bytes: float) -> dict[str, Any]:
    shares, lost, fetched, moments, asked, alone = [], 0, 0, 0, 0, 0
    for seed in range(SEEDS):
        clients = placed(how, num_clients=num_clients, clusters=clusters, num_servers=6, rng=random.Random(seed))
        found = play(
            clients,
            num_servers=6,
            rounds=ROUNDS,
            model_bytes=MODELS[size],
            metadata_bytes=metadata_bytes,
            seed=seed,
        )
        shares += [mine / today for mine, today in zip(found.bytes_by_interest, found.bytes_today, strict=True)]
        alone += sum(each.holders == {gone} for gone in range(6) for each in found.newest.values())
        lost, moments = lost + found.lost, moments + found.moments
        fetched, asked = fetched + found.fetched, asked + found.asked
    return {
        "model": size,
        "clients": num_clients,
        "clusters": clusters,
        "where": how,
        "share_least": round(min(shares), 3),
        "share_mean": round(statistics.mean(shares), 3),
        "share_most": round(max(shares), 3),
        "lost_with_any_one_after_copies": alone,
        "held_by_one_at_a_moment": round(lost / moments, 3),
        "asked_models_waited_for": round(fetched / asked, 3) if asked else 0.0,
    }


def main() -> None:
    parser: argparse.ArgumentParser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    options = parser.parse_args()
    result = harness.Result("interest", "Models where they are asked for: simulated", options.date)
    real = result.facts["three servers"] = measured(options.folder)
    for what in ("bytes", "asked_of_another"):
        off = abs(real[what]["ratio"] - 1)
        basis = "|simulated / measured - 1|, three servers, twelve devices, three clusters"
        result.ratios.append(harness.Ratio(f"{what}: simulated is off by", off, WITHIN, "at most", basis))
    rows = result.facts["six servers"] = six(real["metadata_bytes"])
    for how in ("at home", "half", "anywhere"):
        worst = max(row["share_most"] for row in rows if row["where"] == how)
        basis = "bytes from peers by interest / today, the worst of six servers, of all sizes, clusters and seeds"
        result.ratios.append(harness.Ratio(f"clients {how}: share of bytes", worst, MOST, "at most", basis))
    print(result.write())
    print(json.dumps(result.facts, indent=1))


if __name__ == "__main__":
    main()
