"""What sharing is compared with: the same trainers alone, and one model for all, by the simulator's strategies."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_client.errors import UserModuleError
from fl_core.types import Matrix32
from fl_simulator.engine.world import LocalTraining, World
from fl_simulator.seeds import Seeds
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import PersonalizedModels
from fl_simulator.training.sites import SiteTrainers

FIGURES: Final = ("accuracy", "loss")
"""By which methods can be compared; of the first more is better, of the second less."""


def common_figure(sites: SiteTrainers, *, file: Path) -> str:
    """The first of ``FIGURES`` that every site's ``evaluate()`` gives."""
    first = sites.initial(np.random.default_rng(0))
    given = set.intersection(*(set(sites.metrics(first, site)) for site in range(len(sites.trainers))))
    for name in FIGURES:
        if name in given:
            return name
    raise UserModuleError(
        f"{file}: evaluate() gives {', '.join(sorted(given)) or 'nothing'}; a trial compares accuracy or loss, "
        "so give the trainer test data, or return one of them"
    )


def world_of(sites: SiteTrainers, *, epochs: int) -> World:
    """The sites as the simulator's strategies see them; each is trained for an epoch to count its samples."""
    return World(sites.population(), sites, Seeds(0), LocalTraining(epochs=epochs))


def baseline(world: World, name: str, *, rounds: int) -> PersonalizedModels:
    """Each site's model after so many rounds of a strategy, everybody in every round."""
    strategy = STRATEGIES.build(name, {}, world)
    everybody = np.arange(world.num_clients)
    for number in range(rounds):
        strategy.round(number, everybody)
    return strategy.personal(everybody)


def judged(
    sites: SiteTrainers, models: Matrix32, rows: Sequence[int] | NDArray[np.int64], *, figure: str
) -> tuple[float, ...]:
    """The figure of ``models[rows[k]]`` on site k's test data; NaN where the trainer leaves it out as not finite."""
    return tuple(
        round(float(sites.metrics(models[row], site).get(figure, math.nan)), 6) for site, row in enumerate(rows)
    )
