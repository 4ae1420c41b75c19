"""One virtual ledger server: a ledger, and the vectors of the tips that it can offer.

What ``ledger_server`` does between a request and its database, without either: the same ``Ledger``, the same
``TipMatrix``, the same question to the selector.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from fl_core.dag.genesis import Genesis
from fl_core.dag.transaction import Transaction
from fl_core.ledger import Admitted, Ledger, WaitingForParents
from fl_core.models import similarity_vector
from fl_core.selection import SelectionRequest
from fl_core.similarity import TipMatrix
from fl_core.types import AuthorId, TxId, Vector32
from fl_simulator.ledgers.record import Publication, Record

_transaction_of: Final = attrgetter("transaction")


class Replica:
    """One server's state.

    Args:
        genesis: The rules.
        first: The genesis transaction with the initial model.
    """

    def __init__(self, genesis: Genesis, first: Publication) -> None:
        self.ledger = Ledger(genesis, first.transaction, genesis_norm=first.norm)
        self._tips = TipMatrix(self._compared(genesis, first.vector))
        self._waiting: dict[TxId, tuple[Transaction, float, Vector32 | None]] = {}

    @staticmethod
    def _compared(genesis: Genesis, vector: Vector32) -> Vector32:
        return similarity_vector(genesis.layout, vector, genesis.similarity_layers)

    def admit(self, publication: Publication) -> None:
        """Take a transaction in, or keep it until its parents have come.

        Raises:
            TransactionError, ModelNormError: The ledger's rules refuse it.
        """
        self._admit(publication.transaction, publication.norm, publication.vector)

    def replay(self, arrivals: Sequence[TxId], record: Record) -> None:
        """Take in again what came before, in its order; of models, those that are still kept."""
        for identity in arrivals:
            self._admit(record.transaction(identity), record.norm(identity), record.get(identity))

    def _admit(self, transaction: Transaction, norm: float, vector: Vector32 | None) -> None:
        answer = self.ledger.review(transaction.id, transaction.header, norm=norm)
        if isinstance(answer, WaitingForParents):
            self._waiting[transaction.id] = (transaction, norm, vector)
        elif isinstance(answer, Admitted):
            for gone in self.ledger.add(answer.node):
                self._tips.discard(gone)
            if vector is not None and self.ledger.is_eligible(answer.node.id):
                self._tips.add(answer.node.id, self._compared(self.ledger.genesis, vector))
            self._waiting.pop(answer.node.id, None)
            for other in [each for each in self._waiting.values() if answer.node.id in each[0].header.parents]:
                self._admit(*other)

    def questions(self, authors: Sequence[AuthorId], vectors: Sequence[Vector32]) -> list[SelectionRequest]:
        """What the selector is asked for several clients, all on the ledger as it is now.

        Args:
            authors: The clients, known here or not; at least one.
            vectors: The newest model of each, shape ``(P,)``.
        """
        ledger = self.ledger
        offered = [ledger.candidates(author) for author in authors]
        tips = [[*map(_transaction_of, candidates)] for candidates in offered]
        compared = [self._compared(ledger.genesis, vector) for vector in vectors]
        if len(compared) == 1:  # gathering the tips' rows would cost more than multiplying all
            found = [self._tips.compare(compared[0], tips[0])]
        else:
            found = self._tips.compare_many(np.stack(compared), tips)
        return [
            SelectionRequest(
                candidates=candidates,
                similarities=similarities.models,
                update_similarities=similarities.updates,
                genesis_similarity=similarities.genesis,
                own_tip=ledger.own_tip(author),
                own_newest=None if (newest := ledger.graph.newest_of(author)) is None else newest.id,
                genesis=ledger.id,
                max_selected=ledger.genesis.policy.max_parents,
            )
            for author, candidates, similarities in zip(authors, offered, found, strict=True)
        ]

    def wanted(self) -> set[TxId]:
        """Transactions whose models this server still needs: what it can offer, and what waits."""
        eligible = {each.id for each in self.ledger.graph.tip_nodes() if self.ledger.is_eligible(each.id)}
        return eligible | self._waiting.keys()
