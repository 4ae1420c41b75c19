"""One virtual ledger server: the core's node, and a wait for parents that are still on their way."""

from collections.abc import Sequence

from fl_core.dag.figures import Figures
from fl_core.dag.genesis import Genesis
from fl_core.dag.transaction import Transaction
from fl_core.ledger import Admitted, WaitingForParents
from fl_core.node import LedgerNode, VectorsMissing
from fl_core.selection import SelectionRequest
from fl_core.types import AuthorId, TxId, Vector32
from fl_simulator.ledgers.record import Record, RecordedUpdate


class VirtualServer:
    """A node that receives transactions in any order.

    Args:
        genesis: The rules.
        first: The genesis transaction with the initial model.
    """

    def __init__(self, genesis: Genesis, first: RecordedUpdate) -> None:
        self.node: LedgerNode = LedgerNode(genesis, first.transaction, first.vector)
        self.arrivals: list[TxId] = []
        """All that was received, in order, waiting or admitted."""
        self._waiting: dict[TxId, tuple[Transaction, Vector32 | None, Figures]] = {}

    def receive(self, transaction: Transaction, model: Vector32 | None, figures: Figures) -> None:
        """Admit a transaction and all that has waited for it, or let it wait for its parents.

        Args:
            transaction: Its signatures are those of this simulation's clients and servers.
            model: Shape ``(P,)``; None when it has been dropped.
            figures: The model's.

        Raises:
            TransactionError, ModelNormError: The ledger's rules refuse it.
        """
        came = [(transaction, model, figures)]
        while came:
            each, model, figures = came.pop()
            vector = None if model is None else self.node.compared(model)
            answer = self.node.admit(each, vector, figures=figures)
            if isinstance(answer, WaitingForParents):
                self._waiting[each.id] = each, model, figures
            elif isinstance(answer, Admitted):
                self._waiting.pop(each.id, None)
                came += [late for late in reversed(self._waiting.values()) if each.id in late[0].header.parents]
        self.arrivals.append(transaction.id)

    def questions(
        self, authors: Sequence[AuthorId | None], models: Sequence[Vector32], record: Record
    ) -> list[SelectionRequest]:
        """What the selector is asked for several clients, on the ledger as it is now.

        Args:
            authors: The clients, known here or not, None for who begins anew; at least one.
            models: The newest model of each, shape ``(P,)``.
            record: Where models are that fell behind and can be offered again.
        """
        vectors = [self.node.compared(model) for model in models]
        while isinstance(requests := self.node.questions(authors, vectors), VectorsMissing):
            for missing in requests.transactions:
                self.node.bring(missing, self.node.compared(record.vector(missing)))
        return requests

    def wanted(self) -> set[TxId]:
        """Transactions whose models this server still needs: what it can offer, and what waits."""
        return {*self.node.eligible, *self._waiting}
