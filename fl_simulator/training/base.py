"""What all trainers have in common: everything but how rows are trained, differentiated and judged."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fl_core.errors import ShapeMismatchError
from fl_core.models import ModelLayout
from fl_core.types import Matrix32, Vector32
from fl_simulator.seeds import Seeds
from fl_simulator.training.parameter_vectors import Counts, as_tensor, init_parameters, layout_of, questions
from fl_simulator.training.protocol import Evaluation, Rows, Task
from fl_simulator.training.recipe import Recipe
from fl_simulator.training.threads import Workers


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """Whose images, how to train on them, and where.

    Attributes:
        images: The population's, shape ``(N, height, width)`` or ``(N, channels, height, width)``, float32.
        labels: Theirs, shape ``(N,)``, int64.
        recipe: Batches, steps and loss.
        seeds: Decide the order of batches.
        device: Where torch computes.
        dtype: Of weights and activations while it computes; rows are float32 in any case. bfloat16 takes half the
            memory and rounds every weight to 8 bits, so that small updates are lost.
        init: How a new model's weights are drawn.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    recipe: Recipe
    seeds: Seeds
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    init: str = "pytorch"


class PopulationTrainer(ABC):
    """Keeps the population where it is needed, checks, and evaluates; meets ``Trainer`` with what a subclass adds.

    Args:
        factory: Makes a module of the model, for its layout and its initialisation.
        images: The population's, as the model takes them, first axis N.
        common: What every trainer is told.
        workers: Threads; 0: one for each core. A GPU has one.
        evaluation_batch: Samples that are judged at a time.
        evaluated_models: Models that are judged at a time, where all are asked about the same samples.
    """

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        images: Tensor,
        common: Common,
        *,
        workers: int,
        evaluation_batch: int,
        evaluated_models: int = 1,
    ) -> None:
        self._factory, self._common, self._recipe, self._seeds = factory, common, common.recipe, common.seeds
        self._device, self._dtype = torch.device(common.device), common.dtype
        self._softmax_dtype = torch.promote_types(common.dtype, torch.float32)
        with torch.random.fork_rng(devices=[]):
            self._layout = layout_of(factory())
        self._images = images.to(self._device, self._dtype)
        self._labels = as_tensor(common.labels).to(self._device)
        self._evaluation_batch, self._evaluated_models = evaluation_batch, evaluated_models
        self._workers = Workers(workers if self._device.type == "cpu" else 1)

    @property
    def layout(self) -> ModelLayout:
        """The model's parameters, in canonical order."""
        return self._layout

    def initial(self, rng: np.random.Generator, *, gain: float = 1.0) -> Vector32:
        """A new model, shape ``(P,)``; ``rng`` decides it, and ``gain`` multiplies its weights."""
        return init_parameters(self._factory, self._layout, rng, init=self._common.init, gain=gain)

    def train(
        self, models: Matrix32, tasks: Sequence[Task], *, proximal: float = 0.0, towards: Matrix32 | None = None
    ) -> None:
        """Train row k of ``models`` in place by ``tasks[k]``; see ``Trainer``.

        Raises:
            ShapeMismatchError: The rows cannot be trained in place, or a task has no samples.
        """
        self._check(models, tasks)
        if not models.flags.c_contiguous:
            raise ShapeMismatchError(
                f"models of shape {models.shape} do not lie row by row; training needs C-contiguous"
            )
        anchors = torch.from_numpy(models if towards is None else towards) if proximal else None
        self._train(torch.from_numpy(models), tasks, proximal, anchors)

    def gradients(self, models: Matrix32, tasks: Sequence[Task]) -> Matrix32:
        """The loss's gradient at each row over its task's first batch, shape ``(K, P)``; see ``Trainer``.

        Raises:
            ShapeMismatchError: Models of another layout, or a task has no samples.
        """
        self._check(models, tasks)
        found = np.empty_like(models, order="C")
        self._differentiate(as_tensor(models), [replace(task, steps=1) for task in tasks], torch.from_numpy(found))
        return found

    @abstractmethod
    def _train(self, rows: Tensor, tasks: Sequence[Task], proximal: float, anchors: Tensor | None) -> None:
        """Train rows ``(K, P)`` in place; ``anchors`` are w0 of the proximal term, perhaps the rows themselves."""

    @abstractmethod
    def _differentiate(self, rows: Tensor, tasks: Sequence[Task], gradients: Tensor) -> None:
        """Write each row's gradient over the one batch of its task into ``gradients``, shape ``(K, P)``."""

    def _check(self, models: Matrix32, tasks: Sequence[Task]) -> None:
        wanted = (len(tasks), self._layout.num_parameters)
        if models.shape != wanted or models.dtype != np.float32:
            raise ShapeMismatchError(
                f"models of shape {models.shape} and type {models.dtype}; training needs {wanted}, float32"
            )
        if any(len(task.samples) == 0 for task in tasks):
            raise ShapeMismatchError("a task without samples; each needs at least one")

    def _error(self, logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """The loss's gradient at a batch's logits ``(…, b, classes)``, as precise as models are.

        Labels and samples' weights are ``(…, b)``. Where a batch's mean loss is above the recipe's bound there is none.
        """
        error = torch.softmax(logits, -1, dtype=self._softmax_dtype)
        right, other = self._recipe.teacher(logits.shape[-1])
        if other:
            error -= other
        at = labels.unsqueeze(-1)
        error.scatter_add_(-1, at, error.new_full((), other - right).expand(at.shape)).mul_(weights.unsqueeze(-1))
        if self._recipe.loss_bound:
            losses = -torch.log_softmax(logits, -1, dtype=self._softmax_dtype).gather(-1, at).squeeze(-1)
            losses.masked_fill_(weights == 0, 0.0)  # a sample that only pads the batch may be infinitely wrong
            mean = (losses * weights).sum(-1) / weights.sum(-1)
            error.masked_fill_((mean > self._recipe.loss_bound)[..., None, None], 0.0)
        return error.to(self._dtype)

    def _taken(self, places: Tensor) -> Tensor:
        """The images of these samples; not copied where they stand together, as those of a common test do."""
        count = len(places)
        if count and int(places[-1]) - int(places[0]) == count - 1 and bool((places.diff() == 1).all()):
            return self._images.narrow(0, int(places[0]), count)
        return self._images[places]

    @abstractmethod
    def _judged(self, rows: Tensor, places: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each part of samples, whether each of the models ``(m, P)`` has them right, and its loss: ``(m, n)``."""

    def evaluate(self, models: Matrix32, rows: Sequence[int] | Rows, samples: Sequence[Rows]) -> Evaluation:
        """Model ``rows[k]`` on the samples ``samples[k]``; see ``Trainer``.

        Raises:
            ShapeMismatchError: Models of another layout, or not as many rows as samples.
        """
        size = self._layout.num_parameters
        if models.ndim != 2 or models.shape[1] != size or models.dtype != np.float32:
            raise ShapeMismatchError(
                f"models of shape {models.shape} and type {models.dtype}; each row needs {size} float32"
            )
        if len(rows) != len(samples):
            raise ShapeMismatchError(f"{len(rows)} rows to evaluate, but samples for {len(samples)}")
        counts = Counts(samples)
        stored = as_tensor(models)

        @torch.no_grad()
        def evaluate(question: tuple[list[int], NDArray[np.int64]]) -> None:
            asked, pairs = question
            about = counts.of(pairs if len(asked) == 1 else pairs[:1])
            batches = torch.split(as_tensor(about), self._evaluation_batch)
            parts = self._judged(stored[asked], [batch.to(self._device) for batch in batches])
            correct, loss = (torch.cat(part, -1).flatten().cpu().numpy() for part in zip(*parts, strict=True))
            counts.record(pairs, correct, loss)

        self._workers.share_evenly(evaluate, questions(rows, samples, models_at_once=self._evaluated_models))
        return counts.evaluation()

    def close(self) -> None:
        self._workers.close()
