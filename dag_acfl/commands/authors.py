"""``dag-acfl authors``: who may publish in a ledger of listed authors, and who goes on in whose place."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.members import membership, propose, show
from dag_acfl.commands.options import DataDir, number_of
from fl_core.errors import ParameterError, TransactionInvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fl_core.dag.acts import ActKind
    from fl_core.types import AuthorId
    from ledger_server.members import Membership

app: typer.Typer = typer.Typer(
    help="See and change who may publish; a running server follows without a restart, the others by gossip.",
    epilog="Example: dag-acfl authors add key:5f0c1e…",
    no_args_is_help=True,
)

Authors = Annotated[list[str], typer.Argument(help="key:… or hash:…, as `dag-acfl client status` shows it.")]


@app.command()
def add(authors: Authors, *, data_dir: DataDir = None) -> None:
    """List authors: they may publish. On this server at once, on the others when enough members have signed.

    Run it on a member's machine, in a ledger made with `dag-acfl ledger init --authors listed`.

    Example: dag-acfl authors add key:5f0c1e… key:77ab02…
    """
    from fl_core.dag.acts import ActKind  # noqa: PLC0415

    with membership(data_dir) as members:
        _decide(members, ActKind.LIST_AUTHOR, authors)


@app.command()
def remove(authors: Authors, *, data_dir: DataDir = None) -> None:
    """Take authors off the list: nothing more is taken from them, and they are offered to nobody. Their updates stay.

    Until enough members have signed that, adding them takes it back, and likewise removing whom this server has added.

    Example: dag-acfl authors remove key:5f0c1e…
    """
    from fl_core.dag.acts import ActKind  # noqa: PLC0415

    with membership(data_dir) as members:
        _decide(members, ActKind.UNLIST_AUTHOR, authors)


@app.command()
def rotate(
    old: Annotated[str, typer.Argument(help="Whom it replaces: key:… or hash:…, or the PEM file of its key.")],
    new: Annotated[str, typer.Argument(help="PEM file of the new key (see: dag-acfl keys generate), or hash:….")],
    *,
    data_dir: DataDir = None,
) -> None:
    """Let a new key go on as an author did: with its newest update, its count and its place on the list.

    With the old key's file both keys sign, and no member has to: once only. Else members sign as for any act, and what
    they decide goes before what the old key has signed.

    Example: dag-acfl authors rotate key:5f0c1e… new-key.pem
    """
    from dag_acfl.commands.trust.subjects import opened  # noqa: PLC0415
    from fl_core.dag.acts import ActKind, sign_rotation  # noqa: PLC0415
    from fl_core.dag.author import AuthorKind  # noqa: PLC0415
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from ledger_server.keys import load_key  # noqa: PLC0415

    agreeing: list[Ed25519PrivateKey] = []

    def author_of(text: str) -> str:
        if not Path(text).is_file():
            return author_ids([text])[0]
        agreeing.append(load_key(Path(text)))
        return AuthorKind.ED25519.author(public_key_of(agreeing[-1]))

    replaced, going_on = author_of(old), author_of(new)
    if not Path(new).is_file() and going_on.startswith("key:"):
        raise ParameterError("the new key agrees by its signature: name its PEM file instead of its public half")
    if Path(old).is_file() and Path(new).is_file():
        with opened(data_dir) as view:
            known = view.acts.authors
            if {replaced, going_on} & {*known.successors, *known.contested} or going_on in known.formers:
                raise ParameterError(
                    "one of the two was rotated already (see: dag-acfl authors list); members may decide otherwise: "
                    f"dag-acfl authors rotate {replaced} {new}"
                )
            view.acts.admit(sign_rotation(*agreeing, ledger=view.id))
        typer.echo(f"{going_on} goes on as {replaced}")
        return
    with membership(data_dir) as members:
        for each in members.acts.all():
            is_decided = each.act.kind is ActKind.ROTATE_AUTHOR and each.id in members.acts.effect.acts
            if is_decided and (replaced == each.act.subject or going_on in (each.act.subject, each.act.object)):
                raise ParameterError("members have rotated one of the two already; see: dag-acfl authors list")
        propose(members, ActKind.ROTATE_AUTHOR, [replaced], changed=going_on, agreeing=agreeing)


@app.command("list")
def list_all(*, data_dir: DataDir = None) -> None:
    """List who may publish, who goes on in whose place, and what is proposed.

    Example: dag-acfl authors list --data-dir site-a
    """
    from fl_core.dag.acts import ActKind  # noqa: PLC0415

    with membership(data_dir) as members:
        known = members.acts.authors
        who = "everybody may publish" if known.listed is None else number_of(len(known.listed), "author") + " listed"
        typer.echo(f"ledger {members.genesis.name!r}: {who}")
        for author in sorted({*(known.listed or known.formers)} - known.contested):
            former = known.formers.get(author)
            typer.echo(f"  {author}" + ("" if former is None else f"  goes on as {former}"))
        for each in members.acts.all():
            if each.act.kind is ActKind.ROTATE_SELF and each.act.subject in known.contested:
                typer.echo(
                    f"  {each.act.object}  would go on as {each.act.subject}, whose rotations contradict one another"
                )
        for standing in members.open():
            if standing.signed.act.kind.name.endswith("_AUTHOR"):
                show(members, standing)


def author_ids(texts: "Sequence[str]") -> "tuple[AuthorId, ...]":
    """Author ids that a person wrote, each once."""
    from fl_core.dag.author import split_author  # noqa: PLC0415
    from fl_core.types import AuthorId  # noqa: PLC0415

    for text in texts:
        try:
            split_author(text)
        except TransactionInvalidError as error:
            raise ParameterError(f"{text[:80]!r}: {error}") from None
    return tuple(dict.fromkeys(map(AuthorId, texts)))


def _decide(members: "Membership", kind: "ActKind", authors: "Sequence[str]") -> None:
    from fl_core.dag.acts import ActKind  # noqa: PLC0415

    if members.acts.authors.listed is None:
        raise ParameterError(
            "this ledger is open: everybody may publish; `dag-acfl ledger init --authors listed` makes another"
        )
    named = author_ids(authors)
    if kind is ActKind.UNLIST_AUTHOR:  # a typo would look like a key that is stopped
        lists = (ActKind.LIST_AUTHOR, ActKind.UNLIST_AUTHOR)
        of_lists = author_ids([each.act.subject for each in members.acts.all() if each.act.kind in lists])
        known = members.acts.authors.all_names(of_lists)
        if strangers := [author for author in named if author not in known]:
            raise ParameterError(f"{strangers[0]} was never listed; who is: dag-acfl authors list")
    propose(members, kind, named)
