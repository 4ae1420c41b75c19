"""Members' acts in the database: an act is a row, and so is each signature; both are only ever added."""

from typing import Final

from sqlalchemy import Connection, bindparam, func, select, text

from fl_core.dag.acts import SignedAct
from fl_core.types import PublicKey
from ledger_server.store.tables import act_signatures, acts

_ALL: Final = (
    select(acts.c.act, act_signatures.c.signer, act_signatures.c.signature)
    .join_from(acts, act_signatures, acts.c.id == act_signatures.c.act)
    .order_by(acts.c.id, act_signatures.c.signer)
)
_COUNT: Final = select(func.count()).select_from(act_signatures)
_KEEP: Final = text("INSERT INTO acts (id, act) VALUES (:id, :act) ON CONFLICT DO NOTHING").bindparams(
    *(bindparam(each.name, type_=each.type) for each in acts.c)
)
_KEEP_SIGNATURE: Final = text(
    "INSERT INTO act_signatures (act, signer, signature) VALUES (:act, :signer, :signature) ON CONFLICT DO NOTHING"
).bindparams(*(bindparam(each.name, type_=each.type) for each in act_signatures.c))


def keep(connection: Connection, signed: SignedAct) -> None:
    """Add what is not here of an act and its signatures."""
    connection.execute(_KEEP, {"id": signed.id, "act": signed.act_bytes})
    rows = [{"act": signed.id, "signer": signer, "signature": each} for signer, each in signed.signatures.items()]
    connection.execute(_KEEP_SIGNATURE, rows)


def count_signatures(connection: Connection) -> int:
    """How many signatures the acts have: another number is another state, for they are only ever added."""
    return int(connection.execute(_COUNT).scalar_one())


def read(connection: Connection) -> list[SignedAct]:
    found: dict[bytes, dict[PublicKey, bytes]] = {}
    for act, signer, signature in connection.execute(_ALL):
        found.setdefault(act, {})[signer] = signature
    return [SignedAct(act, signatures) for act, signatures in found.items()]
