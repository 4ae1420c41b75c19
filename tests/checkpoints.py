"""Checkpoints of a tiny ledger, for tests of who joins by them."""

from collections.abc import Collection, Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.checkpoint import sign_checkpoint
from fl_core.dag.signature import public_key_of
from fl_core.joining import LedgerState, ServedCheckpoint, make_checkpoint
from fl_core.types import TxId
from tests.builders import CREATED_AT_MS, ISSUER, TinyLedger


def checkpoint_of(
    tiny: TinyLedger,
    pruned: Collection[TxId],
    *,
    key: Ed25519PrivateKey = ISSUER,
    acts: Iterable[tuple[int, TxId]] = (),
) -> ServedCheckpoint:
    """What a member serves that has dropped the models of these updates."""
    models = {tiny.transactions[each].header.model_digest for each in pruned}
    state = LedgerState(
        ledger=tiny.genesis_id,
        arrivals=[(node.id, tiny.transactions[node.id].receipt) for node in tiny.ledger],
        below=1 + max((place for place, node in enumerate(tiny.ledger) if node.model_digest in models), default=-1),
        eligible=tiny.node.nodes_of([*tiny.node.eligible]),
        members_version=0,
        acts=acts,
    )
    checkpoint, ids = make_checkpoint(state, member=public_key_of(key), now_ms=CREATED_AT_MS)
    return ServedCheckpoint.of(sign_checkpoint(checkpoint, key), ids)
