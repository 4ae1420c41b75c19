"""The generated parts of docs/simulator.md: what a scenario can say."""

from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

from docs.parts.markdown import table
from docs.parts.parameters import KEY, first_sentence, named_table, parameter_rows, part_table
from fl_simulator.attacks import ATTACKERS
from fl_simulator.attacks.attack import Places
from fl_simulator.config.scenario import DIGITS, Named, Scenario
from fl_simulator.data.catalogue import DATA_SETS
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.engine.conditions import AVAILABILITIES, DISTRIBUTIONS, MembershipParams, WorkParams
from fl_simulator.engine.evaluation import Schedule
from fl_simulator.graphs.links import Links
from fl_simulator.graphs.topology import TOPOLOGIES
from fl_simulator.models.catalogue import MODELS
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES


def scenario_tables() -> str:
    """The sections of a scenario that every run has."""
    parts = [
        _section(f"[{name}]", kind)
        for name, kind in get_type_hints(Scenario).items()
        if isinstance(kind, type) and kind is not Named  # what is not has tables of its own
    ]
    return "\n".join(parts)


def models_table() -> str:
    """What can be trained."""
    rows = (
        (f"`{name}`", model.title, ", ".join(f"`{each}`" for each in model.last_layers))
        for name, model in MODELS.items()
    )
    return table(("model", "what it is", "what is compared where `compared` is `last`"), rows)


def data_sets_table() -> str:
    """Which samples there are."""
    rows = [(f"`{DIGITS}`", "8 x 8 digits of scikit-learn, which come with the package")]
    rows += [(f"`{name}`", each.title) for name, each in DATA_SETS.items()]
    return table(("data set", "what it is"), rows)


def partition_tables() -> str:
    """Each partitioner with its parameters."""
    return "\n".join(named_table(name, PARTITIONERS[name], PARTITIONERS.params_type(name)) for name in PARTITIONERS)


def strategy_tables() -> str:
    """Each strategy with its source and its parameters."""
    return "\n".join(named_table(name, STRATEGIES[name], STRATEGIES.params_type(name)) for name in sorted(STRATEGIES))


def asynchronous_strategy_tables() -> str:
    """Each strategy without rounds, with its source and its parameters."""
    rules = ASYNCHRONOUS_STRATEGIES
    return "\n".join(named_table(name, rules[name], rules.params_type(name)) for name in sorted(rules))


def virtual_time_tables() -> str:
    """The table ``[asynchronous]`` and its parts."""
    parts = [_section("[asynchronous]", Schedule)]
    parts.append(
        "`speed` (samples a second), `up` and `down` (bytes a second) and `latency` (seconds) each name a distribution"
        " over clients, and have its parameters:\n"
    )
    parts += [part_table(name, kind) for name, kind in DISTRIBUTIONS.items()]
    parts.append("`availability` names when clients can be reached:\n")
    parts += [part_table(name, kind) for name, kind in AVAILABILITIES.items()]
    for name, kind in (("membership", MembershipParams), ("work", WorkParams)):
        parts.append(_section(name, kind))
    return "\n".join(parts)


def topology_tables() -> str:
    """Each topology with its parameters."""
    return "\n".join(named_table(name, TOPOLOGIES[name], TOPOLOGIES.params_type(name)) for name in sorted(TOPOLOGIES))


def links_table() -> str:
    """What ``[topology]`` says beside the topology."""
    return table(KEY, parameter_rows(Links))


def attacker_tables() -> str:
    """Where attackers sit, and each with its source and its parameters."""
    parts = [_section("[attack]", Places)]
    parts += [named_table(name, ATTACKERS[name], ATTACKERS.params_type(name)) for name in sorted(ATTACKERS)]
    return "\n".join(parts)


def _section(name: str, kind: type[Any]) -> str:
    """A table of a scenario by its name, what it is, and its keys."""
    return f"`{name}`: {first_sentence(kind.__doc__)}\n\n{table(KEY, parameter_rows(kind))}"


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "scenario": scenario_tables,
    "data-sets": data_sets_table,
    "models": models_table,
    "partitions": partition_tables,
    "strategies": strategy_tables,
    "asynchronous-strategies": asynchronous_strategy_tables,
    "virtual-time": virtual_time_tables,
    "topologies": topology_tables,
    "links": links_table,
    "attackers": attacker_tables,
}
