"""Joining a ledger whose old models are gone: a member's checkpoint stands for them.

A server that joins takes every header, signature and piece of evidence from its peers' journals, and checks them. For
updates whose models nobody serves any more, and for evidence that was archived, it takes a member's word instead:

    served = ServedCheckpoint(answer)                    # the member's signature, and the ids that it stands for
    check_checkpoint(served, ledger=…, members=…, …)     # whether this ledger takes it
    served.stands_for(update)                            # then the update needs no model
    update in served                                     # then it needs no evidence

The norms in it bound nothing: an update that came without its model counts as one of the ledger's ``max_norm``.
A member's horizon lies behind the newest update whose model it has dropped or whose evidence it has archived: above it
every model is had and every rule is asked. What can still be chosen comes with its model or not at all, wherever it
lies.
"""

import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from fl_core.dag.checkpoint import Below, Checkpoint, Entry, below, open_checkpoint
from fl_core.dag.figures import Figures, Step
from fl_core.dag.graph import Node
from fl_core.dag.receipt import Receipt, ledger_time_ms
from fl_core.errors import CheckpointMalformedError, CheckpointRefusedError
from fl_core.types import PublicKey, TxId, digest_of

_LENGTH: Final = struct.Struct(">I")
_ID_BYTES: Final = 32


class ServedCheckpoint:
    """A signed checkpoint with the ids of the updates below its horizon, as it travels and as it is kept.

    4 bytes length, checkpoint ‖ signature, then 32 bytes of each id, ascending.

    Args:
        data: These bytes; nothing of them is believed.
        maker: Who must have signed the checkpoint; None: anybody.

    Attributes:
        checkpoint: Without receipts and entries, which take much memory and are not needed later.
        settled: The acts in effect, less those of the newest number: others of it may be on their way.

    Raises:
        CheckpointMalformedError: Other bytes, or the ids are not those that the checkpoint counts and digests.
        SignatureError: The member's signature, or that of a receipt, does not verify.
    """

    def __init__(self, data: bytes, *, maker: PublicKey | None = None) -> None:
        size = int.from_bytes(data[: _LENGTH.size], "big")
        self.data = data
        found = open_checkpoint(data[_LENGTH.size : _LENGTH.size + size], maker=maker)
        self._ids = memoryview(data)[_LENGTH.size + size :]
        if digest_of(self._ids) != found.below.digest or not self._are_those(found.below):
            raise CheckpointMalformedError("the ids that came along are not those below the checkpoint's horizon")
        self._needed = {each.id for each in found.entries}
        self.checkpoint: Checkpoint = replace(found, receipts=(), entries=())
        newest = max((number for number, _ in found.acts), default=0)
        self.settled: frozenset[TxId] = frozenset(act for number, act in found.acts if number < newest)

    def _are_those(self, expected: Below) -> bool:
        """Whether the ids are strictly ascending, as many as expected, and have the sum; one at a time in memory."""
        if len(self._ids) != _ID_BYTES * expected.count:
            return False
        latest, total = b"", 0
        for place in range(expected.count):
            id_ = self._id(place)
            if id_ <= latest:
                return False
            latest, total = id_, total + int.from_bytes(id_, "little")
        return (total % 2**256).to_bytes(32, "little").hex() == expected.total

    @classmethod
    def of(cls, signed: bytes, ids: Iterable[TxId]) -> "ServedCheckpoint":
        """What ``sign_checkpoint`` made, and the ids below, in any order."""
        return cls(_LENGTH.pack(len(signed)) + signed + b"".join(map(bytes.fromhex, sorted(ids))))

    def __contains__(self, transaction: TxId) -> bool:
        """Whether an update lies below the horizon."""
        wanted, count = bytes.fromhex(transaction), len(self._ids) // _ID_BYTES
        at = bisect_left(range(count), wanted, key=self._id)
        return at < count and self._id(at) == wanted

    def _id(self, place: int) -> bytes:
        return bytes(self._ids[place * _ID_BYTES : (place + 1) * _ID_BYTES])

    def stands_for(self, transaction: TxId) -> bool:
        """Whether an update may be admitted without its model: below, and nobody can be offered it."""
        return transaction not in self._needed and transaction in self


def settled_by(checkpoints: Iterable[ServedCheckpoint]) -> frozenset[TxId]:
    """The acts that any of these settles, as ``acts_in_effect`` takes them."""
    return frozenset[TxId]().union(*(each.settled for each in checkpoints))


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """What a member knows of its ledger when it makes a checkpoint, all as of one moment.

    Attributes:
        ledger: Id of its ledger.
        arrivals: All updates with their receipts, genesis first, in the member's order of arrival; read once.
        below: How many of them lie below the horizon: up to the last whose model the member has dropped, or whose
            evidence it has archived.
        eligible: What can be chosen: each author's newest, inside the freshness window.
        members_version: Of the list of members.
        acts: Number and id of each act in effect.
    """

    ledger: TxId
    arrivals: Iterable[tuple[TxId, Receipt]]
    below: int
    eligible: Collection[Node]
    members_version: int
    acts: Iterable[tuple[int, TxId]]


def make_checkpoint(state: LedgerState, *, member: PublicKey, now_ms: int) -> tuple[Checkpoint, tuple[TxId, ...]]:
    """The member's checkpoint, and the ids below its horizon.

    Args:
        state: What the member holds.
        member: Its key.
        now_ms: Milliseconds since 1970 UTC.
    """
    ids: list[TxId] = []
    newest: dict[PublicKey, tuple[TxId, Receipt]] = {}  # of each server
    horizon_ms = 0
    for transaction, receipt in state.arrivals:
        held = newest.get(receipt.issuer)
        if held is None or receipt.received_at_ms > held[1].received_at_ms:
            newest[receipt.issuer] = transaction, receipt
        if len(ids) < state.below:
            ids.append(transaction)
            if len(ids) == state.below:
                horizon_ms = ledger_time_ms(latest.received_at_ms for _, latest in newest.values())
    checkpoint = Checkpoint(
        ledger=state.ledger,
        member=member,
        created_at_ms=now_ms,
        horizon_ms=horizon_ms,
        below=below(ids),
        members_version=state.members_version,
        receipts=tuple(newest[issuer] for issuer in sorted(newest)),
        acts=tuple(sorted(state.acts)),
        entries=tuple(
            Entry(node.id, node.depth, node.author, node.sequence, node.num_examples, _figures_of(node))
            for node in sorted(state.eligible, key=lambda each: each.id)
        ),
    )
    return checkpoint, tuple(ids)


def _figures_of(node: Node) -> Figures:
    figures = node.figures
    return figures if figures.step is None else replace(figures, step=Step(figures.step.norm, ()))


def check_checkpoint(
    served: ServedCheckpoint,
    *,
    ledger: TxId,
    members: Collection[PublicKey],
    acts: Iterable[tuple[int, TxId]],
    earlier: Checkpoint | None,
) -> None:
    """Whether a server may go by a checkpoint; its signatures have been verified.

    Args:
        served: The checkpoint.
        ledger: The server's own.
        members: Present members; empty where the ledger lists none, and peers are known by configuration alone.
        acts: Number and id of each act in effect here.
        earlier: What the same member has served before.

    Raises:
        CheckpointRefusedError: The message says why.
    """
    found = served.checkpoint
    if found.ledger != ledger:
        raise CheckpointRefusedError("the checkpoint is of another ledger")
    if members and found.member not in members:
        raise CheckpointRefusedError("the checkpoint is not of a member of this ledger")
    if earlier is not None and _age(found) < _age(earlier):
        raise CheckpointRefusedError("the checkpoint is older than one that the member served before")
    listed = frozenset(found.acts)
    newest = max((number for number, _ in listed), default=0)
    if any(number < newest and (number, act) not in listed for number, act in acts):
        raise CheckpointRefusedError("the checkpoint denies an act that is in effect here")


def _age(checkpoint: Checkpoint) -> tuple[int, int]:
    return checkpoint.below.count, checkpoint.horizon_ms
