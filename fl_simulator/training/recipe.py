"""How a row is trained: batches, steps and loss. Decided once for a run; who trains on what is ``Task``'s."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from fl_core.errors import ParameterError, UnknownNameError

OptimizerName: TypeAlias = Literal["sgd", "adamw"]
LossName: TypeAlias = Literal["cross-entropy", "virtual-teacher"]
Initialisation: TypeAlias = Literal["pytorch", "he"]

OPTIMIZERS: Final[tuple[OptimizerName, ...]] = get_args(OptimizerName)
LOSSES: Final[tuple[LossName, ...]] = get_args(LossName)
INITIALISATIONS: Final[tuple[Initialisation, ...]] = get_args(Initialisation)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What every training of a run has in common.

    An optimiser's state (velocities, moments) begins anew with each call of ``train``, as
    [Gain Alg. 1, line 15] has it: it would belong to weights that an aggregation has replaced.

    Attributes:
        batch_size: At least 1.
        learning_rate: η, greater than 0.
        optimizer: ``sgd``, with momentum if that is not 0; or ``adamw`` (Loshchilov and Hutter, ICLR 2019), with
            PyTorch's β₁ = 0.9, β₂ = 0.999 and ε = 1e-8.
        momentum: m of ``sgd``, in [0, 1), as PyTorch defines it: v ← m v + g, w ← w - η v.
        weight_decay: λ of ``adamw``, at least 0: w ← (1 - η λ) w before each step. ``sgd`` has none.
        loss: ``cross-entropy``, or ``virtual-teacher`` (DecDiff, Eq. 7-8).
        beta: β, the virtual teacher's trust in a sample's label, in (0, 1]; DecDiff asks for 0.9 or more, and does not
            say what it takes. 1 is the cross-entropy.

    Raises:
        UnknownNameError: No such optimiser or loss.
        ParameterError: A value is out of range, or momentum is asked of ``adamw``.
    """

    batch_size: int
    learning_rate: float
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.01
    loss: LossName = "cross-entropy"
    beta: float = 0.95

    def __post_init__(self) -> None:
        named: Mapping[str, tuple[str, tuple[str, ...]]] = {
            "optimizer": (self.optimizer, OPTIMIZERS),
            "loss": (self.loss, LOSSES),
        }
        for kind, (word, known) in named.items():
            if word not in known:
                raise UnknownNameError(kind, word, known)
        for holds, words in (
            (self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}"),
            (self.learning_rate > 0, f"learning_rate must be above 0, not {self.learning_rate}"),
            (0 <= self.momentum < 1, f"momentum must be in [0, 1), not {self.momentum}"),
            (self.weight_decay >= 0, f"weight_decay must be at least 0, not {self.weight_decay}"),
            (0 < self.beta <= 1, f"beta must be in (0, 1], not {self.beta}"),
            (
                not self.momentum or self.optimizer == "sgd",
                f"momentum {self.momentum} is of optimizer 'sgd'; 'adamw' has moments of its own, so leave it out",
            ),
        ):
            if not holds:
                raise ParameterError(words)

    @property
    def num_kept(self) -> int:
        """Values that the optimiser keeps for each parameter."""
        return 2 if self.optimizer == "adamw" else int(self.momentum > 0)

    def teacher(self, num_classes: int) -> tuple[float, float]:
        """What the loss wants a sample's label to have of probability, and each other class (DecDiff, Eq. 7).

        The loss is KL(teacher || model), whose gradient at the logits z is softmax(z) minus these, as distillation has
        it and as the text above Eq. 8 describes. Eq. 8 itself prints the divergence the other way round,
        KL(p_i, p_t); that one hardly moves a model that is surely wrong, for there its gradient vanishes.
        """
        if self.loss == "cross-entropy" or num_classes == 1:
            return 1.0, 0.0
        return self.beta, (1 - self.beta) / (num_classes - 1)
