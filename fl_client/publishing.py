"""Publishing a trained model so that a kill at any moment, or a server that forgot, loses nothing.

What is sent is written down first. Where a server refuses it for reasons that another header mends, the header is
corrected and the same model sent again: its training is worth more than the selection that led to it.
"""

from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from fl_client.client import LedgerClient
from fl_client.state import ParticipantState
from fl_core.dag.transaction import Header, transaction_id
from fl_core.errors import (
    DagAcflError,
    ModelError,
    ModelPrunedError,
    ParentsStaleError,
    ParentsUnknownError,
    SelectionUnknownError,
    SequenceConflictError,
    TransactionError,
    TransactionUnknownError,
    UnknownError,
)
from fl_core.models import Buffer
from fl_core.trust.contribution import without_contributions
from fl_core.trust.refusal import refused_in
from fl_core.types import ZERO_ID, Digest, TxId
from fl_core.wire.v1 import SelectionOut

_MAX_CORRECTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """A publication that is in the ledger.

    Attributes:
        header: What was published, corrected where that was needed.
        created: False when a server had it already.
        server: Address of the server that acknowledged it; None when it was found published after a refusal.
    """

    header: Header
    created: bool
    server: str | None


class Publisher:
    """Publishes for one participant.

    Attributes:
        coded: As for ``LedgerClient.publish``.
    """

    def __init__(self, client: LedgerClient, state: ParticipantState) -> None:
        self._client, self._state = client, state
        self.coded = False

    def resume(self, header: Header, model: Buffer) -> Outcome:
        """Go on with the publication that an earlier run left written down."""
        if (evidence := self._state.evidence()) is not None:
            self._client.bring(evidence)
        return self.publish(header, model)

    def publish(self, header: Header, model: Buffer) -> Outcome:
        """Write a publication down and send it until it is in the ledger.

        Raises:
            TransportError: No server could be used; the publication stays written down.
            ModelError, TransactionError, UnknownError: The ledger refuses it, and no correction helps; it is forgotten.
        """
        for corrections in count():
            self._state.begin(header, model, evidence=self._client.evidence(header.attachment_digest))
            try:
                published = self._client.publish_header(header, model, coded=self.coded)
            except (ModelError, TransactionError, UnknownError) as refusal:
                if self._is_known(header):
                    outcome = Outcome(header, created=False, server=None)
                    break
                # Where no server can be asked again this raises, and the publication stays written down.
                corrected = self._corrected(header, model, refusal) if corrections < _MAX_CORRECTIONS else None
                if corrected is None:
                    self._state.abandon()
                    raise
                header = corrected
            else:
                outcome = Outcome(header, published.created, published.server)
                break
        self._state.finish(header)
        return outcome

    def _is_known(self, header: Header) -> bool:
        """Whether a server holds the transaction already: one that lacks its selection refuses it for that."""
        try:
            self._client.transaction(transaction_id(header.encode()))
        except TransactionUnknownError:
            return False
        return True

    def _corrected(self, header: Header, model: Buffer, refusal: DagAcflError) -> Header | None:
        """Another header for the same model; None where none would help."""
        if isinstance(refusal, SequenceConflictError):
            following = refusal.next_sequence
            return replace(header, sequence=following) if following != header.sequence else None
        if isinstance(refusal, UnknownError | ParentsStaleError | ParentsUnknownError):
            if refused_in(header) and isinstance(refusal, SelectionUnknownError):
                return replace(header, attachment_digest=Digest(ZERO_ID))
            if header.attachment_digest == ZERO_ID or refused_in(
                header
            ):  # an average was refused, and is not to be a parent after all
                alone = (header.ledger,)
                return replace(header, parents=alone) if header.parents != alone else None
            selection = select_by_hash(self._client, self._state) or self._client.select(model=model)
            parents = tuple(TxId(parent) for parent in selection.parents)
            metrics = without_contributions(header.metrics)  # which refer to the parents that were
            return replace(header, parents=parents, attachment_digest=Digest(selection.id), metrics=metrics)
        return None


def select_by_hash(client: LedgerClient, state: ParticipantState) -> SelectionOut | None:
    """A selection for the own newest transaction; None before the first, and where no server can use it any more."""
    newest = state.enter(client.genesis().ledger).transaction
    if newest is None:
        return None
    try:
        return client.select(transaction=newest)
    except (TransactionUnknownError, ModelPrunedError):
        return None
