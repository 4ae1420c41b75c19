"""Training a torch module between two NumPy models."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from fl_client.training import (
    Arrays,
    Hints,
    LoopTrainer,
    PlainSgd,
    TorchTrainer,
    Trainer,
    TrainerFailedError,
    TrainingDataError,
    TrainingDivergedError,
    TrainingResult,
)
from fl_client.training.errors import users_code
from fl_client.training.module import Share
from fl_client.training.protocol import progress_watched
from fl_core.errors import ModelLayoutError, ParameterError, UnknownNameError
from fl_core.models import ModelLayout, decode_model, encode_model

INPUTS = torch.randn(23, 4, generator=torch.Generator().manual_seed(1))
LABELS = (INPUTS[:, 0] > 0).long()


def linear(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(4, 2)


def same(left: dict[str, NDArray[np.float32]], right: dict[str, NDArray[np.float32]]) -> bool:
    return left.keys() == right.keys() and all(left[name].tobytes() == right[name].tobytes() for name in left)


@pytest.mark.parametrize("loss", ["cross-entropy", nn.CrossEntropyLoss()])
def test_the_loss_of_each_example_keeps_the_datas_order(loss: Any) -> None:
    """Weights that say the first input is the odds of label 1: log(1 + e^-x) where it is 1, log(1 + e^x) where it is 0."""
    shuffled = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=5, shuffle=True)
    trainer = TorchTrainer(linear(), (INPUTS, LABELS), test_data=shuffled, loss=loss)
    arrays = {name: np.zeros_like(array) for name, array in trainer.initial_arrays().items()}
    arrays["weight"][1, 0] = 1.0
    signs = 1 - 2 * LABELS.double().numpy()
    expected = np.log1p(np.exp(signs * INPUTS[:, 0].double().numpy()))
    for losses in trainer.losses(arrays):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_without_test_data_there_is_nothing_to_compare_losses_with() -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS))
    with pytest.raises(TrainingDataError, match="without test data"):
        trainer.losses(trainer.initial_arrays())


def test_importing_the_client_does_not_import_torch() -> None:
    code = (
        "import sys, fl_client, fl_client.training;"
        "from fl_client.training import Trainer, TrainingResult;"
        "assert 'torch' not in sys.modules, 'torch was loaded'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_asking_for_the_torch_trainer_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import fl_client.training as training\n"
        "try:\n    training.TorchTrainer\n"
        "except training.TorchMissingError as error:\n    print(error.code, error)"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.startswith("torch-missing")
    assert "pip install torch" in run.stdout


def test_a_torch_trainer_is_a_trainer() -> None:
    assert isinstance(TorchTrainer(linear(), (INPUTS, LABELS)), Trainer)


def test_one_full_batch_step_is_one_gradient_step() -> None:
    """Mean squared error of y = w x at w = 1 for x = 2, y = 0: gradient 2 * 2 * 2 = 8, so w becomes 1 - 0.1 * 8."""
    model = nn.Linear(1, 1, bias=False)
    data = (torch.tensor([[2.0]]), torch.tensor([[0.0]]))
    trainer = TorchTrainer(model, data, loss=nn.functional.mse_loss, learning_rate=0.1)
    result = trainer.train({"weight": np.ones((1, 1), np.float32)}, epochs=1)
    assert result.arrays["weight"][0, 0] == pytest.approx(0.2)
    assert result.num_examples == 1
    assert result.metrics == {"train_loss": 4.0}


def test_training_learns() -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS), test_data=(INPUTS, LABELS), learning_rate=0.5)
    trained = trainer.train(trainer.initial_arrays(), epochs=30)
    assert trained.num_examples == 23
    assert trainer.evaluate(trained.arrays)["accuracy"] > 0.9
    assert trained.metrics["train_loss"] < trainer.evaluate(trainer.initial_arrays())["loss"]


def test_same_arrays_and_seed_give_the_same_bytes_and_another_seed_does_not() -> None:
    def trained(seed: int) -> dict[str, NDArray[np.float32]]:
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        trainer = TorchTrainer(model, (INPUTS, LABELS), seed=seed, batch_size=5)
        start = {spec.name: np.full(spec.shape, 0.1, np.float32) for spec in trainer.layout().tensors}
        trainer.train(trainer.initial_arrays(), epochs=1)  # what was trained before leaves no trace
        return trainer.train(start, epochs=2).arrays

    assert same(trained(7), trained(7))
    assert not same(trained(7), trained(8))


def test_training_leaves_the_global_random_state_alone() -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trainer.train(trainer.initial_arrays(), epochs=1)
    assert torch.equal(torch.rand(3), expected)


def test_training_changes_neither_its_input_nor_its_initial_arrays() -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS))
    start = trainer.initial_arrays()
    for array in start.values():
        array.flags.writeable = False  # as views of received bytes are
    before = {name: array.copy() for name, array in start.items()}
    result = trainer.train(start, epochs=1)
    assert same(start, before)
    assert same(trainer.initial_arrays(), before)
    kept = {name: array.copy() for name, array in result.arrays.items()}
    trainer.train(result.arrays, epochs=1)
    assert same(result.arrays, kept)


def test_a_data_loader_and_a_list_of_batches_work_like_a_pair() -> None:
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=5, shuffle=True)
    batches = [(INPUTS[start : start + 5], LABELS[start : start + 5]) for start in range(0, 23, 5)]
    for data in (loader, batches):
        trainer = TorchTrainer(linear(), data, test_data=data)
        first = trainer.train(trainer.initial_arrays(), epochs=2)
        assert first.num_examples == 23
        assert same(first.arrays, trainer.train(trainer.initial_arrays(), epochs=2).arrays)
        assert trainer.evaluate(first.arrays)["num_examples"] == 23.0


def test_numpy_pairs_are_taken_too() -> None:
    theirs = TorchTrainer(linear(), (INPUTS.numpy(), LABELS.numpy()))
    ours = TorchTrainer(linear(), (INPUTS, LABELS))
    start = ours.initial_arrays()
    assert same(theirs.train(start, epochs=1).arrays, ours.train(start, epochs=1).arrays)


def test_plain_sgd_is_torchs_sgd_to_the_bit() -> None:
    ours = TorchTrainer(linear(), (INPUTS, LABELS), learning_rate=0.3)
    theirs = TorchTrainer(linear(), (INPUTS, LABELS), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.3))
    start = ours.initial_arrays()
    assert same(ours.train(start, epochs=3).arrays, theirs.train(start, epochs=3).arrays)


# -- what travels ---------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A frozen base with an adapter beside it, and a head."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.base = nn.Linear(4, 3).requires_grad_(requires_grad=False)
        self.lora_a, self.lora_b = nn.Parameter(torch.ones(1, 4)), nn.Parameter(torch.ones(3, 1))
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(self.base(inputs) + inputs @ self.lora_a.T @ self.lora_b.T))
        return logits


NORM = {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}
HEAD = {"head.weight", "head.bias"}
LORA = {"lora_a", "lora_b"}


def names_of(arrays: Mapping[str, object]) -> set[str]:
    return set(arrays)


@pytest.mark.parametrize(
    ("share", "travels"),
    [
        (None, LORA | NORM | HEAD),
        ("lora_*", LORA),
        ("head", HEAD),
        ("head.weight", {"head.weight"}),
        (["lora_a", "norm"], {"lora_a"} | NORM),
        (lambda name: not name.startswith("norm"), LORA | HEAD),
        (lambda name: True, LORA | NORM | HEAD),
    ],
)
def test_what_is_shared_travels_and_what_is_frozen_never_does(share: Share | None, travels: set[str]) -> None:
    trainer = TorchTrainer(Adapted(), (INPUTS, LABELS), share=share)
    assert {spec.name for spec in trainer.layout().tensors} == travels
    assert names_of(trainer.initial_arrays()) == LORA | NORM | HEAD


def test_what_stays_is_trained_too_and_starts_from_what_is_given() -> None:
    trainer = TorchTrainer(Adapted(), (INPUTS, LABELS), share="lora_*", test_data=(INPUTS, LABELS))
    start = trainer.initial_arrays()
    first = trainer.train(start, epochs=1)
    again = trainer.train(first.arrays, epochs=1)
    assert names_of(again.arrays) == LORA | NORM | HEAD
    assert not np.array_equal(first.arrays["head.weight"], start["head.weight"])
    assert not np.array_equal(again.arrays["norm.running_mean"], first.arrays["norm.running_mean"])
    assert same(trainer.train(start, epochs=1).arrays, first.arrays), "nothing is left of what was trained meanwhile"
    assert trainer.evaluate(again.arrays)["num_examples"] == 23.0


def test_frozen_parameters_stay_as_they_are() -> None:
    model = Adapted()
    before = model.base.weight.clone()
    trainer = TorchTrainer(model, (INPUTS, LABELS))
    arrays = trainer.train(trainer.initial_arrays(), epochs=1).arrays
    assert trainer.model_with(arrays) is model
    assert torch.equal(model.base.weight, before)
    assert np.array_equal(model.lora_a.detach().numpy(), arrays["lora_a"])
    assert not model.training
    assert len(PlainSgd(model.parameters(), 0.1).param_groups[0]["params"]) == 6


def test_a_client_with_another_frozen_base_than_the_founders_is_refused_before_it_trains() -> None:
    def trainer(seed: int) -> TorchTrainer:
        return TorchTrainer(Adapted(seed), (INPUTS, LABELS), share="lora_*")

    hints = trainer(0).genesis_hints()
    assert trainer(0).train(trainer(0).initial_arrays(), epochs=1, hints=hints).num_examples == 23
    with pytest.raises(ModelLayoutError, match=r"frozen parameters here .* torch.manual_seed"):
        trainer(1).train(trainer(1).initial_arrays(), epochs=1, hints=hints)
    assert trainer(1).train(trainer(1).initial_arrays(), epochs=1, hints={"frozen_sha256": "any"}).num_examples == 23
    assert TorchTrainer(linear(), (INPUTS, LABELS)).genesis_hints() == {}


def test_a_frozen_base_may_have_any_precision() -> None:
    model = nn.Sequential(nn.Linear(4, 3).double().requires_grad_(requires_grad=False), nn.Linear(3, 2))
    assert [spec.name for spec in TorchTrainer(model, (INPUTS, LABELS)).layout().tensors] == ["1.bias", "1.weight"]
    assert model.state_dict()["0.weight"].dtype == torch.float64


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ("lroa_*", "'lroa_\\*' names no tensor that is trained; the model has lora_a"),
        (["lora_*", "base"], "'base' names no tensor"),
        (lambda name: "running" in name, "no parameter that is trained would travel"),
    ],
)
def test_a_share_that_names_nothing_trained_is_refused(share: Share, said: str) -> None:
    with pytest.raises(ModelLayoutError, match=said):
        TorchTrainer(Adapted(), (INPUTS, LABELS), share=share)


def test_one_of_two_names_of_a_tied_tensor_cannot_be_shared_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    with pytest.raises(ModelLayoutError, match=r"'0.weight' and '1.weight' are one tensor"):
        TorchTrainer(model, (INPUTS, LABELS), share="0")
    assert len(TorchTrainer(model, (INPUTS, LABELS), share="weight").layout().tensors) == 2


def test_the_hint_learning_rate_rules_the_default_optimizer_only() -> None:
    start = {"weight": np.zeros((2, 4), np.float32), "bias": np.zeros(2, np.float32)}
    plain = TorchTrainer(linear(), (INPUTS, LABELS), learning_rate=0.3)
    hinted = TorchTrainer(linear(), (INPUTS, LABELS), learning_rate=0.001)
    own = TorchTrainer(linear(), (INPUTS, LABELS), optimizer=lambda ps: torch.optim.SGD(ps, lr=0.3))
    expected = plain.train(start, epochs=1).arrays
    assert same(hinted.train(start, epochs=1, hints={"learning_rate": 0.3}).arrays, expected)
    assert same(own.train(start, epochs=1, hints={"learning_rate": 0.001, "epochs": 9}).arrays, expected)


@pytest.mark.parametrize(
    "hints", [{"learning_rate": 0}, {"learning_rate": "fast"}, {"batch_size": 0}, {"batch_size": 2.5}]
)
def test_hints_out_of_range_are_refused_by_name(hints: dict[str, float | str]) -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS))
    with pytest.raises(ParameterError, match=next(iter(hints))):
        trainer.train(trainer.initial_arrays(), epochs=1, hints=hints)


def test_zero_epochs_are_refused() -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS))
    with pytest.raises(ParameterError, match="epochs"):
        trainer.train(trainer.initial_arrays(), epochs=0)


def test_integer_buffers_stay_local_and_running_means_are_shared() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    trainer = TorchTrainer(model, (INPUTS, LABELS), test_data=(INPUTS, LABELS), batch_size=23)
    names = [spec.name for spec in trainer.layout().tensors]
    assert names == sorted(names)
    assert "1.running_mean" in names
    assert "1.num_batches_tracked" not in names
    assert trainer.buffers() == ("1.running_mean", "1.running_var")
    trained = trainer.train(trainer.initial_arrays(), epochs=2).arrays
    assert not np.array_equal(trained["1.running_mean"], trainer.initial_arrays()["1.running_mean"])
    assert trainer.evaluate(trained)["num_examples"] == 23.0


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "F16"), (torch.bfloat16, "BF16")])
def test_half_precision_models_come_back_from_the_ledger_exactly(dtype: torch.dtype, name: str) -> None:
    model = linear().to(dtype)
    trainer = TorchTrainer(model, (INPUTS.to(dtype), LABELS))
    layout = trainer.layout()
    assert {spec.dtype for spec in layout.tensors} == {name}
    arrays = trainer.train(trainer.initial_arrays(), epochs=1).arrays
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert same(decode_model(layout, encode_model(layout, arrays)), arrays)
    trainer.evaluate(arrays)
    held = model.state_dict()["weight"]
    assert held.dtype == dtype
    assert np.array_equal(held.float().numpy(), arrays["weight"])


def test_the_layout_is_canonical_whatever_the_modules_order() -> None:
    model = nn.ModuleDict({"z": nn.Linear(2, 1), "a": nn.Linear(1, 1)})
    layout = TorchTrainer(model, (INPUTS, LABELS)).layout()
    assert isinstance(layout, ModelLayout)
    assert [spec.name for spec in layout.tensors] == ["a.bias", "a.weight", "z.bias", "z.weight"]


def test_double_precision_models_are_refused_by_the_name_of_the_tensor() -> None:
    with pytest.raises(ModelLayoutError, match=r"'weight'.*float64"):
        TorchTrainer(nn.Linear(4, 2).double(), (INPUTS, LABELS))


def test_arrays_of_another_model_are_refused_by_the_name_of_the_tensor() -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS))
    arrays = trainer.initial_arrays()
    with pytest.raises(ModelLayoutError, match=r"'weight' is \[2, 4\] here, \[2, 5\] there"):
        trainer.train({**arrays, "weight": np.zeros((2, 5), np.float32)}, epochs=1)
    with pytest.raises(ModelLayoutError, match=r"'bias' is .* here, absent there"):
        trainer.train({"weight": arrays["weight"]}, epochs=1)
    with pytest.raises(ModelLayoutError, match="'gamma' is absent here"):
        trainer.evaluate({**arrays, "gamma": np.zeros(1, np.float32)})


def test_a_diverged_training_names_its_learning_rate() -> None:
    data = (INPUTS * 1e6, INPUTS)
    trainer = TorchTrainer(nn.Linear(4, 4), data, loss=nn.functional.mse_loss, learning_rate=1e4)
    with pytest.raises(TrainingDivergedError, match="learning rate is 10000") as caught:
        trainer.train(trainer.initial_arrays(), epochs=20)
    assert caught.value.learning_rate == 1e4
    assert caught.value.code == "training-diverged"


def test_a_last_step_that_leaves_the_finite_numbers_is_seen_too() -> None:
    data = (torch.tensor([[1e30]]), torch.tensor([[0.0]]))
    trainer = TorchTrainer(nn.Linear(1, 1, bias=False), data, loss=lambda out, _: out.sum(), learning_rate=1e30)
    with pytest.raises(TrainingDivergedError, match="'weight' is not finite"):
        trainer.train({"weight": np.zeros((1, 1), np.float32)}, epochs=1)


def test_a_tensor_that_is_not_finite_is_named_and_so_are_bad_inputs() -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS))
    arrays = trainer.initial_arrays()
    arrays["weight"][0, 0] = np.nan
    with pytest.raises(TrainingDivergedError, match="loss is nan in epoch 1 of 2, batch 1, and tensor 'weight' is not"):
        trainer.train(arrays, epochs=2)
    holed = INPUTS.clone()
    holed[0, 0] = torch.inf
    trainer = TorchTrainer(linear(), (holed, LABELS), batch_size=len(INPUTS))
    with pytest.raises(TrainingDataError, match=r"inputs hold NaN or infinite values \(epoch 1 of 1, batch 1\)"):
        trainer.train(trainer.initial_arrays(), epochs=1)


def test_a_loader_that_gives_nothing_is_told_with_the_likely_reason() -> None:
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=len(INPUTS) + 1, drop_last=True)
    trainer = TorchTrainer(linear(), loader)
    with pytest.raises(TrainingDataError, match="gave no batch; does the loader drop the last one"):
        trainer.train(trainer.initial_arrays(), epochs=1)


def test_an_error_in_a_loaders_worker_is_told_with_its_place_in_the_users_code() -> None:
    def sample() -> None:
        raise KeyError("scan-7.png")

    try:
        sample()
    except KeyError:
        brought_over = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(TrainerFailedError) as said, users_code("train()"):
        brought_over.reraise()
    line = sample.__code__.co_firstlineno + 1
    assert str(said.value).endswith(f"test_trainer.py, line {line}: KeyError: 'scan-7.png'")


class Endless(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Data that cannot say how many they are."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(INPUTS[:4], LABELS[:4], strict=True)


@pytest.mark.parametrize(
    ("data", "in_all"),
    [((INPUTS[:4], LABELS[:4]), " of 2"), (DataLoader(Endless(), batch_size=2), "")],
    ids=["pair", "loader without a length"],
)
def test_a_training_says_how_far_it_is(data: Any, in_all: str) -> None:
    told: list[str] = []
    trainer = TorchTrainer(linear(), data, batch_size=2)
    with progress_watched(told.append):
        trainer.train(trainer.initial_arrays(), epochs=1)
    assert [text.partition(", loss")[0] for text in told] == [
        "epoch 1 of 1",
        f"epoch 1 of 1, batch 1{in_all}",
        f"epoch 1 of 1, batch 2{in_all}",
    ]


def test_ctrl_c_between_batches_ends_the_training_and_the_next_one_is_unharmed() -> None:
    batches = 0

    def interrupted(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        nonlocal batches
        batches += 1
        if batches == 2:
            raise KeyboardInterrupt
        return nn.functional.cross_entropy(outputs, labels)

    trainer = TorchTrainer(linear(), (INPUTS, LABELS), loss=interrupted)
    start = trainer.initial_arrays()
    with pytest.raises(KeyboardInterrupt):
        trainer.train(start, epochs=2)
    untouched = TorchTrainer(linear(), (INPUTS, LABELS))
    assert same(trainer.train(start, epochs=2).arrays, untouched.train(start, epochs=2).arrays)


def test_evaluation_counts_right_answers() -> None:
    inputs = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]])
    labels = torch.tensor([0, 0, 1, 0])  # the model below says 0, 0, 1, 1
    model = nn.Linear(1, 2, bias=False)
    trainer = TorchTrainer(model, (inputs, labels), test_data=(inputs, labels))
    metrics = trainer.evaluate({"weight": np.array([[1.0], [-1.0]], np.float32)})
    assert metrics["accuracy"] == 0.75
    # Margin 2: three right answers cost log(1 + e^-2), the wrong one log(1 + e^2).
    assert metrics["loss"] == pytest.approx((3 * np.log1p(np.exp(-2)) + np.log1p(np.exp(2))) / 4)
    assert metrics["num_examples"] == 4.0


def test_without_test_data_there_is_nothing_to_evaluate() -> None:
    trainer = TorchTrainer(linear(), (INPUTS, LABELS))
    assert trainer.evaluate(trainer.initial_arrays()) == {}


def test_regression_has_a_loss_and_no_accuracy() -> None:
    data = (INPUTS, INPUTS[:, :2])
    trainer = TorchTrainer(linear(), data, test_data=data, loss=nn.functional.mse_loss)
    assert trainer.evaluate(trainer.initial_arrays()).keys() == {"loss", "num_examples"}


def generator() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    yield INPUTS, LABELS


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((INPUTS, LABELS[:5]), id="lengths differ"),
        pytest.param((INPUTS[:0], LABELS[:0]), id="empty pair"),
        pytest.param((INPUTS, LABELS, LABELS), id="triple"),
        pytest.param(generator(), id="generator"),
        pytest.param([], id="no batches"),
        pytest.param([INPUTS], id="batch without labels"),
        pytest.param([{"x": INPUTS, "y": LABELS}], id="batch of names"),
    ],
)
def test_data_that_cannot_be_trained_on_are_refused(data: object) -> None:
    def make_and_train() -> None:
        trainer = TorchTrainer(linear(), data)  # type: ignore[arg-type]
        trainer.train(trainer.initial_arrays(), epochs=1)

    with pytest.raises(TrainingDataError) as caught:
        make_and_train()
    assert caught.value.code == "training-data"


# -- losses by name -------------------------------------------------------------------------------


def test_a_trainer_with_the_virtual_teacher_follows_its_gradient_and_measures_cross_entropy() -> None:
    """At zero weights p = (1/2, 1/2); the teacher says (.9, .1): the gradient of the right logit is .5 - .9 = -.4."""
    data = (torch.tensor([[1.0]]), torch.tensor([0]))
    trainer = TorchTrainer(
        nn.Linear(1, 2, bias=False), data, test_data=data, loss="virtual-teacher", beta=0.9, learning_rate=1.0
    )
    zeros = {"weight": np.zeros((2, 1), np.float32)}
    result = trainer.train(zeros, epochs=1)
    np.testing.assert_allclose(result.arrays["weight"][:, 0], [0.4, -0.4], rtol=1e-6)
    # .9 ln(.9 / .5) + .1 ln(.1 / .5) = .3681; cross-entropy is ln 2.
    assert result.metrics["train_loss"] == pytest.approx(0.36806, abs=1e-5)
    assert trainer.evaluate(zeros)["loss"] == pytest.approx(np.log(2))


def test_cross_entropy_by_name_is_the_default() -> None:
    named = TorchTrainer(linear(), (INPUTS, LABELS), loss="cross-entropy")
    plain = TorchTrainer(linear(), (INPUTS, LABELS))
    assert same(
        named.train(named.initial_arrays(), epochs=1).arrays, plain.train(plain.initial_arrays(), epochs=1).arrays
    )


def test_a_loss_that_there_is_not_and_a_beta_out_of_range_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="virtual-teacher"):
        TorchTrainer(linear(), (INPUTS, LABELS), loss="teacher")
    for beta in (0.0, 1.1, float("nan"), True):
        with pytest.raises(ParameterError, match="beta"):
            TorchTrainer(linear(), (INPUTS, LABELS), loss="virtual-teacher", beta=beta)


def loop(model: nn.Module, epochs: int) -> dict[str, torch.Tensor]:
    """What a user has: full-batch descent on mean squared error; y = w x, x = 2, y = 0."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = model(torch.tensor([[2.0]])).square().mean()
        loss.backward()
        optimizer.step()
    return {"train_loss": loss}


def test_a_loop_of_ones_own_trains_and_tests_the_module_it_was_given() -> None:
    """The gradient at w is 2 * 2 * 2 w = 8 w, so each step takes w to 0.2 w: 1, 0.2, 0.04."""
    model = nn.Linear(1, 1, bias=False)
    trainer = LoopTrainer(model, loop, lambda tested: {"size": tested.weight.abs().sum()}, num_examples=1)
    assert isinstance(trainer, Trainer)
    start = {"weight": np.ones((1, 1), np.float32)}
    start["weight"].flags.writeable = False
    result = trainer.train(start, epochs=2)
    assert result.arrays["weight"][0, 0] == pytest.approx(0.04)
    assert float(result.metrics["train_loss"]) == pytest.approx(0.16)  # (2 * 0.2) ** 2, before the second step
    assert result.num_examples == 1
    assert float(trainer.evaluate(start)["size"]) == 1.0
    assert not model.training


def test_a_loop_trains_what_is_shared_and_what_stays_and_draws_the_same_again() -> None:
    def train(model: nn.Module, epochs: int) -> None:
        assert model.training
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * parameter.requires_grad)

    def trainer() -> LoopTrainer:
        return LoopTrainer(Adapted(), train, num_examples=3, share="lora_*")

    first, start = trainer(), trainer().initial_arrays()
    assert {spec.name for spec in first.layout().tensors} == LORA
    once, again = (each.train(start, epochs=1).arrays for each in (first, trainer()))
    assert same(dict(once), dict(again))
    assert names_of(once) == LORA | HEAD | NORM
    assert not np.array_equal(once["head.weight"], start["head.weight"])
    assert first.evaluate(once) == {}
    with pytest.raises(ModelLayoutError, match="frozen parameters here"):
        first.train(start, epochs=1, hints={"frozen_sha256": "0" * 64})


def test_a_loop_that_returns_no_figures_by_name_is_told_so() -> None:
    model = nn.Linear(1, 1, bias=False)
    trainer = LoopTrainer(model, lambda *_: 0.5, lambda _: (0.5, 0.9), num_examples=1)  # type: ignore[arg-type,return-value]
    with pytest.raises(TrainerFailedError, match=r"train\(\) returned float, not figures by name"):
        trainer.train(trainer.initial_arrays(), epochs=1)
    with pytest.raises(TrainerFailedError, match=r"test\(\) returned tuple, not figures by name"):
        trainer.evaluate(trainer.initial_arrays())


class Doubling(Trainer):
    """Of float64, and with no layout of its own."""

    def initial_arrays(self) -> dict[str, NDArray[np.float64]]:
        return {"z": np.array([1 / 3]), "a": np.zeros((2, 1))}

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        return TrainingResult({name: array.astype(float) * 2 for name, array in arrays.items()}, 5)

    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        return {}


def test_a_class_of_ones_own_may_hold_other_floats_and_say_no_layout() -> None:
    trainer = Doubling()
    assert [(spec.name, spec.dtype) for spec in trainer.layout().tensors] == [("a", "F32"), ("z", "F32")]
    model = encode_model(trainer.layout(), trainer.initial_arrays())
    arrays = decode_model(trainer.layout(), model)
    trained = trainer.train(arrays, epochs=1).arrays
    assert {array.dtype for array in trained.values()} == {np.dtype("float32")}
    assert trained["z"][0] == 2 * np.float32(1 / 3)


def test_a_class_that_lacks_a_method_is_refused_when_it_is_made() -> None:
    class Halved(Trainer):
        def initial_arrays(self) -> dict[str, NDArray[np.float32]]:
            return {}

    with pytest.raises(TypeError, match="evaluate"):
        Halved()  # type: ignore[abstract]
