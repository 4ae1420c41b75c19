"""Models that peers send by what they differ by from one that is here (``fl_core.step_coding``)."""

from contextlib import suppress

from fl_core.dag.transaction import Header
from fl_core.errors import ModelMalformedError
from fl_core.models import Buffer
from fl_core.step_coding import base_of, decode_step
from fl_core.types import Digest
from ledger_server.model_store import ModelCorruptError
from ledger_server.publishing import LedgerService
from ledger_server.store.errors import StoreError


class Unfolding:
    """One server's."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service

    def base(self, header: Header) -> tuple[Digest, Buffer] | None:
        """A model that is here and likely to be near to an update's: its author's newest, else that of a parent.

        None where there is none. For a thread: it may have to be read.
        """
        service = self._service
        with service.lock:
            newest = service.node.graph.newest_of(header.author)
            parents = [parent for parent in header.parents if parent in service.ledger]
            nodes = [] if newest is None else [newest]
            nodes += service.node.nodes_of(parents)
        for node in nodes:
            with suppress(ModelCorruptError, StoreError):
                if (found := service.models.get(node.model_digest)) is not None:
                    return node.model_digest, found
        return None

    def whole(self, coded: bytes, base: tuple[Digest, Buffer]) -> Buffer | None:
        """What a peer has sent, whole, yet to be hashed; None where it is no model coded by this base."""
        try:
            if base_of(coded) != base[0]:
                return None
            return decode_step(self._service.genesis.layout, coded, base[1])
        except ModelMalformedError:
            return None
