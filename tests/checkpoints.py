"""Checkpoints of a tiny ledger, for tests of who joins by them."""

from collections.abc import Collection, Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.checkpoint import sign_checkpoint
from fl_core.dag.signature import public_key_of
from fl_core.joining import LedgerState, ServedCheckpoint, make_checkpoint
from fl_core.types import Digest, TxId
from tests.builders import CREATED_AT_MS, ISSUER, TinyLedger


def checkpoint_of(
    tiny: TinyLedger,
    pruned: Collection[TxId],
    *,
    key: Ed25519PrivateKey = ISSUER,
    acts: Iterable[tuple[int, TxId]] = (),
) -> ServedCheckpoint:
    """What a member serves that has dropped the models of these updates."""
    nodes = tuple(tiny.ledger)
    state = LedgerState(
        nodes=nodes,
        receipts=[tiny.transactions[node.id].receipt for node in nodes],
        eligible=tiny.node.eligible,
        pruned={Digest(tiny.transactions[each].header.model_digest) for each in pruned},
        members_version=0,
        acts=acts,
    )
    checkpoint, ids = make_checkpoint(state, member=public_key_of(key), now_ms=CREATED_AT_MS)
    return ServedCheckpoint.of(sign_checkpoint(checkpoint, key), ids)
