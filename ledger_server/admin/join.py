"""A further server of a ledger: genesis taken from where the ledger is already, proven before it is stored.

Everything else comes by gossip from the peers, each transaction checked as it arrives. Genesis cannot: it is what a
ledger is recognised by, so a person says where to take it from, and may say its id.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from fl_core.dag.figures import Figures
from fl_core.dag.genesis import parse_genesis
from fl_core.dag.transaction import Transaction
from fl_core.errors import DagAcflError
from fl_core.models import flat, model_norm
from fl_core.types import Digest
from fl_core.verify import LedgerSource, verify
from ledger_server.store.journal import Store
from ledger_server.store.stored import StoredTransaction

_PIECE_BYTES: Final = 4 << 20


class JoinError(DagAcflError):
    """The ledger cannot be joined; the message says what is wrong with it."""

    code = "join-refused"


def take_genesis(source: LedgerSource, store: Store, *, expected: str | None, now_ms: int) -> tuple[str, bool]:
    """Store the first transaction of ``source``'s ledger, with its rules and its model.

    Args:
        source: Where the ledger is; not believed.
        store: Of the new server; empty, or with this very ledger.
        expected: Id that the ledger must have; None takes what the source says.
        now_ms: Milliseconds since 1970 UTC.

    Returns:
        The ledger's id, and whether it is new in the store.

    Raises:
        JoinError: It is another ledger than expected, or than the one in the store, or its genesis is not sound.
    """
    ledger = source.ledger
    if expected is not None and ledger != expected:
        raise JoinError(f"the ledger there is {ledger}, not {expected}")
    if (held := store.genesis()) is not None:
        if held[0].id != ledger:
            raise JoinError(f"there is another ledger here already, {held[0].id}; choose another with --data-dir")
        return ledger, False
    first = next((each for identity, each in source.transactions() if identity == ledger), None)
    if first is None:
        raise JoinError(f"ledger {ledger} has no first transaction there")
    if faults := list(verify(_GenesisAlone(source, first))):
        raise JoinError(f"its genesis is not sound: {faults[0].message}")
    document = source.attachment(first.header.attachment_digest)
    assert document is not None, "verified"
    model = b"".join(_GenesisAlone(source, first).pieces())
    genesis = parse_genesis(document)
    figures = Figures(model_norm(flat(genesis.layout, model)))
    store.create(StoredTransaction(0, first, figures.encode(), now_ms), document=document, model=model)
    return ledger, True


class _GenesisAlone:
    """A ledger of which only the first transaction is looked at."""

    is_archive: bool = False

    def __init__(self, source: LedgerSource, first: Transaction) -> None:
        self._source, self._first = source, first

    @property
    def ledger(self) -> str:
        return self._source.ledger

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        yield self.ledger, self._first

    def attachment(self, digest: Digest) -> bytes | None:
        return self._source.attachment(digest)

    def figures(self, _: str) -> None:
        """See ``LedgerSource``: genesis has no step."""

    def model_size(self, digest: Digest) -> int | None:
        return self._source.model_size(digest)

    def read_model(self, digest: Digest, start: int, stop: int) -> bytes:
        return self._source.read_model(digest, start, stop)

    @property
    def pruned(self) -> int:
        return 0

    def is_pruned(self, digest: Digest) -> bool:
        return self._source.is_pruned(digest)

    def is_archived(self, _: Digest) -> bool:
        return False

    def acts(self) -> bytes:
        return self._source.acts()

    def checkpoints(self) -> Sequence[bytes]:
        return ()

    def pieces(self) -> Iterator[bytes]:
        header = self._first.header
        for start in range(0, header.model_size, _PIECE_BYTES):
            yield self.read_model(header.model_digest, start, min(start + _PIECE_BYTES, header.model_size))
