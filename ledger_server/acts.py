"""What members decide and vouch for, on a server: their acts, and the checkpoints by which it joined.

Both are checked, kept in the store, and say which acts are in effect. What an act decides is carried out elsewhere.
"""

import threading
from collections.abc import Callable, Iterable

from fl_core.dag.acts import MAX_SIGNATURES, Effect, SignedAct, acts_in_effect, check_act
from fl_core.dag.genesis import Genesis
from fl_core.errors import ActInvalidError
from fl_core.joining import ServedCheckpoint, check_checkpoint
from fl_core.sync.act_set import MAX_ACTS
from fl_core.types import PublicKey, TxId
from ledger_server.store.journal import Store


class MemberActs:
    """The acts of one ledger. Safe to share between threads.

    Args:
        store: Where they are kept.
        ledger: Its id.
        genesis: Names the founders and the threshold.
    """

    def __init__(self, store: Store, ledger: TxId, genesis: Genesis) -> None:
        self._store, self._ledger = store, ledger
        self._founders = [member.key for member in genesis.members]
        self._threshold = genesis.threshold
        self._lock = threading.Lock()
        self._acts = {each.id: each for each in store.acts()}
        self.on_kept: Callable[[SignedAct], None] | None = None
        """Called with what is new, in the thread that brought it."""
        self.checkpoints: dict[PublicKey, ServedCheckpoint] = {}
        """Those by which this server joined, by member."""
        for served in map(ServedCheckpoint, store.checkpoints()):
            self.checkpoints[served.checkpoint.member] = served
        self.effect: Effect = self._count(self._acts.values())
        """What the acts come to now."""

    def _count(self, acts: Iterable[SignedAct]) -> Effect:
        settled = frozenset[TxId]().union(*(each.settled for each in self.checkpoints.values()))
        return acts_in_effect(acts, founders=self._founders, threshold=self._threshold, settled=settled)

    def in_effect(self) -> list[tuple[int, TxId]]:
        """Number and id of each act in effect, ascending."""
        with self._lock:
            return sorted((self._acts[each].act.number, each) for each in self.effect.acts)

    def go_by(self, served: ServedCheckpoint) -> None:
        """Keep a member's checkpoint, durably, and go by it.

        Raises:
            CheckpointRefusedError: As ``check_checkpoint``.
            StoreError: Not stored.
        """
        member = served.checkpoint.member
        acts = self.in_effect()
        with self._lock:
            earlier = self.checkpoints.get(member)
            check_checkpoint(
                served,
                ledger=self._ledger,
                members=self.effect.members,
                acts=acts,
                earlier=None if earlier is None else earlier.checkpoint,
            )
            self._store.keep_checkpoint(member, served.data)
            self.checkpoints = {**self.checkpoints, member: served}
            self.effect = self._count(self._acts.values())

    def all(self) -> tuple[SignedAct, ...]:
        """Every act that is kept, ascending by id."""
        with self._lock:
            return tuple(self._acts[each] for each in sorted(self._acts))

    def admit(self, signed: SignedAct) -> bool:
        """Keep an act, or what is new of its signatures, durably; False when nothing is.

        Strangers' signatures are left out: otherwise they could fill the room that an act has for its members'. One who
        becomes a member by an act that has not come yet is heard at the next comparison with a peer.

        Raises:
            SignatureError, ActInvalidError, WrongLedgerError: As ``check_act``; or there are too many.
            StoreError: Not stored.
        """
        check_act(signed, ledger=self._ledger, effect=self.effect)
        signed = signed.without_strangers(self.effect.electors)
        with self._lock:
            held = self._acts.get(signed.id)
            merged = signed if held is None else held.merged(signed)
            if held is not None and merged.signatures == held.signatures:
                return False
            if len(merged.signatures) > MAX_SIGNATURES or (held is None and len(self._acts) >= MAX_ACTS):
                raise ActInvalidError(f"more than {MAX_ACTS} acts, or {MAX_SIGNATURES} signatures of one")
            acts = {**self._acts, signed.id: merged}
            effect = self._count(acts.values())
            self._store.keep_act(merged)
            self._acts, self.effect = acts, effect
        if self.on_kept is not None:
            self.on_kept(merged)
        return True
