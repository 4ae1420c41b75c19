"""What a candidate rule is: it follows a growing graph and says which updates can be chosen."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeAlias

from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.selection.protocol import Candidate
from fl_core.types import AuthorId, TxId


class CandidateRule(Protocol):
    """Says which updates a selection may choose from; kept up to date one admitted node at a time.

    Every rule keeps these promises:

    * the same set of nodes, with the same receipts, gives the same candidates, whatever their order of arrival;
    * genesis is never a candidate, and nobody is offered an update of its own;
    * at most ``bounds.max_candidates`` are offered, and an answer costs no more than what it holds;
    * of more than ``bounds.max_compared`` that are offered, the nearest ``bounds.shortlist`` are compared;
    * beyond that, the members take turns, each with the longest-standing author by its own receipts that are here;
    * who may not publish is not offered, and takes nobody's place;
    * what was retired once is never offered again, while members and authors are the same: ledger time only grows.
    """

    def admit(self, node: Node) -> tuple[TxId, ...]:
        """Take in a node that has just been added to the graph.

        Returns:
            What can never be offered again from now on.
        """

    def reconsider(self, author: AuthorId) -> tuple[TxId, ...]:
        """Look at an author again who may publish, or goes on as another, by the list of authors as it is now.

        Returns:
            What can be offered no more, as that list is.
        """

    def own(self, author: AuthorId) -> TxId | None:
        """The author's update that is averaged with those that it selects; None: none."""

    def candidates(self, asker: AuthorId | None, *, nearest: Iterable[TxId] | None = None) -> tuple[Candidate, ...]:
        """What is offered to this author, or to somebody who has not published yet; ascending by id.

        Args:
            asker: The author; None: nobody yet.
            nearest: Updates, the most like the asker's first: of more than ``bounds.max_compared`` that are offered,
                the answer is the first ``bounds.shortlist`` of these. None: all that are offered.
        """

    def front(self) -> dict[TxId, Candidate]:
        """All that can be offered to anybody now: at most ``bounds.max_candidates + 1``; of so many, the last in turn
        last.

        One more, because the asker may be the author of one of them.
        """

    @property
    def eligible(self) -> AbstractSet[TxId]:
        """What is offered, or would be if there were room."""


CandidateRuleFactory: TypeAlias = Callable[[Graph, Genesis], CandidateRule]
