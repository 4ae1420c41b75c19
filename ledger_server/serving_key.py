"""Which server's key serves a ledger: the database notes it, and a process with another one does not serve.

Two machines with one database are one server to its peers. With two keys each would sign what the other has not seen,
and peers would refuse one of them. A key changes where the members have rotated it, or where an operator says so
(``dag-acfl keys replace``); a database that was put back from a copy is whoever's serves it next.
"""

import logging
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.acts import ActKind
from fl_core.errors import ParameterError
from fl_core.types import PublicKey
from ledger_server.acts import MemberActs
from ledger_server.keys import key_file, server_key
from ledger_server.settings import Settings
from ledger_server.store.journal import Store

logger: logging.Logger = logging.getLogger(__name__)


def serving_key(store: Store, settings: Settings) -> Ed25519PrivateKey:
    """This server's key; that of a new ledger is made.

    Raises:
        ParameterError: As ``keys.server_key``; or the ledger is served with a key, and there is none here.
    """
    noted, file = store.server_key(), key_file(settings)
    if noted is not None and not file.exists():
        raise ParameterError(f"this ledger is served with the key {noted}, and there is none here; {_fix(file)}")
    return server_key(settings)


def claim(store: Store, acts: MemberActs, own: PublicKey, *, file: Path) -> None:
    """Note that a ledger is served with this key from now on.

    Args:
        store: The ledger's.
        acts: What its members have decided.
        own: The key.
        file: Where it is, for a message.

    Raises:
        ParameterError: It is served with another one.
    """
    noted = store.server_key()
    if noted == own:
        return
    may = noted is None or _goes_on_as(noted, own, acts)
    if may and store.set_server_key(own, former=noted):
        logger.info("this ledger is served with this key from now on", extra={"public_key": own, "former": noted})
        return
    noted = store.server_key()
    if noted != own:  # or another process of this server came first
        raise ParameterError(f"this ledger is served with the key {noted}, not {own}; {_fix(file)}")


def _goes_on_as(former: PublicKey, new: PublicKey, acts: MemberActs) -> bool:
    """Whether the members have rotated one key to the other."""
    kept = [each for each in acts.all() if each.act.kind is ActKind.ROTATE_MEMBER and each.id in acts.effect.acts]
    goes_on = {each.act.subject_id: each.act.object_id for each in kept}
    key: str | None = former
    while key is not None and key != new:
        key = goes_on.pop(key, None)
    return key == new


def _fix(file: Path) -> str:
    new = "or, where that server has a new key from now on, run: dag-acfl keys replace"
    return f"put its server-key.pem at {file}, {new}"
