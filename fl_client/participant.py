"""Algorithm 1 from a client's side: the seven steps, again and again, until someone stops it.

    with ParticipantState(Path("site-3")) as state, LedgerClient(url, key=state.key) as client:
        Participant(client, trainer, state).run()

1. show the hash of the own newest transaction (joining: train the genesis model for E′ epochs, show that);
2. the server selects tips like the own model, and averages them; 3. fetch the average ω_agg;
4. measure it on the own test data; 5. train it for E epochs; 6. publish the result, approving the tips;
7. keep the new transaction's hash.

Deviations from the paper: a joiner starts from the genesis model instead of a random one, so that cosine similarity
compares models that started alike; and a client that resembles nobody is answered with its own model.

Two choices of a client's own, which the ledger has no part in (ADR 0022). ``start="independent"``: the first model is
the client's own initialisation, its weights scaled for the number of participants. ``merge="decdiff"``: training goes
on from the own model, moved towards ω_agg, instead of from ω_agg. What is approved, and the evidence for it, is the
same: both speak of the average that the server computed, not of what a client makes of it.
"""

import hashlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Final, Literal, TypeAlias, get_args

from fl_client.client import LedgerClient
from fl_client.errors import ServerUnavailableError
from fl_client.state import ParticipantState, Position
from fl_client.training.protocol import Initialiser, Trainer, TrainingResult
from fl_core.dag.transaction import Header, transaction_id
from fl_core.errors import (
    DagAcflError,
    ModelError,
    ModelLayoutError,
    ModelNormError,
    ModelPrunedError,
    ModelUnknownError,
    ParameterError,
    ParentsStaleError,
    ParentsUnknownError,
    SequenceConflictError,
    TransactionError,
    TransactionUnknownError,
    UnknownError,
)
from fl_core.merging import Merge, Replace, build_merge
from fl_core.models import Buffer, check_model, decode_model, encode_flat, encode_model, flat
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire.v1 import CarriedEvidence, SelectionOut

DEFAULT_EPOCHS: Final = 1
DEFAULT_PATIENCE_S: Final = 600.0
_MAX_CORRECTIONS: Final = 5
_LONGEST_PAUSE_S: Final = 30.0
_KEPT_METRICS: Final = ("accuracy", "loss")

Start: TypeAlias = Literal["genesis", "independent"]
STARTS: Final[tuple[Start, ...]] = get_args(Start)
_SEED_TAG: Final = b"dag-acfl/independent-start/v1"


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
        metrics_before: What training starts from on the own test data: ω_agg (the paper's accuracy), or what
            ``merge`` made of it.
        metrics_after: The trained model on the same data.
        train_metrics: What the trainer measured while training.
        bytes_sent: On the socket, HTTP headers included.
        bytes_received: The same, inwards.
        seconds: Wall time by phase: ``join``, ``select``, ``download``, ``evaluate``, ``train``, ``publish``.
    """

    transaction: TxId
    sequence: int
    created: bool
    server: str | None
    resumed: bool
    joined: bool
    parents: tuple[TxId, ...]
    rule: str | None
    source: str | None
    num_candidates: int
    num_examples: int
    metrics_before: Mapping[str, float]
    metrics_after: Mapping[str, float]
    train_metrics: Mapping[str, float]
    bytes_sent: int
    bytes_received: int
    seconds: Mapping[str, float]


class _StopRequested(BaseException):
    """Raised by a signal where nothing durable is under way."""


@dataclass(slots=True)
class _Phases:
    """Wall time by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start


class Participant:
    """One client of one ledger.

    Args:
        client: Signs with the key of ``state``.
        trainer: Trains and evaluates on the own data.
        state: The opened folder.
        epochs: E; None takes genesis's hint ``epochs``, else 1.
        initial_epochs: E′; None takes genesis's hint ``initial_epochs``, else E.
        evaluate_trained: Whether to measure the trained model too.
        merge: How ω_agg and the own newest model become the model that is trained: a rule, or the name of one of
            ``fl_core.merging.MERGES``. A client that has no model of its own any more takes ω_agg.
        start: What is trained before joining: the genesis model, or (``independent``) an initialisation of the
            client's own, which its key and the ledger decide, so that a restart begins with the same.
        gain: Whether an independent start's weights are multiplied by √n, n being the participants: those that have
            published and this one, or genesis's hint ``participants`` where that is more. Averages of n models that
            started differently have weights √n times smaller than theirs, and then keep the size that training wants
            (uncoordinated initialisation: ‖v_steady‖⁻¹ of a complete graph).
        now_ms: Milliseconds since 1970 UTC.

    Raises:
        ParameterError: ``epochs`` or ``initial_epochs`` below 1, no such ``start``, a trainer that cannot begin by
            itself, or the client has another key than ``state``.
        UnknownNameError: No merge has that name.
    """

    def __init__(
        self,
        client: LedgerClient,
        trainer: Trainer,
        state: ParticipantState,
        *,
        epochs: int | None = None,
        initial_epochs: int | None = None,
        evaluate_trained: bool = True,
        merge: Merge | str = "replace",
        start: Start = "genesis",
        gain: bool = True,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        for name, value in (("epochs", epochs), ("initial_epochs", initial_epochs)):
            if value is not None and value < 1:
                raise ParameterError(f"{name} must be at least 1, not {value}")
        if client.author != state.author:
            raise ParameterError("make the client with the state's key: LedgerClient(…, key=state.key)")
        if start not in STARTS:
            raise ParameterError(f"start must be one of {', '.join(STARTS)}, not {start!r}")
        if start == "independent" and not isinstance(trainer, Initialiser):
            raise ParameterError(
                f"{type(trainer).__name__} cannot start independently: it has no method "
                "independent_arrays(seed, gain); add it, or start from genesis"
            )
        self._client, self._trainer, self._state = client, trainer, state
        self._epochs, self._initial_epochs = epochs, initial_epochs
        self._evaluate_trained, self._now_ms = evaluate_trained, now_ms
        self._merge = build_merge(merge, {}) if isinstance(merge, str) else merge
        self._start, self._gain = start, gain
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
                    report = self._patiently(patience_s)
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

    def _patiently(self, patience_s: float) -> StepReport | None:
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

    # -- one step ---------------------------------------------------------------------------------

    def step(self) -> StepReport:
        """One round; or, where an earlier run was cut off while publishing, the end of that one.

        Raises:
            TransportError: No server could be used; calling again goes on where it stopped.
            ModelError, TransactionError: The ledger refuses what was trained.
        """
        sent, received = self._client.traffic.sent, self._client.traffic.received
        phases = _Phases()
        genesis = self._client.genesis()
        self._state.enter(genesis.ledger)
        self._check_layout()
        report = self._resume(phases) or self._round(phases)
        return replace(
            report,
            bytes_sent=self._client.traffic.sent - sent,
            bytes_received=self._client.traffic.received - received,
            seconds=dict(phases.seconds),
        )

    def _check_layout(self) -> None:
        """Refuse another model before an hour of training, not after it."""
        wanted = {t.name: t.shape for t in self._client.genesis().genesis.layout.tensors}
        mine = {t.name: t.shape for t in self._trainer.layout().tensors}
        if mine != wanted:
            differing = sorted(name for name in mine.keys() | wanted.keys() if mine.get(name) != wanted.get(name))
            name = differing[0]
            raise ModelLayoutError(
                f"the trainer's model is not the ledger's: tensor {name!r} is {_shape(mine.get(name))} here, "
                f"{_shape(wanted.get(name))} there ({len(differing)} differ)"
            )

    def _resume(self, phases: _Phases) -> StepReport | None:
        pending = self._state.pending()
        if pending is None:
            return None
        header, model = pending
        if (evidence := self._state.evidence()) is not None:
            self._client.bring(CarriedEvidence.model_validate(evidence))
        with self._durably(), phases.measure("publish"):
            header, created, server = self._publish(header, model)
        return _report(header, created=created, server=server, resumed=True)

    def _round(self, phases: _Phases) -> StepReport:
        hints = self._client.genesis().genesis.training
        epochs = self._epochs or _count(hints.get("epochs"), DEFAULT_EPOCHS)
        selection, shown, aggregate = self._select_and_fetch(phases, epochs)
        layout = self._client.genesis().genesis.layout
        arrays = decode_model(layout, self._merged(shown, aggregate))
        with phases.measure("evaluate"):
            before = self._trainer.evaluate(arrays)
        with phases.measure("train"):
            result = self._trainer.train(arrays, epochs=epochs, hints=hints)
        after: Mapping[str, float] = {}
        if self._evaluate_trained:
            with phases.measure("evaluate"):
                after = self._trainer.evaluate(result.arrays)
        model = self._encoded(result)
        header = self._client.header_for(
            model,
            selection=selection,
            num_examples=result.num_examples,
            metrics=_kept(before, result.metrics),
            sequence=self._position().sequence,
            created_at_ms=self._now_ms(),
        )
        with self._durably(), phases.measure("publish"):
            self._begin(header, model)
            header, created, server = self._publish(header, model)
        return replace(
            _report(header, created=created, server=server, resumed=False),
            joined=selection.reference is None,
            rule=selection.rule,
            source=selection.source,
            num_candidates=len(selection.candidates),
            metrics_before=before,
            metrics_after=after,
            train_metrics=result.metrics,
        )

    def _encoded(self, result: TrainingResult) -> bytes:
        genesis = self._client.genesis().genesis
        model = encode_model(genesis.layout, result.arrays)
        check_model(genesis.layout, model, max_abs=genesis.policy.max_abs_value)
        return model

    def _select(self, phases: _Phases, epochs: int) -> tuple[SelectionOut, Buffer | None]:
        """Steps 1 and 2; also the model that was shown, where it was one."""
        newest = self._position().transaction
        own = None
        if newest is not None:
            try:
                with phases.measure("select"):
                    return self._client.select(transaction=newest), None
            except (TransactionUnknownError, ModelPrunedError):
                # No server knows the hash (any more), or it is of long ago: the model itself says as much.
                own = self._state.newest_model()
        if own is None:
            with phases.measure("join"):
                own = self._initial_model(epochs)
        with phases.measure("select"):
            return self._client.select(model=own), own

    def _select_and_fetch(self, phases: _Phases, epochs: int) -> tuple[SelectionOut, Buffer | None, Buffer]:
        """Steps 1 to 3: the selection, the model that was shown, if one was, and ω_agg.

        An average is only where it was made: when that server has gone since, another makes one.
        """
        selection, shown = self._select(phases, epochs)
        for tries_left in reversed(range(_MAX_CORRECTIONS)):
            try:
                with phases.measure("download"):
                    return selection, shown, self._aggregate(selection, shown)
            except ModelUnknownError:
                if not tries_left:
                    raise
            with phases.measure("select"):
                if shown is None:
                    selection, shown = self._select(phases, epochs)
                else:
                    selection = self._client.select(model=shown)
        raise AssertionError("the last try returns or raises")

    def _initial_model(self, epochs: int) -> bytes:
        info = self._client.genesis()
        hints = info.genesis.training
        initial_epochs = self._initial_epochs or _count(hints.get("initial_epochs"), epochs)
        if self._start == "independent":
            assert isinstance(self._trainer, Initialiser), "checked when the participant was made"
            gain = math.sqrt(self._participants()) if self._gain else 1.0
            first = self._trainer.independent_arrays(seed=self._seed(), gain=gain)
            arrays = decode_model(info.genesis.layout, encode_model(info.genesis.layout, first))
        else:
            arrays = decode_model(info.genesis.layout, self._client.genesis_model())
        return self._encoded(self._trainer.train(arrays, epochs=initial_epochs, hints=hints))

    def _participants(self) -> int:
        """How many take part, as far as the ledger knows; this client is one of them."""
        known = {each.author for each in self._client.clients().items} | {self._state.author}
        return max(len(known), _count(self._client.genesis().genesis.training.get("participants"), 1))

    def _seed(self) -> int:
        """Of the own initialisation: another one for every author and ledger, and always the same one."""
        ledger = self._client.genesis().ledger
        digest = hashlib.sha256(b"\0".join((_SEED_TAG, ledger.encode(), self._state.author.encode()))).digest()
        return int.from_bytes(digest[:8], "big") >> 1  # torch takes 63 bits on every platform

    def _merged(self, shown: Buffer | None, aggregate: Buffer) -> Buffer:
        """The model to train: what the merge makes of the own newest model and ω_agg."""
        if isinstance(self._merge, Replace):
            return aggregate
        own = self._state.newest_model() or shown
        if own is None or own == aggregate:
            return aggregate
        layout = self._client.genesis().genesis.layout
        merged = self._merge.merge(flat(layout, own), flat(layout, aggregate), tensors=layout.tensor_slices)
        return encode_flat(layout, merged)

    def _aggregate(self, selection: SelectionOut, shown: Buffer | None) -> Buffer:
        """Step 3; a model that is here already is not fetched."""
        digest = Digest(selection.aggregate.digest)
        if shown is not None and digest_of(shown) == digest:
            return shown
        if digest == self._position().model and not self._client.holds(digest):
            own = self._state.newest_model()
            if own is not None:
                return own
        return self._client.download(digest)

    def _position(self) -> Position:
        return self._state.enter(self._client.genesis().ledger)

    # -- publishing -------------------------------------------------------------------------------

    @contextmanager
    def _durably(self) -> Iterator[None]:
        """Signals wait: what is published and what the folder says must agree."""
        self._durable = True
        try:
            yield
        finally:
            self._durable = False

    def _publish(self, header: Header, model: Buffer) -> tuple[Header, bool, str | None]:
        """Send until it is in the ledger, correcting what a server that was away or restarted may object to."""
        for corrections_left in reversed(range(_MAX_CORRECTIONS)):
            try:
                published = self._client.publish_header(header, model)
                created, server = published.created, published.server
            except (ModelError, TransactionError, UnknownError) as refusal:
                if self._is_known(header):
                    created, server = False, None
                    break
                # Where no server can be asked again this raises, and the publication stays written down.
                corrected = self._corrected(header, model, refusal) if corrections_left else None
                if corrected is None:
                    self._state.abandon()
                    if isinstance(refusal, ModelNormError) and self._start == "independent":
                        raise self._explained(refusal) from refusal
                    raise
                header = corrected
                self._begin(header, model)
            else:
                break
        self._state.finish(header)
        return header, created, server

    def _explained(self, refusal: ModelNormError) -> ModelNormError:
        """What a client that started independently can do about its model's norm."""
        growth = self._client.genesis().genesis.policy.max_norm_growth
        how = "independently and gain-corrected" if self._gain else "independently"
        fix = "start with gain=False (--no-gain), or from genesis" if self._gain else "start from genesis"
        return ModelNormError(
            f"{refusal}; this client started {how}, and the ledger admits {growth:g} times the norm that it knows: "
            f"{fix}; or found a ledger with a larger max_norm_growth",
            norm=refusal.norm,
            bound=refusal.bound,
        )

    def _begin(self, header: Header, model: Buffer) -> None:
        evidence = self._client.evidence(header.attachment_digest)
        self._state.begin(header, model, evidence=None if evidence is None else evidence.model_dump())

    def _is_known(self, header: Header) -> bool:
        """Whether a server holds the transaction already: one that has not its selection refuses it for that."""
        try:
            self._client.transaction(transaction_id(header.encode()))
        except TransactionUnknownError:
            return False
        return True

    def _corrected(self, header: Header, model: Buffer, refusal: DagAcflError) -> Header | None:
        """Another header for the same model, whose training is worth more than the selection that led to it.

        None where no other header would help.
        """
        if isinstance(refusal, SequenceConflictError):
            following = refusal.next_sequence
            return replace(header, sequence=following) if following > header.sequence else None
        if isinstance(refusal, UnknownError | ParentsStaleError | ParentsUnknownError):
            selection = self._select_again(model)
            return replace(
                header,
                parents=tuple(TxId(parent) for parent in selection.parents),
                attachment_digest=Digest(selection.id),
            )
        return None

    def _select_again(self, model: Buffer) -> SelectionOut:
        newest = self._position().transaction
        if newest is not None:
            try:
                return self._client.select(transaction=newest)
            except (TransactionUnknownError, ModelPrunedError):
                pass
        return self._client.select(model=model)


def _report(header: Header, *, created: bool, server: str | None, resumed: bool) -> StepReport:
    return StepReport(
        transaction=transaction_id(header.encode()),
        sequence=header.sequence,
        created=created,
        server=server,
        resumed=resumed,
        joined=False,
        parents=header.parents,
        rule=None,
        source=None,
        num_candidates=0,
        num_examples=header.num_examples,
        metrics_before={name: header.metrics[name] for name in _KEPT_METRICS if name in header.metrics},
        metrics_after={},
        train_metrics={},
        bytes_sent=0,
        bytes_received=0,
        seconds={},
    )


def _kept(measured: Mapping[str, float], trained: Mapping[str, float]) -> dict[str, float]:
    """Small numbers for the transaction: ω_agg's accuracy and loss, and the training's loss."""
    kept = {name: float(measured[name]) for name in _KEPT_METRICS if name in measured}
    if "train_loss" in trained:
        kept["train_loss"] = float(trained["train_loss"])
    # + 0.0 turns -0.0 into 0.0, which the encoding wants.
    return {name: value + 0.0 for name, value in kept.items() if math.isfinite(value)}


def _count(hint: object, default: int) -> int:
    """A hint as a number of epochs; genesis may say nonsense, and then it is no hint."""
    return hint if isinstance(hint, int) and not isinstance(hint, bool) and hint >= 1 else default


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))
