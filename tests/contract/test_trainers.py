"""What every trainer promises, whichever model it trains: together is one after the other, to rounding."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fl_core.errors import ShapeMismatchError, UnknownNameError
from fl_core.registry import Registry
from fl_core.types import Matrix32
from fl_simulator import training
from fl_simulator.engine.population import Population
from fl_simulator.errors import ScenarioError
from fl_simulator.models.catalogue import MODELS, Architecture, Convolution
from fl_simulator.models.classifiers import classifier
from fl_simulator.seeds import Seeds
from fl_simulator.training import build_trainer
from fl_simulator.training.base import Common
from fl_simulator.training.parameter_vectors import unflatten
from fl_simulator.training.protocol import Task, Trainer
from fl_simulator.training.recipe import Recipe
from tests.reference.sequential_trainer import SequentialTrainer

TRAIN_SIZES = (13, 24, 7, 10)
EPOCHS = (2, 1, 3, 0)
TEST_SIZE = 6
PLAIN = Recipe(batch_size=10, learning_rate=0.05)

ROUNDING = 0.01
"""How far two float32 trainings may end apart, as a share of how far they went.

Sums in another order differ by 1e-7, and mostly so do the models. But where that moves a value over a ReLU's edge, or
another pixel wins a pool, one gradient goes another way, and after some dozens of steps a CNN can be 10 % of the way
apart, as it is from itself when its start is moved by 1e-7. So trainings are short here, and the exact comparison is in
float64, where such a tie is not met. A batch left out is 5 % or more.
"""


def assert_same_but_for_rounding(found: Matrix32, expected: Matrix32, start: Matrix32) -> None:
    apart = np.linalg.norm(found - expected, axis=-1)
    moved = np.linalg.norm(expected - start, axis=-1)
    assert (apart <= ROUNDING * moved).all(), f"{apart} apart after {moved}"


def is_another_training(found: Matrix32, expected: Matrix32, start: Matrix32) -> bool:
    apart = np.linalg.norm(found - expected, axis=-1)
    return bool((apart > 5 * ROUNDING * np.linalg.norm(expected - start, axis=-1)).all())


def population_for(name: str) -> Population:
    """Noise on a brighter spot for each label, so that there is something to learn."""
    model = KNOWN[name]
    shape = model.image or (8, 8)
    rng = np.random.default_rng(5)
    count = sum(TRAIN_SIZES) + TEST_SIZE * len(TRAIN_SIZES)
    labels = rng.integers(0, 10, count)
    images = rng.random((count, *shape), dtype=np.float32) / 2
    images.reshape(count, -1)[np.arange(count), 5 * labels] = 1
    images.flags.writeable = False
    starts = np.cumsum([0, *(size + TEST_SIZE for size in TRAIN_SIZES)])
    return Population(
        images=images,
        labels=labels,
        train=tuple(np.arange(at, at + size) for at, size in zip(starts, TRAIN_SIZES, strict=False)),
        test=tuple(np.arange(at - TEST_SIZE, at) for at in starts[1:]),
        clusters=np.zeros(len(TRAIN_SIZES), dtype=np.int64),
        num_classes=10,
    )


SMALL = {
    "lr": None,
    "digits-mlp": None,
    "mlp": None,
    "tiny-cnn": Architecture(
        "tiny-cnn", "two convolutions", (12,), (8, 8), (Convolution(4, 3, 1, pool=0), Convolution(6, 3, 1)), 2
    ),
    "tiny-colour-cnn": Architecture(
        "tiny-colour-cnn", "two normalised convolutions", (), (3, 8, 8), (Convolution(4, 3, 1, pool=3, groups=2),) * 2
    ),
}
"""Models that the suite trains: of each kind one that is small. That every model of ``MODELS`` trains is one test."""
KNOWN = Registry("model", {**MODELS, **{name: model for name, model in SMALL.items() if model is not None}})


@pytest.fixture(autouse=True, scope="module")
def _known_models() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "MODELS", KNOWN)
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every small model that a test does not choose itself; with a trainer on every backend."""
    if "trainer" in metafunc.fixturenames:
        cases = [(name, backend) for name in SMALL for backend in ("batched", "sequential")]
        metafunc.parametrize(("name", "trainer"), cases, indirect=True, scope="module")
    elif "name" in metafunc.fixturenames:
        chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
        if "name" not in chosen:
            metafunc.parametrize("name", SMALL, indirect=True, scope="module")


@pytest.fixture(scope="module")
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def population(name: str) -> Population:
    return population_for(name)


def build(
    name: str,
    population: Population,
    *,
    backend: str = "batched",
    precision: str = "float32",
    workers: int = 2,
    seed: int = 1,
    recipe: Recipe = PLAIN,
    init: str = "pytorch",
) -> Trainer:
    seeds = Seeds(seed)
    if backend == "sequential":
        images, labels, dtype = population.images, population.labels, getattr(torch, precision)
        common = Common(images, labels, recipe, seeds, dtype=dtype, init=init)
        return SequentialTrainer(lambda: classifier(KNOWN[name], images.shape[1:], population.num_classes), common)
    return build_trainer(
        name, population, recipe=recipe, seeds=seeds, init=init, device="cpu", workers=workers, precision=precision
    )


@pytest.fixture(scope="module")
def trainer(request: pytest.FixtureRequest, name: str, population: Population) -> Iterator[Trainer]:
    built = build(name, population, backend=request.param)
    yield built
    built.close()


def models_for(trainer: Trainer, count: int = len(TRAIN_SIZES)) -> Matrix32:
    return np.stack([trainer.initial(np.random.default_rng(seed)) for seed in range(count)])


def tasks_for(population: Population) -> list[Task]:
    return [Task(population.train[client], (client, 1), epochs) for client, epochs in enumerate(EPOCHS)]


@pytest.mark.parametrize(("precision", "proximal"), [("float32", 0.3), ("float64", 0.0)])
def test_training_together_is_training_one_after_the_other(
    name: str, population: Population, proximal: float, precision: str
) -> None:
    batched = build(name, population, precision=precision)
    sequential = build(name, population, backend="sequential", precision=precision)
    together = models_for(batched)
    start, alone = together.copy(), together.copy()
    batched.train(together, tasks_for(population), proximal=proximal)
    sequential.train(alone, tasks_for(population), proximal=proximal)
    batched.close()
    if precision == "float64":
        np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-8)  # a row's own rounding to float32
    assert_same_but_for_rounding(together, alone, start)


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(Recipe(10, 0.05, momentum=0.5), id="momentum"),
        pytest.param(Recipe(10, 0.001, optimizer="adamw"), id="adamw"),
        pytest.param(Recipe(10, 0.05, momentum=0.9, loss="virtual-teacher", beta=0.9), id="virtual-teacher"),
        pytest.param(Recipe(10, 0.05, momentum=0.5, loss_bound=2.3), id="some batches above the bound"),  # of ln 10
    ],
)
def test_whatever_the_recipe_together_is_one_after_the_other(name: str, population: Population, recipe: Recipe) -> None:
    """Of one row and of some, with FedProx, with Ditto's pull and without, and by steps that end within an epoch."""
    batched = build(name, population, precision="float64", recipe=recipe)
    sequential = build(name, population, precision="float64", recipe=recipe, backend="sequential")
    together = models_for(batched)
    start, alone = together.copy(), together.copy()
    steps = [replace(task, steps=count) for task, count in zip(tasks_for(population), (3, 4, 1, 2), strict=True)]
    for trainer, models in ((batched, together), (sequential, alone)):
        trainer.train(models, steps)
        trainer.train(models[1:2], steps[1:2], proximal=0.3)
        trainer.train(models, steps, proximal=0.2, towards=start[::-1].copy())
    np.testing.assert_allclose(batched.gradients(start, steps), sequential.gradients(start, steps), rtol=0, atol=1e-6)
    batched.close()
    np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-7)  # a row's own rounding to float32, three times
    assert_same_but_for_rounding(together, alone, start)


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(Recipe(10, 0.05, momentum=0.5), id="momentum"),
        pytest.param(Recipe(10, 0.001, optimizer="adamw"), id="adamw"),
    ],
)
def test_rows_with_equally_much_to_do_which_may_be_trained_where_they_lie_are_trained_alike(
    name: str, population: Population, recipe: Recipe
) -> None:
    batched = build(name, population, recipe=recipe)
    sequential = build(name, population, recipe=recipe, backend="sequential")
    together = models_for(batched)
    start, alone = together.copy(), together.copy()
    steps = [replace(task, steps=2) for task in tasks_for(population)]
    batched.train(together, steps)
    sequential.train(alone, steps)
    batched.close()
    assert_same_but_for_rounding(together, alone, start)


def test_a_step_of_plain_descent_goes_against_the_gradient(trainer: Trainer, population: Population) -> None:
    models, tasks = models_for(trainer), [replace(task, steps=1) for task in tasks_for(population)]
    moved = models.copy()
    models.flags.writeable = False
    gradients = trainer.gradients(models, tasks_for(population))
    trainer.train(moved, tasks)
    assert gradients.dtype == np.float32
    assert gradients.shape == models.shape
    assert np.abs(gradients).max(axis=1).min() > 1e-3
    np.testing.assert_allclose(models - PLAIN.learning_rate * gradients, moved, rtol=0, atol=1e-6)
    assert len(trainer.gradients(models[:0], [])) == 0


def test_a_row_is_trained_alike_whichever_rows_stand_beside_it(trainer: Trainer, population: Population) -> None:
    models, tasks = models_for(trainer), tasks_for(population)
    start, alone, turned = models.copy(), models[1:2].copy(), models[::-1].copy()
    images = population.images.copy()
    trainer.train(models, tasks)
    assert models[3].tobytes() == start[3].tobytes(), "no epoch is no change"
    assert (population.images == images).all()
    trainer.train(turned, tasks[::-1])
    trainer.train(alone, tasks[1:2])
    assert_same_but_for_rounding(turned[::-1], models, start)
    assert_same_but_for_rounding(alone[0], models[1], start[1])


def test_same_seed_gives_same_bytes_and_another_draw_or_seed_does_not(
    trainer: Trainer, name: str, population: Population
) -> None:
    tasks = tasks_for(population)
    start, first, again, elsewhen, elsewhere = (models_for(trainer) for _ in range(5))
    trainer.train(first, tasks)
    trainer.train(again, tasks)
    trainer.train(elsewhen, [Task(task.samples, (task.draw[0], 2), task.epochs) for task in tasks])
    other = build(name, population, seed=2)
    other.train(elsewhere, tasks)
    other.close()
    assert first.tobytes() == again.tobytes()
    for other_models in (elsewhen, elsewhere):  # the third client has one batch, so its order hardly matters
        assert is_another_training(other_models[:2], first[:2], start[:2])


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_nothing(name: str, population: Population, workers: int) -> None:
    two, other = build(name, population), build(name, population, workers=workers)
    models = models_for(two)
    start, expected = models.copy(), models.copy()
    two.train(expected, tasks_for(population))
    other.train(models, tasks_for(population))
    two.close()
    other.close()
    assert_same_but_for_rounding(models, expected, start)


def test_evaluation_is_what_a_count_by_hand_gives(trainer: Trainer, name: str, population: Population) -> None:
    models = models_for(trainer, 3)
    models *= 3  # so that not all logits are alike
    models.flags.writeable = False
    rows = [2, 0, 2, 0, 1]
    samples = [population.test[0], population.test[0], population.train[2], population.test[0][:0], population.test[3]]
    found = trainer.evaluate(models, rows, samples)
    expected = []
    for row, asked in zip(rows, samples, strict=True):
        module = module_of(name)
        module.load_state_dict(unflatten(trainer.layout, torch.tensor(models[row])))
        expected.append(count(module, asked, population))
    correct, loss = zip(*expected, strict=True)
    assert found.count.tolist() == [6, 6, 7, 0, 6]
    assert found.correct.tolist() == list(correct)
    np.testing.assert_allclose(found.loss_sum, loss, rtol=1e-4, atol=1e-4)  # logits are float32
    assert np.isnan(found.accuracy[3])


@pytest.mark.parametrize("tests", [1, 3], ids=["one test", "three tests"])
def test_many_models_that_are_asked_about_few_tests_are_judged_as_if_each_were_alone(
    tests: int, trainer: Trainer, population: Population
) -> None:
    models = models_for(trainer, 55)  # more than are judged together
    models *= 3
    rows = [54, *range(54)]
    samples = [np.concatenate(population.test)[which::tests] for which in range(tests)] * 55
    found = trainer.evaluate(models, rows, samples[:55])
    alone = [trainer.evaluate(models, [row], [asked]) for row, asked in zip(rows, samples, strict=False)]
    assert found.correct.tolist() == [int(each.correct[0]) for each in alone]
    assert len(set(found.correct.tolist())) > 1
    np.testing.assert_allclose(found.loss_sum, [each.loss_sum[0] for each in alone], rtol=1e-5)


def test_of_equal_logits_the_first_counts_and_without_numbers_there_is_no_loss(
    trainer: Trainer, population: Population
) -> None:
    models = np.zeros((2, trainer.layout.num_parameters), np.float32)
    models[1] = np.nan
    test = np.concatenate(population.test)
    found = trainer.evaluate(models, [0, 1], [test, test])
    zeros = int(np.count_nonzero(population.labels[test] == 0))
    classes = 10
    assert found.correct.tolist() == [zeros, zeros]
    np.testing.assert_allclose(found.loss_sum, [len(test) * np.log(classes), np.nan], rtol=1e-6)


def count(module: torch.nn.Module, rows: NDArray[np.int64], population: Population) -> tuple[int, float]:
    """How many of the samples the module has right, one image at a time, and the sum of -ln p(label)."""
    correct, loss = 0, 0.0
    for row in rows:
        with torch.no_grad():
            logits = module(torch.tensor(population.images[row : row + 1]))[0].double().numpy()
        correct += int(np.argmax(logits) == population.labels[row])
        loss += float(np.log(np.exp(logits).sum()) - logits[population.labels[row]])
    return correct, loss


def module_of(name: str) -> torch.nn.Module:
    return classifier(KNOWN[name], (8, 8))


@pytest.mark.parametrize("name", sorted(MODELS), indirect=True, scope="module")
def test_every_model_trains_a_step(name: str) -> None:
    model = MODELS[name]
    image = model.image or (28, 28)
    images = np.random.default_rng(5).random((2, *image), dtype=np.float32)
    both = np.arange(2)
    population = Population(images, both, (both,), (both,), np.zeros(1, np.int64), 10)
    trained = []
    for backend in ("batched", "sequential"):
        trainer = build(name, population, backend=backend)
        models = models_for(trainer, 1)
        trainer.train(models, [Task(both, (0,), 1)])
        trained.append((models, trainer.evaluate(models, [0], [both]).loss))
        trainer.close()
    for one, other in zip(*trained, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_no_question_and_no_sample_are_none_right(trainer: Trainer) -> None:
    assert len(trainer.evaluate(models_for(trainer, 1), [], []).count) == 0
    found = trainer.evaluate(models_for(trainer, 1), [0], [np.zeros(0, np.int64)])
    assert (found.correct.tolist(), found.loss_sum.tolist(), found.count.tolist()) == ([0], [0], [0])


def test_a_first_model_is_to_the_byte_what_torch_makes_of_the_seed(trainer: Trainer, name: str) -> None:
    torch.manual_seed(3)
    expected_next = torch.rand(4)
    torch.manual_seed(3)
    found = unflatten(trainer.layout, torch.tensor(trainer.initial(np.random.default_rng(7))))
    assert torch.rand(4).equal(expected_next)  # torch's own generator was left alone
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(int(np.random.default_rng(7).integers(2**63)))
        expected = module_of(name).state_dict()
    assert all(values.equal(expected[tensor]) for tensor, values in found.items())


@pytest.mark.parametrize("backend", ["batched", "sequential"])
def test_he_draws_weights_evenly_within_the_root_of_six_by_inputs(
    name: str, population: Population, backend: str
) -> None:
    trainer, plain = build(name, population, init="he", backend=backend), build(name, population, backend=backend)
    drawn, stretched, usual = (
        unflatten(trainer.layout, torch.tensor(each.initial(np.random.default_rng(7), gain=gain)))
        for each, gain in ((trainer, 1.0), (trainer, 3.0), (plain, 1.0))
    )
    for tensor, values in drawn.items():
        if values.dim() == 1:  # a bias, or a group norm's scale
            assert values.equal(usual[tensor])
            assert values.equal(stretched[tensor])
            continue
        bound = (6 / values[0].numel()) ** 0.5
        assert 0.9 * bound < values.abs().max() <= bound
        assert abs(float(values.mean())) < bound / values.numel() ** 0.5 * 3  # σ = bound / √3; five of them
        torch.testing.assert_close(stretched[tensor], 3 * values)
    trainer.close()
    plain.close()


@pytest.mark.parametrize("backend", ["batched", "sequential"])
def test_a_model_has_as_many_logits_as_the_population_has_classes(name: str, backend: str) -> None:
    population = replace(population_for(name), labels=np.arange(78) % 26, num_classes=26)
    trainer = build(name, population, backend=backend)
    assert [tensor.shape for tensor in trainer.layout.tensors if tensor.name == KNOWN[name].last_layers[-2]] == [(26,)]
    models = models_for(trainer, 2)
    trainer.train(models, [Task(np.arange(26), (0,), 1)] * 2)
    assert trainer.evaluate(models, [0], [np.arange(26)]).count.tolist() == [26]
    trainer.close()


def test_the_layout_is_the_modules_and_the_compared_layers_are_in_it(trainer: Trainer, name: str) -> None:
    shapes = {tensor.name: tensor.shape for tensor in trainer.layout.tensors}
    assert shapes == {key: tuple(value.shape) for key, value in module_of(name).state_dict().items()}
    assert set(KNOWN[name].last_layers) <= shapes.keys()
    assert trainer.layout.slices(KNOWN[name].last_layers)[-1].stop == trainer.layout.num_parameters


def test_torch_has_its_threads_back_afterwards(trainer: Trainer, population: Population) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        models = models_for(trainer)
        trainer.train(models, tasks_for(population))
        trainer.evaluate(models, [0], [population.test[0]])
        assert torch.get_num_threads() == 2
        with pytest.raises(IndexError):
            trainer.train(models[:1], [Task(np.array([10**9]), (0,), 1)])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_rows_that_do_not_fit_are_refused(trainer: Trainer, population: Population) -> None:
    models, tasks = models_for(trainer), tasks_for(population)
    for wrong in (models[:2], models[:, 1:].copy(), models.astype(np.float64), np.asfortranarray(models)):
        with pytest.raises(ShapeMismatchError, match="models of shape"):
            trainer.train(wrong, tasks)  # type: ignore[arg-type]
    with pytest.raises(ShapeMismatchError, match="without samples"):
        trainer.train(models[:1], [Task(population.train[0][:0], (0,), 1)])
    with pytest.raises(ShapeMismatchError, match="each row needs"):
        trainer.evaluate(models[:, 1:], [0], [population.test[0]])
    with pytest.raises(ShapeMismatchError, match="1 rows to evaluate, but samples for 2"):
        trainer.evaluate(models, [0], [population.test[0], population.test[1]])


@pytest.mark.parametrize("name", ["lr", "mlp", "tiny-cnn"], indirect=True, scope="module")
def test_bfloat16_trains_nearly_the_same_model(name: str, population: Population) -> None:
    exact = build(name, population)
    rounded = build(name, population, precision="bfloat16")
    models = models_for(exact)
    other = models.copy()
    exact.train(models, tasks_for(population))
    rounded.train(other, tasks_for(population))
    samples = list(population.test)
    expected, found = (each.evaluate(rows, range(4), samples) for each, rows in ((exact, models), (rounded, other)))
    exact.close()
    rounded.close()
    assert other.dtype == np.float32
    np.testing.assert_allclose(found.loss, expected.loss, rtol=0.05)  # 8 bits of a weight are 0.4 %


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    known = "unknown model 'vgg'; known: cifar-cnn, digits-mlp, fashion-cnn, gn-lenet, lr, mlp, mlp"
    with pytest.raises(UnknownNameError, match=known):
        build("vgg", population_for("digits-mlp"))


def test_images_of_another_size_and_absent_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    population = population_for("digits-mlp")
    with pytest.raises(
        ScenarioError, match=r"'mnist-cnn' is for images of shape \(28, 28\); the data set's are \(8, 8\)"
    ):
        build("mnist-cnn", population)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ScenarioError, match="torch finds no GPU"):
        build_trainer("lr", population, recipe=Recipe(1, 0.1), seeds=Seeds(0), device="cuda")


def test_names_are_known_without_torch_and_building_says_which_extra_brings_it() -> None:
    program = """
import sys
sys.modules["torch"] = None
import numpy as np
from fl_simulator.models.catalogue import MODELS
from fl_simulator.engine.population import Population
from fl_simulator.seeds import Seeds
from fl_simulator.training import build_trainer
from fl_simulator.training.recipe import Recipe
rows = np.arange(1)
population = Population(np.zeros((1, 8, 8), np.float32), rows, (rows,), (rows,), rows, 10)
try:
    build_trainer("lr", population, recipe=Recipe(1, 0.1), seeds=Seeds(0))
except Exception as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert run.stdout == "TorchMissingError training needs PyTorch; run: pip install torch\n"
