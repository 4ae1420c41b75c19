"""Quarantine and erasure: what the acts of a ledger's members say of authors and updates.

A quarantine names an author or one update: their steps count as bad (``fl_core.trust.lineage``), and what descends from
them is not offered. It can be lifted by an act that names it. An erasure names an author, whose models are dropped.
An author is meant under all its names, before and after each rotation.
Both hold everywhere when the threshold of members has signed, and at once on the server of a member that has. A lift
ends a quarantine when the threshold has signed that. Before, it takes back no more than its signers said alone: the
quarantine holds on their own servers only when the threshold has signed it (docs/adr/0073).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fl_core.dag.acts import ActKind, Effect, SignedAct, own_acts
from fl_core.dag.author_list import AuthorList
from fl_core.trust.lineage import Suspects
from fl_core.types import AuthorId, PublicKey, TxId


class Reach(StrEnum):
    """Where a quarantine or an erasure holds."""

    EVERYWHERE = "everywhere"
    HERE = "here"
    """This server's member has signed, too few others yet."""
    PROPOSED = "proposed"
    LIFTED = "lifted"
    """By the members; or of what too few have signed, by this server's, or by all that had signed it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A quarantine or an erasure, and where it holds as one server sees it."""

    signed: SignedAct
    reach: Reach

    @property
    def holds(self) -> bool:
        return self.reach in (Reach.EVERYWHERE, Reach.HERE)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What a server goes by.

    Attributes:
        suspects: Whose steps are quarantined.
        erased: Authors whose models are dropped.
    """

    suspects: Suspects = field(default_factory=Suspects)
    erased: frozenset[AuthorId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.suspects or self.erased)


NO_QUARANTINE: Final = Quarantine()


def decisions(acts: Iterable[SignedAct], effect: Effect, *, server: PublicKey | None = None) -> tuple[Decision, ...]:
    """All quarantines and erasures, in the order of their numbers and ids.

    Args:
        acts: As for ``acts_in_effect``.
        effect: What they come to.
        server: A server's key, whose own acts hold there; None: the acts in effect alone.
    """
    ordered = sorted(acts, key=lambda each: (each.act.number, each.id))
    in_effect = frozenset(effect.acts)
    own, taken_back = own_acts(ordered, effect, server=server)
    lifts = {each.id: each.act.subject_id for each in ordered if each.act.kind is ActKind.LIFT}
    lifted = {lifts[each] for each in in_effect & lifts.keys()}
    unwanted = {*lifts.values()} - effect.waiting.keys()  # of what is not in effect: all who signed it took it back

    def reach(signed: SignedAct) -> Reach:
        if signed.id in lifted:
            return Reach.LIFTED
        if signed.id in in_effect:
            return Reach.EVERYWHERE
        if signed.id in own:
            return Reach.HERE
        is_unwanted = signed.act.kind is ActKind.QUARANTINE and signed.id in unwanted
        return Reach.LIFTED if signed.id in taken_back or is_unwanted else Reach.PROPOSED

    found = [each for each in ordered if each.act.kind in (ActKind.QUARANTINE, ActKind.ERASE)]
    return tuple(Decision(each, reach(each)) for each in found)


def quarantine_of(decided: Iterable[Decision], authors: AuthorList) -> Quarantine:
    """What those decisions that hold come to; ``authors`` says who goes on as whom."""
    holding = [each.signed.act for each in decided if each.holds]
    quarantined = [act.subject for act in holding if act.kind is ActKind.QUARANTINE]
    updates = [TxId(each.removeprefix("update:")) for each in quarantined if each.startswith("update:")]
    named = [AuthorId(each) for each in quarantined if not each.startswith("update:")]
    erased = [AuthorId(act.subject) for act in holding if act.kind is ActKind.ERASE]
    return Quarantine(Suspects(authors.all_names(named), frozenset(updates)), authors.all_names(erased))
