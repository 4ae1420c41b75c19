"""Algorithm 1, its interruptions, and what a server that forgot can ask of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_client import LedgerClient, Participant, ParticipantState, ServerUnavailableError, StepReport
from fl_core.errors import (
    DagAcflError,
    ModelLayoutError,
    ModelNormError,
    ModelNotFiniteError,
    ParameterError,
    UnknownNameError,
)
from fl_core.merging import build_merge
from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import digest_of
from tests.builders import TinyLedger, key_from_seed, make_genesis, model
from tests.stand_in_server import Answer, StandIn, problem
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
    """The paper's accuracy is that of the selected model on the client's own test data."""
    with Site(server, tmp_path, TinyTrainer(target=1), evaluate_trained=False) as site:
        report = site.step()
    assert report.metrics_after == {}
    assert report.metrics_before["num_examples"] == 4
    digest = server.tiny.transactions[report.transaction].header.model_digest
    assert digest == digest_of(server.tiny.models[digest])


# -- a start of one's own -------------------------------------------------------------------------


def test_an_independent_start_trains_the_clients_own_initialisation(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1.1)
    with Site(server, tmp_path, trainer, start="independent") as site:
        report = site.step()
    # Biases start at 0, not at genesis's 1: 0 → 0.825 in two epochs, where the answer leaves it.
    np.testing.assert_allclose(trainer.trained_from, [0.0, 0.825], rtol=1e-6)
    assert report.joined
    assert not any(path.startswith("GET /v1/models") for path in server.paths())


def test_a_restart_before_the_first_publication_begins_with_the_same_model(server: StandIn, tmp_path: Path) -> None:
    seeds = []
    for folder in (tmp_path / "one", tmp_path / "one", tmp_path / "another"):
        trainer = TinyTrainer(target=1)
        with Site(server, folder, trainer, start="independent") as site:
            server.spoil("/v1/selections", answer=problem(400, "request-invalid"))
            with pytest.raises(DagAcflError):
                site.step()
        seeds += trainer.seeds
    assert seeds[0] == seeds[1] != seeds[2]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_gain_is_the_root_of_those_who_published_and_this_one(server: StandIn, tmp_path: Path) -> None:
    gains = []
    for number in range(4):
        trainer = TinyTrainer(target=1)
        with Site(server, tmp_path / str(number), trainer, start="independent") as site:
            site.step()
            site.step()
        gains += trainer.gains
    assert gains == pytest.approx([1, 2**0.5, 3**0.5, 2])


def test_a_participant_that_the_ledger_knows_is_counted_once(server: StandIn, tmp_path: Path) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1)) as site:
        site.step()
    for kept in (tmp_path / "models").iterdir():
        kept.unlink()
    server.spoil("/v1/selections", answer=problem(404, "transaction-unknown", transaction="0" * 64))
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer, start="independent") as site:
        site.step()
    assert trainer.gains == [1]


def test_the_founders_hint_of_participants_counts_where_it_is_more(tmp_path: Path) -> None:
    genesis = make_genesis()
    tiny = TinyLedger(genesis=replace(genesis, training={**genesis.training, "participants": 9}))
    trainer = TinyTrainer(target=1)
    with StandIn(tiny) as server, Site(server, tmp_path, trainer, start="independent") as site:
        site.step()
    assert trainer.gains == [3]


def test_gain_can_be_left_out(server: StandIn, tmp_path: Path) -> None:
    for number in range(2):
        trainer = TinyTrainer(target=1)
        with Site(server, tmp_path / str(number), trainer, start="independent", gain=False) as site:
            site.step()
        assert trainer.gains == [1]


def test_a_norm_that_policy_refuses_is_explained_to_one_that_started_independently(
    server: StandIn, tmp_path: Path
) -> None:
    with Site(server, tmp_path, TinyTrainer(target=1), start="independent") as site:
        site._client.genesis()
        server.spoil("/v1/transactions", answer=problem(422, "model-norm", norm=50.0, bound=10.0))
        with pytest.raises(ModelNormError, match=r"--no-gain.*max_norm_growth") as refused:
            site.step()
    assert (refused.value.norm, refused.value.bound) == (50.0, 10.0)


def test_a_trainer_without_an_initialisation_cannot_start_independently(server: StandIn, tmp_path: Path) -> None:
    class Plain(TinyTrainer):
        independent_arrays = None  # type: ignore[assignment]

    with pytest.raises(ParameterError, match="independent_arrays"):
        Site(server, tmp_path / "a", Plain(target=1), start="independent")
    with pytest.raises(ParameterError, match="genesis, independent"):
        Site(server, tmp_path / "b", TinyTrainer(target=1), start="random")


# -- merging --------------------------------------------------------------------------------------


def answer_with(server: StandIn, average: bytes, *, to: str | None) -> None:
    """Let the next selection, asked with transaction ``to`` or with a model, answer with this average."""
    digest = digest_of(average)
    server.tiny.models[digest] = average
    content = {
        "ledger": server.tiny.genesis_id,
        "reference": to,
        "reference_model": digest,
        "selector": "top-k",
        "rule": "top-k",
        "source": "parents",
        "cut": 1,
        "parents": [server.tiny.genesis_id],
        "candidates": [],
        "aggregate": {"digest": digest, "size": server.tiny.genesis.layout.nbytes, "href": ""},
    }
    identity = digest_of(json.dumps(content).encode())
    server.selections[identity] = json.dumps(content["parents"]).encode()
    body = json.dumps({"id": identity, **content}).encode()
    server.spoil("/v1/selections", answer=Answer(201, body, {"content-type": "application/json"}))


def test_decdiff_goes_on_from_the_own_model_moved_towards_the_average(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer, merge="decdiff") as site:
        first = site.step()  # genesis is all ones, and so is the target: the own model is (1, 1, 1, 1)
        answer_with(server, model(3, 3, 3, 3), to=first.transaction)
        report = site.step()
    # The difference (2, 2, 2, 2) is 4 long: each value moves by 2 / (4 + 1).
    assert trainer.trained_from[-1] == pytest.approx(1.4)
    assert report.metrics_before["loss"] == pytest.approx(0.4)
    assert report.parents == (server.tiny.genesis_id,)


def test_replacing_goes_on_from_the_average(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer) as site:
        first = site.step()
        answer_with(server, model(3, 3, 3, 3), to=first.transaction)
        site.step()
    assert trainer.trained_from[-1] == 3


def test_a_merge_with_parameters_is_taken_as_it_is(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    merge = build_merge("decdiff", {"s": 3.0, "distance": "tensor"})
    with Site(server, tmp_path, trainer, merge=merge) as site:
        first = site.step()
        answer_with(
            server, model(3, 9, 9, 9), to=first.transaction
        )  # the bias comes first, and is 2 away: 1 + 2 / (2 + 3)
        site.step()
    assert trainer.trained_from[-1] == pytest.approx(1.4)


def test_a_joiner_merges_into_what_it_asked_with(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    with Site(
        server, tmp_path, trainer, merge=build_merge("decdiff", {"distance": "tensor"}), start="independent"
    ) as site:
        answer_with(server, model(2.75, 0, 0, 0), to=None)
        site.step()
    # The bias that it asked with is 0.75, two epochs from 0; the average's is 2 away: 0.75 + 2 / (2 + 1).
    assert trainer.trained_from[-1] == pytest.approx(0.75 + 2 / 3)


def test_one_whose_own_model_is_lost_takes_the_average(server: StandIn, tmp_path: Path) -> None:
    trainer = TinyTrainer(target=1)
    with Site(server, tmp_path, trainer, merge="decdiff") as site:
        first = site.step()
        for kept in (tmp_path / "models").iterdir():
            kept.unlink()
        answer_with(server, model(3, 3, 3, 3), to=first.transaction)
        site.step()
    assert trainer.trained_from[-1] == 3


def test_a_merge_that_there_is_not_is_refused_with_those_there_are(server: StandIn, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="decdiff, replace"):
        Site(server, tmp_path, TinyTrainer(target=1), merge="mean")
