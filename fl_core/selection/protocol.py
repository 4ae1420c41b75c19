"""What a tip selector is asked and what it answers.

A selector decides which candidates' models a client is given the average of. It does not decide who is
a candidate (``fl_core.candidates``: updates, the newest of their author, inside the freshness window), does not compute
similarities (``fl_core.similarity``) and does not average (``fl_core.aggregation``). It is a pure
function of its request: same request, same answer, on one build of Rbeast.

Rules that every selector keeps; the contract tests hold each registered one to them:

* the client's own update that is averaged with others', where there is one, is part of the answer and never of the
  ranking;
* ``parents`` is ascending, without repetition, not empty, and at most ``max_selected`` long;
* candidates rank by similarity, falling; equal ones by transaction id, rising;
* when no other client's model is taken the answer's source is ``own``: the client keeps its model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import Any, Literal, Protocol, TypeAlias, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_core.errors import ShapeMismatchError
from fl_core.types import AuthorId, TxId, Vector64

Source: TypeAlias = Literal["parents", "own"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Another client's update that is offered.

    ``sequence`` counts its author's transactions; ``depth`` is its distance from genesis on the longest path.
    """

    transaction: TxId
    author: AuthorId
    sequence: int
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class SelectionRequest:
    """One client's question.

    Attributes:
        candidates: Other clients' updates, strictly ascending by transaction id; may be empty.
        similarities: Cosine similarity of each candidate to the client's model (Eq. 5), shape ``(n,)``.
        update_similarities: The same after the genesis model was subtracted from both, shape ``(n,)``.
        genesis_similarity: Cosine similarity of the client's model to the genesis model.
        own_averaged: The client's newest transaction where it is averaged with those chosen, else None; by the rule
            ``tips`` only while nobody approves it.
        own_newest: The client's newest transaction; None for a client that joins.
        genesis: The ledger's first transaction: the parent of a joiner that keeps its own model.
        max_selected: Most parents of the answer, the client's own included; at least 1.

    Raises:
        ShapeMismatchError: similarities and candidates differ in number.
        ValueError: a caller's mistake: order, repetition, a value that is not finite, the own one among
            the candidates, an own one averaged that is not the own newest, ``max_selected`` below 1.
    """

    candidates: tuple[Candidate, ...]
    similarities: Vector64
    update_similarities: Vector64
    genesis_similarity: float
    own_averaged: TxId | None
    own_newest: TxId | None
    genesis: TxId
    max_selected: int

    def __post_init__(self) -> None:
        count = len(self.candidates)
        for values in (self.similarities, self.update_similarities):
            if values.shape != (count,):
                raise ShapeMismatchError(f"{count} candidates but similarities of shape {values.shape}")
            if not np.isfinite(values).all():
                raise ValueError("similarities must be finite")
        if not np.isfinite(self.genesis_similarity):
            raise ValueError("the similarity to genesis must be finite")
        ids = [each.transaction for each in self.candidates]
        if not all(map(lt, ids, islice(ids, 1, None))):
            raise ValueError("candidates must be strictly ascending by transaction id")
        if self.own_averaged is not None and (self.own_averaged in ids or self.own_averaged != self.own_newest):
            raise ValueError("the own update that is averaged is the own newest and no candidate")
        if self.max_selected < 1:
            raise ValueError("max_selected must be at least 1")

    @property
    def room(self) -> int:
        """How many candidates may be taken beside the own update."""
        return self.max_selected - (self.own_averaged is not None)


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A candidate as ranked: the evidence for taking it or not.

    ``probability`` is the change-point detector's confidence that a new segment starts here; None where
    it was not asked.
    """

    transaction: TxId
    author: AuthorId
    similarity: float
    update_similarity: float
    probability: float | None
    selected: bool


class Ranking(Sequence[RankedCandidate]):
    """Candidates in ranked order, made when they are looked at: of a thousand, evidence keeps the first few dozen.

    Args:
        candidates: As they were asked about; kept as ``asked``.
        similarities: Of each, shape ``(n,)``.
        update_similarities: Likewise.
        order: Positions in ``candidates``, best first, shape ``(n,)``.
        cut: How many of the first are taken.
        probabilities: Of the first few in ranked order, where the detector was asked.
    """

    __slots__ = ("asked", "cut", "order", "probabilities", "similarities", "update_similarities")

    def __init__(
        self,
        candidates: tuple[Candidate, ...],
        similarities: Vector64,
        update_similarities: Vector64,
        *,
        order: NDArray[np.intp],
        cut: int,
        probabilities: Sequence[float] | Vector64 = (),
    ) -> None:
        self.asked: tuple[Candidate, ...] = candidates
        self.similarities: Vector64 = similarities
        self.update_similarities: Vector64 = update_similarities
        self.order: NDArray[np.intp] = order
        self.cut: int = cut
        self.probabilities: Sequence[float] | Vector64 = probabilities

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, place: int) -> RankedCandidate: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[RankedCandidate, ...]: ...

    def __getitem__(self, place: int | slice) -> RankedCandidate | tuple[RankedCandidate, ...]:
        places = range(len(self.order))[place]
        return tuple(map(self._at, places)) if isinstance(places, range) else self._at(places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, Ranking)) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _at(self, place: int) -> RankedCandidate:
        index = self.order[place]
        candidate = self.asked[index]
        return RankedCandidate(
            transaction=candidate.transaction,
            author=candidate.author,
            similarity=float(self.similarities[index]),
            update_similarity=float(self.update_similarities[index]),
            probability=float(self.probabilities[place]) if place < len(self.probabilities) else None,
            selected=place < self.cut,
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """The answer.

    Attributes:
        parents: Transactions that the client's next one approves, ascending by id.
        source: ``parents``: the client trains on the mean of the parents' models. ``own``: it goes on
            with its own model; parents is then its newest transaction or, for a joiner, genesis.
        rule: What decided, in the selector's words, such as ``robust: change point``.
        cut: How many candidates were taken.
        candidates: All candidates in ranked order, with the evidence; immutable.
    """

    parents: tuple[TxId, ...]
    source: Source
    rule: str
    cut: int
    candidates: Sequence[RankedCandidate]

    def __post_init__(self) -> None:
        if not self.parents or not all(map(lt, self.parents, islice(self.parents, 1, None))):
            raise ValueError("parents must be strictly ascending and not empty")


@runtime_checkable
class TipSelector(Protocol):
    """A rule for choosing tips; instances are immutable and safe to share between threads."""

    @property
    def name(self) -> str:
        """The registry's name for this rule."""

    @property
    def params(self) -> Any:
        """The frozen dataclass of its parameters."""

    def choose(self, request: SelectionRequest) -> Selection:
        """Answer one client's question."""
