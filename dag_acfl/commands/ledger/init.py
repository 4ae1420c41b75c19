"""``dag-acfl ledger init`` and ``join``: the first server of a ledger, and further ones."""

import re
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from dag_acfl.commands.authors import author_ids
from dag_acfl.commands.options import (
    ANY_HOST,
    LOOPBACK,
    DataDir,
    NodeConfig,
    RunConfig,
    TokenFile,
    as_called,
    own_entry,
    scalars,
    settings_for,
    token_of,
)
from fl_core.errors import GenesisError, ParameterError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fl_client.training.protocol import Trainer
    from fl_core.dag.genesis import Component, Genesis, Member
    from fl_core.models import ModelLayout
    from fl_core.types import JsonScalar


def init(
    genesis: Annotated[
        Path | None,
        typer.Argument(help="The rules, as TOML (docs/protocol.md). Default: what the options say, else the defaults."),
    ] = None,
    *,
    name: Annotated[str | None, typer.Option("--name", help="What people call the ledger.")] = None,
    model: Annotated[Path | None, typer.Option("--model", help="Initial model: a safetensors file.")] = None,
    client: Annotated[
        Path | None,
        typer.Option("--client", help="Or a client's Python file: the model of its trainer() is taken."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Argument for that trainer(), such as width=64; as for client run. Repeatable."),
    ] = None,
    flower_app: Annotated[
        Path | None,
        typer.Option(
            "--flower-app", metavar="APPDIR", help="Or a Flower app's folder: its ServerApp's initial arrays are taken."
        ),
    ] = None,
    node_config: NodeConfig = "",
    run_config: RunConfig = "",
    compare: Annotated[
        str | None,
        typer.Option(
            help="What of models is compared: all that is trained (the default; of more than 65,536 values a sketch), "
            "last (the last layer), or tensors by name, separated by commas."
        ),
    ] = None,
    authors: Annotated[
        Literal["open", "listed"] | None,
        typer.Option(
            help="open: whoever reaches a server may publish (the default). listed: whom members list "
            "(dag-acfl authors), beginning with --author."
        ),
    ] = None,
    author: Annotated[
        list[str] | None, typer.Option(help="An author to list from the start, key:… or hash:…. Repeatable.")
    ] = None,
    hint: Annotated[
        list[str] | None,
        typer.Option(
            help="A hint for clients: epochs (E, default 3), initial_epochs (E′, default E), such as epochs=5. "
            "Repeatable."
        ),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a new ledger: rules and initial model, for good.

    A file holds all rules, and other members can read it before they join. The options are for the common case, and
    change what the file says.

    Example: dag-acfl ledger init --name pilot --client my_client.py --hint epochs=2

    Example: dag-acfl ledger init genesis.toml --client my_client.py

    Example: dag-acfl ledger init --name pilot --flower-app quickstart
    """
    from fl_core.dag.acts import ActKind  # noqa: PLC0415
    from fl_core.dag.genesis import Member  # noqa: PLC0415
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from ledger_server.founding import create_ledger  # noqa: PLC0415
    from ledger_server.keys import server_key  # noqa: PLC0415
    from ledger_server.members import Membership  # noqa: PLC0415
    from ledger_server.store import open_store_of  # noqa: PLC0415

    table = {} if genesis is None else _read_toml(genesis)
    if name is not None:
        table["name"] = name
    if not table.get("name"):
        raise ParameterError('the ledger needs a name: --name NAME, or name = "…" in the file')
    if flower_app is None:
        first = _first_model(model, client, scalars(set_ or [], option="--set"))
    elif model or client or set_:
        raise ParameterError("--flower-app brings the initial model: leave out --model, --client and --set")
    else:
        first = _first_model_of_app(flower_app, node_config, run_config)
    _compare(table, first, compare)
    _change(table, "training", scalars(hint or [], option="--hint"))
    _change(table, "authors", {} if authors is None else {"name": authors})

    settings = settings_for(data_dir)
    listed = author_ids(author or [])
    if listed and rules_of(table, first).authors.name != "listed":
        raise ParameterError("--author is for a ledger of listed authors: add --authors listed")
    rules_of(table, first)  # what is wrong is refused before anything is written
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = server_key(settings)
    founders = (Member(public_key_of(key), "founder"),)
    rules = rules_of(table, first, founders=founders)
    with open_store_of(settings) as store:
        now_ms = time.time_ns() // 1_000_000
        transaction = create_ledger(store, rules, first.encoded, key=key, now_ms=now_ms)
        if listed:
            Membership(store, key=key).propose(ActKind.LIST_AUTHOR, listed, now_ms=now_ms)
    _say(rules, transaction.id)
    where = "" if data_dir is None else f" --data-dir {data_dir}"
    if rules.authors.name == "listed" and not listed:
        typer.echo(as_called(f"nobody may publish yet: dag-acfl authors add AUTHOR{where}"))
    typer.echo(as_called(f"serve it with: dag-acfl serve{where}"))


def _say(rules: "Genesis", ledger: str) -> None:
    """Print what was made, what its rules protect against and what they leave."""
    from fl_core.dag.profiles import differences, protection  # noqa: PLC0415

    typer.echo(f"ledger {rules.name!r} is made: {ledger}")
    typer.echo(f"  model     {rules.layout.num_parameters:,} parameters, {rules.layout.nbytes:,} bytes")
    if rules.local:
        typer.echo(f"  stays     with each client: {', '.join(tensor.name for tensor in rules.local)}")
    typer.echo(f"  compared  {_compared(rules)}")
    typer.echo(f"  selector  {rules.selector.name}, aggregator {rules.aggregator.name}, weights {rules.weights.name}")
    if rules.weights.name == "examples" and rules.aggregator.name != "fedavg":
        typer.echo("            of the project's own aggregators fedavg alone counts examples")
    if (known := protection(rules)) is not None:
        differs = differences(rules)
        but = f", but for {', '.join(differs)}" if differs else ""
        typer.echo(f"  profile   {rules.authors.name}{but}")
        typer.echo(f"  against   {known.against}")
        typer.echo(f"  leaves    {known.leaves}")


def _compare(table: dict[str, Any], first: "FirstModel", compare: str | None) -> None:
    """Change the rule of comparison to what ``--compare`` says."""
    if compare == "all":
        table.pop("comparison", None)
    elif compare is not None:
        trained = [name for name in first.arrays if name not in first.buffers]
        chosen = _last_layer(trained) if compare == "last" else [each.strip() for each in compare.split(",")]
        table["comparison"] = {"name": "layers", "tensors": chosen}


def _change(table: dict[str, Any], name: str, values: "Mapping[str, JsonScalar]") -> None:
    """Change a table of the file; what is none is refused later, with its place."""
    if isinstance(given := table.setdefault(name, {}), dict):
        given.update(values)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GenesisError(f"{path} is not TOML: {error}") from error


def _checked(rule: str, component: "Component") -> "Component":
    """A rule's component, checked against its registry, with every parameter written out."""
    from fl_core.aggregation import AGGREGATORS  # noqa: PLC0415
    from fl_core.candidates import CANDIDATE_RULES  # noqa: PLC0415
    from fl_core.dag.genesis import Component  # noqa: PLC0415
    from fl_core.registry import written_params  # noqa: PLC0415
    from fl_core.selection import SELECTORS  # noqa: PLC0415

    if rule == "candidates":
        CANDIDATE_RULES[component.name]  # raises where there is none: no server would serve the ledger
        if component.params:
            raise ParameterError(f"candidate rules have no parameters, not {', '.join(component.params)}")
    registries: Mapping[str, Any] = {"selector": SELECTORS, "aggregator": AGGREGATORS}
    if rule not in registries:
        return component
    registries[rule].build(component.name, component.params)
    return Component(component.name, written_params(registries[rule].read_params(component.name, component.params)))


def _local_tensor(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """A tensor that stays with each client, as the file would name it."""
    return {"name": name, "dtype": "F32", "shape": list(shape)}


def _compared(rules: "Genesis") -> str:
    if rules.comparison.name == "layers":
        return ", ".join(rules.compared)
    said = "all that is trained"
    if rules.buffers:
        said += f", without {', '.join(rules.buffers)}"
    if rules.comparison.name == "sketch":
        said += f"; as a sketch of {rules.comparison.params['dimensions']:,} values"
    return said


@dataclass(frozen=True, slots=True, eq=False)
class FirstModel:
    """What a ledger begins with.

    Attributes:
        arrays: What travels, in the order in which the model defines it.
        layout: Of these.
        buffers: Those of them that are not trained.
        local: What stays with each client.
        hints: What the model itself has to tell clients.
    """

    arrays: "Mapping[str, NDArray[np.float32]]"
    layout: "ModelLayout"
    buffers: Sequence[str]
    local: "Mapping[str, NDArray[np.float32]]" = field(default_factory=dict)
    hints: "Mapping[str, JsonScalar]" = field(default_factory=dict)

    @property
    def encoded(self) -> bytes:
        """What travels, in its canonical bytes."""
        from fl_core.models import encode_model  # noqa: PLC0415

        return encode_model(self.layout, self.arrays)


def first_model_of(trainer: "Trainer") -> FirstModel:
    """A trainer's model as it was made."""
    from fl_client.training.errors import users_code  # noqa: PLC0415

    with users_code("trainer().initial_arrays()"):
        arrays, layout = dict(trainer.initial_arrays()), trainer.layout()
        buffers = getattr(trainer, "buffers", partial(_statistics, layout))
        hints: Mapping[str, JsonScalar] = getattr(trainer, "genesis_hints", dict)()
        local = {name: arrays.pop(name) for name in arrays.keys() - {tensor.name for tensor in layout.tensors}}
        return FirstModel(arrays, layout, [*buffers()], local, hints)


def _first_model(model: Path | None, client: Path | None, options: "Mapping[str, JsonScalar]") -> FirstModel:
    from fl_core.models import decode_any_order, read_layout  # noqa: PLC0415

    if (model is None) == (client is None):
        raise ParameterError("name the initial model by one of --model FILE, --client FILE and --flower-app APPDIR")
    if model is not None:
        if options:
            raise ParameterError("--set is for the trainer() of a client's file; a model file has none")
        data = model.read_bytes()
        layout = read_layout(data)
        return FirstModel(decode_any_order(data), layout, _statistics(layout))
    from fl_client.scaffold import load_trainer  # noqa: PLC0415

    assert client is not None, "one of the two was given"
    return first_model_of(load_trainer(client, options))


def _first_model_of_app(folder: Path, node_config: str, run_config: str) -> FirstModel:
    """What a Flower app's ServerApp begins with."""
    from fl_client.integrations.flower import FlowerApp, FlowerTrainer, opening_of  # noqa: PLC0415

    app = FlowerApp(folder, node_config=node_config, run_config=run_config)
    typer.echo(f"asking the ServerApp of {folder} how it begins", err=True)
    opening = opening_of(app)
    if opening.evaluate is None:
        typer.echo("it asks no client to evaluate, so clients will publish no accuracy", err=True)
    return first_model_of(FlowerTrainer(app, opening))


def rules_of(table: Mapping[str, Any], first: FirstModel, *, founders: "Sequence[Member]" = ()) -> "Genesis":
    """The genesis of a table such as a person's TOML file, for this first model.

    Args:
        table: What it does not say has its default; a model may grow to 1,000 times the first one's norm.
        first: The model.
        founders: The members, where the table names none.
    """
    from fl_core.dag.genesis_toml import genesis_from_table  # noqa: PLC0415
    from fl_core.models import flat, model_norm  # noqa: PLC0415

    norm = model_norm(flat(first.layout, first.encoded))
    local = [_local_tensor(name, array.shape) for name, array in sorted(first.local.items())]
    defaults = {
        "layout": {"local": local, "buffers": list(first.buffers)},
        "training": first.hints,
        "bounds": {"max_norm": 1000 * norm} if norm > 0 else {},
    }
    said = {name: table.get(name, {}) for name in defaults}
    # What is no table is refused with its place.
    both = {name: {**defaults[name], **given} if isinstance(given, dict) else given for name, given in said.items()}
    return genesis_from_table({**table, **both}, layout=first.layout, founders=founders, complete=_checked)


def _statistics(layout: "ModelLayout") -> list[str]:
    """The tensors that are running statistics by their names, where nobody says what is trained."""
    names = [tensor.name for tensor in layout.tensors]
    return [name for name in names if name.rpartition(".")[2] in ("running_mean", "running_var")]


def _last_layer(names: list[str]) -> list[str]:
    """The tensors of the last module [DAG-ACFL III-D]."""
    # A file's order says nothing about the model's, so modules are ordered by name, numbers by their value.
    last = max((name.rpartition(".")[0] for name in names), key=_natural)
    return [name for name in names if name.rpartition(".")[0] == last]


def _natural(name: str) -> list[tuple[int, int, str]]:
    pieces = re.split(r"(\d+)", name)
    return [(1, int(piece), "") if piece.isdigit() else (0, 0, piece) for piece in pieces if piece]


def join(
    source: Annotated[str, typer.Argument(help="Where the ledger is: a live server, a bundle, a data folder.")],
    *,
    expected: Annotated[
        str | None, typer.Option("--ledger", help="Id that it must have, from somebody you trust. Default: any.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address under which others reach this server. Default: host and port.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Its name. Default: its host, or the data folder.")] = None,
    data_dir: DataDir = None,
    token_file: TokenFile = None,
) -> None:
    """Make a further server of a ledger: take its rules and initial model, proven, into an empty database.

    Prints the command by which a member adds it, and notes where the other servers are. Where the same ledger is
    already, nothing else happens.

    Example: dag-acfl ledger join https://ledger.hospital-a.example --url https://ledger.hospital-b.example
    """
    from dag_acfl.sources import ServerSource, open_source  # noqa: PLC0415
    from ledger_server.admin.join import take_genesis  # noqa: PLC0415
    from ledger_server.peers import note_address, note_peers  # noqa: PLC0415
    from ledger_server.store import open_store_of  # noqa: PLC0415

    settings = settings_for(data_dir)
    is_here = urlsplit(source).hostname in (None, *LOOPBACK)
    host = "127.0.0.1" if is_here else gethostname()
    with open_source(source, token=token_of(token_file)) as there:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = own_entry(settings, url=url, name=name, host=host if settings.host in ANY_HOST + LOOPBACK else None)
        servers = there.servers(source) if isinstance(there, ServerSource) else ()
        if servers and servers[0].public_key == own.public_key:
            raise ParameterError(f"{settings.data_dir} is {source}'s own; for another server: --data-dir FOLDER")
        with open_store_of(settings) as store:
            ledger, is_new = take_genesis(there, store, expected=expected, now_ms=time.time_ns() // 1_000_000)
        if url is not None:
            note_address(settings.data_dir, own)
        if servers:
            note_peers(settings.data_dir, servers)
    typer.echo(f"ledger {ledger} is {'joined' if is_new else 'here already'}")
    if is_new and expected is None:
        typer.echo("compare this id with the one that the ledger's other servers show", err=True)
    if is_new:
        typer.echo(f"on a member's machine, with the address that others reach: dag-acfl members add '{own}'")
