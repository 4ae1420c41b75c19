"""One replica of a ledger: its rules, its graph, and the vectors of what can be chosen.

Everything that a ledger server decides, without its database, sockets and clock: time, randomness and vectors are
arguments. ``ledger_server`` adds a store and a lock, ``fl_simulator`` delays and a thousand clients.

    node = LedgerNode(genesis, genesis_transaction, vector)
    draft = node.prepare(publication, model, now_ms=now_ms)      # every rule
    figures = Figures(model_norm(vector), step_from(average, vector, layout=…), node.shares(parents))
    node.admit(transaction, node.compared(vector), figures=figures)  # Admitted | AlreadyKnown | WaitingForParents
    request = node.question("key:…", node.compared(vector))      # SelectionRequest | VectorsMissing
    node.parents_to_average(selector.choose(request))

A vector is what of a model is compared (``compared``). A replica holds those of the updates that can be offered now;
where one lacks, ``question`` names it, and the caller brings it.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Final

import numpy as np

from fl_core.aggregation import AGGREGATORS
from fl_core.aggregation.model import model_weights, shares_of
from fl_core.candidates import CANDIDATE_RULES, CandidateRule
from fl_core.dag.acts import Effect
from fl_core.dag.admission import NORM_SLACK, check_publication
from fl_core.dag.author import shown_author
from fl_core.dag.author_list import AuthorList
from fl_core.dag.building import UnsignedTransaction, build_update
from fl_core.dag.figures import Figures
from fl_core.dag.genesis import Genesis, check_supported
from fl_core.dag.graph import Node, Nodes
from fl_core.dag.transaction import Transaction, verify_author
from fl_core.errors import (
    AuthorRefusedError,
    DigestMismatchError,
    ParentsError,
    ParentsUnknownError,
    SelectionUnknownError,
    TransactionInvalidError,
)
from fl_core.ledger import Admitted, AlreadyKnown, Ledger, WaitingForParents
from fl_core.models import model_norm, similarity_vector
from fl_core.selection.evidence import LED_BACK_FROM, Evidence, TooFew
from fl_core.selection.parents import check_parents
from fl_core.selection.protocol import Candidate, Selection, SelectionRequest, TipSelector
from fl_core.similarity import CandidateVectors, LatestVectors, RowFile
from fl_core.sketch import Sketch
from fl_core.trust.offering import Offering
from fl_core.trust.quarantine import NO_QUARANTINE, Quarantine
from fl_core.types import AuthorId, Digest, TxId, Vector32

_MIN_SPARE_ROWS: Final = 64
_MIN_EVIDENCE: Final = 32

_transaction_of: Final = attrgetter("transaction")
NO_NODES: Final[Mapping[TxId, Node]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a client wants to publish; None where the node fills in.

    Attributes:
        num_examples: What the model was trained on.
        selection: Id of the selection that led to the model, or whose average was refused.
        parents: The updates that the model was averaged from, ascending; None: those of the selection.
        start: Digest of the model that training began from; None: the selection's aggregate, or the only parent's.
        noise_std: Standard deviation of the noise that was added to each value.
        metrics: Up to 32 numbers by name.
        extensions: Up to 16 values by name, kept as they are.
        secret: The author's, where it has no key.
        author: A public key, or the digest of ``secret``; None: that.
        sequence: The author's own count; None: the next.
        created_at_ms: By the author's clock; None: now.
        signature: The author's, of the transaction's id.
        claimed_id: The id that the client computed.
        claimed_model: The model's digest that the client computed.
    """

    num_examples: int
    selection: Digest | None = None
    parents: tuple[TxId, ...] | None = None
    start: Digest | None = None
    noise_std: float = 0.0
    metrics: Mapping[str, float] | None = None
    extensions: Mapping[str, bytes] | None = None
    secret: str | None = None
    author: AuthorId | None = None
    sequence: int | None = None
    created_at_ms: int | None = None
    signature: bytes | None = None
    claimed_id: TxId | None = None
    claimed_model: Digest | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a header and the rules ask of a model that has passed the gate: digest, size in bytes, figures."""

    digest: Digest
    size: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class Draft:
    """A publication that every rule allows.

    Attributes:
        unsigned: The transaction to be.
        node: Its place in the DAG.
        is_known: It is part of the ledger already.
    """

    unsigned: UnsignedTransaction
    node: Node
    is_known: bool


@dataclass(frozen=True, slots=True)
class VectorsMissing:
    """The question cannot be put yet: these updates' vectors must be brought, or said to be damaged."""

    transactions: tuple[TxId, ...]


_MOST_NEAR: Final = 256
"""Models that a new one is held beside, so that publishing costs no more as authors come."""


class LedgerNode:
    """One replica's state; not safe for concurrent use, its owner locks.

    Args:
        genesis: The agreed rules.
        transaction: The genesis transaction.
        model: The genesis model, shape ``(P,)``.
        nodes: Where all but the newest are looked up; None: in memory.
        file: Where what is compared of the models is kept, but for the first thousand; None: in memory.

    Raises:
        GenesisError: Transaction and document do not belong together.
    """

    def __init__(
        self,
        genesis: Genesis,
        transaction: Transaction,
        model: Vector32,
        *,
        nodes: Nodes | None = None,
        file: RowFile | None = None,
    ) -> None:
        check_supported(genesis)
        self.genesis = genesis
        self.ledger: Ledger = Ledger(genesis, transaction, genesis_norm=model_norm(model), nodes=nodes)
        self.graph = self.ledger.graph
        self.offering: Offering = Offering(self.graph, NO_QUARANTINE, max_taint=genesis.bounds.max_taint)
        self.candidate_rule: CandidateRule = CANDIDATE_RULES[genesis.candidates.name](self.graph, genesis)
        self.id: TxId = transaction.id
        self._num_compared = sum(piece.stop - piece.start for piece in genesis.layout.slices(genesis.compared))
        self._sketch = _sketch_of(genesis, self._num_compared)
        self._vectors = CandidateVectors(
            self.compared(model), num_values=self._num_compared, seed=int(self.id[:16], 16), file=file
        )
        most = genesis.bounds.max_candidates + 1
        # More than can be offered at once: updates that fell behind may be offered again, and are dropped together.
        self._most_vectors = most + max(_MIN_SPARE_ROWS, most // 4)
        self._damaged: set[TxId] = set()
        self._aggregator = AGGREGATORS.build(genesis.aggregator.name, genesis.aggregator.params)

    @property
    def compares_sketches(self) -> bool:
        """Whether what is compared of a model is not a part of it."""
        return self._sketch is not None

    def compared(self, model: Vector32) -> Vector32:
        """What of a model is compared, shape ``(d,)``; may be a view of it.

        Args:
            model: All its values, shape ``(P,)``.
        """
        vector = similarity_vector(self.genesis.layout, model, self.genesis.compared)
        return vector if self._sketch is None else self._sketch.of(vector)

    def shares(self, parents: Sequence[TxId], *, beside: Mapping[TxId, Node] = NO_NODES) -> tuple[float, ...]:
        """What each parent, ascending, can have of their average (``Figures.shares``): headers say it, models or not.

        Args:
            parents: Part of the ledger, or among those beside it.
            beside: What is about to be part of it.

        Raises:
            KeyError: A parent is not part of the ledger.
            PartFailedError: The ledger's aggregator is another package's, and raised something.
        """
        return shares_of(self.genesis, self._aggregator, [node.num_examples for node in self.nodes_of(parents, beside)])

    # -- publishing ---------------------------------------------------------------------------------

    def prepare(
        self,
        publication: Publication,
        model: ModelFacts,
        *,
        evidence: Evidence | None = None,
        now_ms: int,
        verified: TxId | None = None,
    ) -> Draft:
        """Make a transaction of a publication, and ask every rule.

        Args:
            publication: What the client says.
            model: Its model, which has passed the gate.
            evidence: Of the selection that the publication names.
            now_ms: The clock, milliseconds since 1970 UTC.
            verified: An id whose author's signature this node has verified before.

        Raises:
            TransactionError, ModelNormError, StepTooLongError, SelectionUnknownError, AuthorRefusedError: A rule is
                broken.
        """
        parents = publication.parents
        if parents is None:
            if evidence is None:
                raise TransactionInvalidError("send selection or parents")
            parents = evidence.selection.parents
        author = shown_author(publication.author, secret=publication.secret)
        if evidence is not None and evidence.ledger != self.id:
            raise SelectionUnknownError("the selection is of another ledger")
        newest = self.graph.newest_of(author)
        following = 0 if newest is None else newest.sequence + 1
        unsigned = build_update(
            ledger=self.id,
            author=author,
            sequence=following if publication.sequence is None else publication.sequence,
            created_at_ms=now_ms if publication.created_at_ms is None else publication.created_at_ms,
            num_examples=publication.num_examples,
            start=self._start_of(publication, evidence),
            model_digest=model.digest,
            model_size=model.size,
            parents=parents,
            evidence=None if evidence is None else publication.selection,
            noise_std=publication.noise_std,
            metrics=publication.metrics,
            extensions=publication.extensions,
        )
        if publication.claimed_id not in (None, unsigned.id):
            raise DigestMismatchError(
                "id is not that of the transaction as this server builds it",
                claimed=publication.claimed_id or "",
                computed=unsigned.id,
            )
        if unsigned.id != verified:
            verify_author(unsigned.header, unsigned.id, publication.signature, keys_only=self.genesis.keys_only)
        answer = self.ledger.review(unsigned.id, unsigned.header, figures=model.figures, slack=0.0)
        if isinstance(answer, WaitingForParents):
            raise ParentsUnknownError("parents are not known here; ask for a selection", missing=answer.missing)
        if isinstance(answer, Admitted):
            check_parents(unsigned.header, evidence)
            check_publication(unsigned.header, node=answer.node, graph=self.graph, genesis=self.genesis)
            if author in self.offering.quarantine.erased:
                raise AuthorRefusedError("the members have erased this author's models; it publishes no more")
        return Draft(unsigned, answer.node, is_known=isinstance(answer, AlreadyKnown))

    def _start_of(self, publication: Publication, evidence: Evidence | None) -> Digest:
        """The model that training began from, where the client leaves it out."""
        if publication.start is not None:
            return publication.start
        if evidence is not None:
            return evidence.aggregate
        parents = publication.parents or ()
        if len(parents) != 1:
            raise ParentsError("without a single parent, say with start which model training began from")
        parent = self.graph.get(parents[0])
        if parent is None:
            raise ParentsUnknownError("parents are not known here; ask for a selection", missing=parents)
        return parent.model_digest

    # -- admitting ----------------------------------------------------------------------------------

    def admit(
        self, transaction: Transaction, vector: Vector32 | None, *, figures: Figures, slack: float = NORM_SLACK
    ) -> Admitted | WaitingForParents | AlreadyKnown:
        """Add a transaction whose signatures and payload were checked, and hold its vector while it can be offered.

        Args:
            transaction: From this node's own draft, from a peer, or from a journal.
            vector: What is compared of its model; None where the model is not here.
            figures: Of its model.
            slack: Relative slack of the norm rule.

        Raises:
            TransactionError, ModelNormError: A rule is broken; nothing has changed.
        """
        answer = self.ledger.review(
            transaction.id, transaction.header, figures=figures, receipt=transaction.receipt, slack=slack
        )
        if isinstance(answer, Admitted):
            self._add(answer.node)
            if vector is not None:
                self.bring(transaction.id, vector)
        return answer

    def restore(self, node: Node) -> None:
        """Add an update of which every rule was asked already, as of those in this ledger's journal."""
        self._add(node)

    def go_by(self, effect: Effect, authors: AuthorList, quarantine: Quarantine = NO_QUARANTINE) -> None:
        """Go by what the acts come to: whose receipts make ledger time, who may publish, and what is withheld.

        Where only the list of authors is otherwise now, the authors concerned are looked at again. Else what can be
        offered is found anew, and the whole ledger walked through where something is quarantined.
        """
        graph = self.graph
        before, concerned = (graph.now_ms, graph.members), authors.differing(graph.author_list)
        graph.author_list = self.offering.graph.author_list = authors
        graph.go_by_members(effect.members)
        is_same_time = (graph.now_ms, graph.members) == before
        if is_same_time and concerned is not None and self.offering.take_if_same(quarantine):
            for author in concerned:
                self._let_go(self.candidate_rule.reconsider(author))
            return
        self.offer_anew(quarantine)

    def offer_anew(self, quarantine: Quarantine) -> None:
        """Find what can be offered while this is withheld, of the whole ledger as it is."""
        self.offering = Offering(self.graph, quarantine, max_taint=self.genesis.bounds.max_taint)
        self.candidate_rule = CANDIDATE_RULES[self.genesis.candidates.name](self.offering.graph, self.genesis)
        for node in self.offering.graph.newest_nodes():
            self.candidate_rule.admit(node)
        self._vectors.retain(self.eligible)
        self._damaged &= self.eligible

    def _add(self, node: Node) -> None:
        self.graph.add(node)
        if self.offering.admit(node):
            self._let_go(self.candidate_rule.admit(node))

    def _let_go(self, retired: Sequence[TxId]) -> None:
        for each in retired:
            self._vectors.discard(each)
            self._damaged.discard(each)

    def bring(self, transaction: TxId, vector: Vector32) -> None:
        """Hold the vector of an update, if it can still be offered.

        Args:
            transaction: One that ``VectorsMissing`` named.
            vector: What is compared of its model.
        """
        if transaction in self.eligible:
            self._damaged.discard(transaction)
            (node,) = self.nodes_of([transaction])
            self._vectors.add(transaction, vector, noise_std=node.noise_std)
            if len(self._vectors) > self._most_vectors:
                self._vectors.retain(self.candidate_rule.front().keys())

    def mark_damaged(self, transaction: TxId) -> None:
        """Offer this update to nobody until its vector is brought: its model cannot be read."""
        if transaction in self.eligible:
            self._vectors.discard(transaction)
            self._damaged.add(transaction)

    # -- selecting ----------------------------------------------------------------------------------

    def question(
        self, author: AuthorId | None, vector: Vector32, *, noise_std: float = 0.0
    ) -> SelectionRequest | VectorsMissing:
        """What a selector is asked for one client, on the ledger as it is now.

        Args:
            author: The client; None for one that has not published yet.
            vector: What is compared of its model.
            noise_std: Of the noise in each of its values, as the update declares that it asks with.
        """
        answer = self.questions([author], [vector], noise_stds=[noise_std])
        return answer if isinstance(answer, VectorsMissing) else answer[0]

    def questions(
        self,
        authors: Sequence[AuthorId | None],
        vectors: Sequence[Vector32],
        *,
        noise_stds: Sequence[float] | None = None,
    ) -> list[SelectionRequest] | VectorsMissing:
        """As ``question``, for several clients at once."""
        if len(self.candidate_rule.front()) > self.genesis.bounds.max_compared:
            offered = self._shortlists(authors, vectors)
        else:
            offered = [self.candidate_rule.candidates(author) for author in authors]
        if isinstance(offered, VectorsMissing):
            return offered
        if self._damaged:
            offered = [tuple(each for each in those if each.transaction not in self._damaged) for those in offered]
        ids = [[*map(_transaction_of, candidates)] for candidates in offered]
        try:
            found = self._vectors.compare(np.stack(vectors), ids, noise_stds=noise_stds)
        except KeyError:  # to look for each of a thousand beforehand would cost as much as the answer
            missing = self.missing_vectors()
            assert missing, "what is offered and not damaged has a vector, or lacks it"
            return VectorsMissing(missing)
        newest = [None if author is None else self.offering.graph.newest_of(author) for author in authors]
        return [
            SelectionRequest(
                candidates=candidates,
                similarities=similarities.models,
                update_similarities=similarities.updates,
                genesis_similarity=similarities.genesis,
                own_averaged=None if own is None else self.candidate_rule.own(own.author),
                own_newest=None if own is None else own.id,
                genesis=self.id,
                max_selected=self.genesis.bounds.max_parents,
            )
            for own, candidates, similarities in zip(newest, offered, found, strict=True)
        ]

    def _shortlists(
        self, authors: Sequence[AuthorId | None], vectors: Sequence[Vector32]
    ) -> list[tuple[Candidate, ...]] | VectorsMissing:
        """What each is compared with, where more is offered than is compared: all vectors are to be here for that."""
        front = self.candidate_rule.front()
        held = len(self._vectors) + len(self._damaged)
        if not held == len(front) == len(self.eligible) and (missing := self.missing_vectors()):
            return VectorsMissing(missing)
        # And as many as are held, but not offered: the asker's own, and what has fallen behind.
        most = self.genesis.bounds.shortlist + held - len(front) + 2
        return [
            self.candidate_rule.candidates(author, nearest=self._vectors.nearest(vector, most))
            for author, vector in zip(authors, vectors, strict=True)
        ]

    def latest(self) -> LatestVectors | None:
        """The vectors of the models that came last, among which a copied one is looked for; some of many.

        None where there are none, or where less than all that is trained is compared.
        """
        compares_all = self.genesis.comparison.name in ("all", "sketch")
        return self._vectors.latest(_MOST_NEAR) if compares_all and len(self._vectors) else None

    def distance(self, vector: Vector32, transaction: TxId) -> float | None:
        """How far what is compared of a model lies from an update's; None where that is not offered any more."""
        return self._vectors.distance(vector, transaction)

    def compared_for(self, asked: Node) -> Node:
        """The update whose model stands for the one that an author asks with.

        That one, unless it is withheld: then the author's newest that is not, or genesis, from which it begins anew.
        """
        if not self.offering.withholds(asked):
            return asked
        return self.offering.graph.newest_of(asked.author) or self.graph.genesis

    def missing_vectors(self) -> tuple[TxId, ...]:
        """What can be offered now and has no vector here, less what is known to be damaged."""
        return tuple(
            each for each in self.candidate_rule.front() if each not in self._vectors and each not in self._damaged
        )

    def parents_to_average(self, selection: Selection) -> tuple[TxId, ...]:
        """The updates from whose average the asker goes on.

        One: its model as it is. None: the asker keeps the model that it asked with, since it has no update yet.
        """
        return () if selection.parents == (self.id,) else selection.parents

    def nodes_of(self, transactions: Sequence[TxId], beside: Mapping[TxId, Node] = NO_NODES) -> list[Node]:
        """Each update's place in the DAG, its model's digest and what it was trained on.

        Raises:
            KeyError: One is neither part of the ledger nor ``beside`` it.
        """
        found: list[Node] = []
        for each in transactions:
            if (node := beside.get(each) or self.graph.get(each)) is None:
                raise KeyError(each)
            found.append(node)
        return found

    def evidence(
        self,
        selection: Selection,
        *,
        selector: TipSelector,
        author: AuthorId | None,
        reference: TxId | None,
        reference_model: Digest,
        aggregate: Digest,
        led_back_from: TxId | None = None,
    ) -> Evidence:
        """What is kept of a selection: of the candidates, those that were taken, and as many that came next.

        Args:
            selection: The outcome.
            selector: What chose.
            author: Who asked; None for one that has not published yet.
            reference: The update that was asked with; None where the client sent its model.
            reference_model: Digest of the client's model.
            aggregate: Digest of the resulting model.
            led_back_from: The update that was asked with, where it is withheld and ``reference``, or genesis where that
                is None, stands for it.
        """
        kept = max(_MIN_EVIDENCE, 2 * selection.cut)
        models = 0 if selection.source == "own" else len(selection.parents)
        weights: tuple[float, ...] = ()
        if models and self.genesis.aggregator.name == "fedavg":
            counts = model_weights(self.genesis, [node.num_examples for node in self.nodes_of(selection.parents)])
            weights = tuple(count / sum(counts) for count in counts)
        return Evidence(
            ledger=self.id,
            author=author,
            reference=reference,
            reference_model=reference_model,
            selector=selector.name,
            params=asdict(selector.params),
            selection=replace(selection, candidates=selection.candidates[:kept]),
            weights=weights,
            too_few=TooFew(models, self._aggregator.min_models) if 0 < models < self._aggregator.min_models else None,
            aggregate=aggregate,
            aggregate_size=self.genesis.layout.nbytes,
            extensions={} if led_back_from is None else {LED_BACK_FROM: led_back_from},
        )

    @property
    def eligible(self) -> AbstractSet[TxId]:
        """The updates that are offered, or would be if there were room: their models are still needed."""
        return self.candidate_rule.eligible


def _sketch_of(genesis: Genesis, size: int) -> Sketch | None:
    """What folds the ``size`` compared values, where genesis says so."""
    if genesis.comparison.name != "sketch":
        return None
    params = genesis.comparison.params
    return Sketch(size, dimensions=int(params["dimensions"]), seed=int(params["seed"]))
