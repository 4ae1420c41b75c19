"""What members decide and vouch for, on a server: their acts, and the checkpoints by which it joined.

Both are checked, kept in the store, and say which acts are in effect. What an act decides is carried out elsewhere.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from fl_core.dag.acts import (
    MAX_SIGNATURES,
    ActKind,
    Effect,
    ListedMember,
    SignedAct,
    acts_in_effect,
    check_act,
    list_members,
    votes_needed,
)
from fl_core.dag.author_list import AuthorList, list_authors
from fl_core.dag.genesis import Genesis
from fl_core.errors import ActInvalidError
from fl_core.joining import ServedCheckpoint, check_checkpoint, settled_by
from fl_core.trust.quarantine import NO_QUARANTINE, Decision, Quarantine, decisions, quarantine_of
from fl_core.types import AuthorId, PublicKey, TxId
from ledger_server.store.journal import Store

logger: logging.Logger = logging.getLogger(__name__)

MAX_UNDECIDED: Final = 5000
"""Signatures of members on acts that the threshold of members has not signed."""

MAX_UNDECIDED_BY_SIGNER: Final = 1000
"""Such acts of one member."""

MAX_OWN_ROTATIONS: Final = 2
"""Of one author, by itself. Two contradict one another already, so which two of several came first is of no account."""

MAX_ROTATIONS: Final = 5000
"""Of all authors, by themselves."""


class MemberActs:
    """The acts of one ledger. Safe to share between threads.

    Args:
        store: Where they are kept.
        ledger: Its id.
        genesis: Names the founders and the threshold.
        has_published: Whether an author has, itself: others cannot rotate their keys here.
        server: The server's key: what it has signed as a member holds here at once; None: only what is in effect.

    Attributes:
        effect: What the acts come to now.
        quarantine: What they withhold and erase here.
        authors: Who may publish.
    """

    def __init__(
        self,
        store: Store,
        ledger: TxId,
        genesis: Genesis,
        *,
        has_published: Callable[[AuthorId], bool],
        server: PublicKey | None = None,
    ) -> None:
        self._store, self._ledger, self._has_published, self._server = store, ledger, has_published, server
        self._founders = {member.key: member.name for member in genesis.members}
        self._threshold = genesis.threshold
        self._lock = threading.Lock()
        self._acts: dict[TxId, SignedAct] = {}
        self._signatures = -1
        """How many the store had when it was last read."""
        self.on_kept: Callable[[SignedAct], None] | None = None
        """Called with what is new, in the thread that brought it."""
        self.on_effect: Callable[[], None] = lambda: None
        """Called, under this object's lock, when the acts come to something else."""
        self.checkpoints: dict[PublicKey, ServedCheckpoint] = {}
        """Those by which this server joined, by member."""
        self.effect: Effect = acts_in_effect((), founders=self._founders, threshold=self._threshold)
        self.quarantine: Quarantine = NO_QUARANTINE
        self.authors: AuthorList = list_authors((), self.effect, genesis=genesis)
        self._genesis = genesis
        self.refresh()

    def _recount(self) -> None:
        """Say what the acts and checkpoints come to now, and count what the members have not decided."""
        before, settled = self.effect, settled_by(self.checkpoints.values())
        acts = self._acts.values()
        self.effect = acts_in_effect(acts, founders=self._founders, threshold=self._threshold, settled=settled)
        then, now = set(before.acts), set(self.effect.acts)
        late = {each for each in now - then if self._acts[each].act.number < before.number}
        if (late or then - now) and self.effect.members != before.members:
            about = {"acts": sorted(late), "undone": sorted(then - now), "members": sorted(self.effect.members)}
            logger.warning("acts of the past have changed the members; ask those who signed them", extra=about)
        here = self.quarantine, self.authors
        self.authors = list_authors(acts, self.effect, genesis=self._genesis, server=self._server)
        self.quarantine = quarantine_of(self._decisions(), self.authors)
        if self.quarantine != here[0]:
            named = sorted({*self.quarantine.suspects.authors, *self.quarantine.suspects.updates})
            known = {"quarantined": named, "erased": sorted(self.quarantine.erased)}
            logger.info("what is quarantined or erased here has changed", extra=known)
        if contested := self.authors.contested - here[1].contested:
            logger.warning(
                "rotations that authors signed themselves contradict one another: they publish no more until members "
                "say who goes on as each, with: dag-acfl authors rotate",
                extra={"authors": sorted(contested)},
            )
        if (self.effect, self.quarantine, self.authors) != (before, *here):
            self.on_effect()
        self._tally()

    def decisions(self) -> tuple[Decision, ...]:
        """Quarantines and erasures, and where each holds."""
        with self._lock:
            return self._decisions()

    def _decisions(self) -> tuple[Decision, ...]:
        return decisions(self._acts.values(), self.effect, server=self._server)

    def votes_needed(self, members: int) -> int:
        """How many signatures an act needs of so many members."""
        return votes_needed(members, self._threshold)

    def members(self, server: PublicKey | None = None) -> tuple[ListedMember, ...]:
        """The members, or who they are for one server (``list_members``); none where genesis lists none."""
        with self._lock:
            return list_members(self._acts.values(), self.effect, founders=self._founders, server=server)

    def _is_decided(self, signed: SignedAct) -> bool:
        """Whether as many present or former members have signed as an act needs now; it may be in effect or not."""
        signers = self.effect.electors & signed.signatures.keys()
        return len(signers) >= self.votes_needed(len(self.effect.members))

    def _tally(self) -> None:
        """Count each key's undecided acts, each author's rotations of itself, and what decided acts follow."""
        self._undecided = Counter[PublicKey]()
        self._rotations = Counter[str]()
        self._followed = set[TxId]()
        for each in self._acts.values():
            if each.act.kind is ActKind.ROTATE_SELF:
                self._rotations[each.act.subject] += 1
            elif self._is_decided(each):
                self._followed |= {each.act.previous, TxId(each.act.subject_id)}  # a lift needs what it lifts
            else:
                self._undecided.update(self.effect.electors & each.signatures.keys())

    def _check_room(self, signed: SignedAct) -> None:
        """Nobody uses up the acts alone: neither one member, nor authors.

        Raises:
            ActInvalidError: There are too many that the members have not decided.
        """
        if signed.act.kind is ActKind.ROTATE_SELF:
            if self._rotations.total() >= MAX_ROTATIONS:
                raise ActInvalidError("too many rotations that authors signed themselves; members can sign this one")
            return
        # Servers can differ in what they kept before they were full. What a decided act follows, all of them need.
        if self._is_decided(signed) or signed.id in self._followed:
            return
        signers = self.effect.electors & signed.signatures.keys()
        fewest = min((self._undecided[each] for each in signers), default=0)
        if fewest >= MAX_UNDECIDED_BY_SIGNER or self._undecided.total() >= MAX_UNDECIDED:
            raise ActInvalidError("too many acts of this signer, or of all, that the members have not decided")

    def in_effect(self) -> list[tuple[int, TxId]]:
        """Number and id of each act in effect, ascending."""
        with self._lock:
            return self._in_effect()

    def _in_effect(self) -> list[tuple[int, TxId]]:
        return sorted((self._acts[each].act.number, each) for each in self.effect.acts)

    def go_by(self, served: ServedCheckpoint) -> None:
        """Keep a member's checkpoint, durably, and go by it.

        Raises:
            CheckpointRefusedError: As ``check_checkpoint``.
            StoreError: Not stored.
        """
        member = served.checkpoint.member
        with self._lock:
            earlier = self.checkpoints.get(member)
            check_checkpoint(
                served,
                ledger=self._ledger,
                members=self.effect.members,
                acts=self._in_effect(),
                earlier=None if earlier is None else earlier.checkpoint,
            )
            if earlier is None or earlier.data != served.data:
                self._store.keep_checkpoint(member, served.data)
            self.checkpoints = {**self.checkpoints, member: served}
            self._recount()

    def all(self) -> tuple[SignedAct, ...]:
        """Every act that is kept, ascending by id."""
        with self._lock:
            return tuple(self._acts[each] for each in sorted(self._acts))

    def refresh(self) -> None:
        """Take in what another process has kept: one that serves the ledger, or the command ``dag-acfl members``.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._lock:
            count, kept = self._store.count_act_signatures(), self._store.checkpoints()
            if count == self._signatures and kept == [self.checkpoints[each].data for each in sorted(self.checkpoints)]:
                return
            served = map(ServedCheckpoint, kept)
            self.checkpoints = {each.checkpoint.member: each for each in served}
            new: list[SignedAct] = []
            for signed in self._store.acts():
                held = self._acts.get(signed.id)
                merged = signed if held is None else held.merged(signed)
                if held is None or merged.signatures.keys() != held.signatures.keys():
                    self._acts[signed.id] = merged
                    new.append(merged)
            self._signatures = count
            self._recount()
        if (on_kept := self.on_kept) is not None:  # read once: gossip that stops takes it away
            for each in new:
                on_kept(each)

    def admit(self, signed: SignedAct) -> bool:
        """Keep an act, or what is new of its signatures, durably; False when nothing is, or nothing follows from it.

        Strangers' signatures are left out: otherwise they could fill the room that an act has for its members'. One who
        becomes a member by an act that has not come yet is heard at the next comparison with a peer. Acts that the
        threshold of members has not signed have bounded room, those that it has signed have as much as they need.

        Raises:
            SignatureError, ActInvalidError, WrongLedgerError: As ``check_act``; or there are too many.
            StoreError: Not stored.
        """
        signed = check_act(signed, ledger=self._ledger, effect=self.effect, has_published=self._has_published)
        with self._lock:
            held = self._acts.get(signed.id)
            merged = signed if held is None else held.merged(signed)
            if held is not None and merged.signatures == held.signatures:
                return False
            is_own = signed.act.kind is ActKind.ROTATE_SELF
            if held is None and is_own and self._rotations[signed.act.subject] >= MAX_OWN_ROTATIONS:
                return False
            if len(merged.signatures) > MAX_SIGNATURES:
                raise ActInvalidError(f"more than {MAX_SIGNATURES} signatures of one act")
            if held is None:
                self._check_room(signed)
            self._store.keep_act(merged)
            self._acts[signed.id] = merged
            self._recount()
        if (on_kept := self.on_kept) is not None:
            on_kept(merged)
        return True
