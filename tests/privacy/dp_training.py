"""DP-SGD by Opacus, which is no dependency of the other tests: ``.ci/run`` installs it for these."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from dag_acfl.__main__ import main
from fl_client import LedgerClient, Participant, ParticipantState
from fl_client.privacy import DifferentialPrivacy, Spending, read_account
from fl_client.training import Arrays, TorchTrainer, TrainingDataError
from fl_core.errors import ParameterError
from tests.builders import TinyLedger, make_genesis
from tests.stand_in_server import StandIn

INPUTS = torch.randn(400, 20, generator=torch.Generator().manual_seed(1))
LABELS = (INPUTS[:, 0] > 0).long()


def trainer(*, data: object = (INPUTS, LABELS), module: nn.Module | None = None, **privacy: float) -> TorchTrainer:
    torch.manual_seed(0)
    private = DifferentialPrivacy(**{"noise_multiplier": 1.0, "clip": 1.0, "sample_rate": 0.1, **privacy})
    return TorchTrainer(
        module or nn.Linear(20, 2),
        data,  # type: ignore[arg-type]
        test_data=(INPUTS, LABELS),
        learning_rate=0.5,
        privacy=private,
    )


def change(before: Arrays, after: Arrays) -> np.ndarray:
    return np.concatenate([(after[name] - before[name]).ravel() for name in before])


def test_the_noise_in_each_value_is_what_is_declared() -> None:
    """Gradients clipped to nothing beside the noise: 200 steps of 0.5 · 2 · 1e-6 / 0.02, some of no example at all."""
    private = trainer(
        data=(torch.randn(2, 5000), torch.tensor([0, 1])),
        module=nn.Linear(5000, 2),
        clip=1e-6,
        noise_multiplier=2000.0,
        sample_rate=0.01,
    )
    before = private.initial_arrays()
    result = private.train(before, epochs=2)
    assert result.noise_std == pytest.approx(0.5 * 2000e-6 / 0.02 * 200**0.5)
    assert change(before, result.arrays).std() == pytest.approx(result.noise_std, rel=0.05)  # 7 standard errors


def test_no_example_moves_a_step_by_more_than_the_clip() -> None:
    """One of two examples has a gradient, as long as ten thousand clips; a step divides by both."""
    both = (1e4 * INPUTS[:1].expand(2, 20), torch.tensor([0, 1]))
    private = trainer(data=both, noise_multiplier=1e-9, clip=0.25, sample_rate=1.0)
    before = private.initial_arrays()
    moved = change(before, private.train(before, epochs=1).arrays)
    assert np.linalg.norm(moved) == pytest.approx(0.5 * 0.25 / 2, rel=1e-4)


def test_noise_is_drawn_from_no_public_seed_and_the_loss_stays_at_home() -> None:
    private = trainer()
    before = private.initial_arrays()
    first, second = (private.train(before, epochs=1) for _ in range(2))
    assert change(first.arrays, second.arrays).any()
    assert first.metrics == {}


@pytest.mark.parametrize("data", [(INPUTS, LABELS), DataLoader(TensorDataset(INPUTS, LABELS), batch_size=40)])
def test_it_learns_and_a_training_without_it_is_as_ever_afterwards(data: object) -> None:
    private = trainer(data=data)
    before = private.initial_arrays()
    assert private.evaluate(private.train(before, epochs=20).arrays)["accuracy"] > 0.85
    private.privacy = None
    plain = TorchTrainer(nn.Linear(20, 2), (INPUTS, LABELS), learning_rate=0.5, batch_size=40)
    if isinstance(data, tuple):
        assert not change(
            private.train(before, epochs=1, hints={"batch_size": 40}).arrays, plain.train(before, epochs=1).arrays
        ).any()


def test_epsilon_is_that_of_gaussian_noise_and_steps_add_up() -> None:
    """Without sampling, 4 steps at noise 2 tell as much as 1 step at noise 1: noise falls with the root of the steps."""
    private = trainer()
    one = [Spending(noise_multiplier=1.0, sample_rate=1.0, steps=1)]
    four = [Spending(noise_multiplier=2.0, sample_rate=1.0, steps=4)]
    assert private.epsilon(one, 1e-5) == pytest.approx(private.epsilon(four, 1e-5))
    # With all orders α: min of α/2 + log((α-1)/α) - (log δ + log α)/(α-1), [Canonne et al. 2020, Prop. 12].
    orders = np.linspace(1.01, 60, 100_000)
    exact = (orders / 2 + np.log((orders - 1) / orders) - (np.log(1e-5) + np.log(orders)) / (orders - 1)).min()
    assert exact <= private.epsilon(one, 1e-5) < exact + 0.01
    halves = [Spending(noise_multiplier=1.1, sample_rate=0.1, steps=each) for each in (30, 70)]
    whole = [Spending(noise_multiplier=1.1, sample_rate=0.1, steps=100)]
    assert private.epsilon(halves, 1e-5) == pytest.approx(private.epsilon(whole, 1e-5))
    assert private.spending(3, {}) == Spending(noise_multiplier=1.0, sample_rate=0.1, steps=30)


def test_what_cannot_be_private_is_said_with_what_to_do() -> None:
    with pytest.raises(ParameterError, match=r"layer '1' is BatchNorm1d.*use torch.nn.GroupNorm"):
        trainer(module=nn.Sequential(nn.Linear(20, 2), nn.BatchNorm1d(2)))
    allowed = trainer(module=nn.Sequential(nn.Linear(20, 2), nn.GroupNorm(1, 2)))
    assert allowed.train(allowed.initial_arrays(), epochs=1).noise_std > 0

    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> object:
            return iter(zip(INPUTS, LABELS, strict=True))

    with pytest.raises(TrainingDataError, match="DataLoader of a data set that has a length"):
        trainer(data=DataLoader(Stream(), batch_size=40))


class Tiny(nn.Module):
    """The model of ``tests.builders``: three weights and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.fc(inputs), -self.fc(inputs)], dim=1)


def test_a_client_publishes_its_epsilon_and_its_noise(tmp_path: Path) -> None:
    data = (INPUTS[:, :3], LABELS)
    private = TorchTrainer(Tiny(), data, privacy=DifferentialPrivacy(1.0, 1.0, 0.1))
    with (
        StandIn(TinyLedger(make_genesis(max_noise_std=1.0))) as server,
        ParticipantState(tmp_path) as state,
        LedgerClient(server.url, key=state.key, timeout=10) as client,
    ):
        Participant(client, private, state, epochs=1, initial_epochs=1).run(1)
        header = list(server.tiny.transactions.values())[-1].header
    account = read_account(tmp_path)
    assert account is not None
    assert account.epsilon == header.metrics["_dp_epsilon"] == private.epsilon([private.spending(2, {})], 1e-5)
    assert header.noise_std == pytest.approx(0.1 / 40 * 20**0.5)
    assert "train_loss" not in header.metrics


def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.py"
    file.write_text(
        "import torch\nfrom fl_client.training import TorchTrainer\n"
        "def trainer():\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))\n"
        "    return TorchTrainer(model, (torch.zeros(3, 4), torch.zeros(3, dtype=torch.long)))\n"
    )
    assert main(["client", "run", str(file), "--dp-noise", "1", "--state", str(tmp_path / "state")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: layer '1' is BatchNorm1d")
