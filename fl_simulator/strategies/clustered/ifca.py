"""IFCA: each participant takes the model that fits its training samples best (Ghosh et al., NeurIPS 2020, Alg. 1).

The loss is of training samples, always: the authors' program assigns by test labels when it evaluates, which no
client could. Model averaging, not gradient averaging.

All depends on where the k models begin. From identical ones (``init = "shared"``) every loss of the first round is a
tie, so everybody trains the first model, and the others stay untrained until one of them, as it was at the beginning,
suits a client better than what the rest have learnt. With everybody taking part that seldom happens, and IFCA is
FedAvg; with some, those who were not asked at first may be better served by an untrained model.
Independent models may lose clusters in the first round, too; ``restart`` draws all of them anew until each is the
choice of a share of the first round's participants, as the authors do for CIFAR-10 (10 % of four, 35 % of two).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_core.types import Matrix32
from fl_simulator.engine.world import Clients, World
from fl_simulator.strategies.clustered.base import GroupStrategy, every
from fl_simulator.strategies.protocol import PersonalizedModels, Traffic


@dataclass(frozen=True, slots=True)
class IfcaParams:
    """How many models, and where they begin."""

    clusters: int = parameter(3, at_least=1, doc="Models g.")
    init: str = parameter(
        "random",
        choices=("random", "shared"),
        doc="Independent models, or each the run's first model: FedAvg, mostly.",
    )
    restart: bool = parameter(False, doc="Draw the models anew until each gets its share of the first round.")
    min_share: float = parameter(
        0.1,
        at_least=0.0,
        at_most=1.0,
        doc="Share of the first round's participants that `restart` asks for each model.",
    )
    max_draws: int = parameter(
        50, at_least=1, doc="Draws after which `restart` takes the one whose smallest share is greatest."
    )
    weighted: bool = parameter(
        False, doc="Average by samples, as the authors do for FEMNIST, instead of alike (Alg. 1)."
    )

    def __post_init__(self) -> None:
        if self.restart and self.init == "shared":
            raise ParameterError("strategy 'ifca': restart needs init 'random'; shared models are always the same")
        if self.restart and self.min_share * self.clusters > 1:
            raise ParameterError(
                f"strategy 'ifca': {self.clusters} clusters cannot each have a share of {self.min_share}"
            )


class Ifca(GroupStrategy):
    """k models, and for each client the one it took last."""

    name = "ifca"
    remembered: tuple[str, ...] = ("models", "taken")

    def __init__(self, params: IfcaParams, world: World) -> None:
        self.num_groups: int = params.clusters
        self._params = params
        super().__init__(world, self._drawn(world, 0))
        self.taken = every(range(world.num_clients), -1)

    def round(self, number: int, participants: Clients) -> Traffic:
        """See ``Strategy.round``; (1 + g) |C| |w| (Table III), and g |C| |w| more for each draw after the first."""
        draws = self._draw_until_shared(participants) if self._params.restart and self.taken.max() < 0 else 1
        groups = self._best(participants)
        trained = self.train(participants, groups, round_index=number)
        self.replace_by_means(trained, participants, groups, weighted=self._params.weighted)
        self.taken[participants] = groups
        moved = len(participants) * self.world.model_bytes
        return Traffic(up=moved, down=draws * self._params.clusters * moved)

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``: what each would take now, by its training samples."""
        return PersonalizedModels(self.models, self._best(clients))

    def groups(self) -> NDArray[np.int64] | None:
        """See ``Strategy.groups``: what each took when it last took part."""
        return self.taken

    def _drawn(self, world: World, draw: int) -> Matrix32:
        count = self._params.clusters
        if self._params.init == "shared":
            return np.tile(world.initial_model(), (count, 1))
        return np.stack([world.initial_model(draw * count + each) for each in range(count)])

    def _draw_until_shared(self, participants: Clients) -> int:
        """Begin from the first draw in which each model has its share, or from the most even; how many were tried."""
        most_even, greatest = self.models, -1.0
        for draw in range(self._params.max_draws):
            self.models = self._drawn(self.world, draw)
            taken = np.bincount(self._best(participants), minlength=self._params.clusters)
            share = float(taken.min() / len(participants))
            if share >= self._params.min_share:
                return draw + 1
            if share > greatest:
                most_even, greatest = self.models, share
        self.models: Matrix32 = most_even
        return self._params.max_draws

    def _best(self, clients: Sequence[int] | Clients) -> NDArray[np.int64]:
        """The model of least training loss for each; the first of equals, and never one that has no finite loss."""
        count = self._params.clusters
        rows = np.tile(np.arange(count), len(clients))
        evaluation = self.world.evaluate(
            self.models, rows, np.repeat(np.asarray(clients, dtype=np.int64), count), part="train"
        )
        losses = evaluation.loss.reshape(len(clients), count)
        best: NDArray[np.int64] = np.where(np.isnan(losses), np.inf, losses).argmin(axis=1)
        return best
