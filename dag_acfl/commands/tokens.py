"""``dag-acfl tokens``: make, list and revoke the bearer tokens of a server; a running server follows."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dag_acfl.commands.authors import author_ids
from dag_acfl.commands.options import DataDir, as_called, now_ms, read_secret, settings_for
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from ledger_server.tokens import TokenFile, TokenRecord

app: typer.Typer = typer.Typer(
    help="Make, list and revoke bearer tokens.",
    epilog="Example: dag-acfl tokens create site-3 --days 365 --out site-3.token",
    no_args_is_help=True,
)

Authors = Annotated[
    list[str] | None,
    typer.Option(
        help="Author who may publish with it, key:… or hash:…, as `dag-acfl client status` shows it. Repeatable. "
        "Default: anybody."
    ),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="For whom it is, such as site-3; to find and revoke it by.")],
    *,
    scope: Annotated[
        Literal["client", "metrics", "operator"],
        typer.Option(
            help="client: take part in the ledger. metrics: read the metrics alone. operator: all that, and change "
            "members, quarantines, tokens and old models on the console's page."
        ),
    ] = "client",
    author: Authors = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=36_500, help="Days after which it expires. Default: never.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write it into, readable by you only. Default: print it.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Take the token in this file, made for another server, instead of a new one.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a token. It is shown this once; the server keeps only its SHA-256.

    A token is of one server; a client that moves between servers uses one token which each of them was given.
    A server that others than its own machine reach asks for them; serve --require-token and --public say otherwise.

    Example: dag-acfl tokens create site-3 --days 365 --out site-3.token
    """
    from ledger_server.private_files import write_private  # noqa: PLC0415
    from ledger_server.tokens import Scope, is_token, new_record, new_token  # noqa: PLC0415

    if out is not None and token_file is not None:
        raise ParameterError("--out is for a new token; the one in --token-file lies in a file already")
    tokens = _tokens(data_dir)
    token = new_token() if token_file is None else read_secret(token_file)
    if not is_token(token):
        raise ParameterError(f"{token_file} holds no token; make one with: dag-acfl tokens create")
    authors = author_ids(author or [])
    record = new_record(token, name=name, scope=Scope(scope), days=days, authors=authors, now_ms=now_ms())
    if out is not None:
        try:  # first, so that no token is kept which nobody got to see
            write_private(out, f"{token}\n".encode())
        except FileExistsError:
            raise ParameterError(f"{out} exists already; choose another --out") from None
    try:
        tokens.add(record)
    except BaseException:
        if out is not None:
            out.unlink()
        raise
    if token_file is None:
        typer.echo(token if out is None else f"the token is in {out}")
    typer.echo(f"token {record.id} ({record.scope}) for {name}, {_until(record)}", err=True)


@app.command("list")
def list_tokens(*, data_dir: DataDir = None) -> None:
    """List tokens: id, scope, when made, until when or that it has expired, name, for which authors; never themselves.

    Example: dag-acfl tokens list --data-dir site-a
    """
    records, asked_ms = _tokens(data_dir).records(), now_ms()
    for record in records:
        state = _until(record) if record.is_valid(asked_ms) else "expired"
        bound = f"  for {', '.join(record.authors)}" if record.authors else ""
        typer.echo(f"{record.id}  {record.scope:<8}  made {_day(record.created_at_ms)}  {state}  {record.name}{bound}")
    if not records:
        typer.echo(as_called("no tokens; make one with: dag-acfl tokens create"), err=True)


@app.command()
def bind(
    token: Annotated[str, typer.Argument(help="Its name or its id (see: dag-acfl tokens list).")],
    authors: Annotated[
        list[str] | None, typer.Argument(help="Who may publish with it, key:… or hash:…. None: anybody again.")
    ] = None,
    *,
    data_dir: DataDir = None,
) -> None:
    """Say who may publish with a token. A running server follows at once.

    Example: dag-acfl tokens bind site-3 key:5f0c1e…
    """
    record = _tokens(data_dir).bind(token, author_ids(authors or []))
    typer.echo(f"token {record.id} for {record.name} publishes for {', '.join(record.authors) or 'anybody'}")


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(help="Its name or its id (see: dag-acfl tokens list).")],
    *,
    data_dir: DataDir = None,
) -> None:
    """Revoke a token for good. A running server refuses it at once.

    Example: dag-acfl tokens revoke site-3
    """
    record = _tokens(data_dir).revoke(token)
    typer.echo(f"token {record.id} ({record.scope}) for {record.name} is revoked")


def _tokens(data_dir: Path | None) -> "TokenFile":
    from ledger_server.admin.store_source import require_ledger  # noqa: PLC0415
    from ledger_server.tokens import FILE, TokenFile  # noqa: PLC0415

    settings = settings_for(data_dir)
    if not settings.data_dir.is_dir():  # in a folder that no server has, nobody would ever read them
        require_ledger(settings)
    return TokenFile(settings.data_dir / FILE, now_ms=now_ms)


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()


def _until(record: "TokenRecord") -> str:
    return "without end" if record.expires_at_ms is None else f"until {_day(record.expires_at_ms)}"
