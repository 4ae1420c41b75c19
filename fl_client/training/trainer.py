"""Trains a ``torch.nn.Module`` by gradient descent on batches: the training loop that comes with the package.

A training returns values and leaves nothing behind: interrupted between two batches, or diverged, it returns nothing,
and the next one starts from the arrays that it is given.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fl_client.privacy import DifferentialPrivacy, Spending
from fl_client.training.errors import OpacusMissingError, TrainingDataError, TrainingDivergedError
from fl_client.training.module import ModuleTrainer, Share
from fl_client.training.protocol import Arrays, Hints, TrainingResult, report_progress
from fl_client.training.virtual_teacher import DEFAULT_BETA, checked_beta, virtual_teacher
from fl_client.training.virtual_teacher import NAME as VIRTUAL_TEACHER
from fl_core.errors import ParameterError, UnknownNameError

Batch: TypeAlias = Sequence[Tensor]
"""Inputs and labels, in this order."""

Data: TypeAlias = tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]] | Iterable[Batch]
"""A pair (inputs, labels) of whole arrays, or anything that gives batches each time it is iterated (a
DataLoader)."""

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]

DEFAULT_LEARNING_RATE: Final = 0.1
DEFAULT_BATCH_SIZE: Final = 10
"""10 follows DAG-ACFL, Table I."""

LOSSES: Final = ("cross-entropy", VIRTUAL_TEACHER)
"""The losses that have a name."""

_EVALUATION_BATCH_SIZE: Final = 1024
_MOST_LOSSES: Final = 2000


class Optimizer(Protocol):
    """The part of ``torch.optim.Optimizer`` that training uses."""

    param_groups: list[dict[str, Any]]

    def zero_grad(self) -> None: ...

    def step(self) -> Any: ...


class PlainSgd:
    """Stochastic gradient descent without momentum: ω ← ω - η∇L (DAG-ACFL, Alg. 1, line 24).

    The same bits as ``torch.optim.SGD(parameters, lr)``, which takes about a second of CPU to make in a
    fresh process because ``torch.optim`` then loads the compiler; sixteen clients on two cores feel that.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.param_groups: list[dict[str, Any]] = [{"params": self._parameters, "lr": learning_rate}]

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        rate = self.param_groups[0]["lr"]
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-rate)


class TorchTrainer(ModuleTrainer):
    """Trains and evaluates a module on one site's data; meets ``Trainer``.

    Args:
        model: The module; it is moved to ``device`` and trained in place, so use it for nothing else
            meanwhile. Its values now are ``initial_arrays``.
        train_data: A pair (inputs, labels) of whole tensors or NumPy arrays, cut into shuffled batches here
            without a DataLoader's overhead; or a DataLoader, or any iterable of (inputs, labels) batches.
        test_data: The same, never shuffled; None leaves ``evaluate`` empty.
        loss: Mean loss of a batch from the model's output and the labels; or one of ``LOSSES`` by name.
            ``virtual-teacher`` trains towards soft labels (DecDiff+VT, Eq. 7 and 8); its ``evaluate`` measures
            cross-entropy, so that clients that train otherwise can be compared.
        beta: Of the virtual teacher: what it says for the right class, in (0, 1]; other losses have no use for it.
        optimizer: Makes an optimizer from the parameters, anew for each training (no state crosses an
            aggregation). By default plain SGD with ``learning_rate``, which genesis may set by a hint of
            that name.
        learning_rate: Of the default optimizer, > 0; the hint ``learning_rate`` overrides it.
        batch_size: For a pair, ≥ 1; the hint ``batch_size`` overrides it.
        device: Where torch computes.
        seed: Of shuffling and dropout.
        share: Which tensors travel; None: all but frozen ones. The others are trained with them and stay here.
        privacy: Trains by DP-SGD, with Opacus; may be set later. Such a training is never the same twice, and its loss,
            which is measured on the very examples that are to be hidden, is shown as progress and returned to nobody.

    Raises:
        ModelLayoutError: The module has no float tensor, or one of another float type than float32, float16,
        bfloat16; or ``share`` names nothing that is trained, or one of two names of the same tensor.
        TrainingDataError: The data are empty, or can be iterated once only; or ``privacy`` is asked for and examples
            cannot be drawn from them one by one.
        ParameterError: ``learning_rate``, ``batch_size`` or ``beta`` is out of range; or a layer allows no privacy.
        UnknownNameError: No loss has that name.
        OpacusMissingError: ``privacy`` is asked for, and Opacus is not installed.
    """

    def __init__(
        self,
        model: nn.Module,
        train_data: Data,
        *,
        test_data: Data | None = None,
        loss: Loss | str = "cross-entropy",
        beta: float = DEFAULT_BETA,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        learning_rate: float = DEFAULT_LEARNING_RATE,
        batch_size: int = DEFAULT_BATCH_SIZE,
        device: str | torch.device = "cpu",
        seed: int = 0,
        share: Share | None = None,
        privacy: DifferentialPrivacy | None = None,
    ) -> None:
        self._device = torch.device(device)
        super().__init__(model.to(self._device), seed=seed, share=share)
        self._train_data = _prepared(train_data, self._device, "training")
        self._test_data = None if test_data is None else _prepared(test_data, self._device, "test")
        self._loss, self._test_loss = _losses(loss, checked_beta(beta))
        self._optimizer = optimizer
        self._learning_rate = _checked_rate(learning_rate)
        self._batch_size = _checked_batch_size(batch_size)
        self.privacy = privacy

    @property
    def privacy(self) -> DifferentialPrivacy | None:
        """How trainings protect each example; None: not at all."""
        return self._privacy

    @privacy.setter
    def privacy(self, privacy: DifferentialPrivacy | None) -> None:
        if privacy is not None:
            _dp_sgd().check_module(self._model)
            _num_examples(self._train_data)
        self._privacy = privacy

    def spending(self, epochs: int, hints: Hints) -> Spending:
        """What a training with ``privacy`` will spend."""
        assert self._privacy is not None, "the trainer has no privacy to spend"
        rate = self._privacy.sample_rate
        if rate is None:
            rate = min(self._expected_batch(hints) / _num_examples(self._train_data), 1.0)
        return Spending(
            noise_multiplier=self._privacy.noise_multiplier, sample_rate=rate, steps=epochs * max(1, round(1 / rate))
        )

    def epsilon(self, spent: Sequence[Spending], delta: float) -> float:
        """The ε of what trainings on these data have spent together."""
        return float(_dp_sgd().epsilon_of(spent, delta))

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        """Train from ``arrays`` for ``epochs`` passes over the training data.

        Returns:
            The trained arrays, the samples of one pass, and ``train_loss``: the mean loss per sample of the
            last pass; with ``privacy`` the noise instead.

        Raises:
            ModelLayoutError: The arrays are not those of the module, with the tensor's name; or the frozen parameters
            are not those that the ledger was founded with.
            ParameterError: ``epochs`` < 1, or a hint is out of range.
            TrainingDataError: The data gave no sample, or something else than (inputs, labels).
            TrainingDivergedError: A loss or a parameter is not finite.
        """
        hints = hints or {}
        batch_size = _checked_batch_size(hints.get("batch_size", self._batch_size))
        optimizer = self._new_optimizer(hints)
        metrics, noise_std = {}, 0.0
        with self._training(arrays, epochs, hints):
            if self._privacy is not None:
                num_examples, noise_std = self._train_privately(self._privacy, epochs, hints)
            else:
                for epoch in range(1, epochs + 1):
                    num_examples, metrics["train_loss"] = self._pass(
                        optimizer, batch_size, f"epoch {epoch} of {epochs}"
                    )
        trained = self._arrays()
        for name, array in trained.items():
            if not np.isfinite(array).all():
                raise _diverged(f"tensor {name!r} is not finite after {epochs} epochs", optimizer)
        return TrainingResult(trained, num_examples, metrics, noise_std)

    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        """``accuracy`` in [0, 1] (where labels are classes), mean ``loss`` and ``num_examples`` on the test
        data.

        Empty without test data. A loss that is not finite is left out, because a transaction could not carry
        it. The module holds ``arrays`` afterwards, in evaluation mode, for whoever measures more.

        Raises:
            ModelLayoutError: The arrays are not those of the module; the message names the tensor.
            TrainingDataError: The data gave no sample, or something else than (inputs, labels).
        """
        self._load(arrays)
        if self._test_data is None:
            return {}
        self._model.eval()
        num_examples, correct, total_loss, are_classes = 0, 0.0, 0.0, True
        with torch.inference_mode():
            for inputs, labels in self._batches(self._test_data, _EVALUATION_BATCH_SIZE, shuffle=False):
                outputs = self._model(inputs)
                total_loss += float(self._test_loss(outputs, labels)) * len(labels)
                num_examples += len(labels)
                are_classes = are_classes and outputs.ndim == labels.ndim + 1 and not labels.is_floating_point()
                if are_classes:
                    # Dimensions after the first two (an image's pixels, a text's positions) each count as a
                    # label.
                    correct += float((outputs.argmax(1) == labels).float().mean()) * len(labels)
        if num_examples == 0:
            raise TrainingDataError("the test data gave no sample")
        metrics = {"accuracy": correct / num_examples} if are_classes else {}
        metrics |= {"loss": total_loss / num_examples, "num_examples": float(num_examples)}
        return {name: value for name, value in metrics.items() if math.isfinite(value)}

    def losses(self, arrays: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The loss of each training example and of each test example, in the data's order; of data with more than
        2,000, of as many that are spread over them.

        Raises:
            ModelLayoutError: The arrays are not those of the module; the message names the tensor.
            TrainingDataError: There are no test data, or examples cannot be taken from the data one by one.
        """
        self._load(arrays)
        self._model.eval()
        if self._test_data is None:
            raise TrainingDataError("without test data there is nothing to compare the training data with")
        return self._losses_of(self._train_data), self._losses_of(self._test_data)

    def _losses_of(self, data: Data) -> NDArray[np.float64]:
        count = _num_examples(data)
        which = range(0, count, -(-count // _MOST_LOSSES))
        is_cross_entropy = self._test_loss is nn.functional.cross_entropy
        with torch.inference_mode():
            inputs, labels = self._examples(data, which)
            if is_cross_entropy and labels.ndim == 1:
                losses = nn.functional.cross_entropy(self._model(inputs), labels, reduction="none")
            else:  # a loss of the user's gives the mean of a batch
                each = range(len(labels))
                losses = torch.stack([self._test_loss(self._model(inputs[i : i + 1]), labels[i : i + 1]) for i in each])
        return losses.double().cpu().numpy()

    def _pass(self, optimizer: Optimizer, batch_size: int, epoch: str) -> tuple[int, float]:
        """One epoch: how many samples it saw and their mean loss."""
        num_examples, total_loss = 0, 0.0
        batches = self._batches(self._train_data, batch_size, shuffle=True)
        in_all = _number_of_batches(self._train_data, batch_size)
        report_progress(epoch)
        for batch, (inputs, labels) in enumerate(batches, start=1):
            optimizer.zero_grad()
            loss = self._loss(self._model(inputs), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            value = loss.item()
            if not math.isfinite(value):  # looked at before the step, which would spread it to every tensor
                raise self._not_finite(f"{epoch}, batch {batch}", value, inputs, optimizer)
            optimizer.step()
            num_examples += len(labels)
            total_loss += value * len(labels)
            report_progress(f"{epoch}, batch {batch}{in_all}, loss {value:.3g}")
        if num_examples == 0:
            raise TrainingDataError(
                "the training data gave no batch; does the loader drop the last one (drop_last) of fewer samples "
                "than batch_size?"
            )
        return num_examples, total_loss / num_examples

    def _train_privately(self, privacy: DifferentialPrivacy, epochs: int, hints: Hints) -> tuple[int, float]:
        """All steps of DP-SGD: how many examples they were drawn from, and the noise in each value in the end."""
        num_examples, spending = _num_examples(self._train_data), self.spending(epochs, hints)
        expected = spending.sample_rate * num_examples
        rate = _checked_rate(hints.get("learning_rate", self._learning_rate))
        optimizer: Any = self._optimizer or partial(torch.optim.SGD, lr=rate)
        steps = _dp_sgd().PrivateSteps(self._model, optimizer(self._model.parameters()), privacy, expected=expected)
        with steps.prepared():
            for step in range(1, spending.steps + 1):
                drawn = steps.drawn(num_examples, spending.sample_rate)
                loss = steps.step(partial(self._loss_of, drawn) if drawn else None)
                report_progress(f"step {step} of {spending.steps}" + ("" if loss is None else f", loss {loss:.3g}"))
        if self._optimizer is not None:
            return num_examples, 0.0  # what another optimizer makes of the noise of each step is not known
        return num_examples, rate * privacy.noise_multiplier * privacy.clip / expected * math.sqrt(spending.steps)

    def _loss_of(self, drawn: Sequence[int]) -> Tensor:
        """The mean loss of some training examples."""
        inputs, labels = self._examples(self._train_data, drawn)
        return self._loss(self._model(inputs), labels)

    def _examples(self, data: Any, which: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Some examples of what ``_num_examples`` could count, in this order."""
        if isinstance(data, tuple):
            places = torch.tensor(which, device=self._device)
            return data[0][places], data[1][places]
        return next(self._batches([data.collate_fn([data.dataset[each] for each in which])], 0, shuffle=False))

    def _expected_batch(self, hints: Hints) -> int:
        loaders = getattr(self._train_data, "batch_size", None)
        return _checked_batch_size(loaders or hints.get("batch_size", self._batch_size))

    def _not_finite(
        self, when: str, loss: float, inputs: Tensor, optimizer: Optimizer
    ) -> TrainingDataError | TrainingDivergedError:
        """Where a loss that is no number comes from, as far as that can be seen."""
        if not bool(inputs.isfinite().all()):
            return TrainingDataError(f"the inputs hold NaN or infinite values ({when}); mend the data")
        state = self._model.state_dict()
        wrong = next((spec.name for spec in self._layout.tensors if not bool(state[spec.name].isfinite().all())), None)
        of = "" if wrong is None else f", and tensor {wrong!r} is not finite"
        return _diverged(f"the loss is {loss} in {when}{of}", optimizer)

    def _batches(self, data: Data, batch_size: int, *, shuffle: bool) -> Iterator[tuple[Tensor, Tensor]]:
        if isinstance(data, tuple):
            inputs, labels = data
            assert isinstance(inputs, Tensor)
            assert isinstance(labels, Tensor)
            if shuffle:
                order = torch.randperm(len(labels)).to(self._device)
                inputs, labels = inputs[order], labels[order]
            for start in range(0, len(labels), batch_size):
                yield inputs[start : start + batch_size], labels[start : start + batch_size]
            return
        for batch in data:
            if not isinstance(batch, Sequence) or len(batch) != 2 or not all(isinstance(b, Tensor) for b in batch):
                raise TrainingDataError(f"a batch must be a pair of tensors (inputs, labels), not {_kind_of(batch)}")
            yield batch[0].to(self._device), batch[1].to(self._device)

    def _new_optimizer(self, hints: Hints) -> Optimizer:
        if self._optimizer is not None:
            return self._optimizer(self._model.parameters())
        return PlainSgd(self._model.parameters(), _checked_rate(hints.get("learning_rate", self._learning_rate)))


@cache
def _dp_sgd() -> ModuleType:
    """What needs Opacus, which takes seconds to import."""
    try:
        return import_module("fl_client.training.dp_sgd")
    except ModuleNotFoundError as error:
        if error.name != "opacus":
            raise
        how = "in a clone of the repository: pip install '.[dp]'"
        raise OpacusMissingError(f"differential privacy needs Opacus; {how}") from error


def _num_examples(data: Data) -> int:
    """How many examples there are to be drawn one by one."""
    if isinstance(data, tuple):
        return len(data[1])
    dataset: Any = getattr(data, "dataset", None)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or not hasattr(data, "collate_fn"):
        raise TrainingDataError(
            "examples must be taken one by one: give the data as a pair (inputs, labels), or as a DataLoader of a data "
            "set that has a length"
        )
    return len(dataset)


def _losses(loss: Loss | str, beta: float) -> tuple[Loss, Loss]:
    """The loss of training and the one of evaluation."""
    if not isinstance(loss, str):
        return loss, loss
    if loss not in LOSSES:
        raise UnknownNameError("loss", loss, LOSSES)
    measured: Loss = nn.functional.cross_entropy
    return (partial(virtual_teacher, beta=beta) if loss == VIRTUAL_TEACHER else measured), measured


def _prepared(data: Data, device: torch.device, role: str) -> Data:
    if isinstance(data, tuple):
        if len(data) != 2:
            raise TrainingDataError(f"the {role} data are a tuple of {len(data)}, not a pair (inputs, labels)")
        inputs, labels = (torch.as_tensor(part).to(device) for part in data)
        if len(labels) == 0 or len(inputs) != len(labels):
            raise TrainingDataError(
                f"the {role} data have {len(inputs)} inputs and {len(labels)} labels; need the same number, at least 1"
            )
        return inputs, labels
    if isinstance(data, Iterator):
        raise TrainingDataError(
            f"the {role} data are a generator, which ends after one pass:"
            " give a DataLoader, a list of batches, or a pair of tensors"
        )
    return data


def _kind_of(batch: object) -> str:
    """A batch in a few words."""
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        return f"{type(batch).__name__} of {', '.join(type(part).__name__ for part in batch[:4]) or 'nothing'}"
    return type(batch).__name__


def _number_of_batches(data: Data, batch_size: int) -> str:
    """`` of 20``; empty where the data cannot say."""
    if isinstance(data, tuple):
        return f" of {-(-len(data[1]) // batch_size)}"
    try:
        return f" of {len(data)}"  # type: ignore[arg-type]  # an iterable without a length says so
    except TypeError:
        return ""


def _checked_rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ParameterError(f"learning_rate must be a number above 0, not {value!r}")
    return float(value)


def _checked_batch_size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ParameterError(f"batch_size must be a whole number of at least 1, not {value!r}")
    return value


def _diverged(what: str, optimizer: Optimizer) -> TrainingDivergedError:
    rate = float(optimizer.param_groups[0]["lr"])
    return TrainingDivergedError(
        f"training diverged: {what}; the learning rate is {rate:g}, try a tenth of it", learning_rate=rate
    )
