"""The intervals and bounds of gossip that a server or a test may want to set."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipLimits:
    """How often, how long, how much."""

    pull_interval_s: float = 5.0
    """Seconds between two pages of a peer's journal; announcements are faster, pages are certain."""
    comparison_interval_s: float = 60.0
    """Seconds between two comparisons of a peer's whole ledger with ours."""
    checkpoint_interval_s: float = 120.0
    """Seconds before a peer that has answered with its checkpoint, or refused it, is asked for it again."""
    answer_deadline_s: float = 5.0
    """Seconds that an answer may take, models apart."""
    model_stall_s: float = 3.0
    """Seconds without a byte after which a model is asked of the next peer."""
    models_per_peer: int = 4
    """Models that are fetched from one peer at once."""
    models_ahead_bytes: int = 64 * 1024 * 1024
    """Models that are here before their turn: at this many, no more are fetched until half of them are admitted."""
    admitted_together_bytes: int = 4 * 1024 * 1024
    """Models of transactions that are admitted together, at least one: publications wait meanwhile."""
    pending_per_peer: int = 500
    """Transactions of one peer that wait for their models; as many again may wait for their parents."""
    pending_bytes_per_peer: int = 16 * 1024 * 1024
    """Header and attachment bytes of either."""
    orphan_lifetime_s: float = 60.0
    """Seconds that a transaction may wait for its parents."""
