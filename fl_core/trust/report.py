"""What a quarantine comes to, as one replica sees it: for people, and cheap enough to be asked again and again."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from fl_core.dag.graph import Graph
from fl_core.trust.lineage import Lineage, Suspects
from fl_core.trust.offering import Offering
from fl_core.types import AuthorId, TxId


class Healing(StrEnum):
    """How far a client is from being offered to others again."""

    QUARANTINED = "quarantined"
    ERASED = "erased"
    LED_BACK = "led back"
    """Its newest update is withheld; its next selection begins from its last clean one, or from genesis."""
    HEALED = "healed"
    """It has published a clean one since."""


@dataclass(frozen=True, slots=True)
class Affected:
    """A client with withheld updates.

    Attributes:
        author: Who it is.
        newest: Its newest update.
        taint: The share of that one's model that descends from quarantined steps.
        withheld: How many of its updates are not offered.
        clean: Its newest one that is; None: none, so it begins from genesis.
        state: How far it is.
    """

    author: AuthorId
    newest: TxId
    taint: float
    withheld: int
    clean: TxId | None
    state: Healing


def affected(graph: Graph, offering: Offering) -> list[Affected]:
    """All clients with withheld updates, ascending by author; costs as much as there are of them.

    Args:
        graph: The whole ledger.
        offering: What of it is offered.
    """
    return [_affected(graph, offering, author) for author in sorted(offering.withheld)]


def _affected(graph: Graph, offering: Offering, author: AuthorId) -> Affected:
    newest, clean = graph.newest_of(author), offering.graph.newest_of(author)
    assert newest is not None, "it has updates"
    if author in offering.quarantine.suspects.authors:
        state = Healing.QUARANTINED
    elif author in offering.quarantine.erased:
        state = Healing.ERASED
    else:
        state = Healing.HEALED if newest == clean else Healing.LED_BACK
    left = None if clean is None else clean.id
    return Affected(author, newest.id, offering.taint(newest), offering.withheld[author], left, state)


@dataclass(frozen=True, slots=True)
class Descent:
    """What of one author's updates descends from some steps.

    Attributes:
        author: Whose.
        descendants: How many of its updates have some of these steps in them.
        beyond: How many of these more than the ledger's bound of taint.
        taint: The share in its newest update.
        clean: Its newest update that would be offered; None: none.
    """

    author: AuthorId
    descendants: int
    beyond: int
    taint: float
    clean: TxId | None


def descents(graph: Graph, suspects: Suspects, *, max_taint: float) -> Iterator[Descent]:
    """What would be tainted if these steps were quarantined, ascending by author; those without descendants left out.

    Walks through the whole ledger where some of the steps are here: a share is of all steps that went into a model.

    Args:
        graph: The whole ledger; what is added meanwhile does not count.
        suspects: Whose steps.
        max_taint: The ledger's bound.
    """
    if not (any(map(graph.has_update_of, suspects.authors)) or any(each in graph for each in suspects.updates)):
        return
    lineage = Lineage(graph.genesis.id, suspects)
    descendants: dict[AuthorId, int] = {}
    beyond: dict[AuthorId, int] = {}
    clean: dict[AuthorId, TxId] = {}
    newest: dict[AuthorId, tuple[int, TxId]] = {}
    for node in islice(graph, 1, None):
        taint = lineage.add(node)
        newest[node.author] = max(newest.get(node.author, (-1, node.id)), (node.sequence, node.id))
        is_beyond = taint > max_taint or node in suspects
        if taint > 0:
            descendants[node.author] = descendants.get(node.author, 0) + 1
        if is_beyond:
            beyond[node.author] = beyond.get(node.author, 0) + 1
        else:
            clean[node.author] = node.id
    for author in sorted(descendants):
        taint = lineage.taint(newest[author][1])
        yield Descent(author, descendants[author], beyond.get(author, 0), taint, clean.get(author))
