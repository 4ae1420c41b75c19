"""A ledger in memory as a ``LedgerSource`` that a test can damage, and a sound one to begin with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fl_core.aggregation import ArraySource, FedAvg
from fl_core.aggregation.model import model_weights
from fl_core.dag.acts import SignedAct, encode_signed_acts
from fl_core.dag.figures import Figures
from fl_core.dag.transaction import Transaction
from fl_core.models import encode_flat, flat
from fl_core.selection.evidence import Evidence
from fl_core.selection.protocol import RankedCandidate, Selection
from fl_core.types import Digest, TxId, digest_of
from tests.builders import TinyLedger, model


@dataclass
class MemorySource:
    """Everything in dictionaries, so that a test can change a byte."""

    ledger: str
    kept: dict[str, Transaction]
    models: dict[Digest, bytes]
    attachments: dict[Digest, bytes]
    dropped: set[Digest] = field(default_factory=set)
    decided: list[SignedAct] = field(default_factory=list)
    joined_by: list[bytes] = field(default_factory=list)
    recorded: dict[str, bytes] = field(default_factory=dict)
    away: set[Digest] = field(default_factory=set)
    is_archive: bool = False

    @classmethod
    def of(cls, tiny: TinyLedger) -> "MemorySource":
        return cls(
            tiny.genesis_id,
            dict[str, Transaction](tiny.transactions),
            dict(tiny.models),
            dict(tiny.attachments),
        )

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        yield from self.kept.items()

    def attachment(self, digest: Digest) -> bytes | None:
        return self.attachments.get(digest)

    def figures(self, transaction: str) -> bytes | None:
        return self.recorded.get(transaction)

    def model_size(self, digest: Digest) -> int | None:
        data = self.models.get(digest)
        return None if data is None else len(data)

    def read_model(self, digest: Digest, start: int, stop: int) -> bytes:
        return self.models[digest][start:stop]

    @property
    def pruned(self) -> int:
        return len(self.dropped)

    def is_pruned(self, digest: Digest) -> bool:
        return digest in self.dropped

    def is_archived(self, digest: Digest) -> bool:
        return digest in self.away

    def acts(self) -> bytes:
        return encode_signed_acts(self.decided)

    def checkpoints(self) -> Sequence[bytes]:
        return self.joined_by

    def prune(self, transaction: str) -> None:
        """Drop a transaction's model, and say so."""
        digest = self.kept[transaction].header.model_digest
        del self.models[digest]
        self.dropped.add(digest)


@dataclass
class Author:
    """Publishes into a tiny ledger with evidence, as a server would have recorded it."""

    tiny: TinyLedger
    name: str

    def evidence(
        self, parents: list[TxId], *, reference: TxId | None = None, aggregate: Digest | None = None
    ) -> Evidence:
        """Evidence that says: these parents, averaged."""
        tiny = self.tiny
        headers = {parent: tiny.transactions[parent].header for parent in parents}
        own = tiny.author(self.name)
        foreign = [parent for parent in sorted(parents) if headers[parent].author != own]
        digest, size = mean_of(tiny, parents)
        reference_model = digest_of(model(7)) if reference is None else tiny.transactions[reference].header.model_digest
        return Evidence(
            ledger=tiny.genesis_id,
            author=None if reference is None else tiny.transactions[reference].header.author,
            reference=reference,
            reference_model=reference_model,
            selector="top-k",
            params={"k": 3},
            selection=Selection(
                parents=tuple(sorted(parents)),
                source="parents",
                rule="top-k",
                cut=len(foreign),
                candidates=tuple(
                    RankedCandidate(parent, headers[parent].author, 0.9, 0.8, None, True) for parent in foreign
                ),
            ),
            aggregate=aggregate or digest,
            aggregate_size=size,
        )

    def publish(self, evidence: Evidence, trained: bytes, *, num_examples: int = 1) -> TxId:
        """Publish a model that was trained from the evidence's aggregate."""
        encoded = evidence.encode()
        transaction = self.tiny.draft(
            self.name,
            evidence.selection.parents,
            trained,
            num_examples=num_examples,
            attachment=encoded,
        )
        self.tiny.node.admit(transaction, None, figures=Figures(self.tiny.norm(trained)))
        self.tiny.transactions[transaction.id] = transaction
        self.tiny.models[digest_of(trained)] = trained
        self.tiny.attachments[digest_of(encoded)] = encoded
        return transaction.id


def mean_of(tiny: TinyLedger, parents: list[TxId]) -> tuple[Digest, int]:
    """Digest and size of the parents' FedAvg aggregate."""
    headers = [tiny.transactions[parent].header for parent in sorted(parents)]
    layout = tiny.genesis.layout
    vectors = [ArraySource(flat(layout, tiny.models[header.model_digest])) for header in headers]
    weights = model_weights(tiny.genesis, [header.num_examples for header in headers])
    data = encode_flat(layout, np.asarray(FedAvg().aggregate(vectors, weights)))
    return digest_of(data), len(data)


@dataclass
class SoundLedger:
    """Three authors, five transactions: ann and bob begin, cat joins on both, ann and bob go on."""

    tiny: TinyLedger
    ann: TxId
    bob: TxId
    cat: TxId
    ann_again: TxId
    bob_again: TxId

    def source(self) -> MemorySource:
        return MemorySource.of(self.tiny)


def sound_ledger(tiny: TinyLedger | None = None) -> SoundLedger:
    """A ledger in which everything is in order; its averages weigh 2 : 1, so weights matter."""
    tiny = tiny or TinyLedger()
    ann, bob, cat = (Author(tiny, name) for name in ("ann", "bob", "cat"))
    first = tiny.publish("ann", [tiny.genesis_id], model(0.25, 0.5, 0.25), num_examples=2)
    second = tiny.publish("bob", [tiny.genesis_id], model(0.5, 0.25, 0.25))
    third = cat.publish(cat.evidence([first, second]), model(0.5, 0.5, 0.25), num_examples=3)
    fourth = ann.publish(ann.evidence([third], reference=first), model(0.5, 0.5, 0.5), num_examples=2)
    fifth = bob.publish(bob.evidence([third, fourth], reference=second), model(0.75, 0.5, 0.5))
    return SoundLedger(tiny, first, second, third, fourth, fifth)
