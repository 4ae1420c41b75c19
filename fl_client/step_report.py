"""What a participant tells of a step, to people and to trackers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fl_client.metrics import beside
from fl_core.trust.refusal import Comparison
from fl_core.types import TxId


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step, as it went.

    Attributes:
        transaction: What was published.
        sequence: Its number among this author's transactions, from 0.
        created: False when the server had it already (an earlier attempt had arrived).
        server: Address of the server that acknowledged it; None when it was found published after a refusal.
        resumed: Whether the step only finished a publication of an earlier run; what that run measured is gone.
        joined: Whether the selection was asked for with a model instead of a hash.
        parents: The approved transactions.
        rule: Which rule of the selector decided; None when resumed.
        source: ``parents``: ω_agg is their mean; ``own``: it is the own model; None when resumed.
        refused: How the average did beside the own model, where it was refused: the step went on from the own model.
        num_candidates: Models of others that were compared with the own one.
        num_chosen: How many of them are in the average.
        step_kept: How much of the step from the average was published: below 1 where the ledger bounds it shorter.
        num_examples: Examples trained on.
        metrics_before: ``evaluate``'s finite numbers for what training starts from, ω_agg or what ``merge`` made of it;
            when resumed, all that the transaction carries.
        metrics_after: Those of the trained model.
        train_metrics: ``train``'s finite numbers.
        bytes_sent: Of request bodies.
        bytes_received: Of answers' bodies.
        seconds: Wall time by phase: ``join``, ``select``, ``download``, ``evaluate``, ``train``, ``publish``.
    """

    transaction: TxId
    sequence: int
    created: bool
    server: str | None
    resumed: bool
    parents: tuple[TxId, ...]
    num_examples: int
    joined: bool = False
    rule: str | None = None
    source: str | None = None
    refused: Comparison | None = None
    num_candidates: int = 0
    num_chosen: int = 0
    step_kept: float = 1.0
    metrics_before: Mapping[str, float]
    metrics_after: Mapping[str, float] = field(default_factory=dict)
    train_metrics: Mapping[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """The step's numbers, each by a name of its own, as trackers take them.

        ``NAME/given`` and ``NAME/trained`` are ``evaluate``'s; ``train``'s are called as in the header; those of the
        client are ``step/kept``, ``selection/…``, ``seconds/…`` and ``bytes/…``. A resumed step has only the last two.
        """
        figures: dict[str, float] = {}
        if not self.resumed:
            figures |= {f"{name}/given": value for name, value in self.metrics_before.items()}
            figures |= {f"{name}/trained": value for name, value in self.metrics_after.items()}
            figures |= beside(self.metrics_before, self.train_metrics)
            figures |= {
                "step/kept": self.step_kept,
                "selection/chosen": self.num_chosen,
                "selection/candidates": self.num_candidates,
            }
            figures["selection/refused"] = float(self.refused is not None)
        figures |= {f"seconds/{phase}": seconds for phase, seconds in self.seconds.items()}
        return figures | {"bytes/sent": self.bytes_sent, "bytes/received": self.bytes_received}
