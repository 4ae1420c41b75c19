"""Algorithm 1 from a client's side: the seven steps, again and again, until someone stops it.

    with ParticipantState(Path("site-3")) as state, LedgerClient(url, key=state.key) as client:
        Participant(client, trainer, state).run()

1. show the hash of the own newest transaction (joining: train the genesis model for E′ epochs, show that);
2. the server selects tips like the own model, and averages them; 3. fetch the average ω_agg;
4. measure it on the own test data; 5. train it for E epochs; 6. publish the result, approving the tips;
7. keep the new transaction's hash.

Deviations from [DAG-ACFL Alg. 1]: a joiner starts from the genesis model instead of a random one, so that cosine
similarity compares models that started alike; and a client that resembles nobody is answered with its own model.

What a trainer's ``layout`` does not name of its arrays stays here: it is trained with the rest, measured with it, and
kept in ``state`` beside the model that it was trained with, so that a restart goes on with both.
"""

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fl_client.client import LedgerClient
from fl_client.early_stop import EarlyStop
from fl_client.errors import ServerUnavailableError
from fl_client.metrics import Measurements, beside, figure_of
from fl_client.privacy import DEFAULT_DELTA, privacy_ledger
from fl_client.publishing import Outcome, Publisher, select_by_hash
from fl_client.reader import GenesisInfo
from fl_client.state import KeptModel, Measured, ParticipantState, read_whole_model
from fl_client.tracing import span
from fl_client.training.errors import PrivacyBudgetError, TrainerFailedError, users_code
from fl_client.training.protocol import Arrays, Hints, Trainer, TrainingResult, check_shapes, progress_watched
from fl_core.dag.figures import step_from
from fl_core.dag.genesis import DEFAULT_EPOCHS, Genesis
from fl_core.dag.steps import StepBound, shortened
from fl_core.dag.transaction import transaction_id
from fl_core.errors import DagAcflError, ModelLayoutError, ModelNotFiniteError, ModelUnknownError, ParameterError
from fl_core.models import Buffer, check_model, decode_model, encode_flat, encode_model, flat
from fl_core.selection.evidence import LED_BACK_FROM
from fl_core.trust.contribution import measured, metrics_of, to_measure
from fl_core.trust.refusal import DEFAULT_MARGIN, Comparison, compare, named_as_refused, refused_extension
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire.v1 import SelectionOut

DEFAULT_PATIENCE_S: Final = 600.0
DEFAULT_CREDIT_EVERY: Final = 10
_MAX_SELECTIONS: Final = 5
_LONGEST_PAUSE_S: Final = 30.0
_NEWS_EVERY_S: Final = 5.0
_LONGEST_ASKING_S: Final = 5.0
_TIMES_ASKED_AGAIN: Final = 4
_SLICE_S: Final = 1.0
"""Of a pause: Windows does not interrupt one for Ctrl-C."""
_DOING: Final = {
    "join": "first training",
    "select": "asking for models like its own",
    "download": "fetching their average",
    "evaluate": "measuring on the test data",
    "measure": "measuring whose models help",
    "train": "training",
    "publish": "publishing",
}

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

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
        refused: How the average did beside the own model, where it was refused: the step went on from the own model.
        num_candidates: Models of others that were compared with the own one.
        num_chosen: How many of them are in the average.
        step_kept: How much of the step from the average was published: below 1 where the ledger bounds it shorter.
        num_examples: Examples trained on.
        metrics_before: ``evaluate``'s finite numbers for what training starts from, ω_agg or what ``merge`` made of it;
            when resumed, all that the transaction carries.
        metrics_after: Those of the trained model.
        train_metrics: ``train``'s finite numbers.
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
    refused: Comparison | None = None
    num_candidates: int = 0
    num_chosen: int = 0
    step_kept: float = 1.0
    metrics_before: Mapping[str, float]
    metrics_after: Mapping[str, float] = field(default_factory=dict)
    train_metrics: Mapping[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """The step's numbers, each by a name of its own, as trackers take them.

        ``NAME/given`` and ``NAME/trained`` are ``evaluate``'s; ``train``'s are called as in the header; those of the
        client are ``step/kept``, ``selection/…``, ``seconds/…`` and ``bytes/…``. A resumed step has only the last two.
        """
        figures: dict[str, float] = {}
        if not self.resumed:
            figures |= {f"{name}/given": value for name, value in self.metrics_before.items()}
            figures |= {f"{name}/trained": value for name, value in self.metrics_after.items()}
            figures |= beside(self.metrics_before, self.train_metrics)
            figures |= {
                "step/kept": self.step_kept,
                "selection/chosen": self.num_chosen,
                "selection/candidates": self.num_candidates,
            }
            figures["selection/refused"] = float(self.refused is not None)
        figures |= {f"seconds/{phase}": seconds for phase, seconds in self.seconds.items()}
        return figures | {"bytes/sent": self.bytes_sent, "bytes/received": self.bytes_received}


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What a training begins from.

    Attributes:
        model: Encoded.
        metrics: Its figures.
        given: Figures of what was given; ``metrics``, unless that was refused.
        judged: It beside the own model; None where it is that, or nothing could be compared.
        alone: The only parent, where the average was refused.
        refused_updates: Those of others in it.
    """

    model: Buffer
    metrics: Mapping[str, float]
    given: Mapping[str, float]
    judged: Comparison | None
    alone: tuple[TxId] | None = None
    refused_updates: tuple[TxId, ...] = ()


class _StopRequested(BaseException):
    """Raised by a signal where nothing durable is under way."""


class _Costs:
    """What one step takes: wall time by phase, and bytes.

    Args:
        client: Moves the bytes.
        on_phase: Told each phase's name as it begins.
    """

    def __init__(self, client: LedgerClient, on_phase: Callable[[str], None]) -> None:
        self._traffic, self._on_phase = client.traffic, on_phase
        self._sent, self._received = client.traffic.sent, client.traffic.received
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's time to a phase's."""
        start = time.monotonic()
        self._on_phase(name)
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
        refuse_worse_than: Least loss of accuracy on the own test data, from the own model to what training would begin
            from, for which that is refused (``fl_core.trust.refusal`` says what else it takes); None: never.
        credit_every: At each so-manieth publication, and after each refusal, measure what up to four of the averaged
            models are worth (``fl_core.trust.contribution``); 0: never.
        epsilon_budget: The largest ε that this folder's trainings may spend in all, where they are private; None: any.
        delta: δ of that ε.
        now_ms: Milliseconds since 1970 UTC.

    Attributes:
        ended_by: Why the last ``run`` ended by itself, in a line; empty where it was told how far to go, or stopped.

    Raises:
        ParameterError: ``epochs`` or ``initial_epochs`` below 1, or the client has another key than ``state``; or the
            folder's trainings were private and this trainer's are not, or the other way round.
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
        refuse_worse_than: float | None = DEFAULT_MARGIN,
        credit_every: int = DEFAULT_CREDIT_EVERY,
        epsilon_budget: float | None = None,
        delta: float = DEFAULT_DELTA,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        for name, value in (("epochs", epochs), ("initial_epochs", initial_epochs)):
            if value is not None and value < 1:
                raise ParameterError(f"{name} must be at least 1, not {value}")
        if refuse_worse_than is not None and not refuse_worse_than >= 0:
            raise ParameterError(f"refuse_worse_than must be at least 0, or None, not {refuse_worse_than}")
        if client.author != state.author:
            raise ParameterError("make the client with the state's key: LedgerClient(…, key=state.key)")
        self._client, self._trainer, self._state, self._merge = client, trainer, state, merge
        published = 0 if state.position is None else state.position.sequence
        self._privacy = privacy_ledger(trainer, state.folder, published=published, delta=delta, budget=epsilon_budget)
        self.ended_by = ""
        self._publisher = Publisher(client, state)
        self._measurements = Measurements()
        self._epochs, self._initial_epochs = epochs, initial_epochs
        if credit_every < 0:
            raise ParameterError(f"credit_every must be at least 0, not {credit_every}")
        self._margin, self._credit_every = refuse_worse_than, credit_every
        self._own_figures: tuple[Digest, dict[str, float]] | None = None  # of which model, as it is measured now
        self._told_unjudged = False
        self._now_ms = now_ms
        self._stop = threading.Event()
        self._durable = False
        self._pid = os.getpid()
        self._on_progress: Callable[[str], None] = lambda _: None
        self._phase = self._progress = ""
        self._first_noise_std = 0.0

    def best(self) -> KeptModel | None:
        """The best whole model so far on the own test data, given or trained: highest accuracy, then lowest loss.

        None before the first step, and where ``evaluate`` measures neither.
        """
        return read_whole_model(self._state.folder, "best")

    # -- many steps -------------------------------------------------------------------------------

    def run(
        self,
        steps: int | None = None,
        *,
        on_step: Callable[[StepReport], None] | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
        patience_s: float = DEFAULT_PATIENCE_S,
        every_s: float = 0.0,
        wait_for_news: bool = False,
        early_stop: int | None = None,
    ) -> int:
        """Take steps until there were enough, or someone stops it; returns how many were taken.

        Ctrl-C or SIGTERM gives up a training that is under way, but completes a publication if a server can be
        reached; a second one ends at once. What was not completed, the next run completes. Signals are caught in the
        main thread only; elsewhere use ``stop``.

        Whoever would go on alone asks again first, for as long as the step before took, at most 5 s: by
        ``tips``, what somebody took is no candidate until its author publishes again, and of two alike the quicker
        would never meet the other.

        Args:
            steps: None: without end.
            on_step: Called after each step.
            on_progress: Told in a few words what is being done, such as ``training: epoch 2 of 3, batch 5 of 20``.
            patience_s: How long to wait in all, seconds, while no server can be reached; an attempt that is under way
                is not cut.
            every_s: Seconds from the beginning of a step to that of the next, at least.
            wait_for_news: Take a step only where somebody else has published since the one before began. The first
                step of a run does not wait.
            early_stop: End after so many steps in a row, at least 1, whose accuracy, and at equal accuracy whose loss,
                on the own test data, before or after training, is no better than the best before them.

        It ends, too, where the next training has no room in ``epsilon_budget``.

        Raises:
            ParameterError: ``early_stop`` is given and ``evaluate`` measures neither accuracy nor loss.
        """
        self._on_progress, self.ended_by = on_progress, ""
        taken, early, ask_again_s = 0, EarlyStop(early_stop), 0.0
        with ExitStack() as afterwards, self._signals():
            afterwards.callback(self._client.be_patient, self._client.be_patient(patience_s))
            try:
                while not self._stop.is_set() and (steps is None or taken < steps):
                    begun = time.monotonic()
                    seen = self._when_reachable(self._others_tips, patience_s) if wait_for_news else None
                    step = partial(self.step, ask_again_s=ask_again_s)
                    report = self._when_reachable(step, patience_s)
                    if report is None:
                        break
                    taken += 1
                    if on_step is not None:
                        on_step(report)
                    if not report.resumed and early.is_enough(report.metrics_before, report.metrics_after):
                        break
                    if taken != steps and not report.resumed:
                        if not wait_for_news:
                            ask_again_s = min(sum(report.seconds.values()), _LONGEST_ASKING_S)
                        self._await_turn(begun + every_s, seen, patience_s)
            except _StopRequested:
                pass
            except PrivacyBudgetError as end:
                self.ended_by = str(end)
        return taken

    def stop(self) -> None:
        """End ``run`` after the step at hand, for good: a later ``run`` takes no step. From any thread."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether a signal or ``stop`` has ended this participant's runs."""
        return self._stop.is_set()

    def _when_reachable(self, call: Callable[[], T], patience_s: float) -> T | None:
        """The call's result; None if it was stopped before a server could be reached."""
        left_s, pause_s = patience_s, 1.0
        while not self._stop.is_set():
            self._client.be_patient(left_s)
            try:
                return call()
            except ServerUnavailableError as error:
                left_s -= error.after_s + pause_s
                if left_s <= 0 and not self._stop.is_set():
                    raise
            self._pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return None

    def _await_turn(self, until: float, seen: frozenset[str] | None, patience_s: float) -> None:
        """Wait until a moment on ``time.monotonic``'s scale, and until somebody else has published; or it is stopped.

        What was published is a tip, or has one among its descendants: new tips are all that need be looked for.

        Args:
            until: The moment.
            seen: Tips of others that are no news; None: no news is waited for.
            patience_s: As for ``run``.
        """
        left_s = until - time.monotonic()
        if left_s > _SLICE_S:
            self._on_progress(f"waiting for {left_s:.0f} s")
            self._client.close()  # an idle connection may die unnoticed
        self._pause(left_s)
        said = False
        while seen is not None and not self._stop.is_set():
            tips = self._when_reachable(self._others_tips, patience_s)
            if tips is None or tips - seen:
                return
            if not said:
                logger.info("nobody else has published anything new: waiting for that")
                said = True
            self._on_progress("waiting until somebody else publishes")
            self._pause(_NEWS_EVERY_S)

    def _pause(self, seconds: float) -> None:
        """Wait, unless and until it is stopped."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0 and not self._stop.wait(min(left_s, _SLICE_S)):
            pass

    def _others_tips(self) -> frozenset[str]:
        ledger = self._client.ledger_id()
        tips = self._client.tips().items
        return frozenset(tip.transaction for tip in tips if tip.author != self._client.author) - {ledger}

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[signal.Signals, Any] = {}
        self._pid = os.getpid()
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, self._on_signal)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # A process that the trainer forked, such as a DataLoader's worker, ends quietly by no other exception.
        if self._stop.is_set() or os.getpid() != self._pid:
            raise KeyboardInterrupt
        self._stop.set()
        if not self._durable:
            raise _StopRequested
        self._client.be_patient(0.0)  # what is to be published is written down: no server need be waited for

    @contextmanager
    def _to_its_end(self) -> Iterator[None]:
        """In this block signals wait: what is published and what the folder says must agree."""
        self._durable = True
        try:
            yield
        finally:
            self._durable = False

    # -- one step ---------------------------------------------------------------------------------

    @span("round")
    def step(self, *, ask_again_s: float = 0.0) -> StepReport:
        """One round; or, where an earlier run was cut off while publishing, the end of that one.

        Args:
            ask_again_s: How long to ask again, seconds, where there is nobody to average with.

        Raises:
            TransportError: No server could be used; calling again goes on where it stopped.
            TrainingError: The trainer failed, or what it returned is no model.
            PrivacyBudgetError: There is no privacy left for the training; nothing was asked or sent.
            StateError: The folder has no room, or cannot be written.
            ModelError, TransactionError: The ledger refuses what was trained.
        """
        costs = _Costs(self._client, self._begin_phase)
        info = self._client.genesis()
        genesis, hints = info.genesis, info.genesis.training
        self._state.enter(info.ledger)
        # Another model is refused before an hour of training, not after it.
        with users_code("layout()"):
            layout = self._trainer.layout()
        try:
            check_shapes(layout, {spec.name: spec.shape for spec in genesis.layout.tensors})
        except ModelLayoutError as error:
            raise ModelLayoutError(f"{error}; the server's ledger is {genesis.name!r}: is it the right one?") from None
        if (pending := self._state.pending()) is not None:
            with self._to_its_end(), costs.phase("publish"):
                outcome = self._publisher.resume(*pending)
            return _report(outcome, costs, resumed=True, metrics_before=outcome.header.metrics)

        self._state.check_room(2 * (info.model_size + sum(array.nbytes for array in self._local.values())))
        epochs = self._epochs or _number(hints.get("epochs"), DEFAULT_EPOCHS)
        if self._privacy is not None:
            first = [] if self._state.newest_model() else [(self._initial(hints, epochs), hints)]
            self._privacy.check(*first, (epochs, hints))
        selection, shown, rest, aggregate = self._select_and_fetch(info, costs, epochs, ask_again_s)  # 1 to 3
        with costs.phase("evaluate"):  # 4
            beginning = self._begin_from(info, selection, shown, aggregate, rest)
        is_turn = self._credit_every and (self._state.enter(info.ledger).sequence + 1) % self._credit_every == 0
        worth: dict[TxId, float] = {}
        if selection.source != "own" and (is_turn or (self._credit_every and beginning.alone)):
            with costs.phase("measure"):  # after every refusal, too: that is when it matters who was in the average
                worth = self._worth(info, selection, shown, rest, beginning)
        before = beginning.metrics
        arrays = {**decode_model(genesis.layout, beginning.model), **rest}
        self._client.close()  # an idle connection may die unnoticed while a long training runs
        with costs.phase("train"):  # 5
            result = self._train(arrays, epochs, hints)
        model, trained_rest = self._parted(genesis, result)
        within, step_kept = self._within_bound(info, selection, beginning, aggregate, model)
        if within != model:
            model, result = within, replace(result, arrays={**decode_model(genesis.layout, within), **trained_rest})
        with costs.phase("evaluate"):
            after = self._evaluate(result.arrays)
        trained = self._measurements.finite(result.metrics, of="train")
        noise_std = math.hypot(step_kept * result.noise_std, self._noise_in(beginning.model, shown))
        header = self._client.header_for(
            model,
            selection=selection if beginning.alone is None else None,
            parents=beginning.alone,
            num_examples=result.num_examples,
            start=digest_of(beginning.model),
            metrics=self._measurements.published(
                before,
                trained,
                systems=_judged_metrics(beginning.judged)
                | metrics_of(named_as_refused(beginning.refused_updates) or sorted(map(TxId, selection.parents)), worth)
                | ({} if self._privacy is None else self._privacy.metrics),
            ),
            noise_std=min(noise_std, genesis.bounds.max_noise_std),
            extensions=refused_extension(beginning.refused_updates),
            sequence=self._state.enter(info.ledger).sequence,
            created_at_ms=self._now_ms(),
        )
        with self._to_its_end(), costs.phase("publish"):  # 6 and 7
            self._state.keep(
                given=Measured(beginning.model, rest, before),
                trained=Measured(model, trained_rest, after, noise_std),
            )
            outcome = self._publisher.publish(header, model)
        self._own_figures = header.model_digest, after
        return _report(
            outcome,
            costs,
            resumed=False,
            refused=None if beginning.alone is None else beginning.judged,
            joined=selection.reference is None,
            rule=selection.rule,
            source=selection.source,
            num_candidates=len(selection.candidates),
            num_chosen=selection.cut,
            step_kept=step_kept,
            metrics_before=before,
            metrics_after=after,
            train_metrics=trained,
        )

    def _select_and_fetch(
        self, info: GenesisInfo, costs: _Costs, epochs: int, ask_again_s: float
    ) -> tuple[SelectionOut, Buffer | None, Arrays, Buffer]:
        """Steps 1 to 3: the selection, the model that was shown, if one was, what stays here, and ω_agg."""
        shown: Buffer | None = None
        rest: Arrays = self._newest_rest()
        selections = 0
        while True:
            selections, selection = selections + 1, None
            if shown is None:
                selection = self._select_by_hash(costs, ask_again_s)
            if selection is None:
                if shown is None and (shown := self._state.newest_model()) is None:
                    with costs.phase("join"):
                        shown, rest = self._first_model(info.genesis, epochs, rest)
                with costs.phase("select"):
                    selection = self._client.select(model=shown)
            try:
                with costs.phase("download"):
                    return selection, shown, rest, self._aggregate(selection, shown)
            except ModelUnknownError:
                # An average is only where it was made; where that server has gone, another one makes it.
                if selections == _MAX_SELECTIONS:
                    raise

    def _select_by_hash(self, costs: _Costs, ask_again_s: float) -> SelectionOut | None:
        """A selection for the own newest transaction, if a server can use that; see ``step``."""
        for again in range(_TIMES_ASKED_AGAIN if ask_again_s else 0, -1, -1):
            with costs.phase("select"):
                selection = select_by_hash(self._client, self._state)
            if selection is None or selection.source != "own" or not again or self._stop.is_set():
                break
            self._on_progress("waiting for models like its own")
            self._pause(ask_again_s / _TIMES_ASKED_AGAIN)
        return selection

    def _newest_rest(self) -> dict[str, NDArray[np.float32]]:
        """What stays here, as the newest model has it; a tensor that is new, or new in shape, as the trainer began."""
        kept = self._state.newest_rest()
        return {
            name: kept[name] if name in kept and kept[name].shape == array.shape else array
            for name, array in self._local.items()
        }

    def _first_model(self, genesis: Genesis, epochs: int, rest: Arrays) -> tuple[bytes, Arrays]:
        """What a joiner shows: the genesis model, trained for E′ epochs."""
        hints = genesis.training
        arrays = {**decode_model(genesis.layout, self._client.genesis_model()), **rest}
        result = self._train(arrays, self._initial(hints, epochs), hints)
        self._first_noise_std = result.noise_std
        return self._parted(genesis, result)

    def _initial(self, hints: Hints, epochs: int) -> int:
        """E′."""
        return self._initial_epochs or _number(hints.get("initial_epochs"), epochs)

    def _noise_in(self, start: Buffer, shown: Buffer | None) -> float:
        """The client's own noise in what training begins from: none in an average, which others share with it."""
        newest = self._state.enter(self._client.ledger_id()).trained
        if newest is not None:
            return newest.noise_std if newest.model == digest_of(start) else 0.0
        return self._first_noise_std if shown == start else 0.0

    # -- the user's own code ----------------------------------------------------------------------

    def _train(self, arrays: Arrays, epochs: int, hints: Hints) -> TrainingResult:
        with users_code("train()", lambda: self._progress), progress_watched(self._note_progress):
            result: object = self._trainer.train(arrays, epochs=epochs, hints=hints)
        if not isinstance(result, TrainingResult):
            raise TrainerFailedError(f"train() returned {type(result).__name__}, not a TrainingResult")
        if self._privacy is not None:
            self._privacy.charge(epochs, hints)  # before anything that the training made leaves this process
        return result

    def _evaluate(self, arrays: Arrays) -> dict[str, float]:
        with users_code("evaluate()", lambda: self._progress), progress_watched(self._note_progress):
            measured: object = self._trainer.evaluate(arrays)
        if not isinstance(measured, Mapping):
            raise TrainerFailedError(f"evaluate() returned {type(measured).__name__}, not numbers by name")
        return self._measurements.finite(measured, of="evaluate")

    def _judge(self, genesis: Genesis, own: Buffer, rest: Arrays, given: Mapping[str, float]) -> Comparison | None:
        """Compare what training would begin from, by its figures, with the own model; None where that cannot be."""
        if self._margin is None:
            return None
        digest = digest_of(own)
        if figure_of(given) is not None and (self._own_figures is None or self._own_figures[0] != digest):
            # Not what an earlier run has measured: test data may have changed since.
            self._own_figures = digest, self._evaluate({**decode_model(genesis.layout, own), **rest})
        judged = None if self._own_figures is None else compare(self._own_figures[1], given, margin=self._margin)
        if judged is None and not self._told_unjudged:
            self._told_unjudged = True
            logger.warning("evaluate() measures neither accuracy nor loss here: no average can be refused")
        return judged

    def _begin_phase(self, name: str) -> None:
        self._phase, self._progress = _DOING[name], ""
        self._on_progress(self._phase)

    def _note_progress(self, text: str) -> None:
        self._progress = text
        self._on_progress(f"{self._phase}: {text}")

    # -- models -----------------------------------------------------------------------------------

    @cached_property
    def _local(self) -> Arrays:
        """What stays here, as the trainer begins it."""
        with users_code("initial_arrays()"):
            travels = {tensor.name for tensor in self._trainer.layout().tensors}
            return {name: array for name, array in self._trainer.initial_arrays().items() if name not in travels}

    def _parted(self, genesis: Genesis, result: TrainingResult) -> tuple[bytes, Arrays]:
        """What was trained: the model that travels, encoded and in order, and what stays here."""
        rest = {name: array for name, array in result.arrays.items() if name in self._local}
        try:
            model = encode_model(
                genesis.layout, {name: array for name, array in result.arrays.items() if name not in rest}
            )
            check_model(genesis.layout, model, max_abs=genesis.bounds.max_abs_value)
            if missing := self._local.keys() - rest.keys():
                raise ModelLayoutError(f"tensor {min(missing)!r}, which stays with this client, is missing")
            for name, array in rest.items():
                if not np.isfinite(array).all():
                    raise ModelNotFiniteError(f"tensor {name!r}, which stays with this client, is not finite")
        except (ModelLayoutError, ModelNotFiniteError) as error:
            raise type(error)(f"what train() returned cannot be published: {error}") from error
        return model, rest

    def _aggregate(self, selection: SelectionOut, shown: Buffer | None) -> Buffer:
        """ω_agg; a model that is here already is not fetched."""
        digest = Digest(selection.aggregate.digest)
        if shown is not None and digest_of(shown) == digest:
            return shown
        if not self._client.holds(digest) and (own := self._state.newest_model(digest)) is not None:
            return own
        return self._client.download(digest)

    def _begin_from(
        self, info: GenesisInfo, selection: SelectionOut, shown: Buffer | None, aggregate: Buffer, rest: Arrays
    ) -> _Beginning:
        """Step 4: what training would begin from, measured; the own model where that does worse."""
        genesis, own = info.genesis, self._state.newest_model() or shown
        if LED_BACK_FROM in selection.extensions:
            logger.warning("the own newest model descends from what is quarantined: led back to a clean one")
            before = self._evaluate({**decode_model(genesis.layout, aggregate), **rest})
            return _Beginning(aggregate, before, before, judged=None)
        start = self._start(genesis, own, aggregate)
        before = self._evaluate({**decode_model(genesis.layout, start), **rest})
        judged = None if own is None or own == start else self._judge(genesis, own, rest, before)
        if judged is None or not judged.is_refused or own is None or self._own_figures is None:
            return _Beginning(start, before, before, judged)
        logger.info("refused an average: %s %.3f, own %.3f", judged.metric, judged.given, judged.own)
        newest = self._state.enter(info.ledger).transaction or info.ledger
        others = tuple(TxId(parent) for parent in selection.parents if parent != newest)
        return _Beginning(own, self._own_figures[1], before, judged, alone=(newest,), refused_updates=others)

    def _worth(
        self, info: GenesisInfo, selection: SelectionOut, shown: Buffer | None, rest: Arrays, beginning: _Beginning
    ) -> dict[TxId, float]:
        """What some of the others' models are worth to the average."""
        own, newest = self._state.newest_model() or shown, self._state.enter(info.ledger).transaction
        worth: dict[TxId, float] = {}
        others = [TxId(parent) for parent in selection.parents if parent != newest]
        for parent in to_measure(Digest(selection.id), others if len(selection.parents) > 1 else []):
            try:
                left = self._client.download(self._client.without(selection.id, parent))
            except DagAcflError as error:  # of the server, or of the way to it: the step goes on
                logger.info("cannot measure what %s… is worth: %s", parent[:16], error)
                break
            start = self._start(info.genesis, own, left)
            value = measured(beginning.given, self._evaluate({**decode_model(info.genesis.layout, start), **rest}))
            if value is not None and math.isfinite(value):
                worth[parent] = value
        return worth

    def _within_bound(
        self, info: GenesisInfo, selection: SelectionOut, beginning: _Beginning, aggregate: Buffer, trained: bytes
    ) -> tuple[bytes, float]:
        """What was trained, its step shortened to what the ledger allows; and how much of the step is left of 1."""
        layout, alone = info.genesis.layout, beginning.alone
        told = selection.max_step if alone is None else selection.max_step_alone
        if told is None or (told.norm is None and not told.by_tensor):
            return trained, 1.0
        if alone is not None or selection.source == "own":  # measured from the parent, whatever training began from
            parent, own = (alone or selection.parents)[0], self._state.newest_model()
            aggregate = self._client.genesis_model() if parent == info.ledger or own is None else own
        average, model = flat(layout, aggregate), flat(layout, trained)
        bound = StepBound(math.inf if told.norm is None else told.norm, tuple(told.by_tensor))
        kept = shortened(model, average, bound, layout=layout)
        if kept is model:
            return trained, 1.0
        share = step_from(average, kept, layout=layout).norm / step_from(average, model, layout=layout).norm
        logger.info("the step is longer than the ledger allows: kept %.0f %% of it", 100 * share)
        return encode_flat(layout, kept), share

    def _start(self, genesis: Genesis, own: Buffer | None, aggregate: Buffer) -> Buffer:
        """The model to train: ω_agg, or what ``merge`` makes of it and the own newest model."""
        if self._merge is None or own is None or own == aggregate:
            return aggregate
        layout = genesis.layout
        with users_code("merge()"):
            merged = self._merge(decode_model(layout, own), decode_model(layout, aggregate))
        return encode_model(layout, merged)


def _judged_metrics(judged: Comparison | None) -> dict[str, float]:
    """What a header says of a comparison: how the own model did, and a refused average beside it."""
    if judged is None:
        return {}
    own = {f"_own_{judged.metric}": judged.own}
    return own | {f"_refused_{judged.metric}": judged.given} if judged.is_refused else own


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


def _number(hint: object, default: int) -> int:
    """A hint as a number of epochs; genesis may say nonsense, and then it is no hint."""
    return hint if isinstance(hint, int) and not isinstance(hint, bool) and hint >= 1 else default
