"""DP-SGD by Opacus: each example's gradient is clipped, noise is added to their sum, ε is accounted for by RDP.

Sampling and noise come from a generator that is seeded by the operating system, anew for each training. Everything else
in a training is drawn from a seed that follows from public values; noise that anybody can draw again hides nothing.

Source: Abadi et al. 2016, "Deep Learning with Differential Privacy", Alg. 1; Mironov et al. 2019, "Rényi Differential
Privacy of the Sampled Gaussian Mechanism".
"""

import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import GradSampleModule
from opacus.accountants.analysis import rdp
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from torch import Tensor, nn

from fl_client.privacy import DifferentialPrivacy, Spending
from fl_core.errors import ParameterError

_ORDERS: Final = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
"""As Opacus takes them."""


def check_module(model: nn.Module) -> None:
    """See that each example has a gradient of its own."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001  # of all dimensions, lazy ones too
            raise ParameterError(
                f"layer {name!r} is {type(layer).__name__}, which mixes the examples of a batch, so that nothing "
                "bounds what one of them does; use torch.nn.GroupNorm in its place"
            )
    if faults := ModuleValidator.validate(model.train()):
        raise ParameterError(f"no differential privacy for this model: {' '.join(str(faults[0]).split())[:200]}")


def epsilon_of(spent: Sequence[Spending], delta: float) -> float:
    """The ε of all steps together, by Rényi differential privacy: an upper bound."""
    total = sum(each.steps * _of_a_step(each.noise_multiplier, each.sample_rate) for each in spent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another order would give a smaller ε
        epsilon, _ = rdp.get_privacy_spent(orders=_ORDERS, rdp=total, delta=delta)
    return float(epsilon)


@cache
def _of_a_step(noise_multiplier: float, sample_rate: float) -> NDArray[np.float64]:
    """Rényi divergence of each order; of several steps it is the sum. Half a second, for the broken orders."""
    return np.asarray(rdp.compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=1, orders=_ORDERS))


class PrivateSteps:
    """The steps of one training.

    Args:
        model: In training mode; has its hooks while the block of ``prepared`` runs.
        optimizer: Gets the noisy gradients.
        privacy: Clip and noise.
        expected: Examples of a step on average.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, privacy: DifferentialPrivacy, *, expected: float
    ) -> None:
        device = next(model.parameters()).device
        self._secret = torch.Generator(device).manual_seed(secrets.randbits(63))
        self._model, self._device = model, device
        self._optimizer = DPOptimizer(
            optimizer,
            noise_multiplier=privacy.noise_multiplier,
            max_grad_norm=privacy.clip,
            expected_batch_size=expected,
            generator=self._secret,
            secure_mode=True,  # noise whose float32 digits do not tell what it was added to
        )

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """In this block the model's gradients are taken example by example."""
        wrapped = GradSampleModule(self._model)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            try:
                yield
            finally:
                wrapped.to_standard_module()

    def drawn(self, num_examples: int, rate: float) -> list[int]:
        """The examples of a step: each with the same probability, independently; may be none."""
        chosen = torch.rand(num_examples, generator=self._secret, device=self._device) < rate
        return chosen.nonzero().flatten().tolist()

    def step(self, loss: Callable[[], Tensor] | None) -> float | None:
        """One step, by the mean loss of the examples drawn; None: none was drawn, and the step is noise alone."""
        self._optimizer.zero_grad()
        value = None
        if loss is None:
            for parameter in self._optimizer.params:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
        else:
            mean = loss()
            mean.backward()  # type: ignore[no-untyped-call]
            value = mean.item()
        self._optimizer.step()
        return value
