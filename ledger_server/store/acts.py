"""Members' acts in the database: an act is a row, and so is each signature; both are only ever added."""

from typing import Final

from sqlalchemy import Connection, bindparam, insert, select

from fl_core.dag.acts import SignedAct
from fl_core.types import PublicKey
from ledger_server.store.tables import act_signatures, acts

_ALL: Final = (
    select(acts.c.act, act_signatures.c.signer, act_signatures.c.signature)
    .join_from(acts, act_signatures, acts.c.id == act_signatures.c.act)
    .order_by(acts.c.id, act_signatures.c.signer)
)
_IS_HERE: Final = select(acts.c.id).where(acts.c.id == bindparam("id"))
_SIGNERS: Final = select(act_signatures.c.signer).where(act_signatures.c.act == bindparam("id"))


def keep(connection: Connection, signed: SignedAct) -> None:
    """Add what is not here of an act and its signatures."""
    if connection.execute(_IS_HERE, {"id": signed.id}).first() is None:
        connection.execute(insert(acts), {"id": signed.id, "act": signed.act_bytes})
    here = set(connection.execute(_SIGNERS, {"id": signed.id}).scalars())
    new = [
        {"act": signed.id, "signer": signer, "signature": signature}
        for signer, signature in signed.signatures.items()
        if signer not in here
    ]
    if new:
        connection.execute(insert(act_signatures), new)


def read(connection: Connection) -> list[SignedAct]:
    """All acts, ascending by id."""
    found: dict[bytes, dict[PublicKey, bytes]] = {}
    for act, signer, signature in connection.execute(_ALL):
        found.setdefault(act, {})[signer] = signature
    return [SignedAct(act, signatures) for act, signatures in found.items()]
