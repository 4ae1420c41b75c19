"""A sign flip: it hands in its step backwards, which unlearns."""

from dataclasses import dataclass

from fl_core.parameters import parameter
from fl_simulator.attacks.scaled_step import ScaledStep, ScaledStepParams


@dataclass(frozen=True, slots=True)
class SignFlipParams:
    factor: float = parameter(3.0, above=0.0, doc="How many times as long as it was.")


class SignFlip(ScaledStep):
    """Publishes what it was given, less ``factor`` times its step."""

    name = "sign-flip"

    def __init__(self, params: SignFlipParams) -> None:
        super().__init__(ScaledStepParams(-params.factor))
