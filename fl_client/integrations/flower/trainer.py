"""Trains and evaluates by a Flower app's ClientApp; meets ``Trainer``.

What the app keeps in ``Context.state``, and the arrays that are no floats, stay in one file beside the client's
state: written whole after each message, so that a kill loses at most the message that was under way.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from flwr.app import DEFAULT_TTL, Array, ArrayRecord, ConfigRecord, Context, Message, Metadata, MetricRecord, RecordDict
from flwr.common import Code
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as StoredRecords
from numpy.typing import NDArray

from fl_client.durable_files import replace_file
from fl_client.errors import StateCorruptError
from fl_client.integrations.flower.app import FlowerApp
from fl_client.integrations.flower.opening import Opening, Request
from fl_client.training.errors import TrainerFailedError
from fl_client.training.protocol import Arrays, Hints, TrainingResult
from fl_core.models import ModelLayout

CONTEXT_FILE: Final = "flower-context.bin"
_KEPT: Final = "dag-acfl.kept"
_ROUNDS: Final = "dag-acfl.rounds"
_SERVER_ROUND: Final = "server-round"
_LEGACY_ROUND: Final = "server_round"
_EXAMPLES: Final = ("num-examples", "num_examples")
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "accuracy": ("eval_acc", "eval_accuracy", "val_accuracy", "val_acc", "test_accuracy", "acc"),
    "loss": ("eval_loss", "val_loss", "test_loss"),
}
"""What Flower's templates call the two figures that a ledger knows by name."""


class FlowerTrainer:
    """A ClientApp as a trainer: one epoch is one train message, to which the app's own local epochs belong.

    Args:
        app: The app.
        opening: What its ServerApp sends first.
        folder: Where ``Context.state`` is kept; None: in memory.
        node_id: The app's ``Context.node_id``.
        metrics: For ``accuracy`` and ``loss``, what the app calls them, where that is unusual.

    Raises:
        UserModuleError: The ClientApp cannot be imported, or cannot take part.
        StateCorruptError: The kept context is damaged.
    """

    def __init__(
        self,
        app: FlowerApp,
        opening: Opening,
        *,
        folder: Path | None = None,
        node_id: int = 1,
        metrics: Mapping[str, str] | None = None,
    ) -> None:
        self._opening, self._client_app = opening, app.client_app()
        self._names = metrics or {}
        self._file = None if folder is None else folder / CONTEXT_FILE
        state, self._kept, self._rounds = self._restored()
        self._context = Context(1, node_id, app.node_config, state, app.run_config)

    def layout(self) -> ModelLayout:
        """The app's arrays of floats."""
        return self._opening.layout

    def buffers(self) -> tuple[str, ...]:
        """A batch norm's running statistics."""
        return self._opening.statistics

    def initial_arrays(self) -> dict[str, NDArray[np.float32]]:
        """The ServerApp's initial arrays; none where they were not at hand (a ledger's model is its genesis's)."""
        return dict(self._opening.initial)

    def genesis_hints(self) -> dict[str, str | int]:
        """What the clients of a ledger that is founded with this must know of the ServerApp."""
        return self._opening.as_hints()

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        """Send ``epochs`` train messages, each with the arrays of the reply before.

        Raises:
            TrainerFailedError: The ClientApp answers with an error, or with something else than one model.
        """
        del hints  # the ServerApp's configuration is in the opening
        for _ in range(epochs):
            reply = self._answer_to(self._opening.train, arrays)
            arrays, stays = self._opening.taken_in(trained_arrays(reply))
            self._kept |= stays
            self._rounds += 1
            self._save()
        figures = figures_of(reply)
        return TrainingResult(dict(arrays), _examples(figures), figures)

    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        """The ClientApp's figures, with what it calls its accuracy and loss under these names; empty where the
        ServerApp asks for no evaluation, or the ClientApp has none.

        Raises:
            TrainerFailedError: The ClientApp answers with an error.
        """
        if self._opening.evaluate is None:
            return {}
        try:
            reply = self._answer_to(self._opening.evaluate, arrays)
        except ValueError as error:
            if str(error).startswith("No evaluate function registered"):
                return {}
            raise
        self._save()
        figures = figures_of(reply)
        figures |= {"num_examples": float(_examples(figures))}
        return known_first(figures, self._names)

    def _answer_to(self, request: Request, arrays: Arrays) -> Message:
        """The ClientApp's reply to a message with these arrays."""
        values = self._opening.given_out(arrays, self._kept)
        record = ArrayRecord({name: Array(value) for name, value in values.items()})
        content = RecordDict({request.arrays: record})
        number = self._rounds + (request is self._opening.train)
        for name, config in request.configs.items():
            own = {key: number for key in (_SERVER_ROUND, _LEGACY_ROUND) if key in config}
            content[name] = ConfigRecord({**config, **own})
        metadata = Metadata(
            run_id=self._context.run_id,
            message_id=str(number),
            src_node_id=0,
            dst_node_id=self._context.node_id,
            reply_to_message_id="",
            group_id=str(number),
            created_at=time.time(),
            ttl=DEFAULT_TTL,
            message_type=request.kind,
        )
        reply: Message = self._client_app(Message(content, metadata=metadata), self._context)
        if reply.has_error():
            raise TrainerFailedError(
                f"the ClientApp answers {request.kind} with error {reply.error.code}: {reply.error.reason}"
            )
        for name, status in reply.content.config_records.items():  # of a legacy client
            if name.endswith(".status") and status["code"] not in (Code.OK.value, Code.EVALUATE_NOT_IMPLEMENTED.value):
                raise TrainerFailedError(f"the client answers {request.kind}: {status['message']}")
        return reply

    def _restored(self) -> tuple[RecordDict, dict[str, NDArray[Any]], int]:
        """``Context.state``, the arrays that stay, and how many train messages there were."""
        kept = dict(self._opening.kept)
        if self._file is None or not self._file.exists():
            return RecordDict(), kept, 0
        try:
            state = recorddict_from_proto(StoredRecords.FromString(self._file.read_bytes()))
            kept |= {str(name): array.numpy() for name, array in state.pop(_KEPT).items()}
            return state, kept, int(state.pop(_ROUNDS)["rounds"])
        except Exception as error:
            raise StateCorruptError(
                f"{self._file} is damaged ({type(error).__name__}); remove it to go on without what the app kept",
                path=self._file,
            ) from error

    def _save(self) -> None:
        if self._file is None:
            return
        state = RecordDict(dict(self._context.state))
        state[_KEPT] = ArrayRecord({name: Array(array) for name, array in self._kept.items()})
        state[_ROUNDS] = MetricRecord({"rounds": self._rounds})
        replace_file(self._file, recorddict_to_proto(state).SerializeToString())


def trained_arrays(reply: Message) -> dict[str, NDArray[Any]]:
    """The one model of a reply, by name."""
    records = list(reply.content.array_records.values())
    if len(records) != 1:
        raise TrainerFailedError(f"the ClientApp's reply has {len(records)} array records, not one")
    return {str(name): array.numpy() for name, array in records[0].items()}


def figures_of(reply: Message) -> dict[str, float]:
    """The numbers of a reply by name; a legacy client's metrics are a configuration there."""
    content = reply.content
    records = [*content.metric_records.values()]
    records += [record for name, record in content.config_records.items() if name.endswith(".metrics")]
    return {
        str(name): float(value)
        for record in records
        for name, value in record.items()
        if isinstance(value, int | float)
    }


def known_first(figures: dict[str, float], names: Mapping[str, str]) -> dict[str, float]:
    """A reply's figures, with what it calls its accuracy and loss (``names``, or as usual) under these names."""
    first: dict[str, float] = {}
    for known, aliases in _ALIASES.items():
        name = next((each for each in (names.get(known, known), *aliases) if each in figures), None)
        if name is not None:
            first[known] = figures.pop(name)
    return {**first, **{name: value for name, value in figures.items() if name not in first}}


def _examples(figures: dict[str, float]) -> int:
    """Take the number of examples out of a reply's figures; 1 where it has none, so that models weigh the same."""
    found = [figures.pop(name) for name in _EXAMPLES if name in figures]
    return max(1, int(found[0])) if found else 1
