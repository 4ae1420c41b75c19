"""A trial's figures, computed from what the run itself left: the exported ledger, and what the servers showed.

Each function gives a part of ``summary.json``, which is also what the result panel shows.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dag_acfl.commands.ledger.read import verified
from dag_acfl.summary import clusters_of
from dag_acfl.trial.progress import Progress
from fl_core.clusters import (
    mean_satisfaction,
    misclassified,
    modularity,
    partition_by,
    satisfaction_rate,
)
from fl_core.dag.transaction import Kind, Transaction
from fl_core.selection.evidence import parse_evidence
from fl_core.types import ZERO_ID, AuthorId
from fl_core.verify import LedgerSource


def method_figures(name: str, found: Sequence[float]) -> dict[str, Any]:
    """One method's figure: each client's, their mean, and their standard deviation; NaN where one is not finite."""
    values = [value if math.isfinite(value) else math.nan for value in found]
    return {"name": name, "values": values, "mean": float(np.mean(values)), "sd": float(np.std(values))}


def gain_figures(ours: Mapping[str, Any], alone: Mapping[str, Any], *, figure: str) -> dict[str, Any]:
    """What sharing buys over training alone.

    Returns:
        ``mean`` over clients, positive where sharing is better; ``gaining``: how many clients gain; ``least``: the
        smallest gain, and ``least_site``: whose it is; ``left_out``: sites where one of the two is not finite. Only
        that where no site is left.
    """
    sign = -1.0 if figure == "loss" else 1.0
    gains = sign * (np.array(ours["values"]) - np.array(alone["values"]))
    compared = np.flatnonzero(np.isfinite(gains))
    left_out = {"left_out": sorted({*range(len(gains))} - {*compared.tolist()})}
    if len(compared) == 0:
        return left_out
    least = int(compared[gains[compared].argmin()])
    return {
        "mean": float(gains[compared].mean()),
        "gaining": int((gains[compared] > 0).sum()),
        "least": float(gains[least]),
        "least_site": least,
        **left_out,
    }


def told_gain(gain: Mapping[str, Any], count: int) -> str:
    """``gain_figures`` of so many sites in words."""
    left_out = gain["left_out"]
    if len(left_out) == count:
        return "nothing that can be said: no site has a finite figure both alone and with others"
    told = (
        f"{gain['mean']:+.3f} over training alone; {gain['gaining']} of {count - len(left_out)} sites gain, "
        f"the least is {gain['least']:+.3f} (site {gain['least_site']})"
    )
    return f"{told}; without {told_sites(left_out)}, where a figure is not finite" if left_out else told


def told_sites(sites: Sequence[int]) -> str:
    """Such as ``sites 1, 3``."""
    return f"site{'s' * (len(sites) > 1)} {', '.join(map(str, sites))}"


def updates_of(source: LedgerSource) -> list[Transaction]:
    """All of a ledger's updates, in its order."""
    return [each for _, each in source.transactions() if each.header.kind is not Kind.GENESIS]


def cluster_figures(
    source: LedgerSource, updates: Sequence[Transaction], truth: Mapping[AuthorId, int] | None
) -> dict[str, Any]:
    """What the ledger says about clusters.

    Returns:
        ``found``: sizes of Louvain's communities, largest first. ``modularity`` of the communities [DAG-ACFL Eq. 6].
        ``updates``, and how many of them are ``shared``: averaged with somebody else's model. Where the truth is known
        also ``true``: number of true clusters. ``misplaced``: clients whose community is mostly another cluster's.
        ``exact``: whether communities and true clusters are the same sets. ``satisfaction``: mr [DAG-ACFL Eq. 7], the
        mean over all selections that had an update of the own cluster on offer, or None. ``foreign_approvals``: share
        of all approvals of others that went to another cluster.
    """
    approvals, found = clusters_of({update.id: update.header for update in updates})
    author_of = {update.id: update.header.author for update in updates}
    figures: dict[str, Any] = {
        "found": sorted(map(len, found), reverse=True),
        "modularity": modularity(approvals, found),
        "updates": len(updates),
        "shared": sum(
            any(author_of.get(parent, update.header.author) != update.header.author for parent in update.header.parents)
            for update in updates
        ),
    }
    if truth is None:
        return figures
    total = sum(approvals.counts.values())
    foreign = sum(count for (giver, other), count in approvals.counts.items() if truth[giver] != truth[other])
    rates = []
    for update in updates:
        digest, author = update.header.attachment_digest, update.header.author
        encoded = None if digest == ZERO_ID else source.attachment(digest)
        if encoded is not None:
            candidates = parse_evidence(encoded).selection.candidates
            mates = {other for other, cluster in truth.items() if cluster == truth[author] and other != author}
            taken = [each.author for each in candidates if each.selected]
            rates.append(satisfaction_rate(taken, [each.author for each in candidates], mates))
    return {
        **figures,
        "true": len(set(truth.values())),
        "misplaced": misclassified(found, truth),
        "exact": found == partition_by(truth),
        "satisfaction": mean_satisfaction(rates),
        "foreign_approvals": foreign / total if total else 0.0,
    }


def proof_figures(source: LedgerSource) -> dict[str, Any]:
    """What the verification of the whole ledger proved, and its ``faults``, each a line."""
    findings, done = verified(source)
    faults = [f"{each.kind} ({(each.transaction or 'ledger')[:16]})" for each in findings if not each.kind.is_warning]
    return {"transactions": done.checked, "models": done.models, "aggregates": done.aggregates, "faults": faults}


def visibility_figures(
    shown: Mapping[str, Mapping[int, float]], *, leave_out: int | None = None
) -> dict[str, Any] | None:
    """From the first server that showed an update to each other one: median, 95th percentile, number of ``pairs``.

    Args:
        shown: When each server showed each update, one clock for all.
        leave_out: A server that was down for a while, whose catching up is another thing.

    Returns:
        None when fewer than two servers showed anything in common.
    """
    delays: list[float] = []
    for times in shown.values():
        first, *later = sorted(at_s for server, at_s in times.items() if server != leave_out) or [0.0]
        delays += [each - first for each in later]
    if not delays:
        return None
    median_s, p95_s = np.percentile(delays, [50, 95]).tolist()
    return {"median_s": median_s, "p95_s": p95_s, "pairs": len(delays)}


def network_figures(
    updates: Sequence[Transaction],
    progress: Progress,
    *,
    keys: Sequence[str],
    digest: str,
    equal_after_s: float,
    peer_bytes: int,
    killed: int | None = None,
) -> dict[str, Any]:
    """How several servers did as one ledger.

    Returns:
        These, and ``updates``: how many each server took from clients, as its signature in the ledger says;
        ``visibility``; ``peer_bytes`` for each update and server that received it; ``equation_8``: what [DAG-ACFL
        Eq. 8] has for it, |ω| + |σ|, a model and the mean header; ``switches``: how often a client published on
        another server than the time before.
    """
    took = Counter(str(update.receipt.issuer) for update in updates)
    return {
        "updates": [took[key] for key in keys],
        "digest": digest,
        "equal_after_s": equal_after_s,
        "visibility": visibility_figures(progress.shown, leave_out=killed),
        "peer_bytes": peer_bytes / (len(updates) * (len(keys) - 1)),
        "equation_8": float(np.mean([update.header.model_size + len(update.header_bytes) for update in updates])),
        "switches": progress.switches,
        "killed": killed,
    }
