"""The user's own trainer as a participant calls it: what it raises is told as its fault, what it returns is checked."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_client.metrics import Measurements
from fl_client.privacy import PrivacyLedger
from fl_client.training.errors import TrainerFailedError, users_code
from fl_client.training.protocol import Arrays, Hints, Trainer, TrainingResult, check_shapes, progress_watched
from fl_core.dag.genesis import Genesis
from fl_core.errors import ModelLayoutError, ModelNotFiniteError
from fl_core.models import Buffer, check_model, decode_model, encode_model

_DOING: Final = {
    "join": "first training",
    "select": "asking for models like its own",
    "download": "fetching their average",
    "evaluate": "measuring on the test data",
    "measure": "measuring whose models help",
    "train": "training",
    "publish": "publishing",
}


class LocalTraining:
    """One participant's trainer.

    Attributes:
        on_progress: Told in a few words what is being done, and how far it is.
        measurements: Sorts out what it returns as figures.
    """

    def __init__(self, trainer: Trainer, privacy: PrivacyLedger | None) -> None:
        self._trainer, self._privacy = trainer, privacy
        self.on_progress: Callable[[str], None] = lambda _: None
        self.measurements = Measurements()
        self._phase = self._progress = ""

    def check_layout(self, genesis: Genesis) -> None:
        """See that the trainer's model is the ledger's: before an hour of training, not after it."""
        with users_code("layout()"):
            layout = self._trainer.layout()
        try:
            check_shapes(layout, {spec.name: spec.shape for spec in genesis.layout.tensors})
        except ModelLayoutError as error:
            raise ModelLayoutError(f"{error}; the server's ledger is {genesis.name!r}: is it the right one?") from None

    @cached_property
    def local(self) -> Arrays:
        """What does not travel of the model, as the trainer begins it."""
        with users_code("initial_arrays()"):
            travels = {tensor.name for tensor in self._trainer.layout().tensors}
            return {name: array for name, array in self._trainer.initial_arrays().items() if name not in travels}

    def local_as_in(self, kept: Arrays) -> dict[str, NDArray[np.float32]]:
        """``local`` with values that were kept; a tensor that is new, or new in shape, as the trainer began."""
        return {
            name: kept[name] if name in kept and kept[name].shape == array.shape else array
            for name, array in self.local.items()
        }

    def train(self, arrays: Arrays, epochs: int, hints: Hints) -> TrainingResult:
        """Train, and charge it to the privacy account before anything that came of it leaves this process."""
        with users_code("train()", lambda: self._progress), progress_watched(self._note_progress):
            result: object = self._trainer.train(arrays, epochs=epochs, hints=hints)
        if not isinstance(result, TrainingResult):
            raise TrainerFailedError(f"train() returned {type(result).__name__}, not a TrainingResult")
        if self._privacy is not None:
            self._privacy.charge(epochs, hints)
        return result

    def evaluate(self, genesis: Genesis, model: Buffer, rest: Arrays) -> dict[str, float]:
        """The finite figures of an encoded model, with what stays here, on the own test data."""
        arrays = {**decode_model(genesis.layout, model), **rest}
        with users_code("evaluate()", lambda: self._progress), progress_watched(self._note_progress):
            measured: object = self._trainer.evaluate(arrays)
        if not isinstance(measured, Mapping):
            raise TrainerFailedError(f"evaluate() returned {type(measured).__name__}, not numbers by name")
        return self.measurements.finite(measured, of="evaluate")

    def parted(self, genesis: Genesis, result: TrainingResult) -> tuple[bytes, Arrays]:
        """What was trained: the model that travels, encoded and in order, and what stays here."""
        rest = {name: array for name, array in result.arrays.items() if name in self.local}
        try:
            model = encode_model(
                genesis.layout, {name: array for name, array in result.arrays.items() if name not in rest}
            )
            check_model(genesis.layout, model, max_abs=genesis.bounds.max_abs_value)
            if missing := self.local.keys() - rest.keys():
                raise ModelLayoutError(f"tensor {min(missing)!r}, which stays with this client, is missing")
            for name, array in rest.items():
                if not np.isfinite(array).all():
                    raise ModelNotFiniteError(f"tensor {name!r}, which stays with this client, is not finite")
        except (ModelLayoutError, ModelNotFiniteError) as error:
            raise type(error)(f"what train() returned cannot be published: {error}") from error
        return model, rest

    def begin_phase(self, name: str) -> None:
        """Tell what is being done from here on."""
        self._phase, self._progress = _DOING[name], ""
        self.on_progress(self._phase)

    def _note_progress(self, text: str) -> None:
        self._progress = text
        self.on_progress(f"{self._phase}: {text}")
