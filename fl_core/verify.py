"""Verification: whether a whole ledger is what it claims to be, from its bytes alone.

Works on any ``LedgerSource`` (a bundle, a database, a live server), needs no server and trusts none. It
asks, for every transaction and parents before children:

1. the header is canonical and hashes to the id under which it was given;
2. author and issuer have signed it;
3. its model is there, is the bytes that the header names, and passes the gate;
4. all its parents are there (a cycle would need a SHA-256 collision), and it keeps the rules by which a server admits
   (``fl_core.ledger``);
5. its evidence is there, canonical, and says what the header says;
6. where the evidence says that the aggregate is the mean of the parents, it is: recomputed, byte for byte;
7. the figures that the source has recorded of its model, such as the norm of its step, are those of these bytes.

Members' acts are canonical, of this ledger, and their signatures verify. Who published by showing a secret is vouched
for by servers only; the progress names these authors.

A model that the source says was pruned is no fault: header, signatures and evidence are proven without it. What
cannot be proven then, its own bytes, its children's norms, the averages that it is part of, is counted, not passed
over, and so is how many of them stand below the horizon of a member's checkpoint, by which the source joined: for these
there is a member's signed word beside the source's. Genesis's model is never pruned, and an author's newest is not by
a server that keeps the policy. Nor is it a fault where the source says that evidence was archived: it is looked for in
the archives that are given beside it, or counted. An archive is the beginning of a ledger with genesis's model alone.

What a fault hides is not reported a second time: a transaction whose header was altered is named once,
and not again for each signature that can no longer fit. Choices of tips are not recomputed (rule 4 of the
ledger); that they led to these parents is.

Memory: a model, the average of its parents, and the blocks that the aggregator reads; of a transaction, its header's
bytes and its place in the DAG.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from graphlib import TopologicalSorter
from typing import Protocol

from fl_core.aggregation import AGGREGATORS, Aggregator
from fl_core.aggregation.model import shares_of
from fl_core.dag.acts import MAX_ACTS, SignedAct, acts_in_effect, decode_signed_acts
from fl_core.dag.admission import NORM_SLACK
from fl_core.dag.author import AuthorKind, split_author
from fl_core.dag.author_list import list_authors, listed_ever, names_ever
from fl_core.dag.figures import Figures, decode_figures, difference, step_from
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.graph import Node
from fl_core.dag.transaction import Header, Kind, Transaction, decode_header, verify_author
from fl_core.errors import (
    ActInvalidError,
    CheckpointMalformedError,
    ConfigurationError,
    GenesisError,
    HeaderMalformedError,
    ModelError,
    ModelNormError,
    ParentsError,
    SignatureError,
    SignatureRequiredError,
    StepTooLongError,
    TransactionError,
    TransactionInvalidError,
)
from fl_core.joining import ServedCheckpoint, settled_by
from fl_core.ledger import Ledger, WaitingForParents
from fl_core.models import check_model, flat, model_norm
from fl_core.selection.evidence import Evidence, parse_evidence
from fl_core.selection.parents import check_parents
from fl_core.stored_models import average_of
from fl_core.trust.quarantine import decisions, quarantine_of
from fl_core.types import ZERO_ID, AuthorId, Digest, TxId, Vector32, digest_of


class LedgerSource(Protocol):
    """Where a ledger's bytes come from; nothing of it is believed."""

    @property
    def ledger(self) -> str:
        """The id of the ledger that this claims to be."""

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Every transaction under the id that the source gives it, in any order."""

    def attachment(self, digest: Digest) -> bytes | None:
        """The attachment kept under this digest; None when there is none."""

    def figures(self, transaction: str) -> bytes | None:
        """What is recorded of an update's model (``fl_core.dag.figures``); None where nothing is."""

    def model_size(self, digest: Digest) -> int | None:
        """Size of the model kept under this digest; None when there is none."""

    def read_model(self, digest: Digest, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` (exclusive) of a model that is there."""

    @property
    def pruned(self) -> int:
        """How many models it says it has pruned: for information only."""

    def is_pruned(self, digest: Digest) -> bool:
        """Whether the source says that it dropped this model by policy; asked of models that are not there."""

    def is_archived(self, digest: Digest) -> bool:
        """Whether the source says that this attachment is in an archive; asked of attachments that are not there."""

    @property
    def is_archive(self) -> bool:
        """Whether it is one: the beginning of a ledger, with the evidence that was taken out of it, without models."""

    def acts(self) -> bytes:
        """The members' signed acts, one behind the other (``fl_core.dag.acts``)."""

    def checkpoints(self) -> Sequence[bytes]:
        """The checkpoints by which the source joined (``fl_core.joining``)."""


class FaultKind(StrEnum):
    """What can be wrong; the values are stable, programs may rely on them."""

    GENESIS_MISSING = "genesis-missing"
    GENESIS_DUPLICATE = "genesis-duplicate"
    GENESIS_INVALID = "genesis-invalid"
    LEDGER_MISMATCH = "ledger-mismatch"
    HEADER_MALFORMED = "header-malformed"
    HEADER_TAMPERED = "header-tampered"
    HEADER_RULE = "header-rule"
    SIGNATURE_INVALID = "signature-invalid"
    PARENT_MISSING = "parent-missing"
    MODEL_MISSING = "model-missing"
    MODEL_CORRUPT = "model-corrupt"
    MODEL_INVALID = "model-invalid"
    MODEL_NORM = "model-norm"
    STEP_TOO_LONG = "step-too-long"
    ATTACHMENT_MISSING = "attachment-missing"
    ATTACHMENT_CORRUPT = "attachment-corrupt"
    ARCHIVE_MISMATCH = "archive-mismatch"
    EVIDENCE_MALFORMED = "evidence-malformed"
    EVIDENCE_MISMATCH = "evidence-mismatch"
    AGGREGATE_MISMATCH = "aggregate-mismatch"
    FIGURES_MISMATCH = "figures-mismatch"
    ACT_INVALID = "act-invalid"
    CHECKPOINT_INVALID = "checkpoint-invalid"
    DUPLICATE_TRANSACTION = "duplicate-transaction"
    """Warning: given twice, the same bytes."""
    DUPLICATE_SEQUENCE = "duplicate-sequence"
    """Warning: an author used one sequence number twice, on two servers at once."""
    EVIDENCE_UNPUBLISHED = "evidence-unpublished"
    """Warning: compared with transactions that are not here; they may not have reached this server."""
    AGGREGATE_UNVERIFIED = "aggregate-unverified"
    """Warning: this release does not know the ledger's aggregator."""
    CHECKPOINT_FOREIGN = "checkpoint-foreign"
    """Warning: the source joined by the checkpoint of somebody who is no member now."""
    AUTHOR_UNLISTED = "author-unlisted"
    """Warning: published without ever having been listed by the acts that are here; its server took it all the same."""
    NEWEST_PRUNED = "newest-pruned"
    """Warning: said to be pruned although it is its author's newest and fresh; it may not have been when read."""

    @property
    def is_warning(self) -> bool:
        """Whether an honest ledger can show this too."""
        return self in _WARNINGS


_WARNINGS = frozenset(
    {
        FaultKind.DUPLICATE_TRANSACTION,
        FaultKind.DUPLICATE_SEQUENCE,
        FaultKind.EVIDENCE_UNPUBLISHED,
        FaultKind.AGGREGATE_UNVERIFIED,
        FaultKind.AUTHOR_UNLISTED,
        FaultKind.CHECKPOINT_FOREIGN,
        FaultKind.NEWEST_PRUNED,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault or warning; ``transaction`` is the id that the source gave, None for the whole ledger."""

    kind: FaultKind
    transaction: str | None
    message: str


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far a verification is; the last one tells what was done.

    Attributes:
        checked: Transactions looked at.
        total: All that there are.
        models: Different models that are what their headers name.
        aggregates: Different averages that were recomputed.
        pruned: Different models that the source says were pruned.
        vouched_models: Of these, those below the horizon of a member's checkpoint.
        unprovable: Different averages that cannot be recomputed because a model of theirs was pruned.
        acts: Members' acts that are in effect.
        vouched: Authors without a key: that they published what they did, only servers say.
        archived: Different selections whose evidence is in an archive that was not given.
    """

    checked: int
    total: int
    models: int
    aggregates: int
    pruned: int = 0
    unprovable: int = 0
    acts: int = 0
    vouched: AbstractSet[AuthorId] = frozenset()
    vouched_models: int = 0
    archived: int = 0


def verify(
    source: LedgerSource,
    *,
    archives: Sequence[LedgerSource] = (),
    progress: Callable[[VerifyProgress], None] | None = None,
) -> Iterator[Finding]:
    """Check a ledger; yields what is wrong as it is found, nothing for a sound ledger.

    Args:
        source: The ledger.
        archives: Archives of it, in which evidence is looked for that is not there.
        progress: Told how far it is.

    Raises:
        Exception: Only what ``source`` and ``archives`` raise themselves (a broken container, a lost connection).
    """
    yield from _Verification(source, progress or (lambda _: None), archives).run()


@dataclass(slots=True)
class _Verification:
    source: LedgerSource
    progress: Callable[[VerifyProgress], None]
    archives: Sequence[LedgerSource]
    records: dict[str, Transaction] = field(default_factory=dict)
    """Those whose bytes hash to their id."""
    given: set[str] = field(default_factory=set)
    """Every id given, so that one altered header is not reported as missing by all its children."""
    sequences: dict[tuple[AuthorId, int], str] = field(default_factory=dict)
    vouched: set[AuthorId] = field(default_factory=set)
    genesis_id: TxId | None = None
    genesis: Genesis | None = None
    ledger: Ledger | None = None
    """Holds what has been checked, with or without faults; of a model that is not proven the norm is NaN."""
    aggregator: Aggregator | None = None
    acts: int = 0
    names: Mapping[AuthorId, AbstractSet[AuthorId]] = field(default_factory=dict)
    """All that rotations give an author."""
    listed: frozenset[AuthorId] = frozenset()
    """Whom acts have listed at some time."""
    norms: dict[Digest, float] = field(default_factory=dict)
    """Of the models that are in order."""
    model_faults: dict[Digest, tuple[FaultKind, str]] = field(default_factory=dict)
    pruned: set[Digest] = field(default_factory=set)
    checkpoints: list[ServedCheckpoint] = field(default_factory=list)
    vouched_models: set[Digest] = field(default_factory=set)
    aggregates: dict[tuple[TxId, ...], Digest | None] = field(default_factory=dict)
    """By parents: clients of one cluster share them."""
    newest_read: tuple[Digest, Vector32] | None = None
    """The last model that was looked at whole."""
    average: tuple[tuple[TxId, ...], bytes] | None = None
    """The last aggregate and its parents: clients of one cluster publish one after another."""
    erased: frozenset[AuthorId] = frozenset()
    """Authors whose models the members have erased."""
    recomputed: int = 0
    unprovable: int = 0
    archived: set[Digest] = field(default_factory=set)
    """Attachments that are in an archive which was not given."""

    def run(self) -> Iterator[Finding]:
        yield from self._read_records()
        yield from self._check_archives()
        yield from self._read_genesis()
        yield from self._read_checkpoints()
        yield from self._check_acts()
        parents = {id_: [each for each in self._header(id_).parents if each in self.records] for id_ in self.records}
        for checked, id_ in enumerate(TopologicalSorter(parents).static_order(), start=1):
            yield from self._check(id_)
            counts = len(self.norms), self.recomputed, len(self.pruned), self.unprovable, self.acts, self.vouched
            elsewhere = len(self.vouched_models), len(self.archived)
            self.progress(VerifyProgress(checked, len(self.records), *counts, *elsewhere))
        if self.ledger is not None:
            yield from self._check_newest(self.ledger)

    def _check_newest(self, ledger: Ledger) -> Iterator[Finding]:
        oldest_fresh_ms = ledger.graph.now_ms - ledger.genesis.window_ms
        for newest in ledger.graph.newest_nodes():
            is_gone = newest.model_digest in self.pruned and newest.author not in self.erased
            if is_gone and not self.source.is_archive and newest.received_at_ms >= oldest_fresh_ms:
                message = f"model {newest.model_digest} is said to be pruned: its author's newest, and it is fresh"
                yield Finding(FaultKind.NEWEST_PRUNED, newest.id, message)
            if self.genesis is not None and self.genesis.authors.name == "listed" and newest.author not in self.listed:
                issuer = self.records[newest.id].receipt.issuer
                message = f"{newest.author} was never listed; the server {issuer} took its updates"
                yield Finding(FaultKind.AUTHOR_UNLISTED, newest.id, message)

    def _read_records(self) -> Iterator[Finding]:
        for claimed, transaction in self.source.transactions():
            if claimed in self.given:
                if self.records.get(claimed) != transaction:
                    yield Finding(FaultKind.HEADER_TAMPERED, claimed, "given twice under one id with different bytes")
                else:
                    yield Finding(FaultKind.DUPLICATE_TRANSACTION, claimed, "given twice")
                continue
            self.given.add(claimed)
            try:
                header = decode_header(transaction.header_bytes)
            except (HeaderMalformedError, TransactionInvalidError, ParentsError) as error:
                # A flipped byte may break the encoding or only the hash; either way the id tells.
                kind = FaultKind.HEADER_MALFORMED if transaction.id == claimed else FaultKind.HEADER_TAMPERED
                yield Finding(kind, claimed, str(error))
                continue
            if transaction.id != claimed:
                message = f"the header's bytes hash to {transaction.id}, not to the id it is kept under"
                yield Finding(FaultKind.HEADER_TAMPERED, claimed, message)
                continue
            self.records[claimed] = transaction
            if header.kind is Kind.GENESIS:
                continue
            if split_author(header.author)[0] is AuthorKind.SECRET:
                self.vouched.add(header.author)
            first = self.sequences.setdefault((header.author, header.sequence), claimed)
            if first != claimed:
                message = f"the author used sequence {header.sequence} before, in {first}"
                yield Finding(FaultKind.DUPLICATE_SEQUENCE, claimed, message)

    def _check_archives(self) -> Iterator[Finding]:
        for archive in self.archives:
            if archive.ledger != self.source.ledger:
                message = f"an archive is of another ledger, {archive.ledger}"
                yield Finding(FaultKind.ARCHIVE_MISMATCH, None, message)
            elif unknown := sum(claimed not in self.given for claimed, _ in archive.transactions()):
                message = f"an archive holds {unknown} transactions that are not here"
                yield Finding(FaultKind.ARCHIVE_MISMATCH, None, message)

    def _read_genesis(self) -> Iterator[Finding]:
        found = [id_ for id_ in self.records if self._header(id_).kind is Kind.GENESIS]
        if not found:
            yield Finding(FaultKind.GENESIS_MISSING, None, "no sound genesis transaction among all given")
            return
        chosen = self.source.ledger if self.source.ledger in found else found[0]
        for other in found:
            if other != chosen:
                yield Finding(FaultKind.GENESIS_DUPLICATE, other, "a second genesis transaction")
                del self.records[other]
        if self.source.ledger != chosen:
            message = f"given as ledger {self.source.ledger}, but the genesis transaction is {chosen}"
            yield Finding(FaultKind.LEDGER_MISMATCH, chosen, message)
        self.genesis_id = TxId(chosen)
        header = self._header(chosen)
        document = self._attachment(chosen, header, "genesis document")
        if isinstance(document, Finding):
            yield document
            return
        assert document is not None, "genesis is never archived"
        try:
            self.genesis = parse_genesis(document)
            norm = self._norm_of(header)
            self.ledger = Ledger(self.genesis, self.records[chosen], genesis_norm=math.nan if norm is None else norm)
        except GenesisError as error:
            yield Finding(FaultKind.GENESIS_INVALID, chosen, str(error))
            return
        try:
            rule = self.genesis.aggregator
            self.aggregator = AGGREGATORS.build(rule.name, rule.params)
        except ConfigurationError as error:
            yield Finding(FaultKind.AGGREGATE_UNVERIFIED, None, f"no aggregate can be recomputed: {error}")

    def _check_acts(self) -> Iterator[Finding]:
        try:
            acts = decode_signed_acts(self.source.acts(), most=MAX_ACTS)
        except ActInvalidError as error:
            yield Finding(FaultKind.ACT_INVALID, None, str(error))
            return
        sound: list[SignedAct] = []
        for signed in acts:
            try:
                signed.verify()
            except (ActInvalidError, SignatureError) as error:
                yield Finding(FaultKind.ACT_INVALID, None, f"act {signed.id}: {error}")
                continue
            if signed.act.ledger == self.genesis_id:
                sound.append(signed)
            else:
                yield Finding(FaultKind.ACT_INVALID, None, f"act {signed.id} is of another ledger")
        if self.genesis is not None:
            yield from self._check_effect(self.genesis, sound)

    def _check_effect(self, genesis: Genesis, sound: list[SignedAct]) -> Iterator[Finding]:
        founders = [member.key for member in genesis.members]
        settled = settled_by(self.checkpoints)
        effect = acts_in_effect(sound, founders=founders, threshold=genesis.threshold, settled=settled)
        self.acts = len(effect.acts)
        self.erased = quarantine_of(decisions(sound, effect), list_authors(sound, effect, genesis=genesis)).erased
        self.names = names_ever(sound)
        self.listed = listed_ever(sound, effect)
        if self.ledger is not None:
            self.ledger.graph.go_by_members(effect.members)
        for signed in sound:
            if signed.id in settled and signed.id not in effect.acts:
                message = f"act {signed.id} is in effect by a checkpoint, and too few members' signatures carry it"
                yield Finding(FaultKind.ACT_INVALID, None, message)
        for served in self.checkpoints:
            member = served.checkpoint.member
            if effect.members and member not in effect.members:
                message = f"the source joined by a checkpoint of {member}, who is no member now"
                yield Finding(FaultKind.CHECKPOINT_FOREIGN, None, message)

    def _read_checkpoints(self) -> Iterator[Finding]:
        for data in self.source.checkpoints():
            try:
                served = ServedCheckpoint(data)
            except (CheckpointMalformedError, SignatureError) as error:
                yield Finding(FaultKind.CHECKPOINT_INVALID, None, f"a checkpoint by which the source joined: {error}")
                continue
            if served.checkpoint.ledger == self.genesis_id:
                self.checkpoints.append(served)
            else:
                yield Finding(FaultKind.CHECKPOINT_INVALID, None, "a checkpoint of another ledger")

    def _header(self, transaction: str) -> Header:
        # Decoded anew instead of kept: a decoded header takes ten times the memory of its bytes.
        return decode_header(self.records[transaction].header_bytes)

    def _check(self, id_: str) -> Iterator[Finding]:
        header = self._header(id_)
        yield from self._check_signatures(TxId(id_), header)
        norm = self._norm_of(header)
        if header.model_digest in self.model_faults:
            kind, message = self.model_faults[header.model_digest]
            yield Finding(kind, id_, message)
        if header.model_digest in self.pruned and any(TxId(id_) in each for each in self.checkpoints):
            self.vouched_models.add(header.model_digest)
        if header.kind is Kind.UPDATE:
            for parent in header.parents:
                if parent not in self.given:
                    yield Finding(FaultKind.PARENT_MISSING, id_, f"parent {parent} is not here")
            if self.ledger is not None:
                figures = self._figures_of(header, norm)
                yield from self._check_rules(self.ledger, TxId(id_), header, figures)
                if figures is not None:
                    yield from self._check_figures(id_, figures)
            if header.attachment_digest != ZERO_ID:
                yield from self._check_evidence(id_, header)

    def _figures_of(self, header: Header, norm: float | None) -> Figures | None:
        """An update's figures as they follow from models that are in order; None where its own is not."""
        if norm is None:
            return None
        nodes = self._nodes(header.parents)
        if self.ledger is None or self.aggregator is None or nodes is None:
            return Figures(norm)
        layout = self.ledger.genesis.layout
        shares = shares_of(self.ledger.genesis, self.aggregator, [node.num_examples for node in nodes])
        if (average := self._average(header.parents)) is None:
            return Figures(norm, None, shares)
        if self.newest_read is None or self.newest_read[0] != header.model_digest:  # published twice
            data = self.source.read_model(header.model_digest, 0, header.model_size)
            self.newest_read = header.model_digest, flat(layout, data)
        return Figures(norm, step_from(flat(layout, average), self.newest_read[1], layout=layout), shares)

    def _check_figures(self, id_: str, computed: Figures) -> Iterator[Finding]:
        """Whether the source has recorded these; of what cannot be computed, and of what it did not record, nothing."""
        data = self.source.figures(id_)
        if data is None:
            return
        try:
            recorded = decode_figures(data)
            recorded.check()
        except CheckpointMalformedError as error:
            yield Finding(FaultKind.FIGURES_MISMATCH, id_, f"the figures recorded of its model: {error}")
            return
        if (found := difference(recorded, computed, slack=NORM_SLACK)) is not None:
            yield Finding(FaultKind.FIGURES_MISMATCH, id_, found)

    def _check_signatures(self, id_: TxId, header: Header) -> Iterator[Finding]:
        transaction = self.records[id_]
        try:
            keys_only = self.genesis is not None and self.genesis.keys_only
            verify_author(header, id_, transaction.author_signature, keys_only=keys_only)
        except (SignatureError, SignatureRequiredError) as error:
            yield Finding(FaultKind.SIGNATURE_INVALID, id_, str(error))
        try:
            transaction.receipt.verify(id_)
        except SignatureError as error:
            yield Finding(FaultKind.SIGNATURE_INVALID, id_, str(error))

    def _check_rules(self, ledger: Ledger, id_: TxId, header: Header, figures: Figures | None) -> Iterator[Finding]:
        """Ask what a server asks, and add the transaction even so: its children are judged by their own faults."""
        try:
            ledger.review(id_, header, figures=figures or Figures(0.0))
        except StepTooLongError as error:
            yield Finding(FaultKind.STEP_TOO_LONG, id_, str(error))
        except ModelNormError as error:
            yield Finding(FaultKind.MODEL_NORM, id_, str(error))
        except TransactionError as error:
            yield Finding(FaultKind.HEADER_RULE, id_, str(error))
        known, receipt = (figures or Figures(math.nan)).pack(), self.records[id_].receipt
        node = ledger.place(id_, header, recorded=known, receipt=receipt)
        if isinstance(node, WaitingForParents):  # what descends from a lost or altered one is looked at, too
            present = tuple(parent for parent in header.parents if parent in ledger) or (ledger.id,)
            node = ledger.place(id_, replace(header, parents=present), recorded=known, receipt=receipt)
        assert isinstance(node, Node), "all its parents are here now"
        ledger.graph.add(node)

    def _norm_of(self, header: Header) -> float | None:
        """The norm of a header's model, which is read the first time; None if it was pruned or something is wrong."""
        digest = header.model_digest
        if digest not in self.norms and digest not in self.model_faults and digest not in self.pruned:
            self._read_model(header)
        return self.norms.get(digest)

    def _read_model(self, header: Header) -> None:
        """Note the model's norm, that it was pruned, or what is wrong with it."""
        digest = header.model_digest
        size = self.source.model_size(digest)
        if size is None:
            if header.kind is Kind.GENESIS:
                self.model_faults[digest] = FaultKind.MODEL_MISSING, f"the genesis model {digest} is missing"
            elif self.source.is_pruned(digest):
                self.pruned.add(digest)
            else:
                self.model_faults[digest] = FaultKind.MODEL_MISSING, f"model {digest} is missing"
            return
        # The size is asked first, so that a claimed digest never costs more memory than a model.
        if size != header.model_size:
            message = f"model {digest} has {size} bytes, the header says {header.model_size}"
            self.model_faults[digest] = FaultKind.MODEL_CORRUPT, message
            return
        data = self.source.read_model(digest, 0, size)
        if digest_of(data) != digest:
            message = f"the bytes kept as model {digest} hash to {digest_of(data)}"
            self.model_faults[digest] = FaultKind.MODEL_CORRUPT, message
        elif self.genesis is None:
            self.norms[digest] = 0.0  # in order as bytes; nothing more can be said without the rules
        else:
            try:
                vector = check_model(self.genesis.layout, data, max_abs=self.genesis.bounds.max_abs_value)
                self.norms[digest] = model_norm(vector)
                self.newest_read = digest, vector
            except ModelError as error:
                self.model_faults[digest] = FaultKind.MODEL_INVALID, str(error)

    def _attachment(self, id_: str, header: Header, what: str) -> bytes | Finding | None:
        """What a header names; None where it is in an archive that was not given."""
        digest = header.attachment_digest
        places = (self.source, *self.archives)
        content = next((found for place in places if (found := place.attachment(digest)) is not None), None)
        if content is None:
            if header.kind is Kind.UPDATE and self.source.is_archived(digest):
                self.archived.add(digest)
                return None
            return Finding(FaultKind.ATTACHMENT_MISSING, id_, f"the {what} {digest} is missing")
        if (computed := digest_of(content)) != digest:
            message = f"the bytes kept as {what} {digest} hash to {computed}"
            return Finding(FaultKind.ATTACHMENT_CORRUPT, id_, message)
        return content

    def _check_evidence(self, id_: str, header: Header) -> Iterator[Finding]:
        encoded = self._attachment(id_, header, "selection evidence")
        if encoded is None:
            return
        if isinstance(encoded, Finding):
            yield encoded
            return
        try:
            evidence = parse_evidence(encoded)
        except TransactionInvalidError as error:
            yield Finding(FaultKind.EVIDENCE_MALFORMED, id_, str(error))
            return
        if problems := list(self._disagreements(header, evidence)):
            yield Finding(FaultKind.EVIDENCE_MISMATCH, id_, "; ".join(problems))
            return
        named = {candidate.transaction for candidate in evidence.selection.candidates}
        if absent := named - self.given - set(header.parents):
            message = f"{len(absent)} compared transactions are not here, such as {min(absent)}"
            yield Finding(FaultKind.EVIDENCE_UNPUBLISHED, id_, message)
        if evidence.selection.source != "parents":
            return
        averaged = evidence.selection.parents
        if averaged not in self.aggregates:
            average = self._average(averaged)
            self.aggregates[averaged] = None if average is None else digest_of(average)
            self.recomputed += self.aggregates[averaged] is not None
            self.unprovable += any(self._model_of(parent) in self.pruned for parent in averaged)
        computed = self.aggregates[averaged]
        if computed not in (None, evidence.aggregate):
            message = f"the parents' aggregate is {computed}, the evidence says {evidence.aggregate}"
            yield Finding(FaultKind.AGGREGATE_MISMATCH, id_, message)

    def _disagreements(self, header: Header, evidence: Evidence) -> Iterator[str]:
        selection = evidence.selection
        try:
            check_parents(header, evidence)
        except (ParentsError, TransactionInvalidError) as error:
            yield str(error)
        selected = {each.transaction for each in selection.candidates if each.selected}
        if not selected <= set(selection.parents) or len(selected) != selection.cut:
            yield "the selected candidates are not those that the parents and the cut say"
        if evidence.aggregate_size != header.model_size:
            yield f"the aggregate has {evidence.aggregate_size} bytes, a model {header.model_size}"
        if self._model_of(evidence.reference) not in (None, evidence.reference_model):
            yield "the reference model is not that of the reference transaction"
        if selection.source == "own":
            if not self._is_own(header, selection.parents[0]):
                yield "the client is said to keep its own model, but the parents are other authors' updates"
            # A client that joined keeps the model it sent; another one that of its newest transaction.
            joined = evidence.reference is None
            own = evidence.reference_model if joined else self._model_of(selection.parents[0])
            if own not in (None, evidence.aggregate):
                yield "the client is said to keep its own model, but the aggregate is another one"

    def _is_own(self, header: Header, parent: TxId) -> bool:
        """Whether a parent is genesis or by an update's author, under any of its names; or not here."""
        if parent not in self.records:
            return True
        named = self._header(parent)
        if named.kind is Kind.GENESIS or named.author == header.author:
            return True
        return named.author in self.names.get(header.author, ())

    def _model_of(self, transaction: TxId | None) -> Digest | None:
        if transaction is None or transaction not in self.records:
            return None
        return self._header(transaction).model_digest

    def _nodes(self, parents: Sequence[TxId]) -> list[Node] | None:
        """The parents' places in the DAG; None where one is not here."""
        if self.ledger is None:
            return None
        nodes = [node for parent in parents if (node := self.ledger.graph.get(parent)) is not None]
        return nodes if len(nodes) == len(parents) else None

    def _average(self, parents: tuple[TxId, ...]) -> bytes | None:
        """The aggregate; None where a parent's model is not in order, or the rule is unknown."""
        if self.average is not None and self.average[0] == parents:
            return self.average[1]
        if (nodes := self._nodes(parents)) is None or self.ledger is None or self.aggregator is None:
            return None
        if any(math.isnan(node.figures.norm) for node in nodes):
            return None
        models = [(node.model_digest, node.num_examples) for node in nodes]
        average = average_of(self.source, self.ledger.genesis, self.aggregator, models)
        self.average = parents, average
        return average
