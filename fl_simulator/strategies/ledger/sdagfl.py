"""SDAGFL: every client holds the DAG and walks through it to two models that suit its samples (Beilharz et al. 2021).

In a round every participant takes two walks through the DAG as of the round's start (``biased_walk``), trains from the
plain mean of the two tips' models, and publishes with the tips as parents: one parent when both walks end at the same
tip, genesis while there is nothing else. Ratings are accuracies on a client's first ``rating_samples`` training
samples. There are no servers: one replica stands for the copy that every client has.

A walk begins at one of some transactions drawn from those of heights ``depth_start`` to ``depth_end``, as in the
authors' long runs; at genesis where the DAG is not so high yet, and always if ``depth_start`` is beyond all heights, as
in their short ones. Older models are dropped once no walk can come to them.

Every trained model is published, as in DAG-ACFL's comparison (Sec. IV-A). The authors' program publishes what has less
loss than a reference model on *test* samples, which no strategy here may look at.

Deviation from the authors' program: each walk draws particles of its own.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from fl_core.aggregation import AGGREGATORS, ArraySource
from fl_core.dag.genesis import Component
from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_core.types import Matrix32, TxId, Vector32
from fl_simulator.engine.world import Clients, World
from fl_simulator.ledgers.network import LocalUpdate, VirtualServers
from fl_simulator.ledgers.record import information_bytes
from fl_simulator.strategies.ledger.base import ANY_STEP, LedgerStrategy, genesis_of
from fl_simulator.strategies.ledger.biased_walk import Pair, Ratings, Tangle, Walker, walk
from fl_simulator.strategies.protocol import Choice, PersonalizedModels, State, Strategy, Traffic

_WALKS: Final = 2


@dataclass(frozen=True, slots=True)
class SdagflParams:
    """The walk, and what is published."""

    alpha: float = parameter(10.0, at_least=0.0, doc="α: how much better models are preferred; 0: not at all.")
    particles: int = parameter(10, at_least=1, doc="Transactions of which one is a walk's start.")
    depth_start: int = parameter(10, at_least=1, doc="Least height of a particle: longest path from a tip.")
    depth_end: int = parameter(20, at_least=1, doc="Greatest height of a particle.")
    rating_samples: int = parameter(1000, at_least=1, doc="Training samples that rate a model, the first; or all.")

    def __post_init__(self) -> None:
        if self.depth_end < self.depth_start:
            raise ParameterError(
                f"strategy 'sdagfl': depth_end ({self.depth_end}) must be at least depth_start ({self.depth_start})"
            )


class Sdagfl(LedgerStrategy, Strategy):
    """SDAGFL in rounds."""

    name = "sdagfl"
    weighs_examples: ClassVar = False

    def __init__(self, params: SdagflParams, world: World) -> None:
        self._params, self._world = params, world
        genesis = genesis_of(
            world,
            selector=Component(self.name, asdict(params)),
            aggregator=Component("fedavg"),
            bounds=ANY_STEP,
        )
        self.servers: VirtualServers = VirtualServers(
            genesis, world.initial_model(), seeds=world.seeds, num_clients=world.num_clients
        )
        world.resources.callback(self.servers.close)
        self.choices: Sequence[Choice] = ()
        self._mean = AGGREGATORS.build("fedavg", {})
        self._ratings: Ratings = {}
        self._begin()

    def _begin(self) -> None:
        """Read the DAG off the record."""
        self._tangle = Tangle(tallest=self._params.depth_end)
        self._ids = [self.servers.id]
        self._numbers = {self.servers.id: 0}
        for transaction in list(self.servers.record)[1:]:
            self._append(transaction)
        self._live = self._within_reach()

    def _append(self, transaction: TxId) -> None:
        parents = self.servers.record.transaction(transaction).header.parents
        self._ids.append(transaction)
        self._numbers[transaction] = self._tangle.add([self._numbers[parent] for parent in parents])

    def round(self, number: int, participants: Clients) -> Traffic:
        clients = participants.tolist()
        self.servers.advance(number)
        tips = self._walk(clients, self._ratings, "sdagfl walk", number)
        self.choices = self._choices(clients, tips)
        models = np.stack([self._mean_of(pair) for pair in tips])
        digests = self.servers.digests(models)
        self._world.train(models, participants, round_index=number)
        with self._world.stopwatch.measure("ledger"):
            counts = self._world.population.num_examples
            updates = [
                LocalUpdate(
                    client, models[place].copy(), self._parents(tips[place]), int(counts[client]), digests[place]
                )
                for place, client in enumerate(clients)
            ]
            published = self.servers.publish(updates, now=number)
            for transaction in published:
                self._append(transaction)
            self._drop()
        return self._traffic(published)

    def _traffic(self, published: Sequence[TxId]) -> Traffic:
        """Eq. 9, each transfer once: a new transaction goes to all other clients, whether they take part or not."""
        extra = sum(information_bytes(self.servers.record.transaction(each)) for each in published)
        sent = len(published) * self._world.model_bytes + extra
        return Traffic(up=(self._world.num_clients - 1) * sent)

    def _drop(self) -> None:
        """Let models and ratings go that no walk can ask for any more."""
        self._live = self._within_reach()
        if len(self._live) < len(self._tangle):
            self.servers.prune(keep=[self._ids[number] for number in self._live])
            live = set(self._live)
            self._ratings = {pair: rating for pair, rating in self._ratings.items() if pair[1] in live}

    def _within_reach(self) -> list[int]:
        """Transactions whose models walks may ask for, now or later, ascending."""
        return self._tangle.within_reach(self._params.depth_start, self._params.depth_end)

    # Walks.

    def _walk(self, clients: Sequence[int], ratings: Ratings, stream: str, number: int) -> list[tuple[int, ...]]:
        """Where each client's two walks end; ``stream`` and ``number`` name their draws."""
        with self._world.stopwatch.measure("selection"):
            starts = self._tangle.starts(self._params.depth_start, self._params.depth_end)
            walkers: list[Walker] = []
            for client in clients:
                for which in range(_WALKS):
                    draws = self._world.seeds.generator(stream, number, client, which)
                    walkers.append(Walker(client, self._particles(starts, draws), draws))
        ends = walk(
            self._tangle,
            walkers,
            ratings,
            alpha=self._params.alpha,
            rate=lambda pairs: self._rate(ratings, pairs),
        )
        return [tuple(ends[low : low + _WALKS]) for low in range(0, len(ends), _WALKS)]

    def _particles(self, starts: Sequence[int], draws: np.random.Generator) -> Sequence[int]:
        """Some of the transactions at which a walk may start, all of them different."""
        if len(starts) <= self._params.particles:
            return starts
        return [starts[place] for place in draws.choice(len(starts), self._params.particles, replace=False)]

    def _rate(self, ratings: Ratings, pairs: Sequence[Pair]) -> None:
        """Accuracies on training samples, of all pairs at once."""
        clients, transactions = (np.array(each) for each in zip(*pairs, strict=True))
        asked, rows = np.unique(transactions, return_inverse=True)
        accuracies = self._world.evaluate(
            self._models(asked), rows, clients, part="train", at_most=self._params.rating_samples
        ).accuracy
        ratings.update(zip(pairs, accuracies.tolist(), strict=True))

    def _models(self, numbers: Sequence[int] | NDArray[np.int64]) -> Matrix32:
        return np.stack([self.servers.record.vector(self._ids[number]) for number in numbers])

    def _mean_of(self, tips: tuple[int, ...]) -> Vector32:
        """The plain mean; one model as it is."""
        parents = self._parents(tips)
        if len(parents) == 1:
            return self.servers.record.vector(parents[0])
        with self._world.stopwatch.measure("aggregation"):
            sources = [ArraySource(self.servers.record.vector(parent)) for parent in parents]
            return self._mean.aggregate(sources, [1.0] * len(sources))

    def _parents(self, tips: tuple[int, ...]) -> tuple[TxId, ...]:
        return tuple(sorted({self._ids[tip] for tip in tips}))

    def _choices(self, clients: Sequence[int], tips: Sequence[tuple[int, ...]]) -> list[Choice]:
        """Others' tips to which walks could come, and those that the client's walks came to."""
        offered = self._authors([number for number in self._live if self._tangle.is_tip(number)])
        return [
            Choice(
                client=client,
                offered=np.array(sorted(offered - {client}), dtype=np.int64),
                taken=np.array(sorted(self._authors(pair) - {client}), dtype=np.int64),
            )
            for client, pair in zip(clients, tips, strict=True)
        ]

    def _authors(self, transactions: Sequence[int]) -> set[int]:
        """The clients who published these; genesis is nobody's."""
        record, who = self.servers.record, self.servers.client_of
        authors = (who(record.transaction(self._ids[each]).header.author) for each in transactions)
        return {author for author in authors if author is not None}

    # What everybody can be asked.

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``: where two walks on the DAG as it is now end, by draws of their own."""
        asked = [int(client) for client in clients]
        tips = self._walk(asked, dict(self._ratings), "sdagfl personal", len(self._tangle))
        return PersonalizedModels.of(
            [self._parents(pair) for pair in tips],
            lambda place: self._mean_of(tips[place]),
            num_parameters=self._world.trainer.layout.num_parameters,
        )

    def state(self) -> State:
        """See ``Strategy.state``; ratings are part of it, because rounding may depend on what is rated together."""
        rated = np.array(list(self._ratings), dtype=np.int64).reshape(-1, 2)  # (R, 2): client, transaction
        return {**self.servers.state(), "rated": rated, "ratings": np.array(list(self._ratings.values()))}

    def restore(self, state: State) -> None:
        self.servers.restore(state)
        pairs = ((client, transaction) for client, transaction in state["rated"].tolist())
        self._ratings = dict(zip(pairs, state["ratings"].tolist(), strict=True))
        self._begin()
