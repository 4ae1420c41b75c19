"""The members of a ledger, seen and changed at the server of one of them: acts proposed, signed, and counted.

Works on the server's store, beside the server or without it (``dag-acfl members``), or in it, for operators over HTTP:
a running server notices within a second, and its peers by gossip. Who is a member, and what an act needs, is
``fl_core.dag.acts``.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.acts import Act, ActKind, ListedMember, SignedAct, own_acts, sign_act
from fl_core.dag.author_list import AuthorList
from fl_core.dag.genesis import parse_genesis
from fl_core.dag.signature import public_key_of
from fl_core.errors import DagAcflError, GenesisError
from fl_core.trust.lineage import Suspects
from fl_core.trust.quarantine import Reach
from fl_core.types import ZERO_ID, PublicKey, TxId
from ledger_server.acts import MemberActs
from ledger_server.peers import Peer
from ledger_server.store.journal import Store

MIN_DIGITS: Final = 8
"""Digits of a key or of an act's id that a person has to type at least."""

_OPPOSITE: Final = {
    ActKind.ADD_MEMBER: ActKind.REMOVE_MEMBER,
    ActKind.REMOVE_MEMBER: ActKind.ADD_MEMBER,
    ActKind.LIST_AUTHOR: ActKind.UNLIST_AUTHOR,
    ActKind.UNLIST_AUTHOR: ActKind.LIST_AUTHOR,
}


def printable(text: str) -> str:
    """What another member wrote into an act, safe to show on a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)


def subjects_of(suspects: Suspects, authors: AuthorList) -> list[str]:
    """Authors, under all their names, and updates, as acts name them; ascending."""
    return sorted([*authors.all_names(suspects.authors), *[f"update:{each}" for each in suspects.updates]])


class MembersError(DagAcflError):
    """The members cannot be changed so; the message says why, and what to do."""

    code = "members-refused"


@dataclass(frozen=True, slots=True)
class Standing:
    """How far an act has come.

    Attributes:
        signed: The act.
        needed: Signatures of members that put it into effect.
        signed_by: Members that have signed, by name.
        waits_for: Those that have not and still may; none when it is in effect, or can never be.
        is_in_effect: Whether it is; what takes another act back is so at once.
    """

    signed: SignedAct
    needed: int
    signed_by: tuple[str, ...]
    waits_for: tuple[str, ...]
    is_in_effect: bool


class Membership:
    """The members of the ledger in a store.

    Args:
        store: The journal.
        key: This server's.
        acts: What a running server holds of the ledger's acts; None: they are read from the store.

    Raises:
        GenesisError: There is no ledger in the store.
    """

    def __init__(self, store: Store, *, key: Ed25519PrivateKey, acts: MemberActs | None = None) -> None:
        if (found := store.genesis()) is None:
            raise GenesisError("there is no ledger in this database; make one with: dag-acfl ledger init")
        self.ledger: TxId = found[0].id
        self.genesis = parse_genesis(found[1])
        self._key, self.own_key = key, public_key_of(key)
        self.acts: MemberActs = acts or MemberActs(
            store, self.ledger, self.genesis, has_published=lambda _: False, server=self.own_key
        )
        self._read()

    def _read(self) -> None:
        """Read from the acts what members are called, and what they would lift or have taken back."""
        self._names = self._read_names()
        self._kept = {each.id: each for each in self.acts.all()}
        self._lifting, self._lifted = defaultdict[TxId, set[PublicKey]](set), set[TxId]()
        for each in self._kept.values():
            if each.act.kind is ActKind.LIFT:
                self._lifting[TxId(each.act.subject_id)] |= each.signatures.keys()
                if each.id in self.acts.effect.acts:
                    self._lifted.add(TxId(each.act.subject_id))

    def _read_names(self) -> Mapping[str, str]:
        names = {str(founder.key): founder.name for founder in self.genesis.members}
        acts = (each.act for each in self.acts.all())
        names |= {each.subject_id: each.details["name"] for each in acts if "name" in each.details}
        for member in self.acts.members():
            names |= dict.fromkeys((member.key, member.former or ""), member.name)
        return names

    def name(self, key: str) -> str:
        """What a present, former or proposed member is called."""
        return printable(self._names.get(key) or f"{key[:MIN_DIGITS]}…")

    def find(self, member: str) -> ListedMember:
        """A member by its name, or by the beginning of its key; also one that is a member for this server alone.

        Raises:
            MembersError: There is none, or several.
        """
        listed = self.acts.members()
        keys = {each.key for each in listed}
        here = self.acts.members(self.own_key)
        listed += tuple(each for each in here if each.key not in keys and each.former not in keys)
        found = [each for each in listed if each.name == member]
        if not found and len(member) >= MIN_DIGITS:
            found = [each for each in listed if each.key.startswith(member)]
        if len(found) != 1:
            many = "several members are" if found else "no member is"
            raise MembersError(f"{many} called {member[:64]!r}; see the names and keys with: dag-acfl members list")
        return found[0]

    def add(self, servers: Sequence[Peer], *, now_ms: int) -> list[Standing]:
        """Propose servers that are no members yet, or sign what proposes them; all at once, so that none waits.

        Of a member that this server alone has removed, it takes that back.

        Raises:
            MembersError: This server is no member, or a name is another one's.
        """
        self.check_member()
        names = {each.key: each.name for each in self.acts.members(self.own_key)}
        for server in servers:
            if server.name in [name for key, name in names.items() if key != server.public_key]:
                raise MembersError(f"a member is called {server.name} already; give the new one another name")
            names[server.public_key] = server.name
        new = [each for each in servers if each.public_key not in self.acts.effect.members]
        acts = [
            self._act(
                ActKind.ADD_MEMBER,
                f"member:{each.public_key}",
                details={"name": each.name, "url": each.url},
                now_ms=now_ms,
            )
            for each in new
        ]
        back = [each for server in servers for each in self._take_back(ActKind.ADD_MEMBER, server.public_key, now_ms)]
        return [*back, *self._keep_all(acts)]

    def remove(self, member: ListedMember, *, now_ms: int) -> Standing:
        """Propose that a member is none any more, or sign what does; of one for this server alone, take that back.

        Raises:
            MembersError: This server is no member, or it is the last one, or the other is none yet.
        """
        if member.key not in self.acts.effect.members:
            self.check_member()
            if taken_back := self._take_back(ActKind.REMOVE_MEMBER, member.key, now_ms):
                return taken_back[0]
            raise MembersError(f"{self.name(member.key)} is no member yet; see: dag-acfl members list")
        if len(self.acts.effect.members) == 1:
            raise MembersError("the last member of a ledger stays; add another first")
        return self.propose(ActKind.REMOVE_MEMBER, [f"member:{member.key}"], now_ms=now_ms)[0]

    def quarantine(self, suspects: Suspects, *, reason: str, now_ms: int) -> list[Standing]:
        """Propose to quarantine authors, under all their names, and updates; what is in effect already is left so.

        Raises:
            MembersError: This server is no member.
        """
        self.check_member()
        decided = {
            each.signed.act.subject: each.signed
            for each in self.acts.decisions()
            if each.signed.act.kind is ActKind.QUARANTINE and each.reach is Reach.EVERYWHERE
        }
        subjects = subjects_of(suspects, self.acts.authors)
        new = [each for each in subjects if each not in decided]
        done = [self._standing(decided[each]) for each in subjects if each in decided]
        return [*done, *self.propose(ActKind.QUARANTINE, new, details={"reason": reason}, now_ms=now_ms)]

    def lift(self, act: TxId, *, reason: str, now_ms: int) -> Standing:
        """Propose to end a quarantine, in effect or not, or sign what does; one that is lifted everywhere is left so.

        Raises:
            MembersError: This server is no member, there is no such quarantine, or what that follows is not here.
        """
        self.check_member()
        named = self._kept.get(act)
        if named is None or named.act.kind is not ActKind.QUARANTINE:
            raise MembersError(f"no quarantine here has the id {act[:MIN_DIGITS]}…; see: dag-acfl trust report")
        if named.act.number > self.acts.effect.number + 1:  # a lift of a smaller number would never be in effect
            raise MembersError("the quarantine follows acts that this server does not have yet; try again in a minute")
        for each in self._kept.values():
            if (each.act.kind, each.act.subject_id) == (ActKind.LIFT, act) and each.id in self.acts.effect.acts:
                return self._standing(each)
        details = {"reason": reason} if reason else {}
        return self.propose(ActKind.LIFT, [f"act:{act}"], details=details, now_ms=now_ms)[0]

    def propose(
        self,
        kind: ActKind,
        subjects: Sequence[str],
        *,
        changed: str = "",
        agreeing: Collection[Ed25519PrivateKey] = (),
        details: Mapping[str, str] | None = None,
        now_ms: int,
    ) -> list[Standing]:
        """Propose an act of each subject, or sign the open one that says the same; all at once, so that none waits.

        Args:
            kind: What the acts decide.
            subjects: Of what, as an act has it.
            changed: Of a rotation, the new key or author.
            agreeing: Keys that sign beside this server's.
            details: Such as a reason. What is said of authors and updates is the same for whatever reason.
            now_ms: Milliseconds since 1970 UTC.

        Raises:
            MembersError: This server is no member.
        """
        self.check_member()
        back = [each for subject in subjects for each in self._take_back(kind, subject.partition(":")[2], now_ms)]
        acts = [self._act(kind, each, details=details, changed=changed, now_ms=now_ms) for each in subjects]
        return [*back, *self._keep_all(acts, *agreeing)]

    def _take_back(self, kind: ActKind, subject_id: str, now_ms: int) -> list[Standing]:
        """Take back what this server has signed alone and says the opposite of such an act."""
        own, _ = own_acts(self._kept.values(), self.acts.effect, server=self.own_key)
        alone = [self._kept[each].act for each in sorted(own.difference(self.acts.effect.acts))]
        opposite = [each for each in alone if (each.kind, each.subject_id) == (_OPPOSITE.get(kind), subject_id)]
        return self._keep_all([self._act(ActKind.LIFT, f"act:{each.id}", now_ms=now_ms) for each in opposite])

    def _keep_all(self, acts: Sequence[Act], *agreeing: Ed25519PrivateKey) -> list[Standing]:
        return [self._keep(sign_act(act, self._key, *agreeing)) for act in acts]

    def rotate(self, new: Ed25519PrivateKey, *, url: str | None, now_ms: int) -> Standing:
        """Propose that this server goes on with a new key, and at another address where one is given.

        Raises:
            MembersError: This server is no member, or the new key is or was a member's.
        """
        changed = f"member:{public_key_of(new)}"
        for each in self.acts.all():
            if (each.act.subject_id, each.act.object) == (self.own_key, changed) and each.id in self.acts.effect.acts:
                return self._standing(each)
        self.check_member()
        if public_key_of(new) in self.acts.effect.electors:
            raise MembersError("the new key is or was a member's; delete server-key.next.pem, and another is made")
        about = {} if url is None else {"url": url}
        own = f"member:{self.own_key}"
        act = self._act(ActKind.ROTATE_MEMBER, own, details=about, changed=changed, now_ms=now_ms)
        return self._keep(sign_act(act, self._key, new))

    def sign(self, act: str, *, erasures: bool = True) -> Standing:
        """Sign what another member has proposed.

        Args:
            act: The beginning of its id.
            erasures: Whether it may be one that erases models, which nothing brings back.

        Raises:
            MembersError: This server is no member, or no open proposal begins so, or several do, or it erases.
        """
        self.check_member()
        waiting = self.open()
        found = [each for each in waiting if len(act) >= MIN_DIGITS and each.signed.id.startswith(act)]
        if len(found) != 1:
            known = ", ".join(each.signed.id[:MIN_DIGITS] for each in waiting) or "none"
            raise MembersError(f"no proposal here is called {act[:64]!r}; there are: {known}")
        if found[0].signed.act.kind is ActKind.ERASE and not erasures:
            name = found[0].signed.id[:MIN_DIGITS]
            raise MembersError(
                f"it erases models for good; sign it on the server's machine: dag-acfl members sign {name}"
            )
        return self._keep(sign_act(found[0].signed.act, self._key))

    def words(self, standing: Standing) -> str:
        """What an act has brought about; of one that is not in effect, what it would, and who has taken it back."""
        against = self._against(standing.signed.id)
        said = self._words(standing, against)
        is_told = standing.is_in_effect or standing.signed.act.kind is ActKind.QUARANTINE
        return f"{said}, which {against} took back" if against and not is_told else said

    def _against(self, act: TxId) -> str:
        """The members that have signed to lift an act, by name."""
        return " and ".join(sorted(map(self.name, self._lifting.get(act, set()) & self.acts.effect.members)))

    def _words(self, standing: Standing, against: str = "") -> str:
        act, act_id = standing.signed.act, standing.signed.id[:MIN_DIGITS]
        name, url = self.name(act.subject_id), printable(act.details.get("url", "an unknown address"))
        reason = printable(act.details.get("reason", "no reason is given"))
        if self._is_taking_back(standing.signed):
            taken, signers = self._kept[TxId(act.subject_id)], " and ".join(standing.signed_by) or "a former member"
            is_lift = taken.act.kind is ActKind.LIFT  # of a lift of a lift …: as many as a member likes
            return f"{signers} took back: {taken.id[:8] if is_lift else self._words(self._standing(taken))}"
        known = {
            "ADD_MEMBER": (f"{name} is a member", f"add {name} at {url}, key {act.subject_id}"),
            "REMOVE_MEMBER": (f"{name} is no member any more", f"remove {name}"),
            "ROTATE_MEMBER": (f"{name} has a new key", f"{name} changes to key {act.object_id}"),
            "LIST_AUTHOR": (f"{act.subject} may publish", f"let {act.subject} publish"),
            "UNLIST_AUTHOR": (f"{act.subject} may not publish any more", f"let {act.subject} publish no more"),
            "QUARANTINE": (
                f"{act.subject} is quarantined, act {act_id}",
                f"quarantine {act.subject}{against and f', which {against} would lift'}: {reason}",
            ),
            "LIFT": (f"quarantine {act.subject_id[:8]} is lifted", f"lift quarantine {act.subject_id[:8]}: {reason}"),
            "ERASE": (f"the models of {act.subject} are erased", f"erase the models of {act.subject}: {reason}"),
            "ROTATE_AUTHOR": (f"{act.object} goes on as {act.subject}", f"let {act.object} go on as {act.subject}"),
        }
        done, proposed = known.get(act.kind.name, (words := f"{act.kind.name.lower()} {act.subject}", words))
        return done if standing.is_in_effect else proposed

    def _is_taking_back(self, signed: SignedAct) -> bool:
        """Whether an act says no more than that its signers have taken back another one, which is not in effect."""
        taken, effect = self._kept.get(TxId(signed.act.subject_id)), self.acts.effect
        if taken is None or signed.act.kind is not ActKind.LIFT or signed.id in effect.acts:
            return False
        is_open = taken.id in effect.acts or taken.id in effect.waiting or taken.id in self._lifted
        return taken.act.kind is not ActKind.QUARANTINE or not is_open

    def _would_lift(self, act: TxId) -> bool:
        return self.own_key in self._lifting.get(act, ())

    def holds_here(self, standing: Standing) -> bool:
        """Whether this server goes by an act that is not in effect yet, since it has signed it."""
        signed = standing.signed
        if self.own_key not in signed.signatures or standing.is_in_effect:
            return False
        if signed.act.kind is ActKind.LIFT:
            return signed.act.subject_id not in self.acts.effect.acts
        return not self._would_lift(signed.id)

    def standings(self) -> list[Standing]:
        """How far every act of members has come that is kept here: those that wait for signatures, then the newest."""
        waiting = self.acts.effect.waiting
        ordered = sorted(
            (each for each in self.acts.all() if each.act.kind is not ActKind.ROTATE_SELF),
            key=lambda each: (each.id in waiting, each.act.number, each.act.created_at_ms),
            reverse=True,
        )
        return [self._standing(each, waiting.get(each.id, ())) for each in ordered]

    def open(self) -> list[Standing]:
        """What will be in effect once enough members have signed."""
        waiting = self.acts.effect.waiting
        return [self._standing(each, waiting[each.id]) for each in self.acts.all() if each.id in waiting]

    def _standing(self, signed: SignedAct, electorate: Collection[PublicKey] = ()) -> Standing:
        """How far an act has come; of one that is open, those who judge it."""
        voters = frozenset(electorate or self.acts.effect.members)
        missing = voters - signed.signatures.keys() if electorate else ()
        return Standing(
            signed,
            self.acts.votes_needed(len(voters)),
            tuple(sorted(map(self.name, voters & signed.signatures.keys()))),
            tuple(sorted(map(self.name, missing))),
            signed.id in self.acts.effect.acts or self._is_taking_back(signed),
        )

    def check_member(self) -> None:
        """See that this server may propose and sign.

        Raises:
            MembersError: It is no member.
        """
        members = self.acts.effect.members
        if self.own_key not in members:
            names = ", ".join(sorted(map(self.name, members))) or "none, its genesis lists nobody"
            raise MembersError(f"this server is no member of the ledger; run this on a member's machine ({names})")

    def _act(
        self, kind: ActKind, subject: str, *, details: Mapping[str, str] | None = None, changed: str = "", now_ms: int
    ) -> Act:
        """The open proposal that says so, or a new one; of members in every word: another may name another address.

        What this server would lift or has taken back is not signed again: it would not hold here.
        """
        for each in self.open():
            act = each.signed.act
            says_so = act.details == (details or {}) or not subject.startswith("member:")
            if self._would_lift(each.signed.id):
                continue
            if (act.kind, act.subject, act.object) == (kind, subject, changed) and says_so:
                return act
        number = self.acts.effect.number
        previous = [each for of, each in self.acts.in_effect() if of == number]
        return Act(
            ledger=self.ledger,
            number=number + 1,
            previous=previous[0] if previous else TxId(ZERO_ID),
            created_at_ms=now_ms,
            kind=kind,
            subject=subject,
            object=changed,
            details=details or {},
        )

    def _keep(self, signed: SignedAct) -> Standing:
        self.acts.admit(signed)
        self._read()
        return self._standing(self._kept[signed.id], self.acts.effect.waiting.get(signed.id, ()))
