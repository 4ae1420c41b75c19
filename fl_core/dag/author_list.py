"""Who may publish, and who goes on as whom: what the acts about authors come to.

In a ledger whose genesis says ``authors = listed`` the listed may publish, in an ``open`` one everybody. Either way an
author that was rotated may not, and the one that goes on in its place has its past: its newest update, its count, its
standing. A server asks this of who publishes and of whom it offers. It does not ask it of what a peer has admitted
(docs/adr/0051): what is part of the ledger stays.

An author's own rotations hold where they contradict neither one another nor the members' (docs/adr/0058). Whoever
contradicts itself may not publish until members say who goes on as it. So it is of no account which of two rotations
came first, nor which of many a server has kept, as long as it keeps two.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from fl_core.dag.acts import Act, ActKind, Effect, SignedAct, own_acts
from fl_core.dag.genesis import Genesis
from fl_core.errors import AuthorRefusedError
from fl_core.types import AuthorId, PublicKey


@dataclass(frozen=True, slots=True)
class AuthorList:
    """See the module docstring.

    Attributes:
        listed: Who may publish; None: everybody.
        successors: Who goes on in the place of each rotated author.
        formers: The same, by who goes on.
        contested: Those whose own rotations contradict one another, so that none of them holds.
    """

    listed: frozenset[AuthorId] | None = None
    successors: Mapping[AuthorId, AuthorId] = field(default_factory=dict)
    formers: Mapping[AuthorId, AuthorId] = field(default_factory=dict)
    contested: AbstractSet[AuthorId] = frozenset()

    def current(self, author: AuthorId) -> AuthorId:
        """Who goes on as this author now: itself, unless it was rotated."""
        while author in self.successors:
            author = self.successors[author]
        return author

    def first(self, author: AuthorId) -> AuthorId:
        """Whom it goes on as, over all rotations: itself, unless it took another's place."""
        while author in self.formers:
            author = self.formers[author]
        return author

    def with_successors(self, authors: Collection[AuthorId]) -> frozenset[AuthorId]:
        """These authors, and who goes on in their place."""
        found = set(authors)
        for author in authors:
            while (author := self.successors.get(author, author)) not in found:
                found.add(author)
        return frozenset(found)

    def all_names(self, authors: Collection[AuthorId]) -> frozenset[AuthorId]:
        """These authors under every name that they had or have."""
        return self.with_successors([self.first(each) for each in authors])

    def differing(self, former: "AuthorList") -> frozenset[AuthorId] | None:
        """Who may publish by one of the two and not by the other, or has another past; None: it may be anybody."""
        if (self.listed is None) != (former.listed is None):
            return None
        rotated = {name for pair in self.formers.items() ^ former.formers.items() for name in pair}
        relisted = (self.listed or frozenset()) ^ (former.listed or frozenset())
        frozen = self.contested ^ former.contested
        return frozenset({*rotated, *relisted, *frozen, *map(self.current, rotated), *map(former.current, rotated)})

    def allows(self, author: AuthorId) -> bool:
        """Whether it may publish, and be offered to others."""
        is_last = author not in self.successors and author not in self.contested
        return is_last and (self.listed is None or author in self.listed)

    def check(self, author: AuthorId) -> None:
        """See that an author may publish.

        Raises:
            AuthorRefusedError: It may not.
        """
        if author in self.successors:
            raise AuthorRefusedError(f"{author} was rotated; {self.current(author)} goes on in its place")
        if author in self.contested:
            raise AuthorRefusedError(
                f"{author} has signed rotations that contradict one another, so its key may be in two hands; members "
                f"say who goes on as it with: dag-acfl authors rotate {author} NEW-KEY.pem"
            )
        if not self.allows(author):
            raise AuthorRefusedError(
                f"this ledger's authors are listed, and {author} is not; a member lists it with: "
                f"dag-acfl authors add {author}"
            )


def list_authors(
    acts: Iterable[SignedAct], effect: Effect, *, genesis: Genesis, server: PublicKey | None = None
) -> AuthorList:
    """What the acts about authors come to: those in effect, and for one server its own that are not yet, too.

    Args:
        acts: As for ``acts_in_effect``.
        effect: What they come to.
        genesis: Says whether authors are listed at all.
        server: A server's key; None: by the acts in effect alone.
    """
    ordered, decided = sorted(acts, key=lambda each: (each.act.number, each.id)), list[Act]()
    here, _ = own_acts(ordered, effect, server=server)
    counting = here | {*effect.acts}
    own = defaultdict[AuthorId, set[AuthorId]](set)
    for signed in ordered:
        act = signed.act
        if act.kind is ActKind.ROTATE_SELF and {act.subject_id, act.object_id} <= signed.signatures.keys():
            own[AuthorId(act.subject)].add(AuthorId(act.object))
        elif signed.id in counting:
            decided.append(act)
    successors = _holding(decided, own)
    formers = {new: old for old, new in successors.items()}
    found = AuthorList(None, successors, formers, own.keys() - successors.keys())
    if genesis.authors.name != "listed":
        return found
    listed = set[AuthorId]()  # by first names: a place is that of all names of an author, whichever an act says
    for act in decided:
        if act.kind is ActKind.LIST_AUTHOR:
            listed.add(found.first(AuthorId(act.subject)))
        elif act.kind is ActKind.UNLIST_AUTHOR:
            listed.discard(found.first(AuthorId(act.subject)))
    return replace(found, listed=frozenset(map(found.current, listed)))


def _holding(decided: Iterable[Act], own: Mapping[AuthorId, AbstractSet[AuthorId]]) -> Mapping[AuthorId, AuthorId]:
    """The rotations that hold: the members' in their order, then authors' own, which have none.

    The members rotate an author once, to one that neither was rotated nor goes on as a third. Its own rotation holds
    where the members have not rotated it, it is its only one, nobody else goes on so, and it closes no circle.
    """
    by_members = dict[AuthorId, AuthorId]()
    taken = set[AuthorId]()
    for act in decided:
        old, new = AuthorId(act.subject), AuthorId(act.object)
        is_free = old not in by_members and new != old and new not in by_members and new not in taken
        if act.kind is ActKind.ROTATE_AUTHOR and is_free:
            by_members[old] = new
            taken.add(new)
    alone = {old: new for old, (new, *more) in own.items() if not more and old not in by_members}
    named = Counter([*taken, *alone.values()])
    rotated = by_members | {old: new for old, new in alone.items() if named[new] == 1}
    straight = set[AuthorId]()
    for first in rotated.keys() - rotated.values():
        name = first
        while name in rotated:
            straight.add(name)
            name = rotated[name]
    return {old: new for old, new in rotated.items() if old in by_members or old in straight}


def names_ever(acts: Iterable[SignedAct]) -> Mapping[AuthorId, AbstractSet[AuthorId]]:
    """All names that rotations give an author, whether they hold or not: what held once may hold no more."""
    names = dict[AuthorId, AbstractSet[AuthorId]]()
    for act in (each.act for each in acts if each.act.kind in (ActKind.ROTATE_AUTHOR, ActKind.ROTATE_SELF)):
        old, new = AuthorId(act.subject), AuthorId(act.object)
        joined = names.get(old, {old}) | names.get(new, {new})
        names.update(dict.fromkeys(joined, joined))
    return names


def listed_ever(acts: Collection[SignedAct], effect: Effect) -> frozenset[AuthorId]:
    """Whom the acts in effect have listed at some time, under all names that rotations give them."""
    in_effect, names = frozenset(effect.acts), names_ever(acts)
    listing = (each.act for each in acts if each.act.kind is ActKind.LIST_AUTHOR and each.id in in_effect)
    return frozenset(name for act in listing for name in names.get(AuthorId(act.subject), {AuthorId(act.subject)}))
