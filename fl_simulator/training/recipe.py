"""How a row is trained: batches, steps and loss. Decided once for a run; who trains on what is ``Task``'s."""

from dataclasses import dataclass

from fl_core.errors import ParameterError
from fl_core.parameters import parameter, rules_of


@dataclass(frozen=True, slots=True)
class Recipe:
    """What every training of a run has in common.

    An optimiser's state (velocities, moments) begins anew with each call of ``train``, as
    [Gain Alg. 1, line 15] has it: it would belong to weights that an aggregation has replaced.

    Attributes:
        batch_size: Of the last batch of an epoch the most.
        learning_rate: η.
        optimizer: ``sgd``, with momentum if that is not 0; or ``adamw`` (Loshchilov and Hutter, ICLR 2019), with
            PyTorch's β₁ = 0.9, β₂ = 0.999 and ε = 1e-8.
        momentum: m of ``sgd``, as PyTorch defines it: v ← m v + g, w ← w - η v.
        weight_decay: λ of ``adamw``: w ← (1 - η λ) w before each step. ``sgd`` has none.
        loss: ``cross-entropy``, or ``virtual-teacher`` (DecDiff, Eq. 7-8).
        beta: β, the virtual teacher's trust in a sample's label; DecDiff asks for 0.9 or more, and does not say what it
            takes. 1 is the cross-entropy.
        loss_bound: A batch whose mean cross-entropy is above it has no gradient, as with ``torch.clamp(loss, max=…)``
            ([Gain]'s program, not its text: 10); momentum, AdamW and FedProx's term move the weights all the same.
            0: no bound.

    Raises:
        ParameterError: A value is out of range, or momentum is asked of ``adamw``, or a bound of the virtual teacher.
    """

    batch_size: int = parameter(10, at_least=1, at_most=100_000, doc="Samples of a batch.")
    learning_rate: float = parameter(0.05, above=0.0, doc="η of a step.")
    optimizer: str = parameter(
        "sgd",
        choices=("sgd", "adamw"),
        doc="Its state begins anew with each training; moments of adamw as PyTorch has them.",
    )
    momentum: float = parameter(0.0, at_least=0.0, below=1.0, doc="Of sgd: v ← m v + g, w ← w - η v.")
    weight_decay: float = parameter(0.01, at_least=0.0, doc="Of adamw, decoupled; sgd has none.")
    loss: str = parameter(
        "cross-entropy",
        choices=("cross-entropy", "virtual-teacher"),
        doc="virtual-teacher: KL to labels that are sure by beta only (DecDiff, Eq. 8).",
    )
    beta: float = parameter(
        0.95, above=0.0, at_most=1.0, doc="Of the virtual teacher: what the right label has; the rest share 1 - beta."
    )
    loss_bound: float = parameter(
        0.0, at_least=0.0, doc="A batch whose mean cross-entropy is above this has no gradient; 0: no bound."
    )

    def __post_init__(self) -> None:
        for name, rule in rules_of(type(self)).items():
            value = getattr(self, name)
            if not isinstance(value, bool) and (problem := rule.problem(value)):
                raise ParameterError(f"{name} {problem}, not {value!r}")
        if self.momentum and self.optimizer != "sgd":
            raise ParameterError(
                f"momentum {self.momentum} is of optimizer 'sgd'; 'adamw' has moments of its own, so leave it out"
            )
        if self.loss_bound and self.loss != "cross-entropy":
            raise ParameterError(f"loss_bound {self.loss_bound} is of loss 'cross-entropy', so leave it out")

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
