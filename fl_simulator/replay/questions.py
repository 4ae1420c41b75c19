"""What a ledger's selector was asked: from the evidence where there is one, rebuilt with the models where not.

Memory: the compared vectors of what can be offered, ``policy.max_candidates`` of them and some spare ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from fl_core.errors import ModelError, ParameterError, TransactionInvalidError
from fl_core.ledger import Ledger
from fl_core.models import check_model, similarity_vector
from fl_core.selection import Candidate, Selection, SelectionRequest
from fl_core.selection.evidence import parse_evidence
from fl_core.similarity import TipMatrix
from fl_core.types import AuthorId, Digest, TxId, Vector32, digest_of
from fl_core.verify import LedgerSource
from fl_simulator.replay.errors import ReplayError
from fl_simulator.replay.history import History, Site

_SPARE_ROWS: Final = 64
_MIN_EVIDENCE: Final = 64
"""Evidence holds so many candidates of the highest rank, or twice ``policy.max_parents`` where that is more."""


class Obstacle(StrEnum):
    """Why a selection cannot be asked again; the values are stable."""

    JOINED = "joined-without-evidence"
    PRUNED = "model-pruned"
    EVIDENCE = "evidence-unreadable"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A selection that cannot be asked again."""

    place: int
    transaction: TxId
    author: AuthorId
    why: Obstacle


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What was asked, and what the ledger's own selector took of it.

    Attributes:
        site: What was published upon the answer.
        request: For a selector.
        taken: Others' tips.
        shortened: Whether the evidence may have left candidates out.
    """

    site: Site
    request: SelectionRequest
    taken: frozenset[TxId]
    shortened: bool = False


def questions(source: LedgerSource, history: History) -> Iterator[Question | Skipped]:
    """All selections; those that were asked at one moment follow one another.

    Raises:
        ReplayError: A model is missing without being pruned, or damaged.
    """
    asked_before: dict[int, list[Site]] = {}
    for site in history.sites:
        is_rebuilt = site.evidence is None and site.previous is not None
        asked_before.setdefault(history.moment(site) if is_rebuilt else site.place, []).append(site)
    rebuilding = _Rebuilding(source, history)
    for latest in history.sites:
        for site in asked_before.pop(latest.place, ()):
            found = _question(source, history, rebuilding, site)
            yield Skipped(site.place, site.node.id, site.node.author, found) if isinstance(found, Obstacle) else found
        rebuilding.add(latest)


def _question(source: LedgerSource, history: History, rebuilding: "_Rebuilding", site: Site) -> Question | Obstacle:
    if site.evidence is not None:
        return _from_evidence(source.attachment(site.evidence), history, site)
    return Obstacle.JOINED if site.previous is None else rebuilding.question(site, site.previous)


def _from_evidence(encoded: bytes | None, history: History, site: Site) -> Question | Obstacle:
    if encoded is None or digest_of(encoded) != site.evidence:
        return Obstacle.EVIDENCE
    policy = history.genesis.policy
    try:
        evidence = parse_evidence(encoded)
        selection = evidence.selection
        taken = frozenset(each.transaction for each in selection.candidates if each.selected)
        offered = sorted(selection.candidates, key=lambda each: each.transaction)
        own_tip, own_newest = _own(selection, evidence.reference, taken, history=history, site=site)
        request = SelectionRequest(
            candidates=tuple(_candidate(history, each.transaction, each.author) for each in offered),
            similarities=np.array([each.similarity for each in offered], dtype=np.float64),
            update_similarities=np.array([each.update_similarity for each in offered], dtype=np.float64),
            genesis_similarity=0.0,  # evidence does not hold it, and no selector reads it
            own_tip=own_tip,
            own_newest=own_newest,
            genesis=history.first.id,
            max_selected=policy.max_parents,
        )
    except (TransactionInvalidError, ValueError, TypeError):
        return Obstacle.EVIDENCE
    return Question(site, request, taken, shortened=len(offered) >= max(_MIN_EVIDENCE, 2 * policy.max_parents))


def _own(
    selection: Selection, reference: TxId | None, taken: frozenset[TxId], *, history: History, site: Site
) -> tuple[TxId | None, TxId | None]:
    """The client's own tip, and its newest transaction, when it asked.

    Evidence shows the tip only where others were taken with it; otherwise it counts as one while nobody had approved
    it when the next one was admitted. That decides whether there is room for one more, and nothing else.
    """
    if selection.parents != site.node.parents:
        raise TransactionInvalidError("the evidence names other parents than the header")
    if selection.source == "parents":
        beside = set(selection.parents) - taken
        if len(beside) > 1:
            raise TransactionInvalidError("the evidence does not say which candidates were taken")
        tip = next(iter(beside), None)
        return tip, tip or reference
    newest = selection.parents[0]
    if newest == history.first.id:
        return None, None
    return (newest if newest == site.previous and site.was_tip else None), newest


def _candidate(history: History, transaction: TxId, author: AuthorId) -> Candidate:
    """One that has never come here has place and depth 0; no selector asks for them."""
    site = history.site(transaction)
    if site is None:
        return Candidate(transaction, author, sequence=0, depth=0)
    return Candidate(site.node.id, site.node.author, site.node.sequence, site.node.depth)


class _Rebuilding:
    """The ledger once more, as it stood at one moment after the other, with the vectors of its tips."""

    def __init__(self, source: LedgerSource, history: History) -> None:
        self._source, self._history = source, history
        genesis = history.genesis
        self._ledger = Ledger(genesis, history.first, genesis_norm=0.0)
        self._tips: TipMatrix | None = None
        self._pruned: set[TxId] = set()
        self._most_rows = genesis.policy.max_candidates + 1 + _SPARE_ROWS

    def add(self, site: Site) -> None:
        """Go on to the next moment."""
        for gone in self._ledger.add(site.node):
            if self._tips is not None:
                self._tips.discard(gone)
            self._pruned.discard(gone)

    def question(self, site: Site, previous: TxId) -> Question | Obstacle:
        """What the author was asked about, now."""
        author = site.node.author
        parents = [found for each in site.node.parents if (found := self._history.site(each)) is not None]
        taken = [each.node for each in parents if each.node.author != author]
        in_its_place = {each.author for each in taken}
        offered = [each for each in self._ledger.candidates(author) if each.author not in in_its_place]
        offered += [Candidate(each.id, each.author, each.sequence, each.depth) for each in taken]
        candidates = tuple(sorted(offered, key=lambda each: each.transaction))
        reference = self._history.site(previous)
        vector = None if reference is None else self._vector(reference.model)
        tips = None if vector is None else self._holding([each.transaction for each in candidates])
        if vector is None or tips is None:
            return Obstacle.PRUNED
        compared = tips.compare(vector, [each.transaction for each in candidates])
        request = SelectionRequest(
            candidates=candidates,
            similarities=compared.models,
            update_similarities=compared.updates,
            genesis_similarity=compared.genesis,
            own_tip=previous if self._ledger.graph.is_tip(previous) else None,
            own_newest=previous,
            genesis=self._history.first.id,
            max_selected=self._history.genesis.policy.max_parents,
        )
        return Question(site, request, frozenset(each.id for each in taken))

    def _holding(self, transactions: list[TxId]) -> TipMatrix | None:
        """The tips' vectors, with all these among them; None where one is pruned."""
        if not self._pruned.isdisjoint(transactions):
            return None
        if self._tips is None:
            header = self._history.first.header
            vector = self._vector(header.model_digest)
            if vector is None:
                raise ReplayError("the genesis model is missing; run: dag-acfl ledger verify")
            self._tips = TipMatrix(vector)
        if len(self._tips) > self._most_rows:
            self._tips.retain({each.transaction for each in self._ledger.front()})
        for transaction in transactions:
            site = self._history.site(transaction)
            if transaction in self._tips or site is None:
                continue
            vector = self._vector(site.model)
            if vector is None:
                self._pruned.add(transaction)
                return None
            self._tips.add(transaction, vector)
        return self._tips

    def _vector(self, digest: Digest) -> Vector32 | None:
        """What is compared of a model; None for a pruned one."""
        genesis = self._history.genesis
        size = self._source.model_size(digest)
        if size is None and self._source.is_pruned(digest):
            return None
        if size != genesis.layout.nbytes:
            raise ReplayError(f"model {digest} is missing or damaged; run: dag-acfl ledger verify")
        data = self._source.read_model(digest, 0, size)
        if digest_of(data) != digest:
            raise ReplayError(f"model {digest} is damaged; run: dag-acfl ledger verify")
        try:
            flat = check_model(genesis.layout, data, max_abs=genesis.policy.max_abs_value)
        except (ModelError, ParameterError) as error:
            raise ReplayError(f"model {digest} is not in order; run: dag-acfl ledger verify") from error
        return similarity_vector(genesis.layout, flat, genesis.similarity_layers).copy()
