"""A scenario: one run, said as data; what a file says is checked here, strictly and whole, before anything starts.

    [data]      name = "mnist"
    [partition] name = "superclass"       and its parameters
    [model]     name = "mlp"
    [training]  epochs = 1, batch_size = 10, learning_rate = 0.05, …
    [run]       rounds = 200, participation = 0.5, seed = 0, …
    [strategy]  name = "dag-acfl"         and its parameters
    [topology]  name = "ring"             and its parameters; for strategies on a graph, and for no others
    [attack]    name = "scaled-step"      and its parameters; clients = "8,17": whose places attackers take
    [client]    file = "my_client.py"     a person's own data and model, in place of the first three sections
    [asynchronous]                        only for a run in virtual time; see ``config.virtual_time``

A mistake is told with the section and the key. ``Experiment`` makes many scenarios of one file.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, TypeVar

from fl_core.errors import ConfigurationError
from fl_core.parameters import parameter, read_parameters
from fl_core.registry import PartRegistry, written_params
from fl_core.types import JsonScalar
from fl_simulator.attacks import ATTACKERS
from fl_simulator.attacks.attack import Places
from fl_simulator.config.virtual_time import VirtualTime, strategy_registry
from fl_simulator.data.catalogue import loader_of
from fl_simulator.data.partition import PARTITIONERS, TRAIN_FRACTION
from fl_simulator.errors import ScenarioError
from fl_simulator.graphs.links import Links
from fl_simulator.graphs.topology import TOPOLOGIES
from fl_simulator.models.catalogue import MODELS
from fl_simulator.strategies import STRATEGIES, decentralised_names, needs_graph
from fl_simulator.training.recipe import Recipe

Section = Mapping[str, JsonScalar]

PIXELS: Final = ("unit", "standardised")

DIGITS: Final = "digits"
"""The data set that comes with the package."""

_SET: Final = "set."
_OF_A_CLIENT: Final = ("epochs", "initial_epochs")
"""What ``[training]`` says of a client's own file; all else of its training the file says."""


@dataclass(frozen=True, slots=True)
class Data:
    """Which samples there are."""

    name: str = parameter(DIGITS, doc="The data set: one of those below, or your own.")
    pixels: str = parameter(
        "unit",
        choices=PIXELS,
        doc="unit: values in [0, 1]; standardised: of each channel, mean 0 and standard deviation 1 over all clients' "
        "training samples. An experiment's file must say which.",
    )
    parts: str = parameter(
        "all",
        choices=("all", "train"),
        doc="Whether the set's own test part is shared out to clients, too; it never is where the test is common.",
    )
    test: str = parameter(
        "own",
        choices=("own", "common"),
        doc="own: each client keeps some of its samples to be tested on; common: it trains on all of them, and "
        "everybody is tested on the set's own test part (where it has none, as the digits: on a share set aside).",
    )


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained, and what of it is compared."""

    name: str = parameter("lr", choices=tuple(MODELS), doc="The model.")
    similarity_layers: str = parameter(
        "last",
        choices=("last", "all"),
        doc="Layers that similarity sees: the last (two, of DAG-ACFL's CNNs), as in the papers; or all, which is a new "
        "ledger's default: above 65,536 values by a sketch.",
    )
    init: str = parameter(
        "pytorch", choices=("pytorch", "he"), doc="New weights: as PyTorch draws them, or He's ±√(6 / inputs), evenly."
    )


@dataclass(frozen=True, slots=True)
class Training(Recipe):
    """How each client trains (DAG-ACFL, Table I): the recipe of all trainings, how long they are, and on what."""

    epochs: int = parameter(1, at_least=1, at_most=1000, doc="Local epochs E.")
    initial_epochs: int = parameter(1, at_least=0, at_most=1000, doc="Epochs E′ of a joiner; FlexCFL's pre-training.")
    steps: int = parameter(
        0, at_least=0, at_most=1_000_000, doc="Batches of a training, in place of whole epochs; 0: E epochs."
    )
    device: str = parameter("auto", choices=("auto", "cpu", "cuda"), doc="auto: a GPU where there is one.")


@dataclass(frozen=True, slots=True)
class Run:
    """How long, with whom."""

    rounds: int = parameter(200, at_least=1, at_most=1_000_000, doc="Rounds.")
    participation: float = parameter(1.0, above=0.0, at_most=1.0, doc="Share γ of clients that train in a round.")
    evaluate_every: int = parameter(10, at_least=1, doc="Rounds between evaluations; the last is always evaluated.")
    checkpoint_every: int = parameter(25, at_least=1, doc="Rounds between checkpoints, from which a run goes on.")
    communities: bool = parameter(
        True, doc="Whether an evaluation looks for Louvain's communities; slow for thousands."
    )
    ledger: bool = parameter(True, doc="Whether a ledger is kept as a bundle; some 2 KB a transaction, and models.")
    trace: int = parameter(
        200_000,
        at_least=0,
        doc="Edges and candidates that a run's trace has at most; the round that goes beyond ends it. 0: no trace.",
    )
    train_fraction: float = parameter(
        TRAIN_FRACTION,
        above=0.0,
        below=1.0,
        doc="Of a client's samples; with a common test, of a set that has no test part.",
    )
    test_samples: int = parameter(0, at_least=0, doc="A client is tested on so many samples at most; 0: on all.")
    held_out: float = parameter(
        0.0,
        at_least=0.0,
        below=1.0,
        doc="Share of its training samples that a client keeps to judge averages by, where a strategy lets it refuse.",
    )
    joining: float = parameter(
        0.0,
        at_least=0.0,
        below=1.0,
        doc="Share of clients that join late; a round for which one of them is drawn too early is smaller by it.",
    )
    join_round: int = parameter(1, at_least=1, doc="The first round that they may take part in, counted from 1.")
    moving: float = parameter(
        0.0,
        at_least=0.0,
        at_most=1.0,
        doc="Share of each cluster's clients that get the data of clients of the next cluster (drift); of the smallest "
        "cluster's, and as many of each.",
    )
    move_round: int = parameter(1, at_least=1, doc="The first round in which they have them.")
    return_round: int = parameter(0, at_least=0, doc="The first in which they have their own again; 0: never.")
    seed: int = parameter(0, at_least=0, at_most=2**31 - 1, doc="Decides everything that is drawn.")


@dataclass(frozen=True, slots=True)
class ClientFile:
    """Whose data and model, in place of ``[data]``, ``[partition]`` and ``[model]``: the sites of a client's file.

    Attributes:
        file: Where it is.
        sites: ``trainer(site=0)`` and on.
        digest: The file's SHA-256, so that no run goes on with another text of it; empty: any.
        settings: Further arguments of ``trainer()``, in a scenario ``set.<name>``.
    """

    file: str
    sites: int
    digest: str = ""
    settings: Section = field(default_factory=dict)

    @classmethod
    def read(cls, given: Section) -> "ClientFile":
        """Check what a scenario says."""
        settings = {key.removeprefix(_SET): value for key, value in given.items() if key.startswith(_SET)}
        own = {key: value for key, value in given.items() if not key.startswith(_SET)}
        if unknown := sorted(own.keys() - {"file", "sites", "digest"}):
            raise ScenarioError(
                f"[client] has no {unknown[0]!r}; there are file, sites, and set.<argument of trainer()>"
            )
        file, sites, digest = own.get("file"), own.get("sites"), own.get("digest", "")
        if not isinstance(file, str) or type(sites) is not int or sites < 1 or not isinstance(digest, str):
            raise ScenarioError('[client] needs file = "my_client.py" and sites = 8, a whole number of at least 1')
        return cls(file, sites, digest, settings)

    def write(self) -> dict[str, JsonScalar]:
        """What ``read`` makes this of."""
        settings = {f"{_SET}{key}": value for key, value in self.settings.items()}
        return {"file": self.file, "sites": self.sites, "digest": self.digest, **settings}


@dataclass(frozen=True, slots=True)
class Named:
    """A partition or a strategy: its name and its parameters, checked."""

    name: str
    params: Section = field(default_factory=dict)


_Own = TypeVar("_Own", Links, Places)


@dataclass(frozen=True, slots=True)
class OnGraph(Named):
    """A topology, and how reliable its links are."""

    links: Links = field(default_factory=Links)


@dataclass(frozen=True, slots=True)
class Seated(Named):
    """Attackers, and whose places they take."""

    places: Places = field(default_factory=Places)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run."""

    data: Data = field(default_factory=Data)
    partition: Named = field(default_factory=lambda: Named("iid"))
    model: Model = field(default_factory=Model)
    training: Training = field(default_factory=Training)
    run: Run = field(default_factory=Run)
    strategy: Named = field(default_factory=lambda: Named("dag-acfl"))
    asynchronous: VirtualTime | None = None
    topology: OnGraph | None = None
    client: ClientFile | None = None
    attack: Seated | None = None

    @property
    def num_intervals(self) -> int:
        """Records of the run: its rounds, or the evaluations in virtual time."""
        return self.run.rounds if self.asynchronous is None else self.asynchronous.schedule.num_evaluations

    def sections(self) -> dict[str, dict[str, JsonScalar]]:
        """The scenario as data again, all defaults written out; ``read_scenario`` makes the same of it."""
        training = asdict(self.training)
        samples: dict[str, dict[str, JsonScalar]] = {
            "data": asdict(self.data),
            "partition": {"name": self.partition.name, **self.partition.params},
            "model": asdict(self.model),
        }
        if self.client is not None:
            samples, training = {"client": self.client.write()}, {name: training[name] for name in _OF_A_CLIENT}
        return {
            **samples,
            "training": training,
            "run": asdict(self.run),
            "strategy": {"name": self.strategy.name, **self.strategy.params},
            **({} if self.asynchronous is None else {"asynchronous": self.asynchronous.write()}),
            **({} if self.topology is None else {"topology": _table(self.topology, self.topology.links)}),
            **({} if self.attack is None else {"attack": _table(self.attack, self.attack.places)}),
        }


SECTIONS: Final = tuple(each.name for each in fields(Scenario))


def read_scenario(content: Mapping[str, Any]) -> Scenario:
    """The scenario that nested tables say, such as ``tomllib`` reads; what is left out has its default.

    Raises:
        ScenarioError: An unknown section or key, a wrong type, a value out of range; the message names it.
    """
    for section, table in content.items():
        if section not in SECTIONS:
            raise ScenarioError(f"unknown section [{section}]; there are {', '.join(SECTIONS)}")
        if not isinstance(table, Mapping):
            raise ScenarioError(f"[{section}] is a table, not {table!r}")
    tables = {section: flat_section(section, content.get(section, {})) for section in SECTIONS}
    try:
        virtual_time = VirtualTime.read(tables["asynchronous"]) if "asynchronous" in content else None
        scenario = Scenario(
            data=_data(tables["data"]),
            partition=_partition(tables["partition"]),
            model=read_parameters(Model, tables["model"], owner="[model]"),
            training=read_parameters(Training, tables["training"], owner="[training]"),
            run=read_parameters(Run, tables["run"], owner="[run]"),
            strategy=_strategy(tables["strategy"], virtual_time),
            asynchronous=virtual_time,
            topology=_topology(tables["topology"]) if "topology" in content else None,
            client=ClientFile.read(tables["client"]) if "client" in content else None,
            attack=_attack(tables["attack"]) if "attack" in content else None,
        )
    except ConfigurationError as error:
        raise ScenarioError(str(error)) from error
    if scenario.training.steps and virtual_time is not None:
        raise ScenarioError("[training]: steps is for runs in rounds; in virtual time a training takes whole epochs")
    _check_graph(scenario)
    _check_quarantine(scenario)
    _check_changes(scenario)
    if scenario.client is not None:
        _check_client(content, tables["training"])
    return scenario


def _check_client(content: Mapping[str, Any], training: Section) -> None:
    """What a client's own file decides is not said again."""
    if said := [section for section in ("data", "partition", "model", "topology", "attack") if section in content]:
        raise ScenarioError(f"[{said[0]}] and [client]: a client's file brings its own data and model; leave one out")
    if said := sorted(training.keys() - set(_OF_A_CLIENT)):
        raise ScenarioError(
            f"[training]: {said[0]} is for the client's file to say; here there are {' and '.join(_OF_A_CLIENT)} "
            f"(if its trainer() takes it, say client.set.{said[0]})"
        )


def flat_section(section: str, table: Mapping[str, Any]) -> Section:
    """A section ``flattened``; an error names it."""
    try:
        return flattened(table)
    except ScenarioError as error:
        raise ScenarioError(f"[{section}]: {error}") from None


def _data(table: Section) -> Data:
    data = read_parameters(Data, table, owner="[data]")
    loader_of(data.name)  # that there is such a data set
    return data


def _partition(table: Section) -> Named:
    name, given = _name_and_params(table, "partition", "iid")
    return Named(name, written_params(PARTITIONERS.read_params(name, given)))


def _strategy(table: Section, virtual_time: VirtualTime | None) -> Named:
    name, given = _name_and_params(table, "strategy", "dag-acfl")
    return Named(name, written_params(strategy_registry(name, virtual_time).read_params(name, given)))


def _topology(table: Section) -> OnGraph:
    return OnGraph(*_with_own_keys("topology", table, TOPOLOGIES, Links))


def _attack(table: Section) -> Seated:
    return Seated(*_with_own_keys("attack", table, ATTACKERS, Places))


def _with_own_keys(
    section: str, table: Section, registry: PartRegistry[Any], own: type[_Own]
) -> tuple[str, Section, _Own]:
    """What a section says: a name, its parameters, and the keys that the section has whatever is named."""
    if "name" not in table:
        raise ScenarioError(f"[{section}] needs a name, one of {', '.join(sorted(registry))}")
    name, given = _name_and_params(table, section, "")
    names = {each.name for each in fields(own)}
    params = registry.read_params(name, {key: value for key, value in given.items() if key not in names})
    of_section = {key: value for key, value in given.items() if key in names}
    return name, written_params(params), read_parameters(own, of_section, owner=f"[{section}]")


def _table(named: Named, own: Links | Places) -> dict[str, JsonScalar]:
    return {"name": named.name, **named.params, **asdict(own)}


def _check_quarantine(scenario: Scenario) -> None:
    """Only on a ledger can anybody be quarantined, and only DAG-ACFL's clients are led back."""
    attack, strategy = scenario.attack, scenario.strategy.name
    if attack is not None and attack.places.quarantined_after and strategy != "dag-acfl":
        raise ScenarioError(
            f'[attack]: quarantined_after asks for a ledger: strategy.name = "dag-acfl"; not {strategy!r}'
        )


def _check_changes(scenario: Scenario) -> None:
    """In rounds alone clients join late or move by their number; others' data mean something only among the honest."""
    run = scenario.run
    if (run.joining or run.moving) and scenario.asynchronous is not None:
        raise ScenarioError(
            "[run]: joining and moving are for runs in rounds; in virtual time say asynchronous.membership.joining"
        )
    if run.moving and (scenario.client is not None or scenario.attack is not None):
        raise ScenarioError("[run]: with moving, leave [client] and [attack] out: their data stay where they are")
    if run.moving and 0 < run.return_round <= run.move_round:
        raise ScenarioError("[run]: return_round is after move_round, or 0")


def _check_graph(scenario: Scenario) -> None:
    """A strategy on a graph needs one; for all others a graph would be words without effect."""
    name, given = scenario.strategy.name, scenario.topology is not None
    if needs_graph(name) and not given:
        raise ScenarioError(f'strategy {name!r} needs a graph: add a section [topology], such as name = "complete"')
    if given and not needs_graph(name):
        known = ", ".join(decentralised_names())
        raise ScenarioError(f"strategy {name!r} knows no graph: leave [topology] out, or choose a strategy of {known}")
    if given and scenario.asynchronous is not None:
        raise ScenarioError("virtual time knows servers and no graph: leave [asynchronous] out, or [topology]")
    training = scenario.training
    steps_itself = given and not getattr(STRATEGIES[name], "uses_optimizer", True)
    if steps_itself and (training.optimizer != "sgd" or training.momentum):
        raise ScenarioError(
            f"[training]: strategy {name!r} steps by itself: leave optimizer and momentum out; it has strategy.momentum"
        )


def _name_and_params(table: Section, section: str, default: str) -> tuple[str, Section]:
    name = table.get("name", default)
    if not isinstance(name, str):
        raise ScenarioError(f"[{section}]: name must be str, not {type(name).__name__}")
    return name, {key: value for key, value in table.items() if key != "name"}


def flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, JsonScalar]:
    """Tables in a table as keys with dots, so that ``[strategy.selector] rule`` is ``selector.rule``.

    Raises:
        ScenarioError: A value is neither text, number, Boolean nor table.
    """
    flat: dict[str, JsonScalar] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = flattened(value, f"{prefix}{key}.")
            if (name := inner.pop(f"{prefix}{key}.name", None)) is not None:
                flat[f"{prefix}{key}"] = name  # [strategy.selector] name = "beast" says selector = "beast"
            flat.update(inner)
        elif isinstance(value, (str, int, float, bool)):
            flat[f"{prefix}{key}"] = value
        else:
            raise ScenarioError(f"{prefix}{key} is {value!r}; a value is text, a number, or true or false")
    return flat
