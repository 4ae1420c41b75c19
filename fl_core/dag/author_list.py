"""Who may publish, and who goes on as whom: what the acts about authors come to.

In a ledger whose genesis says ``authors = listed`` the listed may publish, in an ``open`` one everybody. Either way an
author that was rotated may not, and the one that goes on in its place has its past: its newest update, its count, its
standing. A server asks this of who publishes and of whom it offers. It does not ask it of what a peer has admitted
(docs/adr/0051): what is part of the ledger stays.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fl_core.dag.acts import ActKind, Effect, SignedAct
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
    """

    listed: frozenset[AuthorId] | None = None
    successors: Mapping[AuthorId, AuthorId] = field(default_factory=dict)
    formers: Mapping[AuthorId, AuthorId] = field(default_factory=dict)

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
        return frozenset({*rotated, *relisted, *map(self.current, rotated), *map(former.current, rotated)})

    def allows(self, author: AuthorId) -> bool:
        """Whether it may publish, and be offered to others."""
        return author not in self.successors and (self.listed is None or author in self.listed)

    def check(self, author: AuthorId) -> None:
        """See that an author may publish.

        Raises:
            AuthorRefusedError: It may not.
        """
        if author in self.successors:
            raise AuthorRefusedError(f"{author} was rotated; {self.current(author)} goes on in its place")
        if not self.allows(author):
            raise AuthorRefusedError(
                f"this ledger's authors are listed, and {author} is not; a member lists it with: dag-acfl authors add"
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
    listed = set[AuthorId]()
    successors, formers = dict[AuthorId, AuthorId](), dict[AuthorId, AuthorId]()
    in_effect = frozenset(effect.acts)
    for signed in sorted(acts, key=lambda each: (each.act.number, each.id)):
        act, is_own = signed.act, server in effect.members and server in signed.signatures
        subject, new = AuthorId(act.subject), AuthorId(act.object)
        if not (signed.id in in_effect or is_own):
            continue
        if act.kind is ActKind.LIST_AUTHOR:
            listed.add(subject)
        elif act.kind is ActKind.UNLIST_AUTHOR:
            listed.discard(subject)
        elif act.kind is ActKind.ROTATE_AUTHOR and _is_free(subject, new, successors, formers):
            successors[subject], formers[new] = new, subject
            if subject in listed:
                listed.remove(subject)
                listed.add(new)
    is_listed = genesis.authors.name == "listed"
    return AuthorList(frozenset(listed) if is_listed else None, successors, formers)


def listed_ever(acts: Iterable[SignedAct], effect: Effect) -> frozenset[AuthorId]:
    """Whom the acts in effect have listed at some time, themselves or whom they go on as."""
    by_id = {each.id: each.act for each in acts}
    ever = set[AuthorId]()
    for act in map(by_id.__getitem__, effect.acts):
        if act.kind is ActKind.LIST_AUTHOR:
            ever.add(AuthorId(act.subject))
        elif act.kind is ActKind.ROTATE_AUTHOR and act.subject in ever:
            ever.add(AuthorId(act.object))
    return frozenset(ever)


def _is_free(
    subject: AuthorId, new: AuthorId, successors: Mapping[AuthorId, AuthorId], formers: Mapping[AuthorId, AuthorId]
) -> bool:
    """Whether the one was not rotated before, and the other neither was nor goes on as a third."""
    return subject != new and subject not in successors and new not in successors and new not in formers
