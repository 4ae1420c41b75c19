"""Between NumPy rows and torch: layouts of modules, views of rows, and counting how models did.

What is not a parameter (a batch norm's running mean) is not in a row, and not shared.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import Vector32
from fl_simulator.training.protocol import Evaluation, Rows


def layout_of(module: nn.Module) -> ModelLayout:
    """The module's parameters as the tensors of a row."""
    return ModelLayout.of(
        TensorSpec(name, "F32", tuple(parameter.shape)) for name, parameter in module.named_parameters()
    )


def unflatten(layout: ModelLayout, rows: Tensor) -> dict[str, Tensor]:
    """Views of ``rows``, shape ``(P,)`` or ``(K, P)``: each tensor ``(*shape)`` or ``(K, *shape)``."""
    views: dict[str, Tensor] = {}
    at = 0
    for spec in layout.tensors:
        views[spec.name] = rows[..., at : at + spec.size].view(*rows.shape[:-1], *spec.shape)
        at += spec.size
    return views


def init_parameters(
    factory: Callable[[], nn.Module],
    layout: ModelLayout,
    rng: np.random.Generator,
    *,
    init: str = "pytorch",
    gain: float = 1.0,
) -> Vector32:
    """A new module's parameters, shape ``(P,)``; torch's own generator is left as it was.

    Args:
        factory: Makes the module, and thereby draws its parameters as PyTorch does.
        layout: The module's.
        rng: Decides what is drawn.
        init: ``pytorch``: as it is made. ``he``: weights evenly from ±√(6 / inputs) (He et al., ICCV 2015, Eq. 10),
            where a filter's inputs are its channels times its area; biases, and a group norm's scale, as PyTorch has
            them.
        gain: Multiplies what is a weight in that sense.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.random.manual_seed(int(rng.integers(2**63)))
        parameters = dict(factory().named_parameters())
        for parameter in parameters.values():
            if parameter.dim() < 2:
                continue
            if init == "he":
                bound = math.sqrt(6 / parameter[0].numel())
                parameter.uniform_(-bound, bound)
            if gain != 1:
                parameter.mul_(gain)
        row = torch.empty(layout.num_parameters)
        for name, view in unflatten(layout, row).items():
            view.copy_(parameters[name])
    values: Vector32 = row.numpy()
    return values


def as_tensor(array: NDArray[Any]) -> Tensor:
    """A tensor on the array's memory; of a read-only array, one that must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _by_model(rows: Sequence[int] | Rows) -> list[tuple[int, NDArray[np.int64]]]:
    """The models that are asked, and which pairs ask each."""
    asked = np.asarray(rows, dtype=np.int64)
    models, places = np.unique(asked, return_inverse=True)
    pairs = np.split(np.argsort(places, kind="stable"), np.cumsum(np.bincount(places, minlength=len(models)))[:-1])
    return [(int(model), each) for model, each in zip(models, pairs, strict=True)] if len(models) else []


def questions(
    rows: Sequence[int] | Rows, samples: Sequence[Rows], *, models_at_once: int
) -> list[tuple[list[int], NDArray[np.int64]]]:
    """How to ask models about samples in the fewest parts: a model about all of its samples, or models about the same.

    Args:
        rows: K models.
        samples: K arrays; those of the same samples are one object.
        models_at_once: How many models can be asked together about the same samples.

    Returns:
        Of each part its models, and the pairs that it answers: of one model any, of several models one each.
    """
    of_models = _by_model(rows)
    if models_at_once > 1:
        asked = np.asarray(rows, dtype=np.int64)
        of_samples = [
            pairs[at : at + models_at_once]
            for pairs in _by_identity(samples)
            for at in range(0, len(pairs), models_at_once)
        ]
        if len(of_samples) < len(of_models):
            return [(asked[pairs].tolist(), pairs) for pairs in of_samples]
    return [([model], pairs) for model, pairs in of_models]


def _by_identity(samples: Sequence[Rows]) -> list[NDArray[np.int64]]:
    places: dict[int, list[int]] = {}
    for place, each in enumerate(samples):
        places.setdefault(id(each), []).append(place)
    return [np.array(each, dtype=np.int64) for each in places.values()]


class Counts:
    """Gathers how models did, pair by pair; pairs may come in any order and from any thread."""

    def __init__(self, samples: Sequence[Rows]) -> None:
        self.samples = samples
        self._count = np.array([len(each) for each in samples], dtype=np.int64)
        self._correct = np.zeros(len(samples), dtype=np.int64)
        self._loss_sum = np.zeros(len(samples), dtype=np.float64)

    def of(self, pairs: NDArray[np.int64]) -> Rows:
        """All samples of these pairs, joined."""
        return np.concatenate([self.samples[pair] for pair in pairs])

    def record(self, pairs: NDArray[np.int64], correct: NDArray[np.bool_], loss: NDArray[np.float32]) -> None:
        """Note for each sample of ``of(pairs)`` whether it was right, and its loss."""
        owner = np.repeat(np.arange(len(pairs)), self._count[pairs])
        self._correct[pairs] = np.bincount(owner, weights=correct, minlength=len(pairs)).astype(np.int64)
        self._loss_sum[pairs] = np.bincount(owner, weights=loss, minlength=len(pairs))

    def evaluation(self) -> Evaluation:
        """What was recorded."""
        return Evaluation(correct=self._correct, loss_sum=self._loss_sum, count=self._count)


def judge(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the label had the greatest logit, and the cross-entropy, of each sample.

    Args:
        logits: Shape ``(…, n, classes)``; of several greatest ones the first counts.
        labels: Shape ``(n,)``.

    Returns:
        Both of shape ``(…, n)``.
    """
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scores = scores.transpose(-1, -2).contiguous()  # over a few classes sums of whole rows are three times as fast
    own = scores.gather(-2, labels.expand(*scores.shape[:-2], 1, -1)).squeeze(-2)
    return scores.max(-2).indices == labels, scores.logsumexp(-2) - own
