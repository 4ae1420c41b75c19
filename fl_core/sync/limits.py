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
    max_refused: int = 10_000
    """Ids of refused transactions that are remembered, so that they are not fetched again."""
    frame_bytes: int = 64 * 1024
    """Size of a reconciliation frame."""
