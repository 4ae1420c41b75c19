"""Admission: whether a transaction may enter the ledger. The same rules at publish and at gossip.

Checks run from cheap to costly and from the transaction itself to its surroundings:

1. it is an update of this ledger, within its bounds (``check_header``);
2. the signatures verify, and the author signs where the ledger asks for it (``Transaction.verify_signatures``);
3. model and attachment are the bytes that the header names, the model passes the gate of
   ``fl_core.models`` (``check_payload``);
4. its sequence is one that its depth allows (``check_sequence``);
5. its norm is within the bounds (``check_norm``);
6. its step is within those that its parents set (``fl_core.dag.steps``); the parents must be here for that.

A parent that is not here is no fault: the ledger answers ``WaitingForParents``. What depends on the
moment (freshness of parents, one sequence number used twice, who is listed) is asked only of a publishing client
(``check_publication``): at gossip it would make the set of transactions depend on the order of arrival.
"""

from typing import Final

from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.dag.transaction import Header, Kind
from fl_core.errors import (
    DigestMismatchError,
    ModelNormError,
    ParentsError,
    ParentsStaleError,
    SequenceConflictError,
    TransactionInvalidError,
    WrongLedgerError,
)
from fl_core.models import Buffer, check_model
from fl_core.trust.refusal import refused_in
from fl_core.types import ZERO_ID, Digest, TxId, Vector32, digest_of

NORM_SLACK: Final = 1e-6
"""Relative slack of the norm rule at gossip: two servers' sums may round differently, and a transaction
that one admitted at the very bound must not split the network."""

MAX_AHEAD: Final = 1_000_000
"""How far a publication's sequence may run ahead of its author's next. A client that was cut off from what it published
elsewhere is never so far ahead; and nobody, with a broken counter or a stolen secret, gets near the last number."""


def check_header(header: Header, *, genesis: Genesis, ledger: TxId) -> None:
    """Rule 1.

    Raises:
        WrongLedgerError, TransactionInvalidError, ParentsError, DigestMismatchError: See the messages.
    """
    if header.kind is not Kind.UPDATE:
        raise TransactionInvalidError("a ledger has one genesis; this is a second one")
    if header.ledger != ledger:
        raise WrongLedgerError(f"made for ledger {header.ledger[:16]}…, this is {ledger[:16]}…")
    if header.num_examples < 1:
        raise TransactionInvalidError("num_examples must be at least 1: its model was trained on something")
    if len(header.parents) > genesis.bounds.max_parents:
        raise ParentsError(f"{len(header.parents)} parents; this ledger allows {genesis.bounds.max_parents}")
    if header.noise_std > genesis.bounds.max_noise_std:
        raise TransactionInvalidError(
            f"noise_std is {header.noise_std:g}; this ledger allows {genesis.bounds.max_noise_std:g}"
        )
    if header.model_size != genesis.layout.nbytes:
        raise DigestMismatchError(
            f"model_size is {header.model_size}, a model of this ledger has {genesis.layout.nbytes} bytes"
        )


def check_payload(
    header: Header,
    *,
    genesis: Genesis,
    model: Buffer,
    attachment: bytes | None,
    model_digest: Digest | None = None,
) -> Vector32:
    """Rule 3. Returns the model's flat float32 vector.

    Args:
        header: What the transaction claims.
        genesis: Layout and bounds.
        model: The model's bytes.
        attachment: The attachment's bytes; None where the header names none.
        model_digest: SHA-256 of ``model`` where the caller has just computed it.

    Raises:
        DigestMismatchError: Bytes and digests differ.
        TransactionInvalidError: The evidence is too large.
        ModelError: The model does not pass the gate.
    """
    vector = check_model(genesis.layout, model, max_abs=genesis.bounds.max_abs_value)
    computed = model_digest or digest_of(model)
    if header.model_digest != computed:
        raise DigestMismatchError(
            "model_digest is not the SHA-256 of the model", claimed=header.model_digest, computed=computed
        )
    check_attachment(header, attachment, genesis=genesis)
    return vector


def check_attachment(header: Header, attachment: bytes | None, *, genesis: Genesis) -> None:
    """Rule 3, without the model; nothing is asked of evidence that was archived, which is empty.

    Raises:
        DigestMismatchError: It is not the one that the header names.
        TransactionInvalidError: The evidence is too large.
    """
    if attachment == b"" and header.attachment_digest != ZERO_ID:
        return
    if attachment is not None and len(attachment) > genesis.bounds.max_evidence_bytes:
        raise TransactionInvalidError(
            f"the evidence has {len(attachment)} bytes; this ledger allows {genesis.bounds.max_evidence_bytes}"
        )
    attached = ZERO_ID if attachment is None else digest_of(attachment)
    if header.attachment_digest != attached:
        raise DigestMismatchError(
            "attachment_digest is not that of the attachment",
            claimed=header.attachment_digest,
            computed=attached,
        )


def check_sequence(header: Header, *, depth: int, graph: Graph) -> None:
    """Rule 4: at most ``MAX_AHEAD`` for each transaction on the longest way from genesis, both ends counted.

    A server can publish in the name of an author that has no key. So it uses up none of that author's numbers: who goes
    on from such an update is deeper, and has room.

    Raises:
        SequenceConflictError: The sequence is beyond that.
    """
    if header.sequence > (most := MAX_AHEAD * (1 + depth)):
        own = graph.newest_of(header.author)
        following = 0 if own is None else own.sequence + 1
        raise SequenceConflictError(
            f"sequence {header.sequence} is beyond the author's next, {following}, and the most at depth {depth}, "
            f"{most:,}; ask for a selection, which names the author's newest",
            next_sequence=following,
        )


def check_norm(norm: float, *, max_norm: float, slack: float) -> None:
    """Rule 5.

    Raises:
        ModelNormError: The norm is beyond the bound.
    """
    if norm > max_norm * (1 + slack):
        raise ModelNormError(
            f"the model's norm {norm:.6g} is beyond the ledger's bound {max_norm:.6g}", norm=norm, bound=max_norm
        )


def check_publication(header: Header, *, node: Node, graph: Graph, genesis: Genesis) -> None:
    """What a client must meet at the moment of publishing; ``node`` is its transaction's place in the DAG.

    Raises:
        AuthorRefusedError: The author is not listed, or was rotated.
        ParentsError: Without a selection, the parent is another author's.
        ParentsStaleError: All parents were received before the freshness window.
        SequenceConflictError: The author published another transaction at or beyond this sequence number, or is not
            nearly so far.
    """
    graph.author_list.check(header.author)
    own = graph.newest_of(header.author)
    following = 0 if own is None else own.sequence + 1
    if own is not None and own.sequence >= header.sequence and own.id != node.id:
        raise SequenceConflictError(
            f"sequence {header.sequence} is used; the author's next is {following}",
            existing=own.id,
            next_sequence=following,
        )
    if header.sequence > following + MAX_AHEAD:
        raise SequenceConflictError(
            f"sequence {header.sequence} is more than {MAX_AHEAD:,} beyond the author's next, {following}",
            next_sequence=following,
        )
    parents = [found for each in header.parents if (found := graph.get(each)) is not None]
    first = graph.author_list.first
    is_own = all(first(each.author) == first(header.author) for each in parents if each is not graph.genesis)
    if not is_own and (header.attachment_digest == ZERO_ID or refused_in(header)):
        raise ParentsError(
            "without a selection, the parent is the author's own update, or genesis; ask for a selection"
        )
    if is_own or (own is not None and own.id in header.parents) or graph.genesis.id in header.parents:
        return
    age_ms = graph.now_ms - max(each.received_at_ms for each in parents)
    if age_ms > genesis.window_ms:
        raise ParentsStaleError(
            f"the newest parent is {age_ms // 1000} s old, the window is {genesis.window_ms // 1000} s; "
            "ask for a new selection"
        )
