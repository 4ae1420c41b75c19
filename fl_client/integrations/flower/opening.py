"""What a ServerApp sends first, as a ledger's genesis keeps it: how its messages look, and the initial arrays.

The arrays of floats become the genesis model. What else a client needs is one training hint, ``flower``, as JSON: the
arrays' names, types and shapes in the app's own order (mods compare it, and legacy clients know nothing else), the
values of those that are no floats, and of the train and the evaluate message the type and the configuration.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fl_client.training.protocol import Hints
from fl_core.errors import GenesisError, ModelLayoutError
from fl_core.models import ModelLayout, TensorSpec

HINT: Final = "flower"
_MAX_HINT: Final = 1 << 19
"""Half of what a genesis may have."""


@dataclass(frozen=True, slots=True)
class Request:
    """A message to a ClientApp, without its arrays.

    Attributes:
        kind: Its type, such as ``train``, or ``train.personal``.
        arrays: Under which name the arrays stand in it.
        configs: Its configurations by name.
    """

    kind: str
    arrays: str
    configs: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array as the app has it: its name, its NumPy type, its shape, which may be empty."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def is_float(self) -> bool:
        """Whether it travels: integers, such as a batch norm's count of batches, have no average."""
        return np.dtype(self.dtype).kind == "f"

    @property
    def travelling_shape(self) -> tuple[int, ...]:
        """A single value travels as an array of one."""
        return self.shape or (1,)


@dataclass(frozen=True)
class Opening:
    """What a ServerApp sends first.

    Attributes:
        specs: The arrays, in the app's order.
        kept: Those that are no floats, as the app began them: they stay with each client.
        train: How training is asked for.
        evaluate: How evaluation is; None: the ServerApp asks for none.
        initial: The arrays of floats, as the app began them; empty where this was read from a genesis.
    """

    specs: tuple[ArraySpec, ...]
    kept: Mapping[str, NDArray[Any]]
    train: Request
    evaluate: Request | None
    initial: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], *, train: Request, evaluate: Request | None) -> "Opening":
        """Of the arrays that a ServerApp begins with, in its order."""
        specs = tuple(ArraySpec(name, str(array.dtype), tuple(array.shape)) for name, array in arrays.items())
        if not any(each.is_float for each in specs):
            raise GenesisError("the initial arrays hold no floating-point numbers, which alone are averaged")
        kept = {each.name: arrays[each.name] for each in specs if not each.is_float}
        empty = cls(specs, kept, train, evaluate)
        return replace(empty, initial=empty.taken_in(arrays)[0])

    @cached_property
    def layout(self) -> ModelLayout:
        """Of what travels; half precision stays that, other floats travel as single precision."""
        return ModelLayout.of(
            TensorSpec(each.name, "F16" if each.dtype == "float16" else "F32", each.travelling_shape)
            for each in self.specs
            if each.is_float
        )

    @property
    def statistics(self) -> tuple[str, ...]:
        """The arrays that are running statistics of a batch norm, in the layout's order.

        By their names, or, where a legacy app has none to tell, by PyTorch's order: mean, variance, count of batches.
        """
        found = {each.name for each in self.specs if each.name.rpartition(".")[2] in ("running_mean", "running_var")}
        if all(each.name.isdigit() for each in self.specs):
            for mean, var, count in zip(self.specs, self.specs[1:], self.specs[2:], strict=False):
                if (count.dtype, count.shape) == ("int64", ()) and mean.shape == var.shape and len(mean.shape) == 1:
                    found |= {mean.name, var.name}
        return tuple(tensor.name for tensor in self.layout.tensors if tensor.name in found)

    def taken_in(
        self, arrays: Mapping[str, NDArray[Any]]
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[Any]]]:
        """The app's arrays as what travels, and what stays with the client; shapes and names are not checked."""
        stays = {name: arrays[name] for name in arrays if name in self.kept}
        travels = {
            name: np.atleast_1d(np.asarray(array, np.float32)) for name, array in arrays.items() if name not in stays
        }
        return travels, stays

    def given_out(
        self, travels: Mapping[str, NDArray[Any]], stays: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """What travelled and what stayed, as the app knows it: in its order, of its types and shapes."""
        arrays = {**travels, **stays}
        return {each.name: arrays[each.name].astype(each.dtype).reshape(each.shape) for each in self.specs}

    def as_hints(self) -> dict[str, str | int]:
        """The training hints of a ledger that is founded with this; one update is one train message."""
        content = {
            "arrays": [
                [each.name, each.dtype, each.shape, *([] if each.is_float else [_text_of(self.kept[each.name])])]
                for each in self.specs
            ],
            "train": asdict(self.train),
            "evaluate": None if self.evaluate is None else asdict(self.evaluate),
        }
        try:
            text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise GenesisError(f"the ServerApp's configuration cannot be part of a genesis: {error}") from error
        if len(text) > _MAX_HINT:
            raise GenesisError(f"what the app's clients must know has {len(text):,} bytes; at most {_MAX_HINT:,}")
        return {"epochs": 1, HINT: text}

    @classmethod
    def of_hints(cls, hints: Hints) -> "Opening":
        """Read it back from the training hints of a genesis."""
        text = hints.get(HINT)
        if not isinstance(text, str):
            raise GenesisError(
                "the ledger was not founded by a Flower app; found one with: dag-acfl ledger init --flower-app APPDIR"
            )
        try:
            content = json.loads(text)
            specs = [(ArraySpec(name, dtype, tuple(shape)), value) for name, dtype, shape, *value in content["arrays"]]
            kept = {spec.name: _array_of(spec, value[0]) for spec, value in specs if value}
            evaluate = content["evaluate"]
            return cls(
                tuple(spec for spec, _ in specs),
                kept,
                Request(**content["train"]),
                None if evaluate is None else Request(**evaluate),
            )
        except (ValueError, TypeError, KeyError, ModelLayoutError) as error:
            raise GenesisError(f"the ledger's hint {HINT!r} is none of this version: {error}"[:300]) from error


def _text_of(array: NDArray[Any]) -> str:
    return b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _array_of(spec: ArraySpec, text: str) -> NDArray[Any]:
    return np.frombuffer(b64decode(text), np.dtype(spec.dtype)).reshape(spec.shape).copy()
