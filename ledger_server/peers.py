"""Who the other servers are: a name for people, an address, and the key that every request of theirs is signed with.

A person writes a server as one word, ``hospital-b=https://ledger.hospital-b.example#<64 hexadecimal digits>``, which
``dag-acfl keys peer`` prints on its machine. Peers are the members of the ledger (``peers_of``); the setting ``peers``
and what ``ledger join`` noted only say where they are. Opens no connection.
"""

import logging
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from fl_core.errors import ParameterError
from fl_core.types import PublicKey, is_hex_id
from ledger_server.private_files import replace_private

if TYPE_CHECKING:
    from fl_core.dag.acts import ListedMember

logger: logging.Logger = logging.getLogger(__name__)
Noted = TypeVar("Noted")

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
NOTED_FILE: Final = "peers.txt"
"""In the data folder: where the servers are that ``ledger join`` found."""
ADDRESS_FILE: Final = "address.txt"
"""In the data folder: this server, under the address that ``ledger join --url`` named."""
RETIRED_FILE: Final = "retired-keys.txt"
"""In the data folder: keys of members that have begun with another one."""
_FORM: Final = "write NAME=URL#KEY, as `dag-acfl keys peer` prints it on the peer's machine"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server of the ledger.

    Attributes:
        name: For logs and metrics; lower-case letters, digits, dots and hyphens.
        url: ``http://host:8900`` or ``https://…``, without a path.
        public_key: Its Ed25519 key; never a small-order or non-canonical point.
        former: The key that it replaces: the server may not have begun with the new one yet.
    """

    name: str
    url: str
    public_key: PublicKey
    former: PublicKey | None = None

    def __str__(self) -> str:
        return f"{self.name}={self.url}#{self.public_key}"


def parse_peer(text: str) -> Peer:
    """Read ``name=url#key``.

    Raises:
        ParameterError: It is not of this form, or the address or the key is one that no peer can have.
    """
    name, equals, rest = text.strip().partition("=")
    url, hash_sign, key = rest.partition("#")
    if not (equals and hash_sign):
        raise ParameterError(f"a peer has the form NAME=URL#KEY; {_FORM}")
    if not _NAME.fullmatch(name):
        raise ParameterError(f"peer {name[:64]!r}: a name has lower-case letters, digits, dots and hyphens")
    return Peer(name, _checked_url(name, url), _checked_key(name, key))


def _checked_url(name: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ParameterError(f"peer {name}: its address must look like https://host:8900") from None
    place = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(place) or port == 0:
        raise ParameterError(f"peer {name}: its address must look like https://host:8900")
    if parts.path not in ("", "/") or parts.query:
        raise ParameterError(f"peer {name}: its address ends after host and port; peers' routes are fixed")
    address = _address(host)
    # Link-local is where clouds keep their machines' credentials; the others are no single machine.
    if address is not None and (address.is_link_local or address.is_multicast or address.is_unspecified):
        raise ParameterError(f"peer {name}: {host} is no address that a peer can have")
    return f"{parts.scheme}://{parts.netloc}"


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is, spelt in any way that resolvers read: 0xa9fea9fe, ::ffff:1.2.3.4; None for a name."""
    try:
        address = ip_address(host)
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address


def _checked_key(name: str, key: str) -> PublicKey:
    from fl_core.dag.signature import is_weak_key  # noqa: PLC0415 (loads OpenSSL, which most settings need not wait for)

    if not is_hex_id(key):
        raise ParameterError(f"peer {name}: its key is 64 lower-case hexadecimal digits; {_FORM}")
    if is_weak_key(PublicKey(key)):
        raise ParameterError(f"peer {name}: its key is a small-order or non-canonical point, which anyone can sign for")
    return PublicKey(key)


def parse_peers(entries: str | Iterable[object]) -> tuple[Peer, ...]:
    """Read a list of peers: entries in a sequence, or one text in which spaces or commas stand between them.

    Raises:
        ParameterError: An entry is wrong, or a name or a key stands twice.
    """
    words = re.split(r"[\s,]+", entries.strip()) if isinstance(entries, str) else entries
    peers = tuple(word if isinstance(word, Peer) else parse_peer(str(word)) for word in words if word != "")
    for what, values in (("name", [peer.name for peer in peers]), ("key", [peer.public_key for peer in peers])):
        twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
        if twice is not None:
            raise ParameterError(f"two peers have the {what} {twice[:64]}")
    return peers


def peers_of(
    own_key: PublicKey, members: "Iterable[ListedMember]", *, configured: Sequence[Peer], noted: Sequence[Peer] = ()
) -> tuple[Peer, ...]:
    """The other members whose address is known, in the order of their keys; without members, those of the settings.

    An address is the settings', else that of the members' acts, else what was noted.

    Args:
        own_key: The server's own key: its own entry is passed over.
        members: Those of the ledger; none where its genesis lists none.
        configured: The setting ``peers``.
        noted: What ``note_peers`` has written.
    """
    listed = tuple(members)
    if not listed:
        return tuple(peer for peer in configured if peer.public_key != own_key)
    told, seen = ({peer.public_key: peer for peer in peers} for peers in (configured, noted))
    found: dict[str, Peer] = {}
    for member in listed:
        if own_key in (member.key, member.former):
            continue
        keys = [key for key in (member.key, member.former) if key is not None]
        words = [(told[key].name, told[key].url) for key in keys if key in told]
        words += [(member.name, member.url), *((member.name, seen[key].url) for key in keys if key in seen)]
        for name, url in words:
            peer = _peer_or_none(name, url, member.key) or _peer_or_none(member.key[:8], url, member.key)
            if peer is not None:
                if peer.name in found:
                    peer = replace(peer, name=f"{peer.name[:50]}-{member.key[:8]}")
                found[peer.name] = replace(peer, former=member.former)
                break
    return tuple(found.values())


def _peer_or_none(name: str, url: str, key: PublicKey) -> Peer | None:
    """None for what no peer can have: those who signed an act wrote what they liked."""
    try:
        return parse_peer(f"{name}={url}#{key}")
    except ParameterError:
        return None


def note_peers(data_dir: Path, peers: Iterable[Peer]) -> None:
    """Write down where other servers are, in place of what was noted before."""
    replace_private(data_dir / NOTED_FILE, "".join(f"{peer}\n" for peer in peers))


def noted_peers(data_dir: Path) -> tuple[Peer, ...]:
    """What ``note_peers`` wrote; nothing where it did not.

    Raises:
        ParameterError: The file is damaged.
    """
    return _noted(data_dir / NOTED_FILE, parse_peers, absent=(), fix="delete it, and set peers instead")


def note_address(data_dir: Path, own: Peer) -> None:
    """Write down under which name and address others reach this server."""
    replace_private(data_dir / ADDRESS_FILE, f"{own}\n")


def noted_address(data_dir: Path) -> Peer | None:
    """What ``note_address`` wrote; its key may be an older one of this server's.

    Raises:
        ParameterError: The file is damaged.
    """
    return _noted(data_dir / ADDRESS_FILE, parse_peer, absent=None, fix="delete it, and name the address instead")


def _noted(path: Path, parse: Callable[[str], Noted], *, absent: Noted, fix: str, encoding: str = "utf-8") -> Noted:
    """What stands in a file of this server's own; an error that names the file and the fix where it is damaged."""
    try:
        return parse(path.read_text(encoding=encoding))
    except FileNotFoundError:
        return absent
    except (OSError, UnicodeDecodeError, ParameterError) as error:
        raise ParameterError(f"{path}: {error}; {fix}") from None


def retire_key(data_dir: Path, key: PublicKey) -> None:
    """Write down, durably, that a member has begun with another key; a disk that refuses is only logged."""
    try:
        kept = sorted({*retired_keys(data_dir), key})
        replace_private(data_dir / RETIRED_FILE, "".join(f"{each}\n" for each in kept))
    except (OSError, ParameterError) as error:
        logger.error("a retired key is taken again after a restart", extra={"key": key, "reason": str(error)})  # noqa: TRY400


def retired_keys(data_dir: Path) -> frozenset[PublicKey]:
    """What ``retire_key`` wrote.

    Raises:
        ParameterError: The file cannot be read.
    """
    return _noted(
        data_dir / RETIRED_FILE,
        lambda text: frozenset(map(PublicKey, filter(is_hex_id, text.split()))),
        absent=frozenset(),
        fix="restore it, or delete it: retired keys are then taken once more",
        encoding="ascii",
    )
