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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final, TypeVar

from fl_client.beginning import Beginning, Beginnings, Given, Merge
from fl_client.client import LedgerClient
from fl_client.early_stop import EarlyStop
from fl_client.errors import ServerUnavailableError
from fl_client.local_training import LocalTraining
from fl_client.privacy import DEFAULT_DELTA, privacy_ledger
from fl_client.publishing import Outcome, Publisher, select_by_hash
from fl_client.reader import GenesisInfo
from fl_client.state import KeptModel, Measured, ParticipantState, read_whole_model
from fl_client.step_report import StepReport
from fl_client.tracing import span
from fl_client.training.errors import PrivacyBudgetError
from fl_client.training.protocol import Arrays, Hints, Trainer
from fl_core.dag.figures import step_from
from fl_core.dag.genesis import DEFAULT_EPOCHS
from fl_core.dag.steps import NO_STEP_BOUND, StepBound, shortened
from fl_core.dag.transaction import transaction_id
from fl_core.errors import ModelUnknownError, ParameterError
from fl_core.models import Buffer, decode_model, encode_flat, flat
from fl_core.step_coding import round_step
from fl_core.trust.contribution import metrics_of
from fl_core.trust.refusal import DEFAULT_MARGIN, Comparison, named_as_refused, refused_extension
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire.v1 import SelectionOut

DEFAULT_PATIENCE_S: Final = 600.0
DEFAULT_CONTRIBUTION_EVERY: Final = 10
CODINGS: Final = ("whole", "exact", "rounded")
_MAX_SELECTIONS: Final = 5
_LONGEST_PAUSE_S: Final = 30.0
_NEWS_EVERY_S: Final = 5.0
_LONGEST_ASKING_S: Final = 5.0
_TIMES_ASKED_AGAIN: Final = 4
_SLICE_S: Final = 1.0
"""Of a pause: Windows does not interrupt one for Ctrl-C."""

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")


class _StopRequested(BaseException):
    """Raised by a signal where nothing durable is under way."""


class _Costs:
    """What one step takes: wall time by phase, and bytes."""

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
        epochs: E; None takes genesis's hint ``epochs``, else 3.
        initial_epochs: E′; None takes genesis's hint ``initial_epochs``, else E.
        merge: Makes the model to train of the own newest one and ω_agg; None trains ω_agg. A client that has no model
            of its own any more takes ω_agg. What is approved, and the evidence for it, is the same either way.
        refuse_worse_than: Least loss of accuracy on the own test data, from the own model to what training would begin
            from, for which that is refused (``fl_core.trust.refusal`` says what else it takes); None: never.
        contribution_every: At each so-manieth publication, and after each refusal, measure what up to four of the
            averaged models contribute (``fl_core.trust.contribution``); 0: never.
        coding: How models are sent, of ``CODINGS``: whole; what they differ by from the model that training began from
            (exact); or that, rounded before it is published (rounded: ``fl_core.step_coding.round_step``). None takes
            genesis's hint ``coding``, else whole.
        epsilon_budget: The largest ε that this folder's trainings may spend in all, where they are private; None: any.
        delta: δ of that ε.
        now_ms: Milliseconds since 1970 UTC.

    Attributes:
        ended_by: Why the last ``run`` ended by itself, in a line; empty where it was told how far to go, or stopped.

    Raises:
        ParameterError: ``epochs`` or ``initial_epochs`` below 1, or no such coding; or the client has another key than
            ``state``; or the folder's trainings were private and this trainer's are not, or the other way round.
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
        contribution_every: int = DEFAULT_CONTRIBUTION_EVERY,
        coding: str | None = None,
        epsilon_budget: float | None = None,
        delta: float = DEFAULT_DELTA,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        for name, value in (("epochs", epochs), ("initial_epochs", initial_epochs)):
            if value is not None and value < 1:
                raise ParameterError(f"{name} must be at least 1, not {value}")
        if client.author != state.author:
            raise ParameterError("make the client with the state's key: LedgerClient(…, key=state.key)")
        if coding not in (None, *CODINGS):
            raise ParameterError(f"coding must be one of {', '.join(CODINGS)}, not {coding!r}")
        if contribution_every < 0:
            raise ParameterError(f"contribution_every must be at least 0, not {contribution_every}")
        self._client, self._state = client, state
        published = 0 if state.position is None else state.position.sequence
        self._privacy = privacy_ledger(trainer, state.folder, published=published, delta=delta, budget=epsilon_budget)
        self._local = LocalTraining(trainer, self._privacy)
        self._beginnings = Beginnings(client, self._local, state, merge=merge, refuse_worse_than=refuse_worse_than)
        self._publisher = Publisher(client, state)
        self._epochs, self._initial_epochs = epochs, initial_epochs
        self._contribution_every, self._coding = contribution_every, coding
        self._now_ms = now_ms
        self.ended_by = ""
        self._stop = threading.Event()
        self._durable = False
        self._pid = os.getpid()

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
        self._local.on_progress, self.ended_by = on_progress, ""
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
            self._local.on_progress(f"waiting for {left_s:.0f} s")
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
            self._local.on_progress("waiting until somebody else publishes")
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
        costs = _Costs(self._client, self._local.begin_phase)
        info = self._client.genesis()
        genesis, hints = info.genesis, info.genesis.training
        self._state.enter(info.ledger)
        self._local.check_layout(genesis)
        if (pending := self._state.pending()) is not None:
            with self._to_its_end(), costs.phase("publish"):
                outcome = self._publisher.resume(*pending)
            return _report(outcome, costs, resumed=True, metrics_before=outcome.header.metrics)

        local_bytes = sum(array.nbytes for array in self._local.local.values())
        self._state.check_room(2 * (info.model_size + local_bytes))
        epochs = self._epochs or _number(hints.get("epochs"), DEFAULT_EPOCHS)
        if self._privacy is not None:
            first = [] if self._state.newest_model() else [(self._initial(hints, epochs), hints)]
            self._privacy.check(*first, (epochs, hints))
        given = self._select_and_fetch(info, costs, epochs, ask_again_s)  # 1 to 3
        selection = given.selection
        with costs.phase("evaluate"):  # 4
            beginning = self._beginnings.of(info, given)
        every, contributions = self._contribution_every, dict[TxId, float]()
        is_turn = every and (self._state.enter(info.ledger).sequence + 1) % every == 0
        if selection.source != "own" and (is_turn or (every and beginning.alone)):
            with costs.phase("measure"):  # after every refusal, too: that is when it matters who was in the average
                contributions = self._beginnings.contributions(info, given, beginning)
        self._client.close()  # an idle connection may die unnoticed while a long training runs
        with costs.phase("train"):  # 5
            start = {**decode_model(genesis.layout, beginning.model), **given.rest}
            result = self._local.train(start, epochs, hints)
        trained, rest = self._local.parted(genesis, result)
        coding = self._coding or hints.get("coding")
        self._publisher.coded = coding in ("exact", "rounded")
        model, step_kept = self._within_bound(info, given, beginning, trained, rounded=coding == "rounded")
        with costs.phase("evaluate"):
            after = self._local.evaluate(genesis, model, rest)
        own_noise_std = given.noise_std if beginning.model == given.own else 0.0  # an average is shared with others
        noise_std = math.hypot(step_kept * result.noise_std, own_noise_std)
        train_metrics = self._local.measurements.finite(result.metrics, of="train")
        averaged = named_as_refused(beginning.refused_updates) or sorted(map(TxId, selection.parents))
        header = self._client.header_for(
            model,
            selection=selection if beginning.alone is None or beginning.refused_updates else None,
            parents=beginning.alone,
            num_examples=result.num_examples,
            start=digest_of(beginning.model),
            metrics=self._local.measurements.published(
                beginning.metrics,
                train_metrics,
                systems=_judged_metrics(beginning.judged)
                | metrics_of(averaged, contributions)
                | ({} if self._privacy is None else self._privacy.metrics),
            ),
            noise_std=min(noise_std, genesis.bounds.max_noise_std),
            extensions=refused_extension(beginning.refused_updates),
            sequence=self._state.enter(info.ledger).sequence,
            created_at_ms=self._now_ms(),
        )
        with self._to_its_end(), costs.phase("publish"):  # 6 and 7
            self._state.keep(
                given=Measured(beginning.model, given.rest, beginning.metrics),
                trained=Measured(model, rest, after, noise_std),
            )
            outcome = self._publisher.publish(header, model)
        self._beginnings.note_own(header.model_digest, after)
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
            metrics_before=beginning.metrics,
            metrics_after=after,
            train_metrics=train_metrics,
        )

    def _select_and_fetch(self, info: GenesisInfo, costs: "_Costs", epochs: int, ask_again_s: float) -> Given:
        """Steps 1 to 3: by the hash of the newest update, or where no server can use that, by a model."""
        newest = self._state.enter(info.ledger).trained
        own: Buffer | None = self._state.newest_model()
        noise_std = 0.0 if newest is None else newest.noise_std
        rest: Arrays = self._local.local_as_in(self._state.newest_rest())
        by_hash, selections = True, 0
        while True:
            selections += 1
            selection = self._select_by_hash(costs, ask_again_s) if by_hash else None
            if selection is None:
                by_hash = False
                if own is None:
                    with costs.phase("join"):
                        own, rest, noise_std = self._first_model(info, epochs, rest)
                with costs.phase("select"):
                    selection = self._client.select(model=own)
            try:
                with costs.phase("download"):
                    return Given(selection, self._aggregate(selection, own), own, noise_std, rest)
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
            self._local.on_progress("waiting for models like its own")
            self._pause(ask_again_s / _TIMES_ASKED_AGAIN)
        return selection

    def _first_model(self, info: GenesisInfo, epochs: int, rest: Arrays) -> tuple[bytes, Arrays, float]:
        """What a joiner shows: the genesis model, trained for E′ epochs; what stays here, and the noise in it."""
        genesis, hints = info.genesis, info.genesis.training
        arrays = {**decode_model(genesis.layout, self._client.genesis_model()), **rest}
        result = self._local.train(arrays, self._initial(hints, epochs), hints)
        return (*self._local.parted(genesis, result), result.noise_std)

    def _initial(self, hints: Hints, epochs: int) -> int:
        """E′."""
        return self._initial_epochs or _number(hints.get("initial_epochs"), epochs)

    def _aggregate(self, selection: SelectionOut, own: Buffer | None) -> Buffer:
        """ω_agg; the own model is not fetched."""
        digest = Digest(selection.aggregate.digest)
        return own if own is not None and digest_of(own) == digest else self._client.download(digest)

    def _within_bound(
        self, info: GenesisInfo, given: Given, beginning: Beginning, trained: bytes, *, rounded: bool
    ) -> tuple[bytes, float]:
        """What was trained, its step shortened to what the ledger allows; and how much of the step is left of 1.

        Rounded besides, where that is asked for and leaves the step as short as it must be.
        """
        layout, selection, origin = info.genesis.layout, given.selection, given.aggregate
        told = selection.max_step if beginning.alone is None else selection.max_step_alone
        is_bound = told is not None and (told.norm is not None or told.by_tensor)
        if not (is_bound or rounded):
            return trained, 1.0
        if beginning.alone is not None or selection.source == "own":  # measured from the parent
            parent = (beginning.alone or selection.parents)[0]
            origin = self._client.genesis_model() if parent == info.ledger else beginning.model
        average, model = flat(layout, origin), flat(layout, trained)
        bound = NO_STEP_BOUND
        if told is not None:
            bound = StepBound(math.inf if told.norm is None else told.norm, tuple(told.by_tensor))
        kept, share = shortened(model, average, bound, layout=layout), 1.0
        if kept is not model:
            share = step_from(average, kept, layout=layout).norm / step_from(average, model, layout=layout).norm
            logger.info("the step is longer than the ledger allows: kept %.0f %% of it", 100 * share)
        if rounded:
            coarse = round_step(layout, kept, average)
            kept = coarse if shortened(coarse, average, bound, layout=layout) is coarse else kept
        return trained if kept is model else encode_flat(layout, kept), share


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
