"""The attackers of one run: whose places they have, when they act, and what they have seen of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ParameterError
from fl_core.models import ModelLayout
from fl_core.parameters import parameter
from fl_core.types import Matrix32, Vector32
from fl_simulator.attacks.protocol import Attacker, Published, Samples, Turn
from fl_simulator.engine.population import Population
from fl_simulator.errors import ScenarioError
from fl_simulator.seeds import Seeds


@dataclass(frozen=True, slots=True)
class Places:
    """Whose places attackers take, and when they act."""

    clients: str = parameter("0", doc="The clients whose places they take, by number, with commas.")
    from_round: int = parameter(
        1,
        at_least=1,
        doc="Which of its trainings, counted from 0, is the first that an attacker uses; before, it does as it should.",
    )
    timing: str = parameter(
        "own",
        choices=("own", "after-each"),
        doc="Without rounds: own: when its work is finished, as everybody's. after-each: at once after each honest "
        "result of its cluster. In rounds an attacker has always seen the round's honest results.",
    )
    claimed: int = parameter(
        0, at_least=0, doc="How many samples each says that it was trained on; 0: as many as there are."
    )

    quarantined_after: float = parameter(
        0.0,
        at_least=0.0,
        doc="Rounds, or without rounds virtual seconds, after which the servers of a ledger quarantine the attackers' "
        "authors by an act; 0: never. They go on, and nothing of theirs is offered.",
    )

    def __post_init__(self) -> None:
        try:
            numbers = self.numbers
        except ValueError:
            numbers = []
        if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
            raise ParameterError(
                f"[attack]: clients is a list of numbers with commas, each once, such as 8,17; not {self.clients!r}"
            )

    @property
    def numbers(self) -> list[int]:
        return [int(client) for client in self.clients.split(",")]


@dataclass(slots=True, eq=False)
class Attack:
    """All attackers of a run.

    Attributes:
        attacker: What they do.
        places: Where and when.
        clusters: Each client's true cluster: an attacker's victims are of its own.
        layout: The tensors of a model.
        seeds: Decide its draws.
        train: The poisoned samples of each attacker, as rows of the population.
        triggered: Of each client the test samples, as rows, by which a backdoor's success is judged; None: none is
            planted.
        seen: Each client's newest update.
    """

    attacker: Attacker
    places: Places
    clusters: NDArray[np.int64]
    layout: ModelLayout
    seeds: Seeds
    train: Mapping[int, NDArray[np.int64]]
    triggered: Sequence[NDArray[np.int64]] | None
    seen: dict[int, Published] = field(default_factory=dict)

    @property
    def clients(self) -> frozenset[int]:
        return frozenset(self.train)

    @property
    def attacked(self) -> NDArray[np.int64]:
        """Honest clients whose cluster has an attacker, ascending."""
        hit = np.isin(self.clusters, self.clusters[sorted(self.clients)])
        return np.array([each for each in np.flatnonzero(hit).tolist() if each not in self.clients], dtype=np.int64)

    @property
    def follows(self) -> bool:
        """Whether its clients have no time of their own, but act after each honest result."""
        return self.places.timing == "after-each"

    def takes_part(self, client: int) -> bool:
        """Whether this client does anything in the run."""
        return client not in self.clients or self.attacker.takes_part

    def honest(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of them that are no attackers, in their order."""
        return clients[~np.isin(clients, sorted(self.clients))]

    def samples_of(self, client: int, round_index: int) -> NDArray[np.int64] | None:
        """What an attacker trains on; None: what it has."""
        return self.train[client] if client in self.clients and round_index >= self.places.from_round else None

    def hand_in(self, client: int, start: Vector32, trained: Vector32, *, round_index: int) -> Vector32:
        """What a client hands in, which everybody sees from then on.

        Args:
            client: Honest, or an attacker.
            start: What it was given, shape ``(P,)``.
            trained: What its training came to, shape ``(P,)``.
            round_index: Which of its trainings this is.
        """
        model = trained
        if client in self.clients and round_index >= self.places.from_round:
            mine = self.clusters[client]
            near = [self.seen[each] for each in sorted(self.seen) if self.clusters[each] == mine and each != client]
            turn = Turn(
                client=client,
                start=start,
                trained=trained,
                victims=[each for each in near if each.client not in self.clients],
                colluders=[each for each in near if each.client in self.clients],
                layout=self.layout,
                rng=self.seeds.generator("attack", client, round_index),
            )
            model = np.ascontiguousarray(self.attacker.hand_in(turn), dtype=np.float32)
        self.seen[client] = Published(client, start.copy(), model.copy())
        return model

    def hand_in_all(
        self, clients: Sequence[int], starts: Matrix32, models: Matrix32, *, round_indices: Sequence[int]
    ) -> None:
        """A round's results, in place: attackers see the honest ones first, and one another's in order of clients."""
        order = sorted(range(len(clients)), key=lambda row: (clients[row] in self.clients, clients[row]))
        for row in order:
            models[row] = self.hand_in(clients[row], starts[row], models[row], round_index=round_indices[row])

    def state(self) -> dict[str, NDArray[Any]]:
        """What was seen, as arrays."""
        size = self.layout.num_parameters
        seen = list(self.seen.values())
        return {
            "attack.clients": np.array(list(self.seen), dtype=np.int64),
            "attack.starts": np.array([each.start for each in seen], dtype=np.float32).reshape(-1, size),
            "attack.models": np.array([each.model for each in seen], dtype=np.float32).reshape(-1, size),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See again what was seen."""
        rows = zip(state["attack.clients"].tolist(), state["attack.starts"], state["attack.models"], strict=True)
        self.seen = {client: Published(client, start.copy(), model.copy()) for client, start, model in rows}


def seat(
    attacker: Attacker, places: Places, population: Population, seeds: Seeds
) -> tuple[Population, Mapping[int, NDArray[np.int64]], Sequence[NDArray[np.int64]] | None]:
    """The population with the attackers' claims, and poisoned and triggered samples behind its own.

    Returns:
        It, and ``Attack.train`` and ``Attack.triggered``.

    Raises:
        ScenarioError: There is no such client, or no honest one.
    """
    clients, count = sorted(places.numbers), population.num_clients
    if clients[-1] >= count or len(clients) == count:
        raise ScenarioError(f"[attack]: clients is {places.clients!r}; there are 0 to {count - 1}, and one is honest")
    images, labels = [population.images], [population.labels]
    end = len(population.labels)

    def samples(rows: NDArray[np.int64]) -> Samples:
        return Samples(population.images[rows], population.labels[rows], population.num_classes)

    def appended(made: Samples) -> NDArray[np.int64]:
        nonlocal end
        images.append(made.images)
        labels.append(made.labels)
        end += len(made.labels)
        return np.arange(end - len(made.labels), end)

    train = {
        client: appended(attacker.poison(samples(population.train[client]), seeds.generator("poison", client)))
        for client in clients
    }
    found = [attacker.triggered(samples(rows)) for rows in population.test]
    triggered = [appended(each) for each in found if each is not None]
    claimed = dict.fromkeys(clients, places.claimed) if places.claimed else {}
    extended = replace(population, images=np.concatenate(images), labels=np.concatenate(labels), claimed=claimed)
    return extended, train, triggered or None
