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

from fl_core.dag.acts import Act, ActKind, ListedMember, SignedAct, sign_act
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
        is_in_effect: Whether it is.
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
        """Read from the acts what members are called, and what they would lift."""
        self._names = self._read_names()
        self._lifting = defaultdict[TxId, set[PublicKey]](set)
        for each in self.acts.all():
            if each.act.kind is ActKind.LIFT:
                self._lifting[TxId(each.act.subject_id)] |= each.signatures.keys()

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
        """A member by its name, or by the beginning of its key.

        Raises:
            MembersError: There is none, or several.
        """
        listed = self.acts.members()
        found = [each for each in listed if each.name == member]
        if not found and len(member) >= MIN_DIGITS:
            found = [each for each in listed if each.key.startswith(member)]
        if len(found) != 1:
            many = "several members are" if found else "no member is"
            raise MembersError(f"{many} called {member[:64]!r}; see the names and keys with: dag-acfl members list")
        return found[0]

    def add(self, servers: Sequence[Peer], *, now_ms: int) -> list[Standing]:
        """Propose servers that are no members yet, or sign what proposes them; all at once, so that none waits.

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
        return self._keep_all(acts)

    def remove(self, member: ListedMember, *, now_ms: int) -> Standing:
        """Propose that a member is none any more, or sign what does.

        Raises:
            MembersError: This server is no member, or it is the last one.
        """
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
        kept = self.acts.all()
        named = [each.act for each in kept if each.id == act and each.act.kind is ActKind.QUARANTINE]
        if not named:
            raise MembersError(f"no quarantine here has the id {act[:MIN_DIGITS]}…; see: dag-acfl trust report")
        if named[0].number > self.acts.effect.number + 1:  # a lift of a smaller number would never be in effect
            raise MembersError("the quarantine follows acts that this server does not have yet; try again in a minute")
        for each in kept:
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
        acts = [self._act(kind, each, details=details, changed=changed, now_ms=now_ms) for each in subjects]
        return self._keep_all(acts, *agreeing)

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

    def sign(self, act: str) -> Standing:
        """Sign what another member has proposed.

        Raises:
            MembersError: This server is no member, or no open proposal begins so, or several do.
        """
        self.check_member()
        waiting = self.open()
        found = [each for each in waiting if len(act) >= MIN_DIGITS and each.signed.id.startswith(act)]
        if len(found) != 1:
            known = ", ".join(each.signed.id[:MIN_DIGITS] for each in waiting) or "none"
            raise MembersError(f"no proposal here is called {act[:64]!r}; there are: {known}")
        return self._keep(sign_act(found[0].signed.act, self._key))

    def words(self, standing: Standing) -> str:
        """What an act has brought about; of one that is not in effect, what it would."""
        act = standing.signed.act
        name, url = self.name(act.subject_id), printable(act.details.get("url", "an unknown address"))
        reason, act_id = printable(act.details.get("reason", "no reason is given")), standing.signed.id[:MIN_DIGITS]
        known = {
            "ADD_MEMBER": (f"{name} is a member", f"add {name} at {url}, key {act.subject_id}"),
            "REMOVE_MEMBER": (f"{name} is no member any more", f"remove {name}"),
            "ROTATE_MEMBER": (f"{name} has a new key", f"{name} changes to key {act.object_id}"),
            "LIST_AUTHOR": (f"{act.subject} may publish", f"let {act.subject} publish"),
            "UNLIST_AUTHOR": (f"{act.subject} may not publish any more", f"let {act.subject} publish no more"),
            "QUARANTINE": (
                f"{act.subject} is quarantined, act {act_id}",
                f"quarantine {act.subject}{self._who_would_lift(standing.signed.id)}: {reason}",
            ),
            "LIFT": (f"quarantine {act.subject_id[:8]} is lifted", f"lift quarantine {act.subject_id[:8]}: {reason}"),
            "ERASE": (f"the models of {act.subject} are erased", f"erase the models of {act.subject}: {reason}"),
            "ROTATE_AUTHOR": (f"{act.object} goes on as {act.subject}", f"let {act.object} go on as {act.subject}"),
        }
        done, proposed = known.get(act.kind.name, (words := f"{act.kind.name.lower()} {act.subject}", words))
        return done if standing.is_in_effect else proposed

    def _who_would_lift(self, quarantine: TxId) -> str:
        """Who has signed to lift it, for those who are asked to sign it."""
        names = sorted(map(self.name, self._lifting.get(quarantine, set()) & self.acts.effect.members))
        return f", which {' and '.join(names)} would lift" if names else ""

    def _would_lift(self, quarantine: TxId) -> bool:
        return self.own_key in self._lifting.get(quarantine, ())

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
            signed.id in self.acts.effect.acts,
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

        A quarantine that this server would lift is not signed again: it would not hold here.
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
        kept = next(each for each in self.acts.all() if each.id == signed.id)
        return self._standing(kept, self.acts.effect.waiting.get(kept.id, ()))
