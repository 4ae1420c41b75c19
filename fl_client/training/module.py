"""A ``torch.nn.Module`` as named NumPy arrays: what of it travels, what stays, and what is frozen.

* What travels of a model are the float tensors of its ``state_dict``: parameters, and buffers such as a batch
  norm's running mean; or those of them that ``share`` names, and the others are trained here and stay here. Frozen
  parameters never travel and never change: each client's file makes them, the same everywhere, which the hint
  ``frozen_sha256`` of the ledger's genesis sees to. Integer and boolean buffers (``num_batches_tracked``) stay, too.
* Same module, data, seed and arrays give the same bytes on one machine: every random draw of a training
  comes from a state that is seeded from (seed, arrays) and put back afterwards. So a killed client that
  trains again from the same aggregate publishes the same model, while different aggregates are trained in
  different orders.
* No pickle, no files.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fl_client.training.protocol import Arrays, Hints, check_shapes
from fl_core.errors import ModelLayoutError, ParameterError
from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import is_hex_id

Share: TypeAlias = str | Sequence[str] | Callable[[str], bool]
"""Which tensors travel: a pattern such as ``head``, ``lora_*`` or ``fc2.weight``, which names a tensor or a module in
which it lies; several of them; or a function of a tensor's whole name."""

FROZEN_HINT: Final = "frozen_sha256"

_DTYPE_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


class ModuleTrainer:
    """What every trainer of a module does; ``TorchTrainer`` brings a training loop, ``LoopTrainer`` takes the user's.

    Args:
        model: The module; it is trained in place, so use it for nothing else meanwhile. Its values now are
            ``initial_arrays``.
        seed: Of shuffling and dropout.
        share: Which tensors travel; None: all but frozen ones. The others are trained with them and stay here.

    Raises:
        ModelLayoutError: The module has no float tensor, or one of another float type than float32, float16,
        bfloat16; or ``share`` names nothing that is trained, or one of two names of the same tensor.
    """

    def __init__(self, model: nn.Module, *, seed: int, share: Share | None) -> None:
        self._model = model
        self._layout, self._held = _layouts_of(model, share)
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

    @contextmanager
    def _training(self, arrays: Arrays, epochs: int, hints: Hints) -> Iterator[None]:
        """In this block the module holds ``arrays`` and is trained; random draws are as (seed, arrays) decide."""
        if epochs < 1:
            raise ParameterError(f"epochs must be at least 1, not {epochs}")
        self._check_frozen(hints)
        self._load(arrays)
        gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
        with torch.random.fork_rng(devices=gpus):
            torch.manual_seed(_seed_of(self._seed, arrays))
            self._model.train()
            yield

    def _check_frozen(self, hints: Hints) -> None:
        theirs = hints.get(FROZEN_HINT)
        if isinstance(theirs, str) and is_hex_id(theirs) and theirs != self._frozen:
            raise ModelLayoutError(
                f"the frozen parameters here ({self._frozen[:12] or 'none'}…) are not those with which the ledger was "
                f"founded ({theirs[:12]}…): load the same base model in the same precision, or call torch.manual_seed "
                "before it is made"
            )

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


def _seed_of(seed: int, arrays: Arrays) -> int:
    digest = hashlib.sha256(f"dag-acfl/training/{seed}".encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name], dtype="<f4").data)
    return int.from_bytes(digest.digest()[:8], "big") >> 1
