"""What a client's trainings spend: kept for life, written down before anything leaves, and bounded by a budget."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fl_client import LedgerClient, Participant, ParticipantState
from fl_client.errors import StateCorruptError
from fl_client.privacy import PRIVACY_FILE, DifferentialPrivacy, PrivacyLedger, Spending, read_account
from fl_client.training import Arrays, Hints, TrainingResult
from fl_client.training.errors import PrivacyBudgetError
from fl_core.errors import ModelNormError, ParameterError
from tests.builders import TinyLedger, make_genesis, model
from tests.stand_in_server import StandIn, problem
from tests.tiny_trainer import TinyTrainer


class PrivateTiny(TinyTrainer):
    """An epoch is ten steps, and every ten steps cost an ε of 1 at noise 1, of 0.25 at noise 2; its noise is 0.5."""

    def __init__(self, noise: float | None = 1.0) -> None:
        super().__init__(target=1.0)
        self.privacy = None if noise is None else DifferentialPrivacy(noise, clip=1.0)

    def spending(self, epochs: int, hints: Hints) -> Spending:
        assert self.privacy is not None
        return Spending(noise_multiplier=self.privacy.noise_multiplier, sample_rate=0.1, steps=10 * epochs)

    def epsilon(self, spent: Sequence[Spending], delta: float) -> float:
        return sum(each.steps / 10 / each.noise_multiplier**2 for each in spent)

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        result = super().train(arrays, epochs=epochs, hints=hints)
        return TrainingResult(result.arrays, 10, {}, 0.5)


@contextmanager
def site(server: StandIn, folder: Path, trainer: TinyTrainer, **options: float) -> Iterator[Participant]:
    with ParticipantState(folder) as state, LedgerClient(server.url, key=state.key, timeout=10) as client:
        yield Participant(client, trainer, state, **options)  # type: ignore[arg-type]


def test_trainings_add_up_over_restarts_and_are_said_in_headers(tmp_path: Path) -> None:
    """The joiner trains for 2 epochs and then 1, and 1 again for its second update; restarted with twice the noise."""
    tiny = TinyLedger(make_genesis(max_noise_std=0.6), genesis_model=model(0.1, 0.1, 0.1, 0.1))
    with StandIn(tiny) as server:
        with site(server, tmp_path, PrivateTiny()) as participant:
            participant.run(2)
        assert list(server.tiny.transactions.values())[1].header.metrics["_dp_epsilon"] == 3.0
        with site(server, tmp_path, PrivateTiny(noise=2.0), delta=1e-3) as participant:
            participant.run(1)
        header = list(server.tiny.transactions.values())[-1].header
    assert header.metrics["_dp_epsilon"] == 4.25
    assert header.metrics["_dp_delta"] == 1e-3
    account = read_account(tmp_path)
    assert account is not None
    assert account.epsilon == 4.25
    assert [(each.noise_multiplier, each.steps) for each in account.spent] == [(1.0, 40), (2.0, 10)]


def test_noise_is_declared_as_far_as_the_ledger_allows(tmp_path: Path) -> None:
    """Alone, a client goes on from its own model: noise of 0.5 in each of its three trainings adds up to 0.5 √3."""
    for folder, bound, expected in (("a", 1.0, 0.5 * 3**0.5), ("b", 0.6, 0.6), ("c", 0.0, 0.0)):
        tiny = TinyLedger(make_genesis(max_noise_std=bound), genesis_model=model(0.1, 0.1, 0.1, 0.1))
        with StandIn(tiny) as server, site(server, tmp_path / folder, PrivateTiny()) as participant:
            participant.run(2)
            assert list(server.tiny.transactions.values())[-1].header.noise_std == pytest.approx(expected)


def test_a_budget_ends_the_run_before_it_is_exceeded(tmp_path: Path) -> None:
    with StandIn(TinyLedger(genesis_model=model(0.1, 0.1, 0.1, 0.1))) as server:
        with site(server, tmp_path, PrivateTiny(), epsilon_budget=4.5) as participant:
            assert participant.run() == 2
        asked = len(server.asked)
        with site(server, tmp_path, PrivateTiny(), epsilon_budget=4.5) as participant:
            assert participant.run() == 0
            assert participant.ended_by == (
                "the next training would take ε from 4 to 5 (δ = 1e-05), beyond the budget of 4.5"
            )
        assert not [each for each in server.asked[asked:] if each.method == "POST"]


def test_a_joiner_without_room_for_both_its_trainings_begins_none(tmp_path: Path) -> None:
    trainer = PrivateTiny()
    with (
        StandIn() as server,
        site(server, tmp_path, trainer, epsilon_budget=2.5) as participant,
        pytest.raises(PrivacyBudgetError),
    ):
        participant.step()
    assert trainer.epochs == []
    assert read_account(tmp_path) is None


def test_a_training_is_charged_before_its_model_is_shown_to_anybody(tmp_path: Path) -> None:
    with StandIn() as server, site(server, tmp_path, PrivateTiny()) as participant:
        server.spoil("/v1/selections", answer=problem(422, "model-norm"))
        with pytest.raises(ModelNormError):
            participant.step()
    account = read_account(tmp_path)
    assert account is not None
    assert account.epsilon == 2.0


def test_private_and_other_trainings_do_not_mix(tmp_path: Path) -> None:
    with StandIn() as server:
        for folder, first, then in (("a", PrivateTiny(), PrivateTiny(None)), ("b", TinyTrainer(1.0), PrivateTiny())):
            with site(server, tmp_path / folder, first) as participant:
                participant.run(1)
            with pytest.raises(ParameterError, match="use another --state"), site(server, tmp_path / folder, then):
                pass
        unbounded = site(server, tmp_path / "c", TinyTrainer(1.0), epsilon_budget=8)
        with pytest.raises(ParameterError, match="--dp-noise"), unbounded:
            pass


def test_without_opacus_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from fl_client.training import TorchTrainer
    from fl_client.training.errors import OpacusMissingError

    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(OpacusMissingError, match=r"pip install '\.\[dp\]'"):
        TorchTrainer(torch.nn.Linear(1, 2), (torch.zeros(2, 1), torch.zeros(2)), privacy=DifferentialPrivacy(1, 1))


def test_a_damaged_account_is_no_new_one(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path, PrivateTiny())
    ledger.charge(1, {})
    path = tmp_path / PRIVACY_FILE
    assert json.loads(path.read_text())["epsilon"] == 1.0
    path.write_text(path.read_text()[:-9])
    with pytest.raises(StateCorruptError):
        read_account(tmp_path)


@pytest.mark.parametrize("fields", [{"noise_multiplier": 0}, {"clip": float("inf")}, {"sample_rate": 1.5}])
def test_parameters_out_of_range_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(fields))):
        DifferentialPrivacy(**{"noise_multiplier": 1.0, "clip": 1.0, **fields})
