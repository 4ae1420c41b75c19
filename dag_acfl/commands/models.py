"""``dag-acfl client export`` and ``dag-acfl ledger export-model``: a model gets out, as a safetensors file."""

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dag_acfl.commands.options import TokenFile, as_called, figure, scalars, token_of
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fl_core.types import JsonScalar

STATE_SUFFIX = "-state"
FILE_NOTE = "client-file.txt"
"""In a state folder: where the client's file was when it ran."""

Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="File to write; an older one is replaced. Default: named for what.")
]


def state_folder(given: Path) -> Path:
    """The state folder that a person means: itself, or the one beside a client's file."""
    return given.with_name(given.stem + STATE_SUFFIX) if given.suffix == ".py" else given


def note_file(folder: Path, file: Path) -> None:
    """Write down which file a folder's client was run with, for the lines that ``export`` prints."""
    (folder / FILE_NOTE).write_text(f"{file.resolve()}\n", encoding="utf-8")


def _noted_file(folder: Path) -> Path | None:
    note = folder / FILE_NOTE
    return Path(note.read_text("utf-8").strip()) if note.is_file() else None


def _class_in(file: Path | None) -> str:
    """Of the PyTorch modules that a file defines, the one called Model, else the last; Model, where there is none.

    Empty, where there is a file, and it does not speak of PyTorch.
    """
    try:
        text = "torch" if file is None else file.read_text("utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return "Model"
    if not re.search(r"\b(torch|TorchTrainer|LoopTrainer)\b", text):
        return ""
    named = [
        each.name
        for each in tree.body
        if isinstance(each, ast.ClassDef) and any(ast.unparse(base).endswith("Module") for base in each.bases)
    ]
    return "Model" if "Model" in named or not named else named[-1]


def export(
    state: Annotated[Path, typer.Argument(help="The client's file, or its state folder, such as my_client-state.")],
    *,
    out: Out = None,
    which: Annotated[
        Literal["best", "trained", "given"],
        typer.Option(
            help="best: on the own test data, of all it was given or trained; trained: its newest; given: the average "
            "that this was trained from."
        ),
    ] = "best",
    client: Annotated[
        Path | None,
        typer.Option(help="The client's file, to add what only that has: frozen parameters, buffers of whole numbers."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Argument for that file's trainer(), such as site=3. Repeatable.")
    ] = None,
) -> None:
    """Write a client's model into a safetensors file, and say how Python loads it; the client may be running.

    Tensors that stay with the client are in it, beside those that travel.

    Example: dag-acfl client export my_client-state --which best
    """
    from fl_client.metrics import NUM_EXAMPLES  # noqa: PLC0415
    from fl_client.state import read_whole_model  # noqa: PLC0415

    folder = state_folder(state)
    model = read_whole_model(folder, which)
    if model is None and which == "best":
        which, model = "trained", read_whole_model(folder, "trained")
        if model is not None:
            typer.echo("nothing was measured on test data, so this is the newest trained model", err=True)
    if model is None:
        raise ParameterError(f"{folder} holds no model yet; a client's first publication makes one")
    data = model.data if client is None else _completed(model.arrays, client, scalars(set_ or [], option="--set"))
    figures = ", ".join(
        f"{name} {figure(value)}" for name, value in sorted(model.metrics.items()) if name != NUM_EXAMPLES
    )
    said = f" ({figures} on its own test data)" if figures else ""
    file = out or Path(f"{folder.resolve().name.removesuffix(STATE_SUFFIX)}-{which}.safetensors")
    source = client or (state if state.suffix == ".py" else _noted_file(folder))
    _write(file, data, f"the {which} model{said}", source=source, is_whole=client is not None)


def _completed(arrays: "Mapping[str, Any]", client: Path, options: "Mapping[str, JsonScalar]") -> bytes:
    """The whole module with these values."""
    from fl_client.scaffold import load_trainer  # noqa: PLC0415

    trainer = load_trainer(client, options)
    if not hasattr(trainer, "model_with"):
        raise ParameterError(f"{client}: its trainer() returns no TorchTrainer; leave --client out")
    from safetensors.torch import save  # noqa: PLC0415

    tensors = trainer.model_with(arrays).state_dict()
    return bytes(save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}))


def export_model(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID] [LEDGER]",
            help="A transaction's id, or its beginning, unless --author or --cluster is given; and where the ledger "
            "is: a bundle, a data folder, a database URL, a live server. Default: the one served here.",
        ),
    ] = None,
    *,
    author: Annotated[
        str | None, typer.Option(help="Instead of an id: this author's newest model. The id, or its beginning.")
    ] = None,
    cluster: Annotated[
        int | None,
        typer.Option(help="Or the average of a cluster's newest models; its number as `ledger inspect` shows it."),
    ] = None,
    out: Out = None,
    token_file: TokenFile = None,
) -> None:
    """Write a model of a ledger into a safetensors file, and say how Python loads it.

    Example: dag-acfl ledger export-model --cluster 2 http://127.0.0.1:8900

    Example: dag-acfl ledger export-model 1a2b3c4d5e6f results/demo/ledger.dagacfl
    """
    from dag_acfl.exporting import ModelExport  # noqa: PLC0415
    from dag_acfl.sources import open_source  # noqa: PLC0415

    places = list(words or [])
    transaction = places.pop(0) if places and re.fullmatch("[0-9a-f]{1,64}…?", places[0]) else None
    if sum(each is not None for each in (transaction, author, cluster)) != 1 or len(places) > 1:
        raise ParameterError("name one model: a transaction's ID, --author A or --cluster N; then where the ledger is")
    target = places[0] if places else None
    with open_source(target, token=token_of(token_file)) as source:
        models = ModelExport(source)
        if transaction is not None:
            name, model = f"update-{transaction[:12]}", models.of_transaction(transaction)
        elif author is not None:
            name, model = f"author-{author.rpartition(':')[2][:12]}", models.of_author(author)
        else:
            assert cluster is not None, "one of the three was given"
            name, model = f"cluster-{cluster}", models.of_cluster(cluster)
    is_part = bool(model.genesis.local) or "frozen_sha256" in model.genesis.training
    if is_part:
        said = "of each model a part stays with its client, in no ledger; see: dag-acfl client export"
        typer.echo(as_called(said), err=True)
    _write(out or Path(f"{name}.safetensors"), model.data, model.what, source=None, is_whole=not is_part)


def _write(file: Path, data: bytes, what: str, *, source: Path | None, is_whole: bool) -> None:
    from fl_client.durable_files import replace_file  # noqa: PLC0415

    module, model = "my_client" if source is None else source.stem, _class_in(source)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, data)
    typer.echo(f"{what}: {len(data):,} bytes in {file}")
    loading = f'load_file("{file.as_posix()}")'
    typer.echo("\n# to use it in Python:")
    if not model:
        typer.echo(f"from safetensors.numpy import load_file\n\nfrom {module} import trainer\n")
        typer.echo(f"arrays = {loading}  # by name, as train() and evaluate() take them")
        typer.echo("print(trainer().evaluate(arrays))  # its arguments are those of --set, such as site=0")
        return
    if is_whole:
        lines = [f"model.load_state_dict({loading})"]
    else:
        lines = [
            f"missing, unexpected = model.load_state_dict({loading}, strict=False)",
            "assert not unexpected, unexpected",
            "if missing:  # what is frozen or a whole number",
            f'    print("as {model}() makes them:", missing)',
        ]
    typer.echo("from safetensors.torch import load_file\n")
    names = "your file, and the class of your model"
    if source is None:
        names = f"for {module} and {model} write the names of {names}"
    typer.echo(f"from {module} import {model}  # {names}\n")
    typer.echo("\n".join([f"model = {model}()", *lines, "model.eval()"]))
    if source is None:
        typer.echo(
            "# without PyTorch: safetensors.numpy.load_file gives the arrays that your trainer's evaluate() takes"
        )
