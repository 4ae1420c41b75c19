"""Training on several machines: every node of a Ray cluster has an actor with a trainer of its own.

* An actor is a process that holds the population's images (once a node, in Ray's shared memory) and what
  ``build_trainer`` builds there. Nodes without a GPU have one actor, which trains on all of the node's cores. Where the
  scenario's device allows a GPU and the cluster has some, each GPU has an actor and other nodes stay idle.
* Rows are shared out by work (samples that go by) and by the actors' cores, before anything starts: on a cluster of
  the same shape the same rows are trained side by side in the same chunks, and give the same bytes. On another shape
  they differ as batched training differs from sequential training, by rounding.
* Rows travel in pieces, at most two at a time for an actor, so that one is on its way while another is trained. A row
  is overwritten when it comes back, not before, so whatever is lost on the way is trained again from what it was.
* An actor that dies is replaced, on its node if that lives and else on another, and its pieces are done anew. If it
  dies a second time in the same call, the call fails: then it is no accident, and most often memory.
* On processors actors reserve nothing of Ray's accounting: several runs on one cluster share its cores as processes do,
  and none waits for another. A GPU is reserved.

Every node needs this package with the extras ``ray`` and ``torch``, and Ray's rule holds that Python and Ray are
of one version everywhere. Nothing is reported to Ray's makers from a cluster that is started here.
"""

import logging
import math
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Final

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fl_core.errors import DagAcflError
from fl_core.models import ModelLayout
from fl_core.types import Matrix32, Vector32
from fl_simulator.engine.population import Population
from fl_simulator.errors import ClusterError
from fl_simulator.run.processes import usable_cores
from fl_simulator.seeds import Seeds
from fl_simulator.training import Backend, Device, Precision, build_trainer
from fl_simulator.training.protocol import Evaluation, Rows, Task, Trainer
from fl_simulator.training.recipe import Initialisation, Recipe
from fl_simulator.training.rows import check_evaluation, check_tasks, check_training
from fl_simulator.training.sharing import Places, Post, cut, pieces_of, posts_on, shared_out

logger = logging.getLogger(__name__)

_PIECE_BYTES: Final = 256 << 20
"""Of models in a piece: large enough for a stack to train well, small enough that not all models travel at once."""
_IN_FLIGHT: Final = 2
_START_TIMEOUT_S: Final = 300.0
"""For a node to load torch and to fetch the images."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How an actor builds its trainer; the fields are ``build_trainer``'s."""

    model_name: str
    recipe: Recipe
    seeds: Seeds
    init: Initialisation = "pytorch"
    device: Device = "auto"
    precision: Precision = "float32"
    backend: Backend = "batched"

    def build(self, population: Population, *, device: Device, workers: int) -> Trainer:
        """The trainer on this machine.

        Raises:
            UnknownNameError, ScenarioError, TorchMissingError: As ``build_trainer``.
        """
        return build_trainer(
            self.model_name,
            population,
            recipe=self.recipe,
            seeds=self.seeds,
            init=self.init,
            device=device,
            workers=workers,
            precision=self.precision,
            backend=self.backend,
        )


class _Actor:
    """What runs on a node."""

    def begin(self, plan: Plan, population: Population, post: Post) -> None:
        """Build the trainer; the images stay where Ray has them, read-only."""
        self._trainer = plan.build(population, device=post.device, workers=post.workers)

    def train(self, models: Matrix32, tasks: Sequence[Task], proximal: float) -> Matrix32:
        """A trained copy of the rows."""
        trained = models.copy()  # what came is Ray's, and read-only
        self._trainer.train(trained, tasks, proximal=proximal)
        return trained

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:
        """As ``Trainer.gradients``."""
        return self._trainer.gradients(models, tasks)

    def evaluate(self, models: Matrix32, rows: Places, samples: Sequence[Rows]) -> Evaluation:
        """As ``Trainer.evaluate``."""
        return self._trainer.evaluate(models, rows, samples)


_REMOTE_ACTOR: Final[Any] = ray.remote(_Actor)


class RayTrainer:
    """Shares rows out among the actors of a Ray cluster; meets ``Trainer``.

    A connection to a cluster that the process has already is used, whatever the address, and left open.

    Args:
        plan: What each actor builds.
        population: Its images and labels are sent to each node once.
        address: Empty: a cluster on this machine that ends with the trainer; ``auto``: the one that runs here;
            ``ray://host:10001``, ``host:6379``: that one.
        workers: Cores of the cluster that an empty address starts; 0: all.

    Raises:
        UnknownNameError, ScenarioError, TorchMissingError: As ``build_trainer``, or no node has the GPU asked for.
        ClusterError: There is no such cluster, it has no cores, or an actor cannot begin.
    """

    def __init__(self, plan: Plan, population: Population, *, address: str = "", workers: int = 0) -> None:
        self._plan = plan
        self._here = plan.build(population, device="cpu", workers=1)  # for what needs no cluster
        self._actors: list[Any] = []
        self._is_open = True
        _Connection.take(address, workers)
        try:
            self._posts = posts_on(ray.nodes(), plan.device)  # type: ignore[no-untyped-call] # Ray leaves it so
            self._population: Any = ray.put(_images_of(population))
            self._actors = [self._hired(post) for post in self._posts]
            self._begin(range(len(self._posts)))
        except BaseException:
            self.close()
            raise

    @property
    def layout(self) -> ModelLayout:
        """The inner trainer's."""
        return self._here.layout

    @property
    def posts(self) -> tuple[Post, ...]:
        """The actors' places."""
        return tuple(self._posts)

    def initial(self, rng: np.random.Generator, *, gain: float = 1.0) -> Vector32:
        """A new model, shape ``(P,)``; ``rng`` decides it, and ``gain`` multiplies its weights."""
        return self._here.initial(rng, gain=gain)

    def train(self, models: Matrix32, tasks: Sequence[Task], *, proximal: float = 0.0) -> None:
        """Train row k of ``models`` in place by ``tasks[k]``; see ``Trainer``.

        Raises:
            ShapeMismatchError: The rows cannot be trained in place, or a task has no samples.
            ClusterError: An actor was lost twice; rows that had not come back are as they were.
        """
        check_training(self.layout, models, tasks)
        size = self._plan.recipe.batch_size
        work = np.array([task.num_passed(size) for task in tasks], dtype=np.int64)

        def ask(actor: Any, rows: Places) -> Any:
            return actor.train.remote(models[rows], [tasks[row] for row in rows], proximal)

        def receive(rows: Places, trained: Matrix32) -> None:
            models[rows] = trained

        self._do(self._pieces(work), ask, receive)

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:
        """The loss's gradient at each row over its task's first batch, shape ``(K, P)``; see ``Trainer``.

        Raises:
            ShapeMismatchError: Models of another layout, or a task has no samples.
            ClusterError: An actor was lost twice.
        """
        check_tasks(self.layout, models, tasks)
        found = np.empty_like(models, order="C")

        def ask(actor: Any, rows: Places) -> Any:
            return actor.gradients.remote(models[rows], [tasks[row] for row in rows])

        def receive(rows: Places, gradients: Matrix32) -> None:
            found[rows] = gradients

        self._do(self._pieces(np.ones(len(tasks), dtype=np.int64)), ask, receive)
        return found

    def evaluate(self, models: Matrix32, rows: Sequence[int] | Rows, samples: Sequence[Rows]) -> Evaluation:
        """Model ``rows[k]`` on the samples ``samples[k]``; see ``Trainer``.

        Raises:
            ShapeMismatchError: Models of another layout, or not as many rows as samples.
            ClusterError: An actor was lost twice.
        """
        check_evaluation(self.layout, models, rows, samples)
        asked = np.asarray(rows, dtype=np.int64)
        count = np.array([len(each) for each in samples], dtype=np.int64)
        correct, loss_sum = np.zeros(len(count), dtype=np.int64), np.zeros(len(count), dtype=np.float64)

        def ask(actor: Any, pairs: Places) -> Any:
            needed, places = np.unique(asked[pairs], return_inverse=True)
            return actor.evaluate.remote(models[needed], places, [samples[pair] for pair in pairs])

        def receive(pairs: Places, found: Evaluation) -> None:
            correct[pairs], loss_sum[pairs] = found.correct, found.loss_sum

        by_model = np.argsort(asked, kind="stable")  # a model travels to one actor, or to two where the cut goes
        pieces = [
            list(pieces_of(share, asked[share], self._models_of_a_piece(post)))
            for post, share in zip(self._posts, cut(by_model, count, self._capacities), strict=True)
        ]
        self._do(pieces, ask, receive)
        return Evaluation(correct=correct, loss_sum=loss_sum, count=count)

    def close(self) -> None:
        """End the actors, free the images, and end the cluster if it was started here."""
        if not self._is_open:
            return
        self._is_open = False
        self._here.close()
        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor)
        self._actors = []
        self._population = None
        _Connection.release()

    @property
    def _capacities(self) -> list[int]:
        return [post.capacity for post in self._posts]

    def _pieces(self, work: Places) -> list[list[Places]]:
        """For each actor its rows, in pieces of about the same work."""
        return [
            [share[at::count] for at in range(count)]
            for post, share in zip(self._posts, shared_out(work, self._capacities), strict=True)
            for count in [math.ceil(len(share) / self._models_of_a_piece(post))]
        ]

    def _models_of_a_piece(self, post: Post) -> int:
        return max(_PIECE_BYTES // self.layout.nbytes, 2 * post.workers)

    def _hired(self, post: Post) -> Any:
        return _REMOTE_ACTOR.options(
            num_cpus=0,
            num_gpus=1 if post.device == "cuda" else 0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(post.node_id, soft=False),
        ).remote()

    def _begin(self, places: Sequence[int]) -> None:
        begun = [self._actors[at].begin.remote(self._plan, self._population, self._posts[at]) for at in places]
        try:
            ray.get(begun, timeout=_START_TIMEOUT_S)
        except GetTimeoutError as error:
            raise ClusterError(
                f"not all of the cluster's {len(self._posts)} actors began within {_START_TIMEOUT_S:.0f} s; "
                "`ray status` shows whether its nodes live and its GPUs are free"
            ) from error
        except RayError as error:
            if isinstance(error, RayTaskError) and isinstance(error.cause, DagAcflError):
                raise error.cause from error
            raise ClusterError(
                f"an actor could not begin; every node needs dag-acfl[ray,torch] of this version: {_first_line(error)}"
            ) from error

    def _do(
        self,
        pieces: Sequence[Sequence[Places]],
        ask: Callable[[Any, Places], Any],
        receive: Callable[[Places, Any], None],
    ) -> None:
        """Let actor k do ``pieces[k]``, each once; what a lost actor had not given back is done by its successor."""
        waiting = [deque(each) for each in pieces]
        flying: dict[Any, tuple[int, Places]] = {}
        replaced: set[int] = set()

        def send(at: int) -> None:
            in_flight = sum(owner == at for owner, _ in flying.values())
            for _ in range(min(_IN_FLIGHT - in_flight, len(waiting[at]))):
                piece = waiting[at].popleft()
                flying[ask(self._actors[at], piece)] = at, piece

        for at in range(len(waiting)):
            send(at)
        while flying:
            (ready,), _ = ray.wait(list(flying), num_returns=1)
            at, piece = flying.pop(ready)
            try:
                receive(piece, ray.get(ready))
            except RayTaskError as error:
                raise error.cause from error
            except RayError as error:
                if at in replaced:
                    raise ClusterError(
                        f"actor {at} on node {self._posts[at].node_id[:8]} was lost twice in one call; memory is the "
                        f"usual reason: {_first_line(error)}"
                    ) from error
                replaced.add(at)
                waiting[at].appendleft(piece)
                for other in [ref for ref, (owner, _) in flying.items() if owner == at]:
                    waiting[at].append(flying.pop(other)[1])
                logger.warning(
                    "training actor lost",
                    extra={"actor": at, "node": self._posts[at].node_id, "reason": _first_line(error)},
                )
                self._replace(at)
            send(at)

    def _replace(self, at: int) -> None:
        ray.kill(self._actors[at])  # what was lost may be its answer only
        lost = self._posts[at]
        nodes = list(dict.fromkeys(post.node_id for post in posts_on(ray.nodes(), self._plan.device)))  # type: ignore[no-untyped-call]
        nodes.sort(key=lambda node: node != lost.node_id)
        for attempt, node in enumerate(nodes[:2]):  # Ray may need seconds to notice that a node is gone
            self._posts[at] = replace(lost, node_id=node)
            self._actors[at] = self._hired(self._posts[at])
            try:
                self._begin([at])
            except ClusterError:
                if attempt == len(nodes[:2]) - 1:
                    raise
            else:
                return


class _Connection:
    """This process's connection to a cluster, which all its trainers share; ended by the last if the first made it."""

    lock = Lock()
    users = 0
    is_ours = False

    @classmethod
    def take(cls, address: str, workers: int) -> None:
        with cls.lock:
            if not ray.is_initialized():
                _connect(address, workers)
                cls.is_ours, cls.users = True, 0
            cls.users += 1

    @classmethod
    def release(cls) -> None:
        with cls.lock:
            cls.users -= 1
            if cls.users == 0 and cls.is_ours:
                cls.is_ours = False
                ray.shutdown()


def _connect(address: str, workers: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a simulation tells nobody that it runs
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's next default; it warns until then
    started: dict[str, Any] = {} if address else {"num_cpus": workers or usable_cores(), "include_dashboard": False}
    try:
        with _own_sigterm():
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **started)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        wanted = f"no Ray cluster answers at {address!r}" if address else "no Ray cluster can be started here"
        raise ClusterError(
            f"{wanted}: {_first_line(error)}; begin one with `ray start --head`, or leave [training] address empty"
        ) from error


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray takes SIGTERM for itself; who runs a simulation has plans of its own for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _images_of(population: Population) -> Population:
    """What trainers need: who has which sample comes with each task."""
    return Population(
        images=population.images,
        labels=population.labels,
        train=(),
        test=(),
        clusters=np.zeros(0, dtype=np.int64),
        num_classes=population.num_classes,
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
