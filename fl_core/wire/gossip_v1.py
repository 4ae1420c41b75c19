"""Version 1 of what servers say to one another over HTTP: routes and JSON bodies.

Transactions and models travel as bytes (``docs/protocol.md``, "Between servers"); everything here is small. Every
request is signed by the server that makes it.
"""

from typing import Annotated, Final

from pydantic import Field

from fl_core.dag.transaction import MAX_PARENTS
from fl_core.sync.messages import MAX_CHANGES, MAX_IDS_PER_CALL, Announcement
from fl_core.types import AuthorId, Digest, TxId
from fl_core.wire.v1 import Answer, Author, Count, HexId, Request

MAX_MODELS_PER_CALL: Final = 64

ANNOUNCEMENTS: Final = "/v1/gossip/announcements"
CHANGES: Final = "/v1/gossip/changes"
TRANSACTIONS: Final = "/v1/gossip/transactions"
TRANSACTION: Final = "/v1/gossip/transactions/{transaction}"
MODELS: Final = "/v1/gossip/models"
MODEL: Final = "/v1/gossip/models/{digest}"
CHECKPOINT: Final = "/v1/gossip/checkpoint"
RECONCILIATION: Final = "/v1/gossip/reconciliation"


def path_of(transaction: TxId) -> str:
    """Where a peer says whether it holds a transaction."""
    return TRANSACTION.format(transaction=transaction)


def model_path(digest: Digest) -> str:
    """Where a peer has a model."""
    return MODEL.format(digest=digest)


class AnnouncementMessage(Request):
    """A server holds this transaction."""

    id: HexId
    parents: Annotated[list[HexId], Field(max_length=MAX_PARENTS)]
    model_digest: HexId
    model_size: Count
    author: Author
    attachment_digest: HexId

    @classmethod
    def of(cls, announcement: Announcement) -> "AnnouncementMessage":
        """An announcement as it travels."""
        return cls(
            id=announcement.id,
            parents=list(announcement.parents),
            model_digest=announcement.model_digest,
            model_size=announcement.model_size,
            author=announcement.author,
            attachment_digest=announcement.attachment_digest,
        )

    def announcement(self) -> Announcement:
        """An announcement as it is handled."""
        return Announcement(
            TxId(self.id),
            tuple(map(TxId, self.parents)),
            Digest(self.model_digest),
            self.model_size,
            AuthorId(self.author),
            Digest(self.attachment_digest),
        )


class TransactionsRequest(Request):
    """Transactions that a server asks for."""

    ids: Annotated[list[HexId], Field(min_length=1, max_length=MAX_IDS_PER_CALL)]


class ModelsRequest(Request):
    """Small models that a server asks for together."""

    digests: Annotated[list[HexId], Field(min_length=1, max_length=MAX_MODELS_PER_CALL)]


class ChangesOut(Answer):
    """Ids in the order in which they came to the server; ``next`` asks for what follows."""

    ids: Annotated[list[HexId], Field(max_length=MAX_CHANGES)]
    next: Annotated[str, Field(max_length=256)]
    more: bool
