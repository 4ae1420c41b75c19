"""Training on two nodes of a real Ray cluster: the inner trainer's numbers, whoever dies meanwhile."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_core.types import Matrix32
from fl_simulator.config.scenario import read_scenario
from fl_simulator.engine.population import Population
from fl_simulator.errors import ClusterError, ScenarioError
from fl_simulator.run.prepare import build_world
from fl_simulator.seeds import Seeds
from fl_simulator.training import Backend, Recipe, Task, Trainer, build_trainer

pytestmark = pytest.mark.xdist_group("ray")

CLIENTS = 8
SIZES = range(20, 20 + 10 * CLIENTS, 10)


def noise() -> Population:
    rng = np.random.default_rng(11)
    count = sum(SIZES)
    starts = np.cumsum([0, *SIZES])
    rows = tuple(np.arange(at, at + size) for at, size in zip(starts, SIZES, strict=False))
    return Population(
        images=rng.random((count, 8, 8), dtype=np.float32),
        labels=rng.integers(0, 10, count),
        train=rows,
        test=tuple(each[:7] for each in rows),
        clusters=np.zeros(CLIENTS, dtype=np.int64),
        num_classes=10,
    )


POPULATION = noise()
RECIPE = Recipe(batch_size=10, learning_rate=0.1)
TASKS = [Task(rows, (client, 0), 1 + client % 2) for client, rows in enumerate(POPULATION.train)]


def here(backend: Backend) -> Trainer:
    return build_trainer("digits-mlp", POPULATION, recipe=RECIPE, seeds=Seeds(1), device="cpu", backend=backend)


@pytest.fixture(scope="module")
def trainers(ray_nodes: object) -> Iterator[dict[str, Any]]:
    """Trainers on the cluster by what each of its actors has inside."""
    from fl_simulator.training.ray_cluster import Plan, RayTrainer

    built = {
        backend: RayTrainer(Plan("digits-mlp", RECIPE, Seeds(1), device="cpu", backend=backend), POPULATION)
        for backend in ("sequential", "batched")
    }
    yield built
    for each in built.values():
        each.close()


@pytest.fixture
def exact(trainers: dict[str, Any]) -> Any:
    """Whose numbers do not depend on which rows stand together."""
    return trainers["sequential"]


def start() -> Matrix32:
    inner = here("sequential")
    return np.stack([inner.initial(np.random.default_rng(client)) for client in range(CLIENTS)])


def trained_by(trainer: Trainer, *, proximal: float = 0.0) -> Matrix32:
    models = start()
    trainer.train(models, TASKS, proximal=proximal)
    return models


def after_each_answer(trainer: Any, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Call ``act`` with the number of answers that have come back so far, from 1."""
    do, answers = trainer._do, iter(range(1, 1000))

    def watched(pieces: Any, ask: Any, receive: Any) -> None:
        def then(places: Any, answer: Any) -> None:
            receive(places, answer)
            act(next(answers))

        do(pieces, ask, then)

    monkeypatch.setattr(trainer, "_do", watched)


def one_row_a_piece(monkeypatch: pytest.MonkeyPatch, trainer: Any) -> None:
    monkeypatch.setattr(type(trainer), "_models_of_a_piece", lambda self, post: 1)


@pytest.mark.parametrize("proximal", [0.0, 0.3])
def test_rows_are_trained_to_the_byte_as_the_inner_trainer_does(exact: Any, proximal: float) -> None:
    assert [(post.device, post.workers) for post in exact.posts] == [("cpu", 1), ("cpu", 1)]
    expected = trained_by(here("sequential"), proximal=proximal)
    assert trained_by(exact, proximal=proximal).tobytes() == expected.tobytes()


def test_gradients_are_to_the_byte_those_of_the_inner_trainer(exact: Any) -> None:
    models = start()
    assert exact.gradients(models, TASKS).tobytes() == here("sequential").gradients(models, TASKS).tobytes()
    assert models.tobytes() == start().tobytes()


def test_stacks_are_trained_as_one_stack_to_rounding(trainers: dict[str, Any]) -> None:
    inner = here("batched")
    found, again, expected = trained_by(trainers["batched"]), trained_by(trainers["batched"]), trained_by(inner)
    inner.close()
    assert found.tobytes() == again.tobytes()
    np.testing.assert_allclose(found, expected, atol=1e-5)  # weights are about 0.1, sums of float32 in another order


def test_questions_are_answered_as_the_inner_trainer_does(exact: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    models, inner = start(), here("sequential")
    rows = [3, 0, 3, 7, 1, 3, 0, 6]
    samples = [*POPULATION.test[:4], POPULATION.test[0][:0], *POPULATION.train[5:]]
    expected = inner.evaluate(models, rows, samples)
    for pieces in ("whole", "single models"):
        found = exact.evaluate(models, rows, samples)
        assert found.correct.tolist() == expected.correct.tolist(), pieces
        assert found.count.tolist() == expected.count.tolist()
        np.testing.assert_allclose(found.loss_sum, expected.loss_sum, rtol=1e-5)  # other samples in one product
        one_row_a_piece(monkeypatch, exact)


def test_both_nodes_train_and_keep_the_images_where_ray_has_them(exact: Any) -> None:
    import ray

    def where(actor: Any) -> tuple[int, str, bool]:
        """Its process, its node, and whether its images lie in the object store."""
        address = actor._trainer._images.data_ptr()
        for line in Path("/proc/self/maps").read_text().splitlines():
            low, high = (int(each, 16) for each in line.split()[0].split("-"))
            if low <= address < high:
                return os.getpid(), ray.get_runtime_context().get_node_id(), "plasma" in line
        return os.getpid(), "", False

    processes, nodes, shared = zip(*ray.get([each.__ray_call__.remote(where) for each in exact._actors]), strict=True)
    assert len({os.getpid(), *processes}) == 3
    assert set(nodes) == {post.node_id for post in exact.posts}
    assert all(shared)


def test_an_actor_that_dies_between_two_rounds_is_replaced(exact: Any, caplog: pytest.LogCaptureFixture) -> None:
    import ray

    expected = trained_by(here("sequential"))
    ray.kill(exact._actors[0])
    with caplog.at_level(logging.WARNING):
        assert trained_by(exact).tobytes() == expected.tobytes()
    assert [record.message for record in caplog.records] == ["training actor lost"]
    ray.kill(exact._actors[1])
    models, inner = start(), here("sequential")
    found = exact.evaluate(models, range(CLIENTS), POPULATION.test)
    assert found.correct.tolist() == inner.evaluate(models, range(CLIENTS), POPULATION.test).correct.tolist()


def test_an_actor_that_dies_in_the_middle_loses_nothing(
    exact: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import ray

    expected = trained_by(here("sequential"))
    one_row_a_piece(monkeypatch, exact)
    victims = ray.get([each.__ray_call__.remote(lambda _: os.getpid()) for each in exact._actors])

    def kill(answers: int) -> None:
        if answers == 2:  # of eight: both have pieces in flight and pieces that wait
            os.kill(victims[0], signal.SIGKILL)
            ray.kill(exact._actors[1])

    after_each_answer(exact, monkeypatch, kill)
    with caplog.at_level(logging.WARNING):
        found = trained_by(exact)
    assert found.tobytes() == expected.tobytes()
    assert [record.message for record in caplog.records] == ["training actor lost"] * 2


def test_an_actor_that_is_lost_twice_in_a_call_is_an_error_and_what_was_not_back_is_untouched(
    exact: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    expected = trained_by(here("sequential"))
    one_row_a_piece(monkeypatch, exact)
    after_each_answer(exact, monkeypatch, lambda _: ray.kill(exact._actors[0]))
    models = start()
    with pytest.raises(ClusterError, match=r"actor 0 on node [0-9a-f]{8} was lost twice in one call") as failure:
        exact.train(models, TASKS)
    assert "\n" not in str(failure.value)
    outcome = [
        "trained" if (row == done).all() else "untouched" if (row == begun).all() else "torn"
        for row, done, begun in zip(models, expected, start(), strict=True)
    ]
    assert set(outcome) == {"trained", "untouched"}
    monkeypatch.undo()
    assert trained_by(exact).tobytes() == expected.tobytes()  # a new call, a new chance


@pytest.mark.slow
def test_when_a_node_dies_its_rows_are_trained_on_another(ray_nodes: Any) -> None:
    import ray

    from fl_simulator.training.ray_cluster import Plan, RayTrainer

    third = ray_nodes.add_node(num_cpus=2)
    ray_nodes.wait_for_nodes()
    trainer = RayTrainer(Plan("digits-mlp", RECIPE, Seeds(1), device="cpu", backend="sequential"), POPULATION)
    assert [post.workers for post in trainer.posts] == [2, 1, 1]
    assert trainer.posts[0].node_id == third.node_id
    process = ray.get(trainer._actors[0].__ray_call__.remote(lambda _: os.getpid()))
    ray_nodes.remove_node(third, allow_graceful=False)
    os.kill(process, signal.SIGKILL)
    assert trained_by(trainer).tobytes() == trained_by(here("sequential")).tobytes()
    assert trainer.posts[0].node_id in {post.node_id for post in trainer.posts[1:]}
    assert trained_by(trainer).tobytes() == trained_by(here("sequential")).tobytes()
    trainer.close()


def test_what_fails_on_a_node_fails_here_as_what_it_is(exact: Any) -> None:
    with pytest.raises(IndexError) as failure:
        exact.train(start()[:1], [Task(np.array([10**9]), (0,), 1)])
    assert type(failure.value) is IndexError


def test_actors_that_do_not_begin_are_an_error_that_says_where_to_look(
    ray_nodes: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fl_simulator.training import ray_cluster

    monkeypatch.setattr(ray_cluster, "_START_TIMEOUT_S", 0.001)
    with pytest.raises(ClusterError, match="not all of the cluster's 2 actors began within 0 s; `ray status` shows"):
        ray_cluster.RayTrainer(ray_cluster.Plan("lr", RECIPE, Seeds(1), device="cpu"), POPULATION)


def test_a_gpu_that_no_node_has_is_refused_before_anybody_starts(ray_nodes: object) -> None:
    with pytest.raises(ScenarioError, match="no node of the cluster has a GPU"):
        build_trainer("lr", POPULATION, recipe=RECIPE, seeds=Seeds(1), device="cuda", backend="ray")


def test_closing_ends_the_actors_and_leaves_a_connection_that_was_there(ray_nodes: object) -> None:
    import ray

    def answer_for_ever(actor: Any) -> None:
        # Ray kills without waiting for the death: on a busy machine a few more calls are answered.
        until = time.monotonic() + 30
        while time.monotonic() < until:
            ray.get(actor.__ray_call__.remote(lambda _: 0))

    trainer: Any = build_trainer("lr", POPULATION, recipe=RECIPE, seeds=Seeds(1), device="cpu", backend="ray")
    actors = list(trainer._actors)
    trainer.close()
    trainer.close()
    assert ray.is_initialized()
    for actor in actors:
        with pytest.raises(ray.exceptions.RayActorError):
            answer_for_ever(actor)


def test_a_scenario_trains_on_a_cluster_as_it_does_here(ray_nodes: object) -> None:
    def world_with(**training: str) -> Any:
        return build_world(
            read_scenario(
                {
                    "model": {"name": "digits-mlp"},
                    "training": {"device": "cpu", **training},
                    "partition": {"name": "iid", "clients": 6},
                }
            ),
            workers=1,
        )

    clients = range(6)
    found: dict[str, Matrix32] = {}
    for backend in ("ray", "batched"):
        world = world_with(backend=backend)
        found[backend] = np.repeat(world.initial_model()[None], 6, axis=0)
        world.train(found[backend], clients, occasion=0)
        world.trainer.close()
    np.testing.assert_allclose(found["ray"], found["batched"], atol=1e-5)


def test_an_address_where_no_cluster_is_and_one_without_the_backend_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray

    from fl_simulator.training import ray_cluster

    def nobody(address: str, **_: object) -> None:
        raise ConnectionError(f"could not find {address}\nand more of it")

    monkeypatch.setattr(ray, "init", nobody)
    with pytest.raises(ClusterError, match="no Ray cluster answers at 'auto': could not find auto; begin one with"):
        ray_cluster._connect("auto", 0)
    with pytest.raises(ClusterError, match="no Ray cluster can be started here: could not find local; begin one with"):
        ray_cluster._connect("", 2)
    with pytest.raises(ScenarioError, match="address 'auto' is of backend 'ray'; the backend is 'batched'"):
        build_trainer("lr", POPULATION, recipe=RECIPE, seeds=Seeds(1), address="auto")


OWN_CLUSTER = """
import logging, signal, sys
import numpy as np
import ray
from fl_simulator.seeds import Seeds
from fl_simulator.training import Task, build_trainer
from tests.integration.test_ray_cluster import POPULATION, RECIPE, TASKS, here, start

def ours(*_):
    pass

signal.signal(signal.SIGTERM, ours)
given = dict(recipe=RECIPE, seeds=Seeds(1), device="cpu")
first, second = (build_trainer("digits-mlp", POPULATION, **given, workers=2, backend="ray") for _ in range(2))
assert signal.getsignal(signal.SIGTERM) is ours
assert [(post.device, post.workers) for post in first.posts] == [("cpu", 2)]
models, expected = start(), start()
first.train(models, TASKS)
first.close()
assert ray.is_initialized()
second.train(expected, TASKS)
second.close()
assert not ray.is_initialized()
assert models.tobytes() == expected.tobytes()
print("trained")
"""


@pytest.mark.slow
def test_without_an_address_a_cluster_is_started_and_ends_with_its_last_trainer(tmp_path: Path) -> None:
    quiet = {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", OWN_CLUSTER],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **quiet},
        cwd=Path(__file__).parents[2],
    )
    assert (run.returncode, run.stdout) == (0, "trained\n"), run.stderr
    assert run.stderr == ""


def test_without_ray_the_backend_names_the_extra_that_brings_it() -> None:
    program = """
import sys
sys.modules["ray"] = None
import numpy as np
from fl_simulator.engine.population import Population
from fl_simulator.seeds import Seeds
from fl_simulator.training import Recipe, build_trainer
rows = np.arange(1)
population = Population(np.zeros((1, 8, 8), np.float32), rows, (rows,), (rows,), rows, 10)
try:
    build_trainer("lr", population, recipe=Recipe(1, 0.1), seeds=Seeds(0), backend="ray")
except Exception as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "RayMissingError training backend 'ray' needs Ray: pip install 'dag-acfl[ray]'\n"
