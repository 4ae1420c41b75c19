"""From what the service knows to what the wire says."""

import math
from dataclasses import asdict
from datetime import UTC, datetime

from fl_core.dag.acts import ActKind
from fl_core.dag.receipt import Receipt
from fl_core.dag.steps import StepBound
from fl_core.dag.transaction import Kind
from fl_core.selection.protocol import RankedCandidate
from fl_core.trust.alarms import Alarm
from fl_core.trust.quarantine import Decision
from fl_core.trust.report import affected
from fl_core.types import ZERO_ID, Digest
from fl_core.wire import v1
from ledger_server.gossip.contacts import PeerState
from ledger_server.pending_selections import SelectionRecord
from ledger_server.publishing import LedgerService
from ledger_server.reading import LedgerView, TransactionView


def rfc3339(milliseconds: int) -> str:
    """UTC time with milliseconds; years beyond 9999 stay at the last moment that the format can say."""
    latest = 253_402_300_799_999
    moment = datetime.fromtimestamp(min(milliseconds, latest) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def model_reference(digest: Digest, size: int) -> v1.ModelReference:
    """Where a model's bytes are."""
    return v1.ModelReference(digest=digest, size=size, href=v1.path(v1.MODEL, digest=digest))


def transaction_out(view: TransactionView) -> v1.TransactionOut:
    """A transaction as JSON."""
    transaction = view.stored.transaction
    header = transaction.header
    attachment = None
    if header.attachment_digest != ZERO_ID:
        href = v1.path(v1.TRANSACTION_ATTACHMENT, transaction=transaction.id)
        attachment = v1.AttachmentReference(digest=header.attachment_digest, href=href)
    signature = transaction.author_signature
    return v1.TransactionOut(
        id=transaction.id,
        ledger=transaction.id if header.kind is Kind.GENESIS else header.ledger,
        kind="genesis" if header.kind is Kind.GENESIS else "update",
        author=header.author,
        sequence=header.sequence,
        created_at=rfc3339(header.created_at_ms),
        created_at_ms=header.created_at_ms,
        num_examples=header.num_examples,
        noise_std=header.noise_std,
        metrics=dict(header.metrics),
        extensions={name: value.hex() for name, value in header.extensions.items()},
        parents=list(header.parents),
        depth=view.stored.depth,
        is_tip=view.is_tip,
        start=None if header.kind is Kind.GENESIS else header.start,
        model=model_reference(header.model_digest, header.model_size),
        attachment=attachment,
        author_signature=None if signature is None else signature.hex(),
        receipt=_receipt_out(transaction.receipt),
        header=transaction.header_bytes.hex(),
    )


def _receipt_out(receipt: Receipt) -> v1.ReceiptOut:
    return v1.ReceiptOut(
        issuer=receipt.issuer,
        received_at=rfc3339(receipt.received_at_ms),
        received_at_ms=receipt.received_at_ms,
        members_version=receipt.members_version,
        signature=receipt.signature.hex(),
    )


def selection_out(record: SelectionRecord, service: LedgerService) -> v1.SelectionOut:
    """A selection as JSON, vouched for by the server that gives it."""
    evidence = record.evidence
    return v1.SelectionOut(
        id=record.id,
        ledger=evidence.ledger,
        author=evidence.author,
        reference=evidence.reference,
        reference_model=evidence.reference_model,
        selector=evidence.selector,
        params=dict(evidence.params),
        rule=evidence.selection.rule,
        source=evidence.selection.source,
        cut=evidence.selection.cut,
        parents=list(evidence.selection.parents),
        candidates=[_candidate(candidate) for candidate in evidence.selection.candidates],
        weights=list(evidence.weights),
        too_few=None
        if evidence.too_few is None
        else v1.TooFewOut(models=evidence.too_few.models, needed=evidence.too_few.needed),
        aggregate=model_reference(evidence.aggregate, evidence.aggregate_size),
        max_step=_step_bound_out(service.step_bound(evidence.author, evidence.selection.parents)),
        max_step_alone=_step_bound_out(service.step_bound_alone(evidence.author)),
        extensions=dict(evidence.extensions),
        issuer=service.public_key,
        issuer_signature=service.selections.sign(record.id).hex(),
    )


def _step_bound_out(bound: StepBound) -> v1.StepBoundOut:
    norm = bound.norm if math.isfinite(bound.norm) else None
    return v1.StepBoundOut(norm=norm, by_tensor=list(bound.by_tensor))


def _candidate(candidate: RankedCandidate) -> v1.CandidateOut:
    return v1.CandidateOut(
        transaction=candidate.transaction,
        author=candidate.author,
        similarity=candidate.similarity,
        update_similarity=candidate.update_similarity,
        score=candidate.probability,
        selected=candidate.selected,
    )


def quarantine_out(view: LedgerView) -> v1.QuarantineOut:
    """What is withheld from selections on a server, and why."""
    with view.lock:
        offering = view.node.offering
        clients = affected(view.node.graph, offering)
        counts = {
            "transactions": len(view.ledger),
            "descendants": offering.descendants,
            "withheld": offering.withheld.total(),
        }
    return v1.QuarantineOut(
        ledger=view.id,
        max_taint=view.genesis.bounds.max_taint,
        **counts,
        decisions=[_decision(each) for each in view.acts.decisions()],
        clients=[v1.AffectedClientOut(**asdict(each)) for each in clients],
    )


def _decision(decision: Decision) -> v1.DecisionOut:
    signed, act = decision.signed, decision.signed.act
    return v1.DecisionOut(
        act=signed.id,
        kind="erase" if act.kind is ActKind.ERASE else "quarantine",
        subject=act.subject,
        reason=act.details.get("reason", ""),
        created_at=rfc3339(act.created_at_ms),
        signed_by=sorted(signed.signatures),
        reach=decision.reach.value,
    )


def peer_out(state: PeerState) -> v1.PeerOut:
    """A peer as JSON."""
    return v1.PeerOut(
        name=state.peer.name,
        url=state.peer.url,
        public_key=state.peer.public_key,
        is_neighbour=state.is_neighbour,
        is_reachable=state.is_reachable,
        is_banned=state.is_banned,
        last_heard=None if state.last_heard_s is None else rfc3339(int(state.last_heard_s * 1000)),
        received_bytes=state.received_bytes,
        sent_bytes=state.sent_bytes,
        transactions=state.transactions,
        troubles=list(state.troubles),
        incidents=dict(state.incidents),
    )


def alarm_out(alarm: Alarm) -> v1.AlarmOut:
    """An alarm as the API shows it."""
    return v1.AlarmOut(**asdict(alarm))
