"""One model out of a ledger, wherever that is: an update's, an author's newest, or the average of a cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dag_acfl.sources import genesis_and_headers
from dag_acfl.summary import clusters_of
from fl_core.aggregation import AGGREGATORS
from fl_core.dag.genesis import Genesis
from fl_core.dag.transaction import Header, Kind
from fl_core.errors import DigestMismatchError, ModelPrunedError, ModelUnknownError, ParameterError
from fl_core.stored_models import average_of
from fl_core.types import AuthorId, TxId, digest_of
from fl_core.verify import LedgerSource


@dataclass(frozen=True, slots=True, eq=False)
class LedgerModel:
    """A model of a ledger, and in a few words which one."""

    data: bytes
    what: str
    genesis: Genesis


class ModelExport:
    """The models of one ledger; reads all headers at once, and a model when it is asked for."""

    def __init__(self, source: LedgerSource) -> None:
        self._source = source
        self._genesis, self._headers = genesis_and_headers(source)
        self._updates = {id_: each for id_, each in self._headers.items() if each.kind is not Kind.GENESIS}

    def of_transaction(self, prefix: str) -> LedgerModel:
        """The model that a transaction carries.

        Args:
            prefix: The beginning of its id, enough of it to be the only one.
        """
        id_ = TxId(_only(prefix, self._headers, "transaction"))
        header = self._headers[id_]
        by = "the initial model" if header.kind is Kind.GENESIS else f"update {header.sequence} of {header.author}"
        return LedgerModel(self._read(header), f"{by}, transaction {id_}", self._genesis)

    def of_author(self, prefix: str) -> LedgerModel:
        """An author's newest model; as ``of_transaction``."""
        author = AuthorId(_only(prefix, {each.author for each in self._updates.values()}, "author"))
        return self.of_transaction(self._newest()[author])

    def of_cluster(self, number: int) -> LedgerModel:
        """The average of the newest models of a cluster's authors, by the ledger's own rule.

        Args:
            number: As ``dag-acfl ledger inspect`` numbers them, from 1.
        """
        _, partition = clusters_of(self._updates)
        if not 1 <= number <= len(partition):
            raise ParameterError(
                f"there is no cluster {number}: they are numbered to {len(partition)}; see: dag-acfl ledger inspect"
            )
        members, newest, genesis = partition[number - 1], self._newest(), self._genesis
        headers = [self._updates[id_] for id_ in sorted(newest[author] for author in members)]
        for header in headers:
            self._read(header)  # looked at whole first, so that what is averaged in pieces is sound
        rule = AGGREGATORS.build(genesis.aggregator.name, genesis.aggregator.params)
        models = [(header.model_digest, header.num_examples) for header in headers]
        model = average_of(self._source, genesis, rule, models)
        of = "its only author's newest model" if len(members) == 1 else f"its {len(members)} authors' newest models"
        what = f"cluster {number} of {len(partition)}, the average of {of}"
        return LedgerModel(model, what, genesis)

    def _newest(self) -> dict[AuthorId, TxId]:
        ordered = sorted((each.author, each.sequence, id_) for id_, each in self._updates.items())
        return {author: id_ for author, _, id_ in ordered}

    def _read(self, header: Header) -> bytes:
        digest, source = header.model_digest, self._source
        size = source.model_size(digest)
        if size is None and source.is_pruned(digest):
            raise ModelPrunedError(
                f"model {digest[:12]}… was pruned here; authors' newest models are not: --author", digest=digest
            )
        if size is None:
            raise ModelUnknownError(f"model {digest[:12]}… is missing here; run: dag-acfl ledger verify")
        data = source.read_model(digest, 0, size) if size == header.model_size else b""
        if digest_of(data) != digest:
            raise DigestMismatchError(f"model {digest[:12]}… is damaged here; run: dag-acfl ledger verify")
        return data


def _only(prefix: str, names: Iterable[str], what: str) -> str:
    prefix = prefix.rstrip("…")  # as other commands print it
    found: Sequence[str] = sorted(name for name in names if name.startswith(prefix))
    if prefix in found:
        return prefix
    if len(found) != 1:
        number = "several begin" if found else "none begins"
        raise ParameterError(f"no one {what} {prefix!r}: {number} so; see: dag-acfl ledger inspect")
    return found[0]
