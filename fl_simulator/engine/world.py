"""What a strategy sees of a simulation: the clients, training, and who decides what is drawn."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fl_core.types import Matrix32, Vector32
from fl_simulator.attacks.attack import Attack
from fl_simulator.engine.population import Population
from fl_simulator.errors import ScenarioError
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.links import Links
from fl_simulator.seeds import Seeds
from fl_simulator.training.protocol import Evaluation, Rows, Task, Trainer

Clients: TypeAlias = NDArray[np.int64]
"""Client numbers, shape ``(k,)``."""

Part: TypeAlias = Literal["train", "test", "held out"]


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """How long every client trains (DAG-ACFL, Table I), and its step; all else is the trainer's ``Recipe``."""

    epochs: int = 1
    """E."""
    initial_epochs: int = 1
    """E′, of a client that joins; FlexCFL's pre-training."""
    steps: int = 0
    """Batches of a training instead of E epochs; 0: E epochs."""
    learning_rate: float = 0.05
    """The recipe's, for strategies that take steps against gradients themselves."""


@dataclass(slots=True)
class Stopwatch:
    """Seconds of this machine that went into each kind of work; never part of what a run decides."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, work: str) -> Iterator[None]:
        """Count the time of the block as ``work``."""
        began = perf_counter()
        try:
            yield
        finally:
            self.seconds[work] = self.seconds.get(work, 0.0) + perf_counter() - began

    def take(self) -> dict[str, float]:
        """What was counted since the last call."""
        taken, self.seconds = self.seconds, {}
        return taken


@dataclass(slots=True, eq=False)
class World:
    """One run's surroundings.

    Attributes:
        population: All clients' data, as they are now: in a run with ``Changes`` some have others' for a while.
        trainer: Trains and evaluates on that population's images.
        seeds: Decides every draw.
        training: Epochs.
        similarity_layers: Names of the tensors by which models are compared (DAG-ACFL, III-D), or all of them.
        stopwatch: Counts the machine's time.
        workers: Processes that may share what a strategy computes; never part of what comes out.
        resources: What must end with the run: threads and processes of a strategy, say.
        graph: Which clients hear which, for strategies on a graph; None for the others.
        graph_links: How reliable its links are.
        attack: Who of the clients is an attacker; None: nobody.
    """

    population: Population
    trainer: Trainer
    seeds: Seeds
    training: LocalTraining = field(default_factory=LocalTraining)
    similarity_layers: tuple[str, ...] = ()
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    workers: int = 1
    resources: ExitStack = field(default_factory=ExitStack)
    graph: Graph | None = None
    graph_links: Links = field(default_factory=Links)
    attack: Attack | None = None

    def close(self) -> None:
        """End all threads and processes; neither the world nor a strategy in it is used again."""
        self.resources.close()
        self.trainer.close()

    @property
    def num_clients(self) -> int:
        return self.population.num_clients

    @property
    def present(self) -> list[int]:
        """Who does anything in this run, ascending."""
        attack = self.attack
        return [each for each in range(self.num_clients) if attack is None or attack.takes_part(each)]

    @property
    def model_bytes(self) -> int:
        """Size of a model as it travels."""
        return self.trainer.layout.nbytes

    def links(self, number: int) -> Graph:
        """The graph with a round's links that are up, the same for every strategy; -1: when first models are sent."""
        if self.graph is None:
            raise ScenarioError('the run has no graph: add a section [topology], such as name = "complete"')
        return self.graph_links.up(self.graph, number, self.seeds)

    def initial_model(self, *numbers: int, gain: float = 1.0) -> Vector32:
        """The first model of the run; with ``numbers``, its siblings; all weights, but not biases, times ``gain``."""
        return self.trainer.initial(self.seeds.generator("initial model", *numbers), gain=gain)

    def train(
        self,
        models: Matrix32,
        clients: Sequence[int] | Clients,
        *,
        round_index: int | Sequence[int],
        epochs: int | None = None,
        proximal: float = 0.0,
        towards: Matrix32 | None = None,
    ) -> None:
        """Train row k in place on the training samples of ``clients[k]``; an attacker's is what it makes of it.

        Args:
            models: Shape ``(K, P)``, C-contiguous float32; overwritten.
            clients: K of them.
            round_index: Which of a client's trainings this is; the round, by custom; or one number for each client. Two
                with the same number go through the samples in the same order.
            epochs: Instead of E, or of as many steps as the scenario asks for; such a training is handed in to nobody
                as it is, so an attacker leaves it.
            proximal: FedProx's µ.
            towards: What its term pulls each row towards, shape ``(K, P)``; None: the row as it came in.
        """
        passes, steps = (self.training.epochs, self.training.steps) if epochs is None else (epochs, 0)
        numbers = [round_index] * len(clients) if isinstance(round_index, int) else round_index
        tasks = [
            Task(self._samples_of(int(client), number), (int(client), number), passes, steps)
            for client, number in zip(clients, numbers, strict=True)
        ]
        starts = models.copy() if self.attack is not None and epochs is None else None
        with self.stopwatch.measure("training"):
            self.trainer.train(models, tasks, proximal=proximal, towards=towards)
        if self.attack is not None and starts is not None:
            self.attack.hand_in_all([*map(int, clients)], starts, models, round_indices=numbers)

    def _samples_of(self, client: int, number: int) -> Rows:
        poisoned = None if self.attack is None else self.attack.samples_of(client, number)
        return self.population.train[client] if poisoned is None else poisoned

    def gradients(
        self, models: Matrix32, clients: Sequence[int] | Clients, *, round_index: int | Sequence[int]
    ) -> Matrix32:
        """The mean gradient of the loss at row k, over the batch that ``clients[k]`` would begin its training with.

        Args:
            models: Shape ``(K, P)``; left as they are.
            clients: K of them.
            round_index: As of ``train``: with the same number the batch is the first of that training.

        Returns:
            Shape ``(K, P)``.
        """
        train = self.population.train
        round_indices = [round_index] * len(clients) if isinstance(round_index, int) else round_index
        tasks = [
            Task(train[client], (int(client), number), 1) for client, number in zip(clients, round_indices, strict=True)
        ]
        with self.stopwatch.measure("training"):
            return self.trainer.gradients(models, tasks)

    def evaluate(
        self,
        models: Matrix32,
        rows: Sequence[int] | Rows,
        clients: Sequence[int] | Clients,
        *,
        part: Part = "test",
        at_most: int | None = None,
    ) -> Evaluation:
        """Model ``rows[k]`` on samples of ``clients[k]``, for every k.

        Time on test samples counts as evaluation; on other samples, as trying candidates.

        Args:
            models: Shape ``(M, P)``.
            rows: K rows of ``models``.
            clients: K clients.
            part: Their training samples, their test samples, or those that they hold out.
            at_most: Only so many of each client's, the first.
        """
        people = self.population
        samples = {"train": people.train, "test": people.test, "held out": people.held_out}[part]
        with self.stopwatch.measure("evaluation" if part == "test" else "candidates"):
            if part == "test" and self.population.test_is_common:  # whoever has the same model does equally well
                asked, place = np.unique(np.asarray(rows, dtype=np.int64), return_inverse=True)
                once = self.trainer.evaluate(models, asked, [samples[0][:at_most]] * len(asked))
                return Evaluation(once.correct[place], once.loss_sum[place], once.count[place])
            own = {client: samples[client][:at_most] for client in map(int, clients)}  # the same are one object
            return self.trainer.evaluate(models, rows, [own[int(client)] for client in clients])

    def backdoors(self, models: Matrix32, rows: Sequence[int] | Rows, clients: Clients) -> Evaluation | None:
        """How often model ``rows[k]`` calls triggered test samples of ``clients[k]`` as the attackers want them called.

        None: there is nobody who plants a backdoor.
        """
        if self.attack is None or self.attack.triggered is None:
            return None
        with self.stopwatch.measure("evaluation"):
            return self.trainer.evaluate(models, rows, [self.attack.triggered[int(client)] for client in clients])
