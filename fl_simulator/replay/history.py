"""What a ledger has been through: every transaction in the order of admission, and how things stood before it.

Reads headers and the genesis document, no model. A source may give transactions in any order; parents come first here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.graph import Node
from fl_core.dag.transaction import Header, Kind, Transaction, decode_header
from fl_core.errors import GenesisError, TransactionError
from fl_core.ledger import Admitted, Ledger, WaitingForParents
from fl_core.types import ZERO_ID, Digest, TxId, digest_of
from fl_core.verify import LedgerSource
from fl_simulator.replay.errors import ReplayError


@dataclass(frozen=True, slots=True)
class Site:
    """A transaction.

    Attributes:
        place: In the order of admission; the first after genesis is 1.
        node: What the graph keeps of it.
        previous: The author's newest before; None for its first.
        was_tip: Whether nobody had approved that one yet.
    """

    place: int
    node: Node
    previous: TxId | None
    was_tip: bool
    _model: bytes
    _evidence: bytes | None

    @property
    def model(self) -> Digest:
        """Of the model that was published."""
        return Digest(self._model.hex())

    @property
    def evidence(self) -> Digest | None:
        """Of the selection's evidence, where the header names one."""
        return None if self._evidence is None else Digest(self._evidence.hex())


@dataclass(slots=True)
class History:
    """A ledger's transactions.

    Attributes:
        genesis: The rules.
        first: The genesis transaction.
        sites: All others, by place; ``sites[0]`` has place 1.
    """

    genesis: Genesis
    first: Transaction
    sites: list[Site] = field(default_factory=list)
    _places: dict[TxId, int] = field(default_factory=dict)

    def append(self, site: Site) -> None:
        """The next transaction."""
        self.sites.append(site)
        self._places[site.node.id] = site.place

    def site(self, transaction: TxId) -> Site | None:
        """The transaction of this id; None for genesis, and for what is not here."""
        place = self._places.get(transaction)
        return None if place is None else self.sites[place - 1]

    def moment(self, site: Site) -> int:
        """Before which place its author can first have asked: all that it approved, and its own newest, had come.

        Participants ask as soon as they have published, and what they take is new: of all moments between, this one
        comes nearest to what evidence says (docs/selection.md).
        """
        known = (self.site(each) for each in (*site.node.parents, site.previous) if each is not None)
        return 1 + max((each.place for each in known if each is not None), default=0)


def read_history(source: LedgerSource, *, progress: Callable[[int], None]) -> History:
    """Read all headers.

    Args:
        source: The ledger.
        progress: Called with the number of transactions read.

    Raises:
        GenesisError: There is no genesis, or a damaged one.
        ReplayError: A transaction is damaged, or misses a parent.
    """
    reading: _Reading | None = None
    early: list[Transaction] = []
    for count, (claimed, transaction) in enumerate(source.transactions(), start=1):
        header = _decoded(claimed, transaction)
        if header.kind is Kind.GENESIS and reading is None:
            reading = _Reading(_genesis_of(source, header), transaction)
            for each in early:
                reading.take(each)
        elif reading is None:
            early.append(transaction)
        elif header.kind is not Kind.GENESIS:
            reading.take(transaction)
        progress(count)
    if reading is None:
        raise GenesisError("there is no genesis transaction; run: dag-acfl ledger verify")
    if reading.waiting:
        raise ReplayError(f"transaction {min(reading.waiting)} is missing; run: dag-acfl ledger verify")
    return reading.history


class _Reading:
    def __init__(self, genesis: Genesis, first: Transaction) -> None:
        self.history = History(genesis, first)
        self.waiting: dict[TxId, list[Transaction]] = {}
        self._ledger = Ledger(genesis, first, genesis_norm=0.0)  # norms were judged when all this was admitted

    def take(self, transaction: Transaction) -> None:
        """Admit it and what has waited for it, or let it wait."""
        ready = [transaction]
        while ready:
            each = ready.pop()
            header = decode_header(each.header_bytes)
            try:
                answer = self._ledger.review_headers(each.id, header)
            except TransactionError as error:
                raise _damaged(each.id) from error
            if isinstance(answer, WaitingForParents):
                self.waiting.setdefault(answer.missing[0], []).append(each)
            elif isinstance(answer, Admitted):
                self._admit(answer.node, header)
                ready += self.waiting.pop(answer.node.id, [])[::-1]

    def _admit(self, node: Node, header: Header) -> None:
        ledger, history = self._ledger, self.history
        previous = ledger.graph.newest_of(node.author)
        site = Site(
            place=len(history.sites) + 1,
            node=node,
            previous=None if previous is None else previous.id,
            was_tip=previous is not None and ledger.graph.is_tip(previous.id),
            _model=bytes.fromhex(header.model_digest),
            _evidence=None if header.attachment_digest == ZERO_ID else bytes.fromhex(header.attachment_digest),
        )
        ledger.add(node)
        history.append(site)


def _decoded(claimed: str, transaction: Transaction) -> Header:
    try:
        header = decode_header(transaction.header_bytes)
    except TransactionError as error:
        raise _damaged(claimed) from error
    if transaction.id != claimed:
        raise _damaged(claimed)
    return header


def _damaged(transaction: str) -> ReplayError:
    return ReplayError(f"transaction {transaction} is not in order; run: dag-acfl ledger verify")


def _genesis_of(source: LedgerSource, header: Header) -> Genesis:
    document = source.attachment(header.attachment_digest)
    if document is None or digest_of(document) != header.attachment_digest:
        raise GenesisError("the genesis document is missing or damaged; run: dag-acfl ledger verify")
    return parse_genesis(document)
