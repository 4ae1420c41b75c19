"""Algorithm 1, its interruptions, and what a server that forgot can ask of it."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from socket import socket
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fl_client import LedgerClient, Participant, ParticipantState, ServerUnavailableError, StateError, StepReport
from fl_client.beginning import Merge
from fl_client.early_stop import EarlyStop
from fl_client.training import Arrays, Hints, TrainerFailedError, TrainingResult, report_progress
from fl_core.errors import (
    DagAcflError,
    ModelLayoutError,
    ModelNormError,
    ModelNotFiniteError,
    ParameterError,
)
from fl_core.models import ModelLayout, TensorSpec, flat
from fl_core.trust.refusal import refused_in
from fl_core.types import digest_of
from tests.builders import TinyLedger, key_from_seed, model
from tests.stand_in_server import StandIn, problem
from tests.tiny_trainer import TinyTrainer

ROOT = Path(__file__).parents[3]
NOW_MS = 1_700_000_000_000


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


class Site:
    """A participant with its folder and client, opened together."""

    def __init__(self, server: StandIn, folder: Path, trainer: TinyTrainer, **options: object) -> None:
        self.state = ParticipantState(folder)
        self.client = LedgerClient(server.url, key=self.state.key, timeout=10)
        self.participant = Participant(
            self.client, trainer, self.state, now_ms=lambda: NOW_MS, **{"epochs": None, **options}
        )

    def __enter__(self) -> Participant:
        return self.participant

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.state.close()


def published(server: StandIn) -> list[str]:
    return [id_ for id_ in server.tiny.transactions if id_ != server.tiny.genesis_id]


def test_a_joiner_trains_the_genesis_model_and_asks_with_what_comes_out(tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1.1)
    tiny = TinyLedger(genesis_model=model(0.1, 0.1, 0.1, 0.1))
    with StandIn(tiny) as server, Site(server, tmp_path, trainer) as site:
        report = site.step()
    # Genesis (all weights 0.1) hints initial_epochs = 2 and epochs = 1: 0.1 → 0.6 → 0.85, then → 0.975.
    assert trainer.epochs == [2, 1]
    np.testing.assert_allclose(trainer.trained_from, [0.1, 0.85], rtol=1e-6)
    assert report.joined
    assert not report.resumed
    assert report.parents == (server.tiny.genesis_id,)
    assert (report.source, report.num_examples, report.sequence) == ("own", 10, 0)
    assert report.metrics_before["loss"] == pytest.approx(0.25)
    assert report.metrics_after["loss"] == pytest.approx(0.125)
    header = server.tiny.transactions[report.transaction].header
    assert header.metrics == pytest.approx({"accuracy": 0.8, "loss": 0.25, "train_loss": 0.125})
    assert header.created_at_ms == NOW_MS


def test_the_next_step_shows_the_hash_and_no_model(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1.1)) as site:
        first = site.step()
        before = len(server.asked)
        second = site.step()
    paths = server.paths()[before:]
    # The own model is at hand: two calls make the round.
    assert paths == ["POST /v1/selections", "POST /v1/transactions"]
    assert not second.joined
    assert second.parents == (first.transaction,)
    assert second.sequence == 1
    assert set(second.seconds) == {"select", "download", "evaluate", "train", "publish"}
    assert second.bytes_sent > len(model()) > 0
    assert second.bytes_received > 0


def test_epochs_given_here_override_the_ledgers_hints(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer, epochs=3, initial_epochs=5) as site:
        site.step()
    assert trainer.epochs == [5, 3]


def test_a_participant_goes_on_where_it_stopped(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        first = site.step()
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        second = site.step()
    assert (second.parents, second.sequence) == ((first.transaction,), 1)
    # Its own model, which it goes on with, lay in the folder: genesis's was the only one fetched.
    assert [path for path in server.paths() if path.startswith("GET /v1/models")] == [
        f"GET /v1/models/{server.tiny.genesis_transaction.header.model_digest}"
    ]


def test_a_participant_that_was_stopped_takes_no_step(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        site.stop()
        assert site.run() == 0


@pytest.mark.parametrize("hang_up", ["before", "after"])
def test_a_client_cut_off_while_publishing_publishes_exactly_once(
    server: StandIn, tmp_path: Path, hang_up: str
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        site._client.genesis()
        server.spoil("/v1/transactions", hang_up=hang_up, times=100)
        with pytest.raises(ServerUnavailableError):
            site.step()
    server.recover()
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        report = site.step()
        assert report.resumed
        assert report.created is (hang_up == "before")
        assert published(server) == [report.transaction]
        assert site.step().parents == (report.transaction,)


def test_a_process_killed_after_sending_publishes_exactly_once(server: StandIn, tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from fl_client import LedgerClient, Participant, ParticipantState
from tests.tiny_trainer import TinyTrainer
state = ParticipantState(Path(sys.argv[2]))
client = LedgerClient(sys.argv[1], key=state.key, timeout=10)
publish = client.publish_header
def publish_and_die(header, model, **how):
    publish(header, model, **how)
    os.kill(os.getpid(), 9)
client.publish_header = publish_and_die
Participant(client, TinyTrainer(target=1), state).step()
"""
    command = [sys.executable, "-c", script, server.url, str(tmp_path)]
    assert subprocess.run(command, timeout=60, check=False, cwd=ROOT).returncode == -9
    assert len(published(server)) == 1
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        report = site.step()
    assert report.resumed
    assert not report.created
    assert published(server) == [report.transaction]


def test_a_selection_that_the_server_forgot_is_asked_for_again_without_training_again(
    server: StandIn, tmp_path: Path
) -> None:
    trainer = TinyTrainer(target=1, during=server.selections.clear)
    with Site(server, tmp_path, trainer) as site:
        report = site.step()
    assert trainer.epochs == [2, 1]
    assert published(server) == [report.transaction]


def test_stale_parents_are_replaced_by_new_ones(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        first = site.step()
        server.spoil("/v1/transactions", answer=problem(409, "parents-stale"))
        second = site.step()
    assert second.parents == (first.transaction,)
    assert server.paths().count("POST /v1/selections") == 3


def test_a_sequence_number_that_is_taken_is_replaced_by_the_next(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        key, genesis = site._state.key, server.tiny.genesis_id
        with LedgerClient(server.url, key=key) as elsewhere:  # the same key, from a copy of the folder
            elsewhere.publish(model(5), parents=[genesis], num_examples=1, sequence=7)
        assert site.step().sequence == 8
        assert site.step().sequence == 9


def test_a_participant_whose_hash_nobody_knows_asks_with_its_model(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer) as site:
        site.step()
    with StandIn(TinyLedger()) as restarted:  # the same ledger, without what was published
        with Site(restarted, tmp_path, trainer) as site:
            report = site.step()
        assert report.joined
        assert report.sequence == 1
        assert report.parents == (restarted.tiny.genesis_id,)
    assert trainer.epochs == [2, 1, 1]  # no second initial training


def test_a_model_that_the_ledger_refuses_is_not_offered_again(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        site._client.genesis()
        server.spoil("/v1/transactions", answer=problem(422, "model-norm", norm=5.0, bound=1.0))
        with pytest.raises(ModelNormError) as refused:
            site.step()
        assert (refused.value.norm, refused.value.bound) == (5.0, 1.0)
        assert not site.step().resumed


def test_a_model_that_is_not_finite_is_not_even_sent(server: StandIn, tmp_path: Path) -> None:
    said = r"^what train\(\) returned cannot be published: tensor 'fc\.bias' holds nan"
    with (
        Site(server, tmp_path, TinyTrainer(target=float("nan"))) as site,
        pytest.raises(ModelNotFiniteError, match=said),
    ):
        site.step()
    assert not any(path.startswith("POST") for path in server.paths())


def test_another_model_than_the_ledgers_is_refused_before_training(server: StandIn, tmp_path: Path) -> None:
    layout = ModelLayout.of([TensorSpec("fc.weight", "F32", (1, 4)), TensorSpec("fc.bias", "F32", (1,))])
    trainer = TinyTrainer(target=1, layout=layout)
    with Site(server, tmp_path, trainer) as site, pytest.raises(ModelLayoutError, match=r"\[1, 4\] here"):
        site.step()
    assert trainer.epochs == []


def test_run_takes_its_steps_and_reports_each(server: StandIn, tmp_path: Path) -> None:
    reports: list[StepReport] = []
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        assert site.run(steps=3, on_step=reports.append) == 3
        assert not site.stopped
    assert [report.sequence for report in reports] == [0, 1, 2]


def test_a_signal_gives_up_a_training_and_leaves_a_clean_folder(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    trainings = iter([None, None, signal.SIGTERM])  # the joiner's two, then the second step's
    trainer.during = lambda: os.kill(os.getpid(), sig) if (sig := next(trainings)) else None
    before = signal.getsignal(signal.SIGTERM)
    with Site(server, tmp_path, trainer) as site:
        assert site.run(steps=5) == 1
        assert site.stopped
    assert signal.getsignal(signal.SIGTERM) is before
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        assert not site.step().resumed


def test_a_signal_gives_up_a_call_that_is_under_way(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        select = server._select

        def interrupting(*args: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)  # the client waits in recv meanwhile
            return select(*args)

        monkeypatch.setattr(server, "_select", interrupting)
        assert site.run() == 0
        assert site.stopped
    assert server.paths().count("POST /v1/selections") == 1


def interrupt_publication(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when the site begins to publish."""
    publish = site._client.publish_header

    def interrupted(*args: Any, **how: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return publish(*args, **how)

    monkeypatch.setattr(site._client, "publish_header", interrupted)


def test_a_signal_while_publishing_lets_the_publication_finish(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        interrupt_publication(site, monkeypatch)
        assert site.run() == 1
    assert len(published(server)) == 1
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        assert not site.step().resumed


def test_a_signal_while_no_server_takes_the_publication_leaves_it_to_the_next_run(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        interrupt_publication(site, monkeypatch)
        site._client.genesis()
        server.spoil("/v1/transactions", hang_up="before", times=100)
        assert site.run() == 0
        assert site.stopped
    assert pauses == []
    server.recover()
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        assert site.step().resumed


def test_the_client_is_as_patient_after_a_run_that_a_signal_ended_as_before(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        client = site._client
        interrupt_publication(site, monkeypatch)
        assert site.run() == 1
        assert pauses == []
        server.spoil("/v1/tips", hang_up="before", times=2)
        assert client.tips().items


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_signal_in_a_process_that_the_trainer_forked_is_a_keyboard_interrupt(server: StandIn, tmp_path: Path) -> None:
    ended: list[int] = []

    def worker() -> None:
        if (child := os.fork()) == 0:
            code = 1
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                code = 0
            finally:
                os._exit(code)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with Site(server, tmp_path, TinyTrainer(target=1, during=worker)) as site:
        assert site.run(steps=1) == 1
    assert set(ended) == {0}


def test_a_second_signal_ends_at_once_and_the_next_run_completes(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:

        def interrupted(*_: object, **__: object) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(site._client, "publish_header", interrupted)
        with pytest.raises(KeyboardInterrupt):
            site.run()
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        report = site.step()
    assert report.resumed
    assert published(server) == [report.transaction]


# -- patience and pace ----------------------------------------------------------------------------


def test_a_server_that_is_away_is_waited_for(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        waited: list[float] = []

        def recovered(pause_s: float) -> None:
            waited.append(pause_s)
            server.recover()

        monkeypatch.setattr(site, "_pause", recovered)
        site._client.genesis()
        server.spoil("/v1/selections", hang_up="before", times=100)
        assert site.run(steps=1) == 1
        assert waited == [1.0]
        server.spoil("/v1/selections", hang_up="before", times=100)
        with pytest.raises(ServerUnavailableError):
            site.run(steps=1, patience_s=0)


@pytest.mark.parametrize("patience_s", [0, 1, 25])
def test_patience_is_kept_whether_it_is_shorter_or_longer_than_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], patience_s: float
) -> None:
    with StandIn() as gone:
        pass
    with (
        socket() as held,  # nobody answers at its port, nor does another test's server come there
        Site(gone, tmp_path, TinyTrainer(target=1)) as site,  # a call takes 10 s at most
    ):
        held.bind(("127.0.0.1", int(gone.url.rpartition(":")[2])))
        monkeypatch.setattr(site, "_pause", pauses.append)
        with pytest.raises(ServerUnavailableError):
            site.run(patience_s=patience_s)
    # A pause that would end later is not begun: the longest are 5 s.
    assert max(0, patience_s - 6) <= sum(pauses) <= patience_s


def test_steps_begin_no_more_often_than_asked(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    doing: list[str] = []
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        monkeypatch.setattr(site, "_pause", waited.append)
        assert site.run(steps=3, every_s=3600, on_progress=doing.append) == 3
    # Two pauses between three steps; a step takes no minute, and its asking again 5 s at most.
    assert [3540 < pause_s <= 3600 for pause_s in waited if pause_s > 5] == [True, True]
    assert [text for text in doing if text.startswith("waiting for 3")] == ["waiting for 3600 s"] * 2


def test_one_who_finds_nobody_asks_again_for_as_long_as_its_step_took(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def somebody_is_there_at_the_third_pause(pause_s: float) -> None:
        waited.append(pause_s)
        if len(waited) == 3:
            server.average = model(3, 3, 3, 3)

    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        monkeypatch.setattr(site, "_pause", somebody_is_there_at_the_third_pause)
        assert [site.step(ask_again_s=8.0).source for _ in range(2)] == ["own", "parents"]
        assert waited == [2.0, 2.0, 2.0], "a joiner does not wait; then it would ask four times again, for 8 s"
        server.average = None
        assert site.step().source == "own"
        assert len(waited) == 3, "a single step never waits"


def test_a_run_asks_again_for_as_long_as_its_step_before_took(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        report = site.step()
        seconds = iter([{"train": 2.5, "publish": 0.5}, {"train": 3600.0}, {"train": 1.0}] * 2)

        def step(*, ask_again_s: float) -> StepReport:
            asked.append(ask_again_s)
            return replace(report, seconds=next(seconds))

        monkeypatch.setattr(site, "step", step)
        site.run(steps=3)
        assert asked == [0.0, 3.0, 5.0], "5 s at most"
        monkeypatch.setattr(site, "_await_turn", lambda *_: None)
        site.run(steps=3, wait_for_news=True)
        assert asked[3:] == [0.0, 0.0, 0.0], "who waits for news has waited"


def test_a_pause_ends_when_it_is_stopped(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        assert site.run(every_s=1e6, on_progress=lambda text: site.stop() if "waiting" in text else None) == 1


def test_one_who_waits_for_news_publishes_when_somebody_else_has(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    def somebody_publishes_at_the_third_look(pause_s: float) -> None:
        nonlocal looks
        looks += pause_s > 0
        if looks == 3:
            with LedgerClient(server.url, key=key_from_seed(3)) as other:
                other.publish(model(5), parents=[server.tiny.genesis_id], num_examples=1)

    with Site(server, tmp_path, TinyTrainer(target=1)) as site, caplog.at_level("INFO", "fl_client"):
        monkeypatch.setattr(site, "_pause", somebody_publishes_at_the_third_look)
        assert site.run(steps=2, wait_for_news=True) == 2
    assert looks == 3
    authors = [server.tiny.transactions[id_].header.author for id_ in published(server)]  # type: ignore[index]
    assert [author == site._client.author for author in authors] == [True, False, True]
    assert caplog.messages.count("nobody else has published anything new: waiting for that") == 1


def test_what_others_publish_during_a_step_is_news(server: StandIn, tmp_path: Path) -> None:
    def another() -> None:
        with LedgerClient(server.url, key=key_from_seed(3)) as other:
            other.publish(model(5), parents=[server.tiny.genesis_id], num_examples=1, created_at_ms=len(server.asked))

    with Site(server, tmp_path, TinyTrainer(target=1, during=another)) as site:
        assert site.run(steps=2, wait_for_news=True) == 2


@pytest.mark.parametrize(("early_stop", "taken"), [(1, 2), (3, 4), (None, 6)])
def test_a_client_that_gets_no_better_ends_early(
    server: StandIn, tmp_path: Path, early_stop: int | None, taken: int
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:  # genesis is at the target already
        assert site.run(steps=6, early_stop=early_stop) == taken


def test_an_early_stop_takes_the_loss_where_there_is_no_accuracy_and_refuses_other_figures() -> None:
    stop = EarlyStop(2)
    assert [stop.is_enough({"loss": loss}) for loss in (0.5, 0.4, 0.4, 0.6)] == [False, False, False, True]
    stop = EarlyStop(1)  # at equal accuracy the loss decides
    assert [stop.is_enough({"accuracy": 0.9, "loss": loss}) for loss in (0.3, 0.2, 0.2)] == [False, False, True]
    with pytest.raises(ParameterError, match="evaluate\\(\\) gives mae"):
        stop.is_enough({"mae": 1.0})
    with pytest.raises(ParameterError, match="gives nothing"):
        stop.is_enough({})
    with pytest.raises(ParameterError, match="at least 1, not 0"):
        EarlyStop(0)


# -- the user's own code --------------------------------------------------------------------------


def test_an_error_in_the_users_code_is_told_with_its_place_and_what_was_done(server: StandIn, tmp_path: Path) -> None:
    def fail() -> None:
        report_progress("epoch 1 of 2, batch 3")
        raise ValueError("no such\nlabel")

    with Site(server, tmp_path, TinyTrainer(target=1, during=fail)) as site, pytest.raises(TrainerFailedError) as said:
        site.step()
    line = fail.__code__.co_firstlineno + 2
    assert str(said.value).replace(f"{ROOT}/", "") == (
        "train() failed (epoch 1 of 2, batch 3): tests/unit/fl_client/test_participant.py, "
        f"line {line}: ValueError: no such label"
    )
    assert isinstance(said.value.__cause__, ValueError)


def test_a_device_without_memory_is_told_with_the_remedy(server: StandIn, tmp_path: Path) -> None:
    class OutOfMemoryError(RuntimeError):
        """As torch's."""

    def fail() -> None:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total of …")

    with (
        Site(server, tmp_path, TinyTrainer(target=1, during=fail)) as site,
        pytest.raises(TrainerFailedError, match=r"CUDA out of memory; try a smaller batch size, or another device$"),
    ):
        site.step()


@pytest.mark.parametrize(
    ("method", "returned", "said"),
    [
        ("train", {"fc.bias": 1}, "train() returned dict, not a TrainingResult"),
        ("evaluate", 0.5, "evaluate() returned float, not numbers by name"),
        ("train", TrainingResult({}, 1), "what train() returned cannot be published: "),
    ],
)
def test_a_result_that_is_none_is_told_as_the_users(
    server: StandIn, tmp_path: Path, method: str, returned: object, said: str
) -> None:
    trainer = TinyTrainer(target=1)
    setattr(trainer, method, lambda *_, **__: returned)
    with Site(server, tmp_path, trainer) as site, pytest.raises(DagAcflError) as refused:
        site.step()
    assert str(refused.value).startswith(said)


def test_what_is_being_done_can_be_watched(server: StandIn, tmp_path: Path) -> None:
    doing: list[str] = []
    trainer = TinyTrainer(target=1, during=lambda: report_progress("epoch 1 of 1"))
    with Site(server, tmp_path, trainer) as site:
        site.run(steps=1, on_progress=doing.append)
    assert doing == [
        "asking for models like its own",
        "first training",
        "first training: epoch 1 of 1",
        "asking for models like its own",
        "fetching their average",
        "measuring on the test data",
        "training",
        "training: epoch 1 of 1",
        "measuring on the test data",
        "publishing",
    ]


# -- mistakes -------------------------------------------------------------------------------------


def test_a_full_disk_is_seen_before_the_training(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer) as site:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        with pytest.raises(StateError, match=r"1,000 bytes free, a step takes \d+; free some space"):
            site.step()
    assert trainer.epochs == []


def test_a_wrong_server_binds_nothing(server: StandIn, tmp_path: Path) -> None:
    layout = ModelLayout.of([TensorSpec("fc.weight", "F32", (1, 4)), TensorSpec("fc.bias", "F32", (1,))])
    with Site(server, tmp_path, TinyTrainer(target=1, layout=layout)) as site, pytest.raises(ModelLayoutError):
        site.step()
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:  # its layout is right, but it refuses
        author = site._client.author
        server.spoil("/v1/transactions", answer=problem(422, "model-norm", norm=5.0, bound=1.0))
        with pytest.raises(ModelNormError):
            site.step()
    with StandIn(TinyLedger(genesis_model=model(2))) as right, Site(right, tmp_path, TinyTrainer(target=1)) as site:
        assert site._client.author == author
        assert site.step().sequence == 0


def test_client_and_folder_must_have_one_key(server: StandIn, tmp_path: Path) -> None:
    with (
        ParticipantState(tmp_path) as state,
        LedgerClient(server.url, key=key_from_seed(3)) as client,
        pytest.raises(ParameterError, match="state's key"),
    ):
        Participant(client, TinyTrainer(target=1), state)


def test_an_aggregate_is_measured_before_it_is_trained(server: StandIn, tmp_path: Path) -> None:
    """[DAG-ACFL]'s accuracy is that of the selected model on the client's own test data."""
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        report = site.step()
    assert report.metrics_before["num_examples"] == 4
    digest = server.tiny.transactions[report.transaction].header.model_digest
    assert digest == digest_of(server.tiny.models[digest])


# -- merging --------------------------------------------------------------------------------------


def halfway(own: Arrays, average: Arrays) -> Arrays:
    return {name: (own[name] + average[name]) / 2 for name in own}


@pytest.mark.parametrize(("merge", "start"), [(None, 3.0), (halfway, 2.0)])
def test_training_starts_from_what_is_merged(
    server: StandIn, tmp_path: Path, merge: Merge | None, start: float
) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer, merge=merge, refuse_worse_than=None) as site:
        site.step()  # genesis is all ones, and so is the target: the own model is (1, 1, 1, 1)
        server.average = model(3, 3, 3, 3)
        report = site.step()
    assert trainer.trained_from[-1] == start
    assert report.metrics_before["loss"] == start - 1
    assert report.parents == (server.tiny.genesis_id,)


def test_a_joiner_merges_into_what_it_asked_with(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=5)
    with Site(server, tmp_path, trainer, merge=halfway) as site:
        server.average = model(6, 6, 6, 6)
        site.step()
    # It asks with 4, two epochs from 1 towards 5; halfway to 6 is 5.
    assert trainer.trained_from == [1, 5]


@pytest.mark.parametrize("average", [None, model(3, 3, 3, 3)])
def test_a_step_beyond_what_the_ledger_allows_is_shortened_before_it_is_published(
    server: StandIn, tmp_path: Path, average: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Site(server, tmp_path, TinyTrainer(target=9)) as site:
        first = site.step()  # upon genesis, all ones
        server.average, server.max_step = average, 0.5
        report = site.step()
        published = [
            server.tiny.models[server.tiny.transactions[each.transaction].header.model_digest]
            for each in (first, report)
        ]
        kept = site._state.newest_model()
    own, after = (flat(server.tiny.genesis.layout, each) for each in published)
    begun = own if average is None else flat(server.tiny.genesis.layout, average)
    assert (first.step_kept, kept) == (1.0, published[1])
    assert 0.49 < np.linalg.norm(after - begun) <= 0.5
    assert (after > begun).all()
    assert 0 < report.step_kept < 1
    assert report.figures()["step/kept"] == report.step_kept
    assert "the step is longer than the ledger allows" in caplog.text


def test_an_average_that_does_worse_than_the_own_model_is_refused(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer) as site:
        first = site.step()  # genesis is all ones: on target
        server.average = model(9, 9, 9, 9)  # an accuracy of 1 in 9, on 4 samples
        report = site.step()
    assert trainer.trained_from[-1] == 1.0
    assert report.refused is not None
    assert (report.refused.own, report.refused.given) == (1.0, pytest.approx(1 / 9))
    header = server.tiny.transactions[report.transaction].header
    assert header.parents == (first.transaction,)
    assert header.start == server.tiny.transactions[first.transaction].header.model_digest
    assert (header.metrics["accuracy"], header.metrics["_own_accuracy"]) == (1.0, 1.0)
    assert header.metrics["_refused_accuracy"] == pytest.approx(1 / 9)
    assert refused_in(header) == (server.tiny.genesis_id,)
    assert report.figures()["selection/refused"] == 1.0


def test_a_joiner_refuses_beside_the_model_that_it_trained_first(server: StandIn, tmp_path: Path) -> None:
    server.average = model(9, 9, 9, 9)
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        report = site.step()
    assert report.refused is not None
    assert report.parents == (server.tiny.genesis_id,)


@pytest.mark.parametrize("refuse", [0.05, None])
def test_an_average_that_chance_explains_is_taken_and_so_is_any_where_nothing_is_refused(
    server: StandIn, tmp_path: Path, refuse: float | None
) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer, refuse_worse_than=refuse) as site:
        site.step()
        server.average = model(2, 2, 2, 2) if refuse else model(9, 9, 9, 9)
        report = site.step()
    assert report.refused is None
    assert trainer.trained_from[-1] == (2.0 if refuse else 9.0)
    header = server.tiny.transactions[report.transaction].header
    assert header.metrics.get("_own_accuracy") == (1.0 if refuse else None)


def test_a_client_without_test_data_says_once_that_it_refuses_nothing(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TinyTrainer, "evaluate", lambda _self, _arrays: {})
    server.average = model(9, 9, 9, 9)
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        assert [site.step().refused for _ in range(2)] == [None, None]
    assert caplog.text.count("no average can be refused") == 1


def test_a_refused_average_is_no_parent_where_the_own_newest_is_unknown_to_the_server(
    server: StandIn, tmp_path: Path
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        site.step()
        server.average = model(9, 9, 9, 9)
        server.spoil("/v1/transactions", answer=problem(409, "parents-unknown", missing=[]))
        report = site.step()
    assert report.parents == (server.tiny.genesis_id,)


def test_one_whose_own_model_is_lost_takes_the_average(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer, merge=halfway) as site:
        site.step()
        for kept in (tmp_path / "models").iterdir():
            kept.unlink()
        server.average = model(3, 3, 3, 3)
        site.step()
    assert trainer.trained_from[-1] == 3


def test_a_merge_of_other_tensors_is_refused(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1), merge=lambda own, _: {"fc.bias": own["fc.bias"]}) as site:
        site.step()
        server.average = model(3, 3, 3, 3)
        with pytest.raises(ModelLayoutError, match=r"fc\.weight"):
            site.step()


# -- what stays here ------------------------------------------------------------------------------


class WithHead(TinyTrainer):
    """A head of one number stays here: every epoch adds 1 to it."""

    def __init__(self, target: float = 1, *, size: int = 1) -> None:
        super().__init__(target)
        self.size = size
        self.heads: list[float] = []

    def initial_arrays(self) -> dict[str, NDArray[np.float32]]:
        return {**super().initial_arrays(), "head": np.zeros(self.size, np.float32)}

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        self.heads.append(float(arrays["head"][0]))
        shared = {name: array for name, array in arrays.items() if name != "head"}
        result = super().train(shared, epochs=epochs, hints=hints)
        result.arrays["head"] = arrays["head"] + np.float32(epochs)
        return result


def test_what_stays_goes_on_from_step_to_step_and_after_a_restart(server: StandIn, tmp_path: Path) -> None:
    first, second = WithHead(), WithHead()
    with Site(server, tmp_path, first) as site:
        site.step()
        report = site.step()
    with Site(server, tmp_path, second) as site:
        site.step()
        best = site.best()
    # Two epochs for joining, then one for each step; the first of them goes on from what joining made of it.
    assert (first.heads, second.heads) == ([0, 2, 3], [4])
    digest = server.tiny.transactions[report.transaction].header.model_digest
    assert server.tiny.models[digest] == model(1, 1, 1, 1), "nothing of it travels"
    assert best is not None
    assert set(best.arrays) == {"fc.bias", "fc.weight", "head"}


def test_what_stays_is_that_of_the_model_that_was_published(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, WithHead()) as site:
        site.step()
        server.spoil("/v1/transactions", answer=problem(422, "model-norm", norm=5.0, bound=1.0))
        with pytest.raises(ModelNormError):
            site.step()
    after_a_refusal = WithHead()
    with Site(server, tmp_path, after_a_refusal) as site:
        site._client.genesis()
        server.spoil("/v1/transactions", hang_up="before", times=100)
        with pytest.raises(ServerUnavailableError):
            site.step()
    server.recover()
    after_a_kill = WithHead()
    with Site(server, tmp_path, after_a_kill) as site:
        assert site.step().resumed
        site.step()
    assert (after_a_refusal.heads, after_a_kill.heads) == ([3], [4])


def test_a_part_of_another_shape_than_before_begins_as_the_trainer_makes_it(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, WithHead()) as site:
        site.step()
    larger = WithHead(size=2)
    with Site(server, tmp_path, larger) as site:
        site.step()
    assert larger.heads == [0]


@pytest.mark.parametrize(("head", "error"), [(None, ModelLayoutError), (float("nan"), ModelNotFiniteError)])
def test_a_part_that_is_lost_or_not_finite_is_named_and_nothing_published(
    server: StandIn, tmp_path: Path, head: float | None, error: type[Exception]
) -> None:
    class Broken(WithHead):
        def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
            result = super().train(arrays, epochs=epochs, hints=hints)
            del result.arrays["head"]
            if head is not None:
                result.arrays["head"] = np.array([head], np.float32)
            return result

    with Site(server, tmp_path, Broken()) as site, pytest.raises(error, match="'head'"):
        site.step()
    assert published(server) == []


# -- the best -------------------------------------------------------------------------------------


def test_the_best_is_the_average_where_training_made_it_worse(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer) as site:
        assert site.best() is None
        site.step()
        server.average = model(3, 3, 3, 3)
        site.step()
        best = site.best()
        assert best is not None
        assert best.metrics["accuracy"] == 1, "the own first model is at the target, no later one is nearer"
        trainer.target = 3
        site.step()
        site.step()
        best = site.best()
    assert best is not None
    assert best.arrays["fc.bias"].tolist() == [3]
