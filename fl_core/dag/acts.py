"""Acts: what the members of a ledger decide together. One kind of signed object for all of it.

The canonical bytes are one fixed layout (big-endian):

    offset  size  field
    0       8     magic "dag-act" 0x01 (the version)
    8       32    ledger id
    40      8     number: one more than that of ``previous``, from 1
    48      32    previous: an act of the number before, in effect where this one was proposed; zeros for number 1
    80      8     created at, milliseconds since 1970 UTC: information, never used
    88      1     kind (``ActKind``)
    89      1     kind of the subject (``_SUBJECTS``)
    90      32    subject: a member's key, an author, an update, an act, a ledger
    122     1     kind of the object; 0 for none
    123     32    object: of a rotation, the new key or author; zeros for none
    155     2     number of details, then each: 1 byte length, name, 2 bytes length, text in UTF-8; names ascending

``id = SHA-256("dag-acfl/act/v1" 0x00 ‖ act)``. A signed act is these bytes behind their length (4 bytes), then the
number of signatures (2 bytes) and, ascending by key, 32 bytes of key and 64 of signature each. Signatures are no part
of the id: members add theirs one by one, and two copies of an act are merged into one with the signatures of both.

Which acts are in effect (``acts_in_effect``) is a pure function of the set of signed acts:

* the acts of one number are judged together, by the members that the acts of smaller numbers made, in the order of
  their ids; so acts that are proposed at the same time all count, and the order in which they came does not;
* an act needs its ``previous`` in effect and the signatures of the threshold of members: so nobody can run ahead
  with the numbers, and every act commits to what went before;
* a rotation also needs the signature of the new key;
* a lift needs the quarantine that it names to be there, in effect or not, with no greater number: members of the past
  lift nothing of today;
* a member's act holds on that member's own server at once (``list_members``, ``fl_core.trust.quarantine``).

The members of the past could sign a past of their own. So where a checkpoint names an act that is carried by enough
signatures (``settled``), no other act of that number changes the members. It carries no act by itself. What changes no
members, such as a quarantine, is in effect whenever it is carried: it may have waited for signatures when the
checkpoint was made. Acts of the newest number are never settled at sight: others of the same number may be on their
way, and every server must come to the same.

One kind is no decision of members: an author's own rotation (``sign_rotation``), a statement of its old and its new
key. It has no place among the others, and there is one for two keys. ``fl_core.dag.author_list`` says what it means.
"""

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from itertools import groupby
from typing import Final, Literal, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.encoding import MAX_INTEGER, Reader, check_map, encode_map
from fl_core.dag.signature import SIGNATURE_BYTES, Role, public_key_of, sign, verify
from fl_core.errors import ActInvalidError, WrongLedgerError
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId, digest_of, is_hex_id

MAGIC: Final = b"dag-act\x01"
ID_DOMAIN: Final = b"dag-acfl/act/v1\x00"
MAX_SIGNATURES: Final = 256
"""Signatures of one act, so members of a ledger that can sign one."""
MAX_ACTS: Final = 100_000
"""Acts of one ledger that are read at all."""
MAX_ACT_BYTES: Final = 155 + 2 + 16 * (1 + 64 + 2 + 512)

Threshold: TypeAlias = int | Literal["majority"]
"""How many members sign an act: more than half, or this number (all of them, if there are fewer)."""

_NONE: Final = TxId(ZERO_ID)
_FIXED: Final = struct.Struct(">8s32sQ32sQBB32sB32s")
_SUBJECTS: Final = ("", "hash", "key", "member", "update", "act", "ledger")
"""What a subject is, by its kind's number: an author by secret or by key, a member's key, an id."""


class ActKind(IntEnum):
    """What an act decides, of its subject."""

    ADD_MEMBER = 1
    REMOVE_MEMBER = 2
    ROTATE_MEMBER = 3
    """The subject, a member's key, is replaced by the object."""
    LIST_AUTHOR = 4
    """The author may publish, where genesis asks for listed authors (``fl_core.dag.author_list``)."""
    UNLIST_AUTHOR = 5
    ROTATE_AUTHOR = 6
    """The object goes on as the subject did."""
    QUARANTINE = 7
    """Of an author, or of one update."""
    LIFT = 8
    """The quarantine of this act ends; one that is not in effect yet never holds."""
    ERASE = 9
    """The author's models are dropped everywhere."""
    SUCCEED = 10
    """This ledger goes on as another one."""
    ROTATE_SELF = 11
    """The author says so itself: the object goes on as it."""


_AUTHOR: Final = ("hash", "key")
_ALLOWED: Final[Mapping[ActKind, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    ActKind.ADD_MEMBER: (("member",), ("",)),
    ActKind.REMOVE_MEMBER: (("member",), ("",)),
    ActKind.ROTATE_MEMBER: (("member",), ("member",)),
    ActKind.LIST_AUTHOR: (_AUTHOR, ("",)),
    ActKind.UNLIST_AUTHOR: (_AUTHOR, ("",)),
    ActKind.ROTATE_AUTHOR: (_AUTHOR, _AUTHOR),
    ActKind.QUARANTINE: ((*_AUTHOR, "update"), ("",)),
    ActKind.LIFT: (("act",), ("",)),
    ActKind.ERASE: (_AUTHOR, ("",)),
    ActKind.SUCCEED: (("ledger",), ("",)),
    ActKind.ROTATE_SELF: (("key",), ("key",)),
}
"""Kinds of subject and of object that an act can have."""
_KINDS: Final = {int(kind): kind for kind in ActKind}
_CHANGES_MEMBERS: Final = (ActKind.ADD_MEMBER, ActKind.REMOVE_MEMBER, ActKind.ROTATE_MEMBER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """See the module docstring.

    Attributes:
        subject: ``member:``, ``hash:``, ``key:``, ``update:``, ``act:`` or ``ledger:`` and 64 hexadecimal digits.
        object: Likewise; empty for none.
        details: Such as a member's ``name`` and ``url``, or a ``reason``: text, at most 512 bytes each.

    Raises:
        ActInvalidError: A field is out of range, or the subject is not one that this kind has.
    """

    ledger: TxId
    number: int
    previous: TxId = _NONE
    created_at_ms: int
    kind: ActKind
    subject: str
    object: str = ""
    details: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (is_hex_id(self.ledger) and is_hex_id(self.previous)):
            raise ActInvalidError("ledger and previous must be 64 lowercase hexadecimal digits")
        if not (1 <= self.number <= MAX_INTEGER and 0 <= self.created_at_ms <= MAX_INTEGER):
            raise ActInvalidError("an act's number is from 1, its time from 0, both below 2^63")
        if (self.number == 1) != (self.previous == ZERO_ID):
            raise ActInvalidError("act number 1 has no previous act, every other one has")
        if self.kind is ActKind.ROTATE_SELF and (self.number, self.created_at_ms, self.details) != (1, 0, {}):
            raise ActInvalidError("an author's own rotation is number 1, of time 0, without details")
        for what, text, allowed in zip(
            ("subject", "object"), (self.subject, self.object), _ALLOWED[self.kind], strict=True
        ):
            kind, _, digits = text.partition(":")
            if kind not in allowed or (text and not is_hex_id(digits)):
                kinds = " or ".join(each or "nothing" for each in allowed)
                raise ActInvalidError(f"the {what} of {self.kind.name.lower()} is {kinds}, not {text[:80]!r}")
        check_map(self._detail_bytes(), error=ActInvalidError, what="an act's details")

    def _detail_bytes(self) -> dict[str, bytes]:
        try:
            return {name: text.encode() for name, text in self.details.items()}
        except UnicodeEncodeError as error:
            raise ActInvalidError(f"an act's details are text in UTF-8: {error}") from error

    def encode(self) -> bytes:
        fixed = _FIXED.pack(
            MAGIC,
            bytes.fromhex(self.ledger),
            self.number,
            bytes.fromhex(self.previous),
            self.created_at_ms,
            self.kind,
            *_subject_fields(self.subject),
            *_subject_fields(self.object),
        )
        return fixed + encode_map(self._detail_bytes())

    @property
    def id(self) -> TxId:
        return act_id(self.encode())

    @property
    def subject_id(self) -> str:
        return self.subject.partition(":")[2]

    @property
    def object_id(self) -> str:
        """The object's 64 digits; empty for none."""
        return self.object.partition(":")[2]


def act_id(act_bytes: bytes) -> TxId:
    return TxId(hashlib.sha256(ID_DOMAIN + act_bytes).hexdigest())


def decode_act(data: bytes) -> Act:
    """Read canonical bytes back.

    Raises:
        ActInvalidError: The bytes are not the encoding of an act.
    """
    reader = Reader(data, error=ActInvalidError, what="an act")
    ledger, number, previous, created_at_ms, kind, *ends = reader.fixed(_FIXED, magic=MAGIC)
    subject_kind, subject, object_kind, target = ends
    if kind not in _KINDS:
        raise ActInvalidError(f"unknown kind of act {kind}")
    try:
        details = {name: value.decode() for name, value in reader.map().items()}
    except UnicodeDecodeError as error:
        raise ActInvalidError(f"an act's details are text in UTF-8: {error}") from error
    reader.end()
    return Act(
        ledger=TxId(ledger.hex()),
        number=number,
        previous=TxId(previous.hex()),
        created_at_ms=created_at_ms,
        kind=_KINDS[kind],
        subject=_subject_text(subject_kind, subject),
        object=_subject_text(object_kind, target),
        details=details,
    )


def _subject_fields(text: str) -> tuple[int, bytes]:
    kind, _, digits = text.partition(":")
    return _SUBJECTS.index(kind), bytes.fromhex(digits or ZERO_ID)


def _subject_text(kind: int, content: bytes) -> str:
    if kind == 0 and not any(content):
        return ""
    if not 0 < kind < len(_SUBJECTS):
        raise ActInvalidError(f"no kind of subject {kind}, or bytes where nothing is named")
    return f"{_SUBJECTS[kind]}:{content.hex()}"


@dataclass(frozen=True)
class SignedAct:
    """An act's exact bytes with the signatures that it has so far, by the signer's public key."""

    act_bytes: bytes
    signatures: Mapping[PublicKey, bytes]

    @cached_property
    def act(self) -> Act:
        """The decoded act; raises as ``decode_act`` does."""
        return decode_act(self.act_bytes)

    @cached_property
    def id(self) -> TxId:
        return act_id(self.act_bytes)

    def encode(self) -> bytes:
        """As it travels, and as it is exported."""
        parts = [struct.pack(">I", len(self.act_bytes)), self.act_bytes, struct.pack(">H", len(self.signatures))]
        parts += [bytes.fromhex(signer) + self.signatures[signer] for signer in sorted(self.signatures)]
        return b"".join(parts)

    def verify(self) -> None:
        """Check every signature; whose they are is not asked.

        Raises:
            SignatureError: One does not verify.
            ActInvalidError: The bytes are no act, or there is no signature.
        """
        if not self.signatures or len(self.signatures) > MAX_SIGNATURES:
            raise ActInvalidError(f"an act has 1 to {MAX_SIGNATURES} signatures, this one {len(self.signatures)}")
        assert self.act.number, "decoded: what is signed is an act"
        for signer, signature in self.signatures.items():
            verify(signer, self.id, signature, role=Role.ACT)

    def without_strangers(self, electors: Collection[PublicKey]) -> "SignedAct":
        """Without the signatures that can never count: of keys that were no member's and are not named in the act."""
        counting = {*electors, self.act.subject_id, self.act.object_id}
        kept = {key: value for key, value in self.signatures.items() if key in counting}
        return replace(self, signatures=kept)

    def merged(self, other: "SignedAct") -> "SignedAct":
        """The same act with the signatures of both; of two by one key this one's: a key can make any number."""
        assert other.act_bytes == self.act_bytes, "two copies of one act"
        return replace(self, signatures={**other.signatures, **self.signatures})


def sign_act(act: Act, *keys: Ed25519PrivateKey) -> SignedAct:
    """An act with these keys' signatures."""
    return SignedAct(act.encode(), {public_key_of(key): sign(key, act.id, role=Role.ACT) for key in keys})


def sign_rotation(old: Ed25519PrivateKey, new: Ed25519PrivateKey, *, ledger: TxId) -> SignedAct:
    """An author's own rotation: both keys say that the new one goes on as the old one."""
    subject, target = f"key:{public_key_of(old)}", f"key:{public_key_of(new)}"
    kind = ActKind.ROTATE_SELF
    return sign_act(Act(ledger=ledger, number=1, created_at_ms=0, kind=kind, subject=subject, object=target), old, new)


def encode_signed_acts(acts: Iterable[SignedAct]) -> bytes:
    """Several signed acts one behind the other, in the order of their ids."""
    return b"".join(each.encode() for each in sorted(acts, key=lambda each: each.id))


def decode_signed_acts(data: bytes, *, most: int) -> tuple[SignedAct, ...]:
    """Read signed acts that stand one behind the other, at most ``most``.

    Raises:
        ActInvalidError: The bytes are not their encoding.
    """
    reader = Reader(data, error=ActInvalidError, what="a signed act")
    found: list[SignedAct] = []
    while reader.rest:
        size = int.from_bytes(reader.take(4), "big")
        if size > MAX_ACT_BYTES or len(found) == most:
            raise ActInvalidError(f"an act of {size} bytes, or more than {most} acts")
        act_bytes = reader.take(size)
        decode_act(act_bytes)
        signatures: dict[PublicKey, bytes] = {}
        latest = ""
        for _ in range(reader.count(MAX_SIGNATURES)):
            signer = PublicKey(reader.hex_id())
            if signer <= latest:
                raise ActInvalidError("the signers of an act are not strictly ascending")
            signatures[signer] = reader.take(SIGNATURE_BYTES)
            latest = signer
        found.append(SignedAct(act_bytes, signatures))
        if len(found) > 1 and found[-2].id >= found[-1].id:
            raise ActInvalidError("signed acts are not strictly ascending by id")
    return tuple(found)


def acts_digest(acts: Iterable[SignedAct]) -> Digest:
    """What two servers compare: SHA-256 over each act's id, its number of signers (2 bytes) and their keys, ascending.

    Equal digests are equal acts signed by the same keys.
    """
    parts = []
    for each in sorted(acts, key=lambda each: each.id):
        parts += [bytes.fromhex(each.id), struct.pack(">H", len(each.signatures))]
        parts += [bytes.fromhex(signer) for signer in sorted(each.signatures)]
    return digest_of(b"".join(parts))


@dataclass(frozen=True, slots=True)
class Effect:
    """What a set of acts comes to.

    Attributes:
        members: Keys of the present members.
        electors: Keys of all that are or were members.
        members_version: How many acts have changed the list; 0 is the founders'.
        acts: Ids of the acts in effect, in order.
        number: Of the newest of them; 0 without any.
        waiting: The acts that are not in effect and would be if all who judge them signed, by id: those members.
            Neither what is lifted waits, nor what all members that had signed it have taken back by signing a lift of
            it, nor another lift of either.
    """

    members: frozenset[PublicKey]
    electors: frozenset[PublicKey]
    members_version: int
    acts: tuple[TxId, ...]
    number: int
    waiting: Mapping[TxId, frozenset[PublicKey]] = field(compare=False)


def acts_in_effect(
    acts: Iterable[SignedAct],
    *,
    founders: Collection[PublicKey],
    threshold: Threshold,
    settled: Collection[TxId] = (),
) -> Effect:
    """Which acts are in effect; see the module docstring for the rules.

    Args:
        acts: Signed acts of one ledger, their signatures verified, in any order; each id once.
        founders: The founding members' keys.
        threshold: As genesis says.
        settled: Acts that a checkpoint says are in effect. Where one of them is carried, no others of its number change
            the members.
    """
    members, version = frozenset(founders), 0
    electors = members
    in_effect: dict[TxId, Act] = {}
    waiting: dict[TxId, frozenset[PublicKey]] = {}
    of_members = (each for each in acts if each.act.kind is not ActKind.ROTATE_SELF)
    ordered = sorted(of_members, key=lambda each: (each.act.number, each.id))
    quarantines = {each.id: each.act.number for each in ordered if each.act.kind is ActKind.QUARANTINE}
    for number, group in groupby(ordered, key=lambda each: each.act.number):
        judges = members
        following = [each for each in group if number == 1 or each.act.previous in in_effect]
        carried = {each.id for each in following if _is_carried(each.act, each.signatures.keys(), judges, threshold)}
        is_settled = not carried.isdisjoint(settled)
        for signed in following:
            act = signed.act
            is_rewriting = is_settled and act.kind in _CHANGES_MEMBERS and signed.id not in settled
            if is_rewriting or not _makes_sense(act, members, in_effect, quarantines):
                continue
            if signed.id in carried:
                in_effect[signed.id] = act
                changed = _members_after(act, members)
                version += changed != members
                members = changed
                electors |= members
            elif _is_carried(act, judges | signed.signatures.keys(), judges, threshold):
                waiting[signed.id] = judges
    newest = max((act.number for act in in_effect.values()), default=0)
    waiting = _still_wanted(waiting, in_effect, ordered)
    return Effect(members, electors, version, tuple(in_effect), newest, waiting)


def _still_wanted(
    waiting: Mapping[TxId, frozenset[PublicKey]], in_effect: Mapping[TxId, Act], acts: Iterable[SignedAct]
) -> dict[TxId, frozenset[PublicKey]]:
    """Without what is lifted, what all who signed it have taken back, and lifts of such."""
    known = {each.id: each for each in acts}
    against: dict[str, set[PublicKey]] = {}
    lifted = {act.subject_id for act in in_effect.values() if act.kind is ActKind.LIFT}
    for each in known.values():
        if each.act.kind is ActKind.LIFT:
            against.setdefault(each.act.subject_id, set()).update(each.signatures)

    def is_wanted(signed: SignedAct, judges: frozenset[PublicKey]) -> bool:
        by = judges & signed.signatures.keys()
        is_taken_back = by and by <= against.get(signed.id, set()) and signed.act.kind is not ActKind.ERASE
        return signed.id not in lifted and not is_taken_back

    wanted = {each: judges for each, judges in waiting.items() if is_wanted(known[each], judges)}

    def is_needed(act: Act) -> bool:
        named = act.subject_id
        return act.kind is not ActKind.LIFT or (named not in lifted and (named in in_effect or named in wanted))

    return {each: judges for each, judges in wanted.items() if is_needed(known[each].act)}


@dataclass(frozen=True, slots=True)
class ListedMember:
    """A member as one server sees it.

    Attributes:
        key: Its public key.
        name: What people call it; whatever those who signed wrote.
        url: Its address, likewise; empty where no act says it.
        former: The key that this one has replaced.
    """

    key: PublicKey
    name: str = ""
    url: str = ""
    former: PublicKey | None = None


def own_acts(
    acts: Iterable[SignedAct], effect: Effect, *, server: PublicKey | None
) -> tuple[frozenset[TxId], frozenset[TxId]]:
    """What holds on a member's own server whoever else has signed, and what it has taken back by signing a lift.

    Its former keys say nothing: they may be in other hands. An erasure is not taken back.

    Args:
        acts: As for ``acts_in_effect``.
        effect: What they come to.
        server: The server's key; None: no member's.
    """
    if server not in effect.members:
        return frozenset(), frozenset()
    signed = [each for each in acts if server in each.signatures]
    lifted = {each.act.subject_id for each in signed if each.act.kind is ActKind.LIFT}
    own = frozenset(each.id for each in signed)
    taken_back = frozenset(each.id for each in signed if each.id in lifted and each.act.kind is not ActKind.ERASE)
    return own - taken_back, taken_back


def list_members(
    acts: Iterable[SignedAct], effect: Effect, *, founders: Mapping[PublicKey, str], server: PublicKey | None = None
) -> tuple[ListedMember, ...]:
    """The members, ascending by key: by the acts in effect, and for one server by its own that are not yet, too.

    Args:
        acts: As for ``acts_in_effect``.
        effect: What they come to.
        founders: The founding members' names by their keys.
        server: A server's key; None: the members by the acts in effect alone.
    """
    listed = {key: ListedMember(key, name) for key, name in founders.items()}
    ordered = sorted(acts, key=lambda each: (each.act.number, each.id))
    own, _ = own_acts(ordered, effect, server=server)
    counting = own | {*effect.acts}
    for signed in ordered:
        act = signed.act
        subject, new = PublicKey(act.subject_id), PublicKey(act.object_id)
        if signed.id not in counting:
            continue
        if act.kind is ActKind.ADD_MEMBER and subject not in listed:
            listed[subject] = ListedMember(subject, act.details.get("name", ""), act.details.get("url", ""))
        elif act.kind is ActKind.REMOVE_MEMBER and len(listed) > 1:
            listed.pop(subject, None)
        elif act.kind is ActKind.ROTATE_MEMBER and subject in listed and new in signed.signatures.keys() - listed:
            old = listed.pop(subject)
            url = act.details.get("url", old.url)
            listed[new] = ListedMember(new, act.details.get("name", old.name), url, former=subject)
    return tuple(listed[key] for key in sorted(listed))


def check_act(
    signed: SignedAct, *, ledger: TxId, effect: Effect, has_published: Callable[[AuthorId], bool]
) -> SignedAct:
    """Whether an act may be kept and passed on: sound, of this ledger, and signed by somebody whose word counts.

    That is a present or former member, or both keys of an author of this ledger that rotates itself. Strangers'
    signatures are not even verified.

    Returns:
        The act without strangers' signatures.

    Raises:
        SignatureError: A signature does not verify.
        ActInvalidError: The bytes are no act, or nobody whose word counts has signed it.
        WrongLedgerError: It is another ledger's.
    """
    act = signed.act
    if act.ledger != ledger:
        raise WrongLedgerError(f"the act is of ledger {act.ledger[:16]}…, this is {ledger[:16]}…")
    if act.kind is ActKind.ROTATE_SELF:
        signed = signed.without_strangers(())
        if len(signed.signatures) < 2 or not has_published(AuthorId(act.subject)):
            raise ActInvalidError(
                "an author rotates itself by the signatures of both keys, once it has published; members rotate any: "
                "dag-acfl authors rotate with its id in place of its key's file"
            )
    else:
        signed = signed.without_strangers(effect.electors)
        if not effect.electors & signed.signatures.keys():
            raise ActInvalidError("no member of this ledger has signed the act")
    signed.verify()
    return signed


def votes_needed(members: int, threshold: Threshold) -> int:
    """How many of so many members carry an act."""
    return members // 2 + 1 if threshold == "majority" else min(threshold, max(members, 1))


def _is_carried(
    act: Act, signers: Collection[PublicKey], electorate: frozenset[PublicKey], threshold: Threshold
) -> bool:
    # A new key signs, too: nobody is made to go on as somebody else. A secret cannot sign, other acts have no object.
    agreed = not act.object or act.object.startswith("hash:") or act.object_id in signers
    return agreed and len(electorate.intersection(signers)) >= votes_needed(len(electorate), threshold)


def _makes_sense(
    act: Act, members: frozenset[PublicKey], in_effect: Mapping[TxId, Act], quarantines: Mapping[TxId, int]
) -> bool:
    """Whether the subject is there to be acted upon; ``quarantines`` are all that are kept, with their numbers."""
    if act.kind is ActKind.LIFT:
        return quarantines.get(TxId(act.subject_id), act.number + 1) <= act.number
    if act.kind is ActKind.SUCCEED:
        return all(each.kind is not ActKind.SUCCEED for each in in_effect.values())
    if act.kind is ActKind.REMOVE_MEMBER:
        return act.subject_id in members and len(members) > 1
    if act.kind is ActKind.ROTATE_MEMBER:
        return act.subject_id in members and act.object_id not in members
    return not (act.kind is ActKind.ADD_MEMBER and act.subject_id in members)


def _members_after(act: Act, members: frozenset[PublicKey]) -> frozenset[PublicKey]:
    subject, new = PublicKey(act.subject_id), PublicKey(act.object_id)
    if act.kind is ActKind.ADD_MEMBER:
        return members | {subject}
    if act.kind is ActKind.REMOVE_MEMBER:
        return members - {subject}
    if act.kind is ActKind.ROTATE_MEMBER:
        return members - {subject} | {new}
    return members
