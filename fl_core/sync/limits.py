"""Every interval and bound of gossip in one place, with the reason for its number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipLimits:
    """How often, how long, how much."""

    pull_interval_s: float = 5.0
    """Seconds between two cursor pulls from a peer; announcements are faster, pulls are certain."""
    audit_interval_s: float = 60.0
    """Seconds between two comparisons of checkpoints with a peer."""
    ask_deadline_s: float = 5.0
    """Seconds that an answer may take, blobs apart."""
    blob_stall_s: float = 3.0
    """Seconds without a byte after which a blob is asked of the next peer."""
    blob_min_bytes_per_s: int = 64 * 1024
    """A peer that drips more slowly than this is passed over too."""
    max_backoff_s: float = 5.0
    """Longest pause after failures: one pull interval, so that a healed link has caught up within two."""
    banned_after: int = 20
    """Invalid transactions after which a peer is no longer spoken to."""
    tries_per_source: int = 3
    """How often one peer is asked for one thing before it counts as not serving it."""
    page_repeats: int = 5
    """How often a page of changes is asked again for what was dropped, before the audit is left to repair it."""
    page_stall_s: float = 120.0
    """Seconds without progress after which a page counts as dropped: longer than any queue takes to give up."""
    max_wanted_per_peer: int = 100_000
    """Ids that one peer may have advertised and that are not here yet."""
    max_walk_rounds: int = 100
    """Calls that walk back from a peer's transactions without one of them being admitted."""
    max_orphans: int = 1000
    """Transactions in the waiting room without a path to the ledger; as many again may have one."""
    max_waiting_bytes: int = 64 * 1024 * 1024
    """Header and attachment bytes in the waiting room, half of them for orphans."""
    max_parked: int = 20_000
    """Transactions whose model every peer says to have pruned, held until what lies above them shows that it may be;
    while there are any, so many others may wait above them too, if their models are small."""
    max_parked_bytes: int = 128 * 1024 * 1024
    """Header and attachment bytes of these."""
    max_resting_model_bytes: int = 4 << 30
    """Models that may be here and wait for what lies below them, unless ``max_orphans`` allows more."""
    pruned_patience_s: float = 30.0
    """Seconds after which a peer that is away is not waited for when all others say that a model was pruned."""
    bare_beyond_generations: int = 1
    """Models of this many of the deepest generations must be here, whatever peers say; more than a peer keeps makes
    its ledger impossible to complete, and one is the least that anybody may keep."""
    orphan_lifetime_s: float = 60.0
    """Seconds that a transaction waits for a path to the ledger."""
    max_header_bytes: int = 48 * 1024
    """More than the format's 1,024 parents and 32 metrics can take."""
    max_attachment_bytes: int = 1024 * 1024
    """Largest evidence of a selection; the genesis document is never gossiped."""
    blobs_per_peer: int = 4
    """Blobs that are fetched from one peer at once."""
    max_ahead_bytes: int = 64 * 1024 * 1024
    """Models that are here before their transactions' turn; at this many, no more are fetched until half of them are
    admitted: more would take room and save no time."""
    full_ids_below: int = 2000
    """Up to so many transactions on both sides, all ids are simpler than a reconciliation, and no dearer."""
    max_refused: int = 10_000
    """Ids of refused transactions that are remembered, so that they are not fetched again."""
    max_id_pages: int = 200
    """Pages of ids in one audit: two million transactions."""
    frame_bytes: int = 64 * 1024
    """Size of a reconciliation frame."""
