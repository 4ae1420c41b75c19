"""Trains a ``torch.nn.Module`` between two NumPy models; the only module of the client that knows torch.

* What travels of a model are the float tensors of its ``state_dict``: parameters, and buffers such as a batch
  norm's running mean; or those of them that ``share`` names, and the others are trained here and stay here. Frozen
  parameters never travel and never change: each client's file makes them, the same everywhere, which the hint
  ``frozen_sha256`` of the ledger's genesis sees to. Integer and boolean buffers (``num_batches_tracked``) stay, too.
* Same module, data, seed and arrays give the same bytes on one machine: every random draw of a training
  comes from a state that is seeded from (seed, arrays) and put back afterwards. So a killed client that
  trains again from the same aggregate publishes the same model, while different aggregates are trained in
  different orders.
* A training returns values and leaves nothing behind: interrupted between two batches, or diverged, it
  returns nothing, and the next one starts from the arrays that it is given.
* No pickle, no files.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fl_client.training.errors import TrainingDataError, TrainingDivergedError
from fl_client.training.protocol import Arrays, Hints, TrainingResult, check_shapes, report_progress
from fl_client.training.virtual_teacher import DEFAULT_BETA, checked_beta, virtual_teacher
from fl_client.training.virtual_teacher import NAME as VIRTUAL_TEACHER
from fl_core.errors import ModelLayoutError, ParameterError, UnknownNameError
from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import is_hex_id

Batch: TypeAlias = Sequence[Tensor]
"""Inputs and labels, in this order."""

Data: TypeAlias = tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]] | Iterable[Batch]
"""A pair (inputs, labels) of whole arrays, or anything that gives batches each time it is iterated (a
DataLoader)."""

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]

Share: TypeAlias = str | Sequence[str] | Callable[[str], bool]
"""Which tensors travel: a pattern such as ``head``, ``lora_*`` or ``fc2.weight``, which names a tensor or a module in
which it lies; several of them; or a function of a tensor's whole name."""

FROZEN_HINT: Final = "frozen_sha256"

DEFAULT_LEARNING_RATE: Final = 0.1
DEFAULT_BATCH_SIZE: Final = 10
"""10 follows DAG-ACFL, Table I."""

LOSSES: Final = ("cross-entropy", VIRTUAL_TEACHER)
"""The losses that have a name."""

_EVALUATION_BATCH_SIZE: Final = 1024
_DTYPE_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


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


class TorchTrainer:
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

    Raises:
        ModelLayoutError: The module has no float tensor, or one of another float type than float32, float16,
        bfloat16; or ``share`` names nothing that is trained, or one of two names of the same tensor.
        TrainingDataError: The data are empty, or can be iterated once only.
        ParameterError: ``learning_rate``, ``batch_size`` or ``beta`` is out of range.
        UnknownNameError: No loss has that name.
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
    ) -> None:
        self._device = torch.device(device)
        self._model = model.to(self._device)
        self._layout, self._held = _layouts_of(model, share)
        self._train_data = _prepared(train_data, self._device, "training")
        self._test_data = None if test_data is None else _prepared(test_data, self._device, "test")
        self._loss, self._test_loss = _losses(loss, checked_beta(beta))
        self._optimizer = optimizer
        self._learning_rate = _checked_rate(learning_rate)
        self._batch_size = _checked_batch_size(batch_size)
        self._seed = seed
        self._initial = self._arrays()

    def layout(self) -> ModelLayout:
        """The tensors that travel, in canonical order."""
        return self._layout

    def buffers(self) -> tuple[str, ...]:
        """The tensors that travel and are not trained, such as a batch norm's running mean, in the layout's order."""
        trained = {name for name, _ in self._model.named_parameters(remove_duplicate=False)}
        return tuple(spec.name for spec in self._layout.tensors if spec.name not in trained)

    def initial_arrays(self) -> dict[str, NDArray[np.float32]]:
        """The values when the trainer was made, of what travels and of what is trained and stays; not of what is
        frozen.
        """
        return {name: array.copy() for name, array in self._initial.items()}

    def genesis_hints(self) -> dict[str, str]:
        """What a ledger that is founded with this model tells its clients: the digest of the frozen parameters, if any.

        A client with others is refused, for averages of what was trained on top of different ones mean nothing.
        """
        return {FROZEN_HINT: self._frozen} if self._frozen else {}

    def model_with(self, arrays: Arrays) -> nn.Module:
        """The module itself with these values, frozen parameters included, to be used; the next training changes it.

        Raises:
            ModelLayoutError: The arrays are not those of the module; the message names the tensor.
        """
        self._load(arrays)
        return self._model.eval()

    @cached_property
    def _frozen(self) -> str:
        """SHA-256 of the frozen parameters in hexadecimal; empty where there are none."""
        tensors = self._model.state_dict(keep_vars=True)
        frozen = {name: tensor for name, tensor in sorted(tensors.items()) if _is_frozen(tensor)}
        digest = hashlib.sha256()
        for name, tensor in frozen.items():
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest() if frozen else ""

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        """Train from ``arrays`` for ``epochs`` passes over the training data.

        Returns:
            The trained arrays, the samples of one pass, and ``train_loss``: the mean loss per sample of the
            last pass.

        Raises:
            ModelLayoutError: The arrays are not those of the module, with the tensor's name; or the frozen parameters
            are not those that the ledger was founded with.
            ParameterError: ``epochs`` < 1, or a hint is out of range.
            TrainingDataError: The data gave no sample, or something else than (inputs, labels).
            TrainingDivergedError: A loss or a parameter is not finite.
        """
        if epochs < 1:
            raise ParameterError(f"epochs must be at least 1, not {epochs}")
        hints = hints or {}
        batch_size = _checked_batch_size(hints.get("batch_size", self._batch_size))
        self._check_frozen(hints)
        self._load(arrays)
        optimizer = self._new_optimizer(hints)
        cuda = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(_seed_of(self._seed, arrays))
            self._model.train()
            for epoch in range(1, epochs + 1):
                num_examples, loss = self._pass(optimizer, batch_size, f"epoch {epoch} of {epochs}")
        trained = self._arrays()
        for name, array in trained.items():
            if not np.isfinite(array).all():
                raise _diverged(f"tensor {name!r} is not finite after {epochs} epochs", optimizer)
        return TrainingResult(trained, num_examples, {"train_loss": loss})

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

    def _check_frozen(self, hints: Hints) -> None:
        theirs = hints.get(FROZEN_HINT)
        if isinstance(theirs, str) and is_hex_id(theirs) and theirs != self._frozen:
            raise ModelLayoutError(
                f"the frozen parameters here ({self._frozen[:12] or 'none'}…) are not those with which the ledger was "
                f"founded ({theirs[:12]}…): load the same base model in the same precision, or call torch.manual_seed "
                "before it is made"
            )

    def _new_optimizer(self, hints: Hints) -> Optimizer:
        if self._optimizer is not None:
            return self._optimizer(self._model.parameters())
        return PlainSgd(self._model.parameters(), _checked_rate(hints.get("learning_rate", self._learning_rate)))

    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        state = self._model.state_dict()
        return {
            spec.name: state[spec.name].detach().to("cpu", torch.float32, copy=True).numpy()
            for spec in self._held.tensors
        }

    def _load(self, arrays: Arrays) -> None:
        check_shapes(self._held, {name: array.shape for name, array in arrays.items()})
        state = self._model.state_dict()
        with torch.no_grad():
            for name in arrays:
                # The copy is for torch, which warns about read-only arrays such as views of received bytes.
                state[name].copy_(torch.from_numpy(np.array(arrays[name], dtype=np.float32)))


def _losses(loss: Loss | str, beta: float) -> tuple[Loss, Loss]:
    """The loss of training and the one of evaluation."""
    if not isinstance(loss, str):
        return loss, loss
    if loss not in LOSSES:
        raise UnknownNameError("loss", loss, LOSSES)
    measured: Loss = nn.functional.cross_entropy
    return (partial(virtual_teacher, beta=beta) if loss == VIRTUAL_TEACHER else measured), measured


def _layouts_of(model: nn.Module, share: Share | None) -> tuple[ModelLayout, ModelLayout]:
    """Layout of what travels, and of that together with what is trained and stays."""
    held: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        if _is_frozen(tensor):
            continue
        if tensor.dtype not in _DTYPE_NAMES:
            raise ModelLayoutError(
                f"tensor {name!r} is {tensor.dtype}; convert the model to float32, float16 or bfloat16 first"
            )
        held[name] = tensor
    travels = _shared(share, held)
    if not any(isinstance(held[name], nn.Parameter) for name in travels):
        raise ModelLayoutError(f"no parameter that is trained would travel; {_trained(held)}")
    for name in sorted(travels):
        for other in sorted(held.keys() - travels):
            if held[name] is held[other]:
                raise ModelLayoutError(f"{name!r} and {other!r} are one tensor: share both or neither")
    specs = {name: TensorSpec(name, _DTYPE_NAMES[held[name].dtype], tuple(held[name].shape)) for name in held}
    return ModelLayout.of(specs[name] for name in travels), ModelLayout.of(specs.values())


def _is_frozen(tensor: object) -> bool:
    return isinstance(tensor, nn.Parameter) and not tensor.requires_grad


def _shared(share: Share | None, held: Mapping[str, Tensor]) -> set[str]:
    """Names of what travels of the tensors that are not frozen."""
    if share is None:
        return set(held)
    if callable(share):
        return {name for name in held if share(name)}
    shared: set[str] = set()
    for pattern in [share] if isinstance(share, str) else share:
        named = {name for name in held if _is_named(name, pattern)}
        if not named:
            raise ModelLayoutError(f"share: {pattern!r} names no tensor that is trained; {_trained(held)}")
        shared |= named
    return shared


def _is_named(name: str, pattern: str) -> bool:
    """Whether a pattern names a tensor, or a module in which it lies."""
    pieces = name.split(".")
    ends = range(1, len(pieces) + 1)
    return any(fnmatchcase(".".join(pieces[start:end]), pattern) for end in ends for start in range(end))


def _trained(held: Mapping[str, Tensor]) -> str:
    return f"the model has {', '.join(held) or 'none'}"[:400]


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


def _seed_of(seed: int, arrays: Arrays) -> int:
    digest = hashlib.sha256(f"dag-acfl/training/{seed}".encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name], dtype="<f4").data)
    return int.from_bytes(digest.digest()[:8], "big") >> 1


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
