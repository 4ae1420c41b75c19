"""Version 1 of what servers say to one another over HTTP: routes and JSON bodies.

Transactions, announcements and models travel as bytes (``docs/protocol.md``, "Between servers"). Every request is
signed by the server that makes it.
"""

from typing import Annotated, Final

from pydantic import Field

from fl_core.sync.messages import MAX_CHANGES, MAX_IDS_PER_CALL
from fl_core.types import Digest
from fl_core.wire.v1 import Answer, Count, HexId, PeerOut, Request

MAX_PEERS_SHOWN: Final = 1000
MAX_MODELS_PER_CALL: Final = 64

ANNOUNCEMENTS: Final = "/v1/gossip/announcements"
CHANGES: Final = "/v1/gossip/changes"
TRANSACTIONS: Final = "/v1/gossip/transactions"
MODELS: Final = "/v1/gossip/models"
MODEL: Final = "/v1/gossip/models/{digest}"
SUMMARY: Final = "/v1/gossip/summary"
ACTS: Final = "/v1/gossip/acts"
CHECKPOINT: Final = "/v1/gossip/checkpoint"
RECONCILIATION: Final = "/v1/gossip/reconciliation"
PEERS: Final = "/v1/gossip/peers"


def model_path(digest: Digest) -> str:
    """Where a peer has a model."""
    return MODEL.format(digest=digest)


class PeersSeenOut(Answer):
    """How many transactions a server holds, and its peers as it sees them."""

    transactions: Count
    items: Annotated[list[PeerOut], Field(max_length=MAX_PEERS_SHOWN)]


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
