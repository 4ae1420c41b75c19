"""DAG-ACFL (Alg. 1) on virtual servers that run the project's own ledger, selectors and aggregators.

In a round every participant asks its server, all see the ledger as of the round's start, all train, all publish. A
client's first time (the text's step 1, Alg. 1 lines 4-9): it trains E′ epochs from the genesis model, asks with the
result, and goes on from the answer like everybody else. DAG-ACFL says both that a joiner starts from the genesis
model (Sec. III-C) and that it starts from a random one (Alg. 1, line 5); ``join`` chooses. Random models can be scaled
for the number of participants (``gain``), and ``merge`` decides whether a client goes on from the average that it is
given or from its own model moved towards it (DecDiff); both are what ``fl_client.Participant`` does.

Clients that hold samples out (``run.held_out``) refuse as ``fl_client.Participant`` does: what does worse on those
samples than the own model (``fl_core.trust.refusal``); they go on from their own model, and approve their own newest
transaction alone, or genesis.

What is offered: ``candidates``, DAG-ACFL's ``tips`` or everybody's ``newest`` (``fl_core.candidates``). What is taken
of it: ``selector`` names one of ``fl_core.selection``: ``beast`` with ``rule`` robust or literal (Alg. 3), ``top-k``
(Alg. 2), or another. The own newest (with ``tips``: while it is one) is averaged with the chosen ones, as on a server.
Models that began differently are not alike: their updates (model minus genesis) have one cosine for everybody, whoever
has whose data, and ``beast`` with the robust rule leaves everyone alone. With ``join = "random"`` take ``top-k``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fl_core.aggregation import AGGREGATORS
from fl_core.dag.genesis import FRESHNESS, Bounds, Component, check_parameters
from fl_core.errors import ParameterError
from fl_core.parameters import parameter, read_parameters
from fl_core.registry import PartRegistry
from fl_core.selection import SELECTORS, Ranking, Selection
from fl_core.trust.refusal import DEFAULT_MARGIN, compare
from fl_core.types import JsonScalar, TxId, Vector32
from fl_simulator.engine.world import Clients, World
from fl_simulator.ledgers.network import LocalUpdate, VirtualServers
from fl_simulator.ledgers.selector_pool import SelectorPool
from fl_simulator.strategies.ledger.base import ANY_EXAMPLES, ANY_STEP, LedgerStrategy, genesis_of
from fl_simulator.strategies.merging import MERGES, Replace
from fl_simulator.strategies.protocol import HASH_BYTES, Choice, Figures, PersonalizedModels, State, Strategy, Traffic

_CHOSEN: Final[Mapping[str, tuple[PartRegistry[Any], str]]] = {
    "selector": (SELECTORS, "beast"),
    "aggregator": (AGGREGATORS, "fedavg"),
    "merge": (MERGES, "replace"),
}
"""Parts of which a scenario names one, and which it is by default."""
_REFUSED: Final = "refused"
"""The rule of a selection that its client has decided against."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A part as a scenario names it, by ``module:Class`` perhaps, which a genesis cannot."""

    name: str
    params: Mapping[str, JsonScalar] = field(default_factory=dict)

    def component(self, registry: PartRegistry[Any]) -> Component:
        """What genesis says of it: the name that it has itself, by which this process finds it from now on."""
        name = registry.build(self.name, self.params).name
        registry.adopt(name, registry[self.name])
        return Component(name, self.params)


@dataclass(frozen=True, slots=True)
class _OwnParams:
    """What is not the ledger's."""

    join: str = parameter("genesis", choices=("genesis", "random"), doc="What a joiner trains first (see above).")
    gain: str = parameter(
        "none",
        choices=("none", "participants"),
        doc="Of random models' weights: none, or √n for n participants: those that the joiner's server knows, and it.",
    )
    participants: int = parameter(
        0, at_least=0, at_most=10**9, doc="How many the founder expects; ``gain`` takes it where it is more."
    )
    candidates: str = parameter(
        "tips", choices=("tips", "newest"), doc="What is offered: DAG-ACFL's tips, or everybody's newest update."
    )
    servers: int = parameter(1, at_least=1, at_most=1000, doc="Virtual ledger servers; client c calls on c mod this.")
    gossip_delay: float = parameter(0.0, at_least=0.0, doc="Rounds, or seconds, from one server to another.")
    refuse_worse_than: float = parameter(
        DEFAULT_MARGIN,
        at_least=0.0,
        at_most=1.0,
        doc="Least loss of accuracy, on samples that a client holds out (``run.held_out``), for which it refuses an "
        "average; by more than chance. 1: none is refused, and without held-out samples none is, either.",
    )
    round_steps: bool = parameter(
        False, doc="Whether clients round what they publish, to a sixteenth of the step's size, to send a sixth of it."
    )
    roaming: float = parameter(
        0.0, at_least=0.0, at_most=1.0, doc="Probability that a client turns to another server before it asks."
    )


@dataclass(frozen=True, slots=True)
class DagAcflParams:
    """Parameters; in a scenario, those of parts have their part's name and a dot before them.

    ``selector`` and ``selector.<parameter>``, likewise ``aggregator`` and ``merge``; ``freshness.window_s``,
    ``weights.factor``, ``bounds.<bound>``.
    """

    own: _OwnParams = field(default_factory=_OwnParams)
    selector: Chosen = field(default_factory=lambda: Chosen("beast"))
    aggregator: Chosen = field(default_factory=lambda: Chosen("fedavg"))
    merge: Chosen = field(default_factory=lambda: Chosen("replace"))
    freshness: Component = FRESHNESS
    weights: Component = field(default_factory=lambda: ANY_EXAMPLES)
    bounds: Bounds = field(default_factory=lambda: ANY_STEP)

    def write(self) -> dict[str, JsonScalar]:
        """What ``read`` makes this of, defaults written out."""
        written: dict[str, JsonScalar] = asdict(self.own)
        for part, (registry, _) in _CHOSEN.items():
            chosen: Chosen = getattr(self, part)
            params = registry.read_params(chosen.name, chosen.params)
            written[part] = chosen.name
            written |= {f"{part}.{key}": value for key, value in asdict(params).items()}
        for part, rules in (
            ("freshness", self.freshness.params),
            ("weights", self.weights.params),
            ("bounds", asdict(self.bounds)),
        ):
            written |= {f"{part}.{key}": value for key, value in rules.items()}
        return written

    @classmethod
    def read(cls, given: Mapping[str, JsonScalar], *, owner: str) -> Self:
        """Check what a scenario says.

        Raises:
            UnknownNameError, ParameterError, GenesisError: It says something that cannot be.
        """
        names = ("", *_CHOSEN, "freshness", "weights", "bounds")
        parts: dict[str, dict[str, JsonScalar]] = {name: {} for name in names}
        for key, value in given.items():
            part, dot, name = key.rpartition(".")
            if part not in parts or (dot and not part):
                raise ParameterError(f"{owner}: no part {part!r}; there are {', '.join(names[1:])}")
            parts[part][name] = value
        chosen = {
            part: Chosen(str(parts[""].pop(part, default)), parts[part]) for part, (_, default) in _CHOSEN.items()
        }
        for part, (registry, _) in _CHOSEN.items():
            registry.build(chosen[part].name, chosen[part].params)
        kinds = get_type_hints(Bounds)
        bounds = {  # a whole number is a number, as everywhere in a scenario
            key: float(value) if kinds.get(key) is float and type(value) is int else value
            for key, value in parts["bounds"].items()
        }
        try:
            found = replace(ANY_STEP, **bounds)  # type: ignore[arg-type]
        except TypeError as error:
            raise ParameterError(f"{owner}: bounds: {error}") from None
        own = read_parameters(_OwnParams, parts[""], owner=owner)
        if own.gain != "none" and own.join == "genesis":
            raise ParameterError(
                f'{owner}: gain scales models of a client\'s own: set join = "random", or gain = "none"'
            )
        freshness = Component(FRESHNESS.name, {**FRESHNESS.params, **parts["freshness"]})
        weights = Component("examples", {**ANY_EXAMPLES.params, **parts["weights"]})
        check_parameters("freshness", freshness)
        check_parameters("weights", weights)
        return cls(own, chosen["selector"], chosen["aggregator"], chosen["merge"], freshness, weights, found)


class DagAcflClients(LedgerStrategy):
    """What clients of DAG-ACFL do in rounds and without: they ask their servers, and keep their newest models."""

    name = "dag-acfl"

    def __init__(self, params: DagAcflParams, world: World) -> None:
        self._params, self._world = params, world
        self._genesis_model = world.initial_model()
        genesis = genesis_of(
            world,
            selector=params.selector.component(SELECTORS),
            aggregator=params.aggregator.component(AGGREGATORS),
            bounds=params.bounds,
            candidates=params.own.candidates,
            freshness=params.freshness,
            weights=params.weights,
        )
        self._merge = MERGES.build(params.merge.name, params.merge.params)
        own = params.own
        self.servers: VirtualServers = VirtualServers(
            genesis,
            self._genesis_model,
            seeds=world.seeds,
            num_clients=world.num_clients,
            count=own.servers,
            delay=lambda _origin, _server: own.gossip_delay,
            round_steps=own.round_steps,
        )
        self.choices: Sequence[Choice] = ()
        self._selectors = SelectorPool(params.selector.name, params.selector.params, workers=world.workers)
        world.resources.callback(self._selectors.close)
        world.resources.callback(self.servers.close)
        self._joined: dict[int, Vector32] = {}  # of clients that have not published yet, what they ask with
        self._answers: dict[int, Selection] = {}  # of clients that published, on the ledger as it is now
        self._visits = np.zeros(world.num_clients, dtype=np.int64)
        self.refusals: NDArray[np.int64] = np.zeros(world.num_clients, dtype=np.int64)
        """Of each client, how many averages it has refused and trained on without."""

    def _pass_judgement(self, now: float) -> None:
        """Quarantine the attackers when it is time for that; ``now`` in rounds, or virtual seconds."""
        attack = self._world.attack
        if attack is not None and 0 < attack.places.quarantined_after < now and not self.servers.quarantined:
            self.servers.quarantine(attack.clients)
            self._answers.clear()

    def _prune(self, *, keep: Iterable[TxId] = ()) -> None:
        """Drop models that nobody can be given any more: none where clients will be led back to old ones."""
        attack = self._world.attack
        if attack is None or not attack.places.quarantined_after:
            self.servers.prune(keep=keep)

    def _roam(self, clients: Iterable[int]) -> None:
        """Let clients that are about to ask change their servers, as ``roaming`` has it."""
        count = len(self.servers.nodes)
        for client in clients if self._params.own.roaming and count > 1 else ():
            rng = self._world.seeds.generator("roaming", client, int(self._visits[client]))
            self._visits[client] += 1
            if rng.random() < self._params.own.roaming:
                self.servers.move(client, (self.servers.server_of(client) + int(rng.integers(1, count))) % count)
                self._answers.pop(client, None)

    def _joiner_model(self, client: int) -> Vector32:
        """What a client that comes for the first time trains first, for E′ epochs."""
        if self._params.own.join == "genesis":
            return self._genesis_model
        return self._world.initial_model(1 + client, gain=self._gain(client))

    def _gain(self, client: int) -> float:
        """What a random model's weights are multiplied by, as its client's server has it at this moment."""
        own = self._params.own
        if own.gain == "none":
            return 1.0
        known = self.servers.nodes[self.servers.server_of(client)].graph.authors()
        return math.sqrt(max(len({*known, self.servers.authors[client]}), own.participants))

    def _select(self, clients: Sequence[int]) -> dict[int, Selection]:
        """Everybody's selection on the ledger as it is now; those of known clients are remembered until it changes."""
        unanswered = [client for client in clients if client not in self._answers]
        with self._world.stopwatch.measure("similarity"):
            questions = self.servers.questions({client: self._newest(client) for client in unanswered})
        with self._world.stopwatch.measure("selection"):
            answers = self._selectors.choose([questions[client] for client in unanswered])
        found = dict(zip(unanswered, answers, strict=True))
        self._answers.update({client: answer for client, answer in found.items() if client not in self._joined})
        return {client: found[client] if client in found else self._answers[client] for client in clients}

    def _begin(
        self, clients: Sequence[int], selections: Mapping[int, Selection]
    ) -> tuple[dict[int, Selection], PersonalizedModels]:
        """What clients go on from, and by which selections: their own model alone where they refuse an average.

        Clients that are not among the selections begin with the genesis model.
        """
        starts = self._starts(clients, selections)
        refused = self._refused(clients, selections, starts) if self._refuses else {}
        decided = {**selections, **refused}
        return decided, self._starts(clients, decided) if refused else starts

    def _count_refusals(self, decided: Mapping[int, Selection]) -> None:
        """Count those who are about to train by these selections."""
        for client, selection in decided.items():
            self.refusals[client] += selection.rule == _REFUSED

    @property
    def _refuses(self) -> bool:
        return bool(self._world.population.held_out) and self._params.own.refuse_worse_than < 1

    def _refused(
        self, clients: Sequence[int], selections: Mapping[int, Selection], starts: PersonalizedModels
    ) -> dict[int, Selection]:
        """Of those who refuse what they are given, the selections that they go on by instead."""
        places = [
            place
            for place, each in enumerate(clients)
            if each in selections and selections[each].source != "own" and not self.servers.is_led_back(each)
        ]
        asked = [clients[place] for place in places]
        if not asked:
            return {}
        given = self._world.evaluate(starts.models, starts.rows[places], asked, part="held out")
        models = np.stack([self._newest(client) for client in asked])
        own = self._world.evaluate(models, range(len(asked)), asked, part="held out")
        refused: dict[int, Selection] = {}
        for place, client in enumerate(asked):
            if samples := float(own.count[place]):
                figures = [{"accuracy": float(each.accuracy[place]), "num_examples": samples} for each in (own, given)]
                judged = compare(*figures, margin=self._params.own.refuse_worse_than)
                if judged is not None and judged.is_refused:
                    alone = (self.servers.newest_transaction(client) or self.servers.id,)
                    refused[client] = replace(selections[client], parents=alone, source="own", rule=_REFUSED)
        return refused

    def _newest(self, client: int) -> Vector32:
        published = self.servers.newest(client)
        return self._joined[client] if published is None else published

    def _starts(self, clients: Sequence[int], selections: Mapping[int, Selection]) -> PersonalizedModels:
        """What clients go on from; who is not answered begins with the genesis model."""

        def decided_by(client: int) -> tuple[TxId, ...] | int | None:
            selection = selections.get(client)
            if selection is None:
                return None
            # Where a server does not know the newest transaction yet, two own models can have the same parent.
            return selection.parents if selection.source != "own" and self._replaces else client

        def model(place: int) -> Vector32:
            client = clients[place]
            return self._start_from(client, selections[client]) if client in selections else self._genesis_model

        keys = [decided_by(client) for client in clients]
        return PersonalizedModels.of(keys, model, num_parameters=len(self._genesis_model))

    def _start_from(self, client: int, selection: Selection) -> Vector32:
        """What the client trains from: what its merge makes of its own model and the parents' mean."""
        own = self._newest(client)
        if selection.source == "own":
            return own
        with self._world.stopwatch.measure("aggregation"):
            mean = self.servers.aggregate(selection.parents)
            if self.servers.is_led_back(client):
                return mean
            return self._merge.merge(own, mean, tensors=self._world.trainer.layout.tensor_slices)

    @property
    def _replaces(self) -> bool:
        """Whether all who are given the same mean go on from the same model."""
        return isinstance(self._merge, Replace)

    def _choice(self, client: int, selection: Selection) -> Choice:
        ranked = selection.candidates
        assert isinstance(ranked, Ranking), "selectors rank lazily"
        asked = np.array([self.servers.client_of(each.author) for each in ranked.asked], dtype=np.int64)
        offered = asked[ranked.order]
        return Choice(
            client=client,
            offered=offered,
            taken=offered[: ranked.cut],
            similarities=ranked.similarities[ranked.order],
            update_similarities=ranked.update_similarities[ranked.order],
            probabilities=np.asarray(ranked.probabilities, dtype=np.float64),
            averaged=1 if selection.source == "own" else len(selection.parents),
        )

    def _transaction_bytes(self) -> int:
        """|ω| + |σ| of the newest transaction, which is like its siblings'."""
        return self._world.model_bytes + self.servers.record.newest_information_bytes

    def _personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """What clients would be given now; one with nothing to ask with would begin with the genesis model."""
        asked = [int(client) for client in clients]
        known = [client for client in asked if client in self._joined or self.servers.newest(client) is not None]
        return self._begin(asked, self._select(known))[1]

    def figures(self, *, evaluated: bool) -> Figures:
        figures, attack = super().figures(evaluated=evaluated), self._world.attack
        if not self._refuses:
            return figures
        theirs = [] if attack is None else sorted(attack.clients)
        return {**figures, "averages_refused": int(np.delete(self.refusals, theirs).sum())}

    def state(self) -> State:
        return {**self.servers.state(), "visits": self._visits.copy(), "refusals": self.refusals.copy()}

    def restore(self, state: State) -> None:
        self.servers.restore(state)
        self._visits, self.refusals = state["visits"].copy(), state["refusals"].copy()
        self._answers.clear()


class DagAcfl(DagAcflClients, Strategy):
    """DAG-ACFL in rounds."""

    def round(self, number: int, participants: Clients) -> Traffic:
        clients = participants.tolist()
        self.servers.advance(number)
        self._pass_judgement(number + 1)
        self._answers.clear()
        self.choices = ()  # the round before's are as many numbers as clients times tips
        self._roam(clients)
        joiners = [client for client in clients if self.servers.newest(client) is None]
        self._joined = self._join(joiners)
        selections = self._select(clients)
        self.choices: tuple[()] | list[Choice] = [self._choice(client, selections[client]) for client in clients]
        selections, starts = self._begin(clients, selections)
        self._count_refusals(selections)
        digests = self.servers.digests(starts.models)
        # Thousands of clients with neighbours of their own: nobody's model is there twice.
        models = starts.models if len(starts.models) == len(clients) else starts.models[starts.rows]
        self._world.train(models, participants, round_index=number + 1)
        with self._world.stopwatch.measure("ledger"):
            counts = self._world.population.num_examples
            updates = [
                LocalUpdate(client, model.copy(), selections[client].parents, int(counts[client]), digests[row])
                for client, model, row in zip(clients, models, starts.rows, strict=True)
            ]
            self.servers.publish(updates, now=number)
            self._prune()
        self._answers.clear()
        self._joined = {}
        return self._traffic(len(clients), len(joiners))

    def _join(self, joiners: Sequence[int]) -> dict[int, Vector32]:
        """The models with which clients that come for the first time ask: E′ epochs, round_index 0."""
        if not joiners:
            return {}
        models = np.stack([self._joiner_model(client) for client in joiners])
        self._world.train(models, joiners, round_index=0, epochs=self._world.training.initial_epochs)
        return dict(zip(joiners, models, strict=True))

    def _traffic(self, clients: int, joiners: int) -> Traffic:
        """Eq. 8; a joiner sends its model instead of a hash. A server's copy is counted where it is sent, once."""
        model = self._world.model_bytes
        return Traffic(
            up=clients * (HASH_BYTES + model) + joiners * model,
            down=clients * (model + HASH_BYTES),
            between_servers=clients * (self._params.own.servers - 1) * self._transaction_bytes(),
        )

    def personal(self, clients: Sequence[int] | Clients) -> PersonalizedModels:
        """See ``Strategy.personal``; a client that never took part would begin with the genesis model."""
        return self._personal(clients)
