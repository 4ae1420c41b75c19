"""Algorithm 1 from a client's side: the seven steps, again and again, until someone stops it.

    with ParticipantState(Path("site-3")) as state, LedgerClient(url, key=state.key) as client:
        Participant(client, trainer, state).run()

1. show the hash of the own newest transaction (joining: train the genesis model for E′ epochs, show that);
2. the server selects tips like the own model, and averages them; 3. fetch the average ω_agg;
4. measure it on the own test data; 5. train it for E epochs; 6. publish the result, approving the tips;
7. keep the new transaction's hash.

Deviations from [DAG-ACFL Alg. 1]: a joiner starts from the genesis model instead of a random one, so that cosine
similarity compares models that started alike; and a client that resembles nobody is answered with its own model.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, TypeAlias

from fl_client.client import LedgerClient
from fl_client.errors import ServerUnavailableError
from fl_client.publishing import Outcome, Publisher, select_by_hash
from fl_client.reader import GenesisInfo
from fl_client.state import ParticipantState
from fl_client.training.protocol import Arrays, Trainer, TrainingResult, check_shapes
from fl_core.dag.genesis import Genesis
from fl_core.dag.transaction import transaction_id
from fl_core.errors import ModelUnknownError, ParameterError
from fl_core.models import Buffer, check_model, decode_model, encode_model
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire.v1 import SelectionOut

DEFAULT_EPOCHS: Final = 1
DEFAULT_PATIENCE_S: Final = 600.0
_MAX_SELECTIONS: Final = 5
_LONGEST_PAUSE_S: Final = 30.0
_KEPT_METRICS: Final = ("accuracy", "loss")

Merge: TypeAlias = Callable[[Arrays, Arrays], Arrays]
"""The model to train, given the own newest one and the average, ω_agg; all of the ledger's layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step, as it went.

    Attributes:
        transaction: What was published.
        sequence: Its number among this author's transactions, from 0.
        created: False when the server had it already (an earlier attempt had arrived).
        server: Address of the server that acknowledged it; None when it was found published after a refusal.
        resumed: Whether the step only finished a publication of an earlier run; what that run measured is gone.
        joined: Whether the selection was asked for with a model instead of a hash.
        parents: The approved transactions.
        rule: Which rule of the selector decided; None when resumed.
        source: ``parents``: ω_agg is their mean; ``own``: it is the own model; None when resumed.
        num_candidates: Tips that were compared.
        num_examples: Examples trained on.
        metrics_before: What training starts from on the own test data: ω_agg, or what ``merge`` made of it.
        metrics_after: The trained model on the same data.
        train_metrics: What the trainer measured while training.
        bytes_sent: Of request bodies.
        bytes_received: Of answers' bodies.
        seconds: Wall time by phase: ``join``, ``select``, ``download``, ``evaluate``, ``train``, ``publish``.
    """

    transaction: TxId
    sequence: int
    created: bool
    server: str | None
    resumed: bool
    parents: tuple[TxId, ...]
    num_examples: int
    joined: bool = False
    rule: str | None = None
    source: str | None = None
    num_candidates: int = 0
    metrics_before: Mapping[str, float]
    metrics_after: Mapping[str, float] = field(default_factory=dict)
    train_metrics: Mapping[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


class _StopRequested(BaseException):
    """Raised by a signal where nothing durable is under way."""


class _Costs:
    """What one step takes: wall time by phase, and bytes.

    Args:
        client: Moves the bytes.
    """

    def __init__(self, client: LedgerClient) -> None:
        self._traffic = client.traffic
        self._sent, self._received = client.traffic.sent, client.traffic.received
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's time to a phase's."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """Sent and received since the step began."""
        return self._traffic.sent - self._sent, self._traffic.received - self._received


class Participant:
    """One client of one ledger.

    Args:
        client: Signs with the key of ``state``.
        trainer: Trains and evaluates on the own data.
        state: The opened folder.
        epochs: E; None takes genesis's hint ``epochs``, else 1.
        initial_epochs: E′; None takes genesis's hint ``initial_epochs``, else E.
        merge: Makes the model to train of the own newest one and ω_agg; None trains ω_agg. A client that has no model
            of its own any more takes ω_agg. What is approved, and the evidence for it, is the same either way.
        now_ms: Milliseconds since 1970 UTC.

    Raises:
        ParameterError: ``epochs`` or ``initial_epochs`` below 1, or the client has another key than ``state``.
    """

    def __init__(
        self,
        client: LedgerClient,
        trainer: Trainer,
        state: ParticipantState,
        *,
        epochs: int | None = None,
        initial_epochs: int | None = None,
        merge: Merge | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        for name, value in (("epochs", epochs), ("initial_epochs", initial_epochs)):
            if value is not None and value < 1:
                raise ParameterError(f"{name} must be at least 1, not {value}")
        if client.author != state.author:
            raise ParameterError("make the client with the state's key: LedgerClient(…, key=state.key)")
        self._client, self._trainer, self._state, self._merge = client, trainer, state, merge
        self._publisher = Publisher(client, state)
        self._epochs, self._initial_epochs = epochs, initial_epochs
        self._now_ms = now_ms
        self._stop = threading.Event()
        self._durable = False

    # -- many steps -------------------------------------------------------------------------------

    def run(
        self,
        steps: int | None = None,
        *,
        on_step: Callable[[StepReport], None] | None = None,
        patience_s: float = DEFAULT_PATIENCE_S,
    ) -> int:
        """Take steps until there were enough, or someone stops it; returns how many were taken.

        Ctrl-C or SIGTERM gives up a training that is under way, but completes a publication; a second one
        ends at once, and then the next run completes it. Signals are caught in the main thread only;
        elsewhere use ``stop``.

        Args:
            steps: None: without end.
            on_step: Called after each step.
            patience_s: How long to wait in all, seconds, while no server can be reached.
        """
        taken = 0
        with self._signals():
            try:
                while not self._stop.is_set() and (steps is None or taken < steps):
                    report = self._step_when_reachable(patience_s)
                    if report is None:
                        break
                    taken += 1
                    if on_step is not None:
                        on_step(report)
            except _StopRequested:
                pass
        return taken

    def stop(self) -> None:
        """End ``run`` after the step at hand, for good: a later ``run`` takes no step. From any thread."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether a signal or ``stop`` has ended this participant's runs."""
        return self._stop.is_set()

    def _step_when_reachable(self, patience_s: float) -> StepReport | None:
        give_up = time.monotonic() + patience_s
        pause = 1.0
        while True:
            try:
                return self.step()
            except ServerUnavailableError:
                if time.monotonic() + pause > give_up:
                    raise
            if self._stop.wait(pause):
                return None
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[signal.Signals, Any] = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, self._on_signal)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()
        if not self._durable:
            raise _StopRequested

    @contextmanager
    def _to_its_end(self) -> Iterator[None]:
        """In this block signals wait: what is published and what the folder says must agree."""
        self._durable = True
        try:
            yield
        finally:
            self._durable = False

    # -- one step ---------------------------------------------------------------------------------

    def step(self) -> StepReport:
        """One round; or, where an earlier run was cut off while publishing, the end of that one.

        Raises:
            TransportError: No server could be used; calling again goes on where it stopped.
            ModelError, TransactionError: The ledger refuses what was trained.
        """
        costs = _Costs(self._client)
        info = self._client.genesis()
        genesis, hints = info.genesis, info.genesis.training
        self._state.enter(info.ledger)
        # Another model is refused before an hour of training, not after it.
        check_shapes(self._trainer.layout(), {spec.name: spec.shape for spec in genesis.layout.tensors})
        if (pending := self._state.pending()) is not None:
            with self._to_its_end(), costs.phase("publish"):
                outcome = self._publisher.resume(*pending)
            published = outcome.header.metrics
            before = {name: published[name] for name in _KEPT_METRICS if name in published}
            return _report(outcome, costs, resumed=True, metrics_before=before)

        epochs = self._epochs or _number(hints.get("epochs"), DEFAULT_EPOCHS)
        selection, shown, aggregate = self._select_and_fetch(info, costs, epochs)  # 1 to 3
        start = self._start(genesis, shown, aggregate)
        arrays = decode_model(genesis.layout, start)
        with costs.phase("evaluate"):  # 4
            before = self._trainer.evaluate(arrays)
        self._client.close()  # an idle connection may die unnoticed while a long training runs
        with costs.phase("train"):  # 5
            result = self._trainer.train(arrays, epochs=epochs, hints=hints)
        with costs.phase("evaluate"):
            after = self._trainer.evaluate(result.arrays)
        model = _encoded(genesis, result)
        header = self._client.header_for(
            model,
            selection=selection,
            num_examples=result.num_examples,
            start=digest_of(start),
            metrics=_kept(before, result.metrics),
            sequence=self._state.enter(info.ledger).sequence,
            created_at_ms=self._now_ms(),
        )
        with self._to_its_end(), costs.phase("publish"):  # 6 and 7
            outcome = self._publisher.publish(header, model)
        return _report(
            outcome,
            costs,
            resumed=False,
            joined=selection.reference is None,
            rule=selection.rule,
            source=selection.source,
            num_candidates=len(selection.candidates),
            metrics_before=before,
            metrics_after=after,
            train_metrics=result.metrics,
        )

    def _select_and_fetch(
        self, info: GenesisInfo, costs: _Costs, epochs: int
    ) -> tuple[SelectionOut, Buffer | None, Buffer]:
        """Steps 1 to 3: the selection, the model that was shown, if one was, and ω_agg."""
        shown: Buffer | None = None
        selections = 0
        while True:
            selections, selection = selections + 1, None
            if shown is None:
                with costs.phase("select"):
                    selection = select_by_hash(self._client, self._state)
            if selection is None:
                if shown is None and (shown := self._state.newest_model()) is None:
                    with costs.phase("join"):
                        shown = self._first_model(info.genesis, epochs)
                with costs.phase("select"):
                    selection = self._client.select(model=shown)
            try:
                with costs.phase("download"):
                    return selection, shown, self._aggregate(selection, shown)
            except ModelUnknownError:
                # An average is only where it was made; where that server has gone, another one makes it.
                if selections == _MAX_SELECTIONS:
                    raise

    def _first_model(self, genesis: Genesis, epochs: int) -> bytes:
        """What a joiner shows: the genesis model, trained for E′ epochs."""
        hints = genesis.training
        initial_epochs = self._initial_epochs or _number(hints.get("initial_epochs"), epochs)
        arrays = decode_model(genesis.layout, self._client.genesis_model())
        return _encoded(genesis, self._trainer.train(arrays, epochs=initial_epochs, hints=hints))

    def _aggregate(self, selection: SelectionOut, shown: Buffer | None) -> Buffer:
        """ω_agg; a model that is here already is not fetched."""
        digest = Digest(selection.aggregate.digest)
        if shown is not None and digest_of(shown) == digest:
            return shown
        if not self._client.holds(digest) and (own := self._state.newest_model(digest)) is not None:
            return own
        return self._client.download(digest)

    def _start(self, genesis: Genesis, shown: Buffer | None, aggregate: Buffer) -> Buffer:
        """The model to train: ω_agg, or what ``merge`` makes of it and the own newest model."""
        own = self._state.newest_model() or shown
        if self._merge is None or own is None or own == aggregate:
            return aggregate
        layout = genesis.layout
        return encode_model(layout, self._merge(decode_model(layout, own), decode_model(layout, aggregate)))


def _encoded(genesis: Genesis, result: TrainingResult) -> bytes:
    model = encode_model(genesis.layout, result.arrays)
    check_model(genesis.layout, model, max_abs=genesis.bounds.max_abs_value)
    return model


def _report(outcome: Outcome, costs: _Costs, **measured: Any) -> StepReport:
    header = outcome.header
    sent, received = costs.bytes_moved
    return StepReport(
        transaction=transaction_id(header.encode()),
        sequence=header.sequence,
        created=outcome.created,
        server=outcome.server,
        parents=header.parents,
        num_examples=header.num_examples,
        bytes_sent=sent,
        bytes_received=received,
        seconds=costs.seconds,
        **measured,
    )


def _kept(measured: Mapping[str, float], trained: Mapping[str, float]) -> dict[str, float]:
    """Small numbers for the transaction: ω_agg's accuracy and loss, and the training's loss."""
    kept = {name: float(measured[name]) for name in _KEPT_METRICS if name in measured}
    if "train_loss" in trained:
        kept["train_loss"] = float(trained["train_loss"])
    # + 0.0 turns -0.0 into 0.0, which the encoding wants.
    return {name: value + 0.0 for name, value in kept.items() if math.isfinite(value)}


def _number(hint: object, default: int) -> int:
    """A hint as a number of epochs; genesis may say nonsense, and then it is no hint."""
    return hint if isinstance(hint, int) and not isinstance(hint, bool) and hint >= 1 else default
