"""Differential privacy of one client: what it trains with, and what of its privacy is spent, for life.

    privacy.json      in the state folder: all that was ever spent there, and the (ε, δ) that it comes to

The trainer knows how (``fl_client.training.dp_sgd``); here is only what is kept. What a training spends is written down
before anything that it made leaves the client, so that no kill makes the account say too little. A training that is cut
off after that was paid for in vain. The account has no way back: a folder's ε only grows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fl_client.durable_files import replace_file
from fl_client.errors import StateCorruptError, StateError
from fl_client.training.errors import PrivacyBudgetError
from fl_client.training.protocol import Hints
from fl_core.errors import ParameterError

PRIVACY_FILE: Final = "privacy.json"
DEFAULT_DELTA: Final = 1e-5
EPSILON_METRIC: Final = "_dp_epsilon"
DELTA_METRIC: Final = "_dp_delta"


@dataclass(frozen=True, slots=True)
class DifferentialPrivacy:
    """How a training protects each example: DP-SGD [Abadi et al. 2016, Alg. 1].

    Attributes:
        noise_multiplier: Standard deviation of the noise in a step's sum of gradients, in units of ``clip``.
        clip: Largest Euclidean norm of one example's gradient; larger ones are shortened to it.
        sample_rate: Probability of each example to be part of a step; None: batch size / examples. An epoch has
            1 / ``sample_rate`` steps.

    Raises:
        ParameterError: One is out of range.
    """

    noise_multiplier: float
    clip: float
    sample_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("noise_multiplier", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ParameterError(f"{name} must be a number above 0, not {getattr(self, name)}")
        if self.sample_rate is not None and not 0 < self.sample_rate <= 1:
            raise ParameterError(f"sample_rate must be in (0, 1], not {self.sample_rate}")


class Spending(BaseModel):
    """So many steps of DP-SGD: what its privacy accountant asks."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="forbid")

    noise_multiplier: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    sample_rate: Annotated[float, Field(gt=0, le=1)]
    steps: Annotated[int, Field(ge=1)]


@runtime_checkable
class PrivateTrainer(Protocol):
    """What a trainer has besides if it can train with differential privacy; ``TorchTrainer`` does."""

    privacy: DifferentialPrivacy | None
    """None: it trains without."""

    def spending(self, epochs: int, hints: Hints) -> Spending:
        """What a training of so many epochs will spend."""

    def epsilon(self, spent: Sequence[Spending], delta: float) -> float:
        """The ε that trainings on the same data have spent together."""


class Account(BaseModel):
    """The content of ``privacy.json``: everything spent, and the ε that it comes to at this δ."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="forbid")

    format: Literal["dag-acfl/privacy/v1"] = "dag-acfl/privacy/v1"
    delta: Annotated[float, Field(gt=0, lt=1)]
    epsilon: Annotated[float, Field(ge=0)] = 0.0
    spent: tuple[Spending, ...] = ()


def read_account(folder: Path) -> Account | None:
    """What a state folder's client has spent; None where it never trained with differential privacy.

    Raises:
        StateCorruptError: The file is not what was written.
        StateError: It cannot be read.
    """
    path = folder / PRIVACY_FILE
    try:
        return Account.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}", path=path) from error
    except ValidationError as error:
        raise StateCorruptError(f"{path} is damaged; restore it from a copy", path=path) from error


def privacy_ledger(
    trainer: object, folder: Path, *, published: int, delta: float = DEFAULT_DELTA, budget: float | None = None
) -> "PrivacyLedger | None":
    """What keeps account of a private trainer's spending; None for another trainer.

    Raises:
        ParameterError: What was published before was not private and this trainer is, or the other way round; or there
            is nothing for the budget to bound.
    """
    account = read_account(folder)
    if isinstance(trainer, PrivateTrainer) and trainer.privacy is not None:
        if published and account is None:
            raise ParameterError(
                f"{folder} has published without differential privacy, which no later noise undoes: "
                "use another --state folder, with data that nothing was trained on"
            )
        return PrivacyLedger(folder, trainer, delta=delta, budget=budget)
    if budget is not None:
        raise ParameterError(
            "an epsilon budget bounds differential privacy, and this client trains without: --dp-noise"
        )
    if account is not None:
        raise ParameterError(
            f"{folder} has trained with differential privacy (ε {account.epsilon:.3g}), and one training without would "
            "undo it: go on with --dp-noise, or use another --state folder with other data"
        )
    return None


class PrivacyLedger:
    """Charges a client's trainings to its folder, and stops at a budget.

    Args:
        folder: The opened state folder.
        trainer: Has ``privacy``.
        delta: δ, at which ε is told; what was spent before is told at it, too.
        budget: The largest ε that may be spent in all; None: any.
    """

    def __init__(
        self, folder: Path, trainer: PrivateTrainer, *, delta: float = DEFAULT_DELTA, budget: float | None = None
    ) -> None:
        if not 0 < delta < 1:
            raise ParameterError(f"delta must be in (0, 1), not {delta}")
        if budget is not None and not budget > 0:
            raise ParameterError(f"an epsilon budget must be above 0, not {budget}")
        self._folder, self._trainer, self._budget = folder, trainer, budget
        kept = read_account(folder) or Account(delta=delta)
        self.account: Account = self._with(kept.spent, delta)

    def check(self, *trainings: tuple[int, Hints]) -> None:
        """See that the budget has room for trainings of so many epochs each."""
        if self._budget is None:
            return
        after = self._after(*trainings).epsilon
        if after > self._budget:
            raise PrivacyBudgetError(
                f"the next training would take ε from {self.account.epsilon:.3g} to {after:.3g} "
                f"(δ = {self.account.delta:g}), beyond the budget of {self._budget:g}"
            )

    def charge(self, epochs: int, hints: Hints) -> None:
        """Write down, for good, that a training was made; before anything that came of it leaves the client."""
        after = self._after((epochs, hints))
        replace_file(self._folder / PRIVACY_FILE, after.model_dump_json(indent=1).encode())
        self.account = after

    @property
    def metrics(self) -> dict[str, float]:
        """What a header says of it."""
        return {EPSILON_METRIC: self.account.epsilon, DELTA_METRIC: self.account.delta}

    def _after(self, *trainings: tuple[int, Hints]) -> Account:
        spent = list(self.account.spent)
        for epochs, hints in trainings:
            more = self._trainer.spending(epochs, hints)
            if spent and (last := spent[-1]).model_copy(update={"steps": more.steps}) == more:
                spent[-1] = more.model_copy(update={"steps": last.steps + more.steps})
            else:
                spent.append(more)
        return self._with(tuple(spent), self.account.delta)

    def _with(self, spent: tuple[Spending, ...], delta: float) -> Account:
        epsilon = self._trainer.epsilon(spent, delta) if spent else 0.0
        return Account(delta=delta, epsilon=epsilon, spent=spent)
