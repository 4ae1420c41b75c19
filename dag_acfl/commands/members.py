"""``dag-acfl members``: the servers of a ledger, decided together by those that are members."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dag_acfl.commands.options import DataDir, now_ms, number_of, own_entry, settings_of_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fl_core.dag.acts import ActKind
    from ledger_server.members import Membership, Standing

app: typer.Typer = typer.Typer(
    help="See and change the servers of a ledger; a running server follows without a restart.",
    epilog="Example: dag-acfl members list",
    no_args_is_help=True,
)

NEXT_KEY_FILE = "server-key.next.pem"


@app.command()
def add(
    servers: Annotated[list[str], typer.Argument(help="NAME=URL#KEY of each, as `dag-acfl ledger join` prints it.")],
    *,
    data_dir: DataDir = None,
) -> None:
    """Make servers members of the ledger: the other members' servers begin to exchange updates with them.

    Run it on a member's machine. Where one signature is not enough, it names the members that have to sign too. Who is
    a member already is passed over; where this server alone had removed it, that is taken back.

    Example: dag-acfl members add 'second=http://second.example:8900#KEY'
    """
    from ledger_server.peers import parse_peers  # noqa: PLC0415

    with membership(data_dir) as members:
        found = parse_peers(servers)
        for peer in found:
            if peer.public_key in members.acts.effect.members:
                typer.echo(f"{members.name(peer.public_key)} is a member already")
        for standing in members.add(found, now_ms=now_ms()):
            show(members, standing)


@app.command()
def remove(
    member: Annotated[str, typer.Argument(help="Its name, or the first 8 digits of its key or more.")],
    *,
    data_dir: DataDir = None,
) -> None:
    """Take a server off the list: nothing more is asked of it or taken from it. Its earlier updates stay.

    This server's own stops at once; the others stop once enough members have signed. Until then adding it takes that
    back.

    Example: dag-acfl members remove second
    """
    with membership(data_dir) as members:
        show(members, members.remove(members.find(member), now_ms=now_ms()))


@app.command()
def rotate(
    *,
    url: Annotated[str | None, typer.Option(help="Its new address, where that changes too.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Give this server a new key. The others take the old one until they hear the new one.

    Makes server-key.next.pem in the data folder, and says when to put it in the old key's place.

    Example: dag-acfl members rotate --data-dir site-b
    """
    from ledger_server.keys import key_file, load_or_create_key  # noqa: PLC0415
    from ledger_server.peers import note_address, parse_peer  # noqa: PLC0415

    with membership(data_dir) as members:
        settings = settings_of_ledger(data_dir)
        checked = None if url is None else parse_peer(f"url={url}#{members.own_key}").url
        new_file = settings.data_dir / NEXT_KEY_FILE
        if not new_file.exists():
            members.check_member()
        standing = members.rotate(load_or_create_key(new_file), url=checked, now_ms=now_ms())
        if checked is not None:
            note_address(settings.data_dir, own_entry(settings, url=checked, name=None))
        show(members, standing)
    when = "now" if standing.is_in_effect else "then"
    how = f"mv {new_file} {key_file(settings)}  "
    if settings.server_key is not None:  # such as a Secret, which is no file that can be moved to
        how = f"put what {new_file} holds where DAG_ACFL_SERVER_KEY ({settings.server_key}) has its key from,"
    typer.echo(f"{when}: {how} and restart this server, no other")


@app.command()
def sign(
    proposal: Annotated[str, typer.Argument(help="The first 8 digits of its id or more (see: dag-acfl members list).")],
    *,
    data_dir: DataDir = None,
) -> None:
    """Sign what another member has proposed.

    Example: dag-acfl members sign 3f5c0a12
    """
    with membership(data_dir) as members:
        show(members, members.sign(proposal))


@app.command("list")
def list_members(*, data_dir: DataDir = None) -> None:
    """List the members, and what is proposed and by whom it must be signed.

    Example: dag-acfl members list --data-dir site-a
    """
    from ledger_server.members import printable  # noqa: PLC0415
    from ledger_server.peers import noted_peers, peers_of  # noqa: PLC0415

    settings = settings_of_ledger(data_dir)
    with membership(data_dir) as members:
        listed = members.acts.members()
        noted = noted_peers(settings.data_dir)
        peers = peers_of(members.own_key, listed, configured=settings.peers, noted=noted)
        places = {peer.public_key: peer.url for peer in peers} | {members.own_key: "this server"}
        count = len(listed)
        rule = f"an act needs {members.acts.votes_needed(count)} of {count} signatures" if count else "nobody can act"
        typer.echo(f"ledger {members.genesis.name!r}: {number_of(count, 'member')}; {rule}")
        for member in listed:
            place = places.get(member.key) or printable(member.url) or "no address is known; name it in DAG_ACFL_PEERS"
            typer.echo(f"  {members.name(member.key):<16} {member.key}  {place}")
        for standing in members.open():
            show(members, standing)


@contextmanager
def membership(data_dir: Path | None) -> "Iterator[Membership]":
    """The ledger of a data folder, as its server sees and signs what members decide."""
    from ledger_server.keys import key_file, load_key  # noqa: PLC0415
    from ledger_server.members import Membership  # noqa: PLC0415
    from ledger_server.store import open_store_of  # noqa: PLC0415

    settings = settings_of_ledger(data_dir)
    with open_store_of(settings) as store:
        yield Membership(store, key=load_key(key_file(settings)))


def propose(members: "Membership", kind: "ActKind", subjects: "Sequence[str]", **more: Any) -> None:
    """Propose an act of each subject, as ``Membership.propose`` does, and show how each stands."""
    for standing in members.propose(kind, subjects, **more, now_ms=now_ms()):
        show(members, standing)


def show(members: "Membership", standing: "Standing") -> None:
    """A line for what is in effect; for what is not, also who must sign and how."""
    act_id = standing.signed.id[:8]
    is_of_members = standing.signed.act.kind.name.endswith("_MEMBER")
    if standing.is_in_effect:
        count = len(members.acts.effect.members)
        needed = f"; an act needs {members.acts.votes_needed(count)} of {count} signatures from now on"
        typer.echo(f"{members.words(standing)}{needed if is_of_members else ''}")
        return
    typer.echo(f"proposal {act_id}: {members.words(standing)}")
    here = " everywhere, here at once" if members.holds_here(standing) and not is_of_members else ""
    signed_by = ", ".join(standing.signed_by) or "nobody"
    typer.echo(f"  signed by {signed_by}; in effect with {standing.needed} signatures{here}")
    missing = standing.needed - len(standing.signed_by)
    if standing.waits_for:
        typer.echo(f"  {missing} more of {', '.join(standing.waits_for)}, each there: dag-acfl members sign {act_id}")
