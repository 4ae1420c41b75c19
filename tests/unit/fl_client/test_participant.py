"""Algorithm 1, its interruptions, and what a server that forgot can ask of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_client import LedgerClient, Participant, ParticipantState, ServerUnavailableError, StepReport
from fl_client.participant import Merge
from fl_client.training import Arrays
from fl_core.errors import (
    ModelLayoutError,
    ModelNormError,
    ModelNotFiniteError,
    ParameterError,
)
from fl_core.models import ModelLayout, TensorSpec
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
def publish_and_die(header, model):
    publish(header, model)
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
    with Site(server, tmp_path, TinyTrainer(target=float("nan"))) as site, pytest.raises(ModelNotFiniteError):
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


def test_a_signal_while_publishing_lets_the_publication_finish(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        publish = site._client.publish_header

        def interrupted(*args: object) -> object:
            os.kill(os.getpid(), signal.SIGINT)
            return publish(*args)

        monkeypatch.setattr(site._client, "publish_header", interrupted)
        assert site.run() == 1
    assert len(published(server)) == 1
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        assert not site.step().resumed


def test_a_second_signal_ends_at_once_and_the_next_run_completes(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:

        def interrupted(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(site._client, "publish_header", interrupted)
        with pytest.raises(KeyboardInterrupt):
            site.run()
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        report = site.step()
    assert report.resumed
    assert published(server) == [report.transaction]


def test_a_server_that_is_away_is_waited_for(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        waited: list[float] = []

        def recovered(pause_s: float) -> bool:
            waited.append(pause_s)
            server.recover()
            return False

        monkeypatch.setattr(site._stop, "wait", recovered)
        site._client.genesis()
        server.spoil("/v1/selections", hang_up="before", times=100)
        assert site.run(steps=1) == 1
        assert waited == [1.0]
        server.spoil("/v1/selections", hang_up="before", times=100)
        with pytest.raises(ServerUnavailableError):
            site.run(steps=1, patience_s=0)


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
    with Site(server, tmp_path, trainer, merge=merge) as site:
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
