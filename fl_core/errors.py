"""Everything that the ledger can refuse, as one tree.

    DagAcflError
    ├── ModelError            the bytes of a model
    │   ├── ModelMalformedError          model-malformed
    │   ├── ModelTooLargeError           model-too-large
    │   ├── ModelLayoutError             model-layout
    │   ├── ModelNotCanonicalError       model-not-canonical
    │   ├── ModelNotFiniteError          model-not-finite
    │   ├── ModelNormError               model-norm
    │   └── StepTooLongError             step-too-long
    ├── TransactionError      the header or its place in the DAG
    │   ├── HeaderMalformedError         header-malformed
    │   ├── WrongLedgerError             wrong-ledger
    │   ├── ParentsError                 parents-invalid
    │   ├── ParentsUnknownError          parents-unknown
    │   ├── ParentsStaleError            parents-stale
    │   ├── SignatureError               signature-invalid
    │   ├── SignatureRequiredError       signature-required
    │   ├── SequenceConflictError        sequence-conflict
    │   ├── DigestMismatchError          digest-mismatch
    │   ├── ActInvalidError              act-invalid
    │   └── TransactionInvalidError      transaction-invalid
    ├── UnknownError          what was asked for is not here
    │   ├── TransactionUnknownError      transaction-unknown
    │   ├── ModelUnknownError            model-unknown
    │   ├── ModelPrunedError             model-pruned
    │   ├── EvidenceArchivedError        evidence-archived
    │   ├── BaseUnknownError             base-unknown
    │   ├── SelectionUnknownError        selection-unknown
    │   └── CursorUnknownError           cursor-unknown
    ├── AccessError           who asks may not
    │   ├── TokenRequiredError           token-required
    │   ├── TokenInvalidError            token-invalid
    │   ├── TokenScopeError              token-scope
    │   ├── TokenAuthorError             token-author
    │   ├── AuthorRefusedError           author-refused
    │   ├── CredentialsMismatchError     credentials-mismatch
    │   └── QuotaExceededError           quota-exceeded
    ├── GossipError           what a peer says breaks the protocol between servers
    │   ├── GossipFrameError             gossip-frame-invalid
    │   ├── CheckpointMalformedError     checkpoint-malformed
    │   └── CheckpointRefusedError       checkpoint-refused
    ├── ConfigurationError    a name or a parameter that a person wrote
    │   ├── GenesisError                 genesis-invalid
    │   ├── UnknownNameError             name-unknown
    │   └── ParameterError               parameter-invalid
    ├── PartFailedError                  part-failed
    └── ShapeMismatchError               shape-mismatch

``code`` is the contract: the API answers with the problem type ``/problems/<code>`` and the SDK raises
the class of that code again. The message is for people; the attributes are for programs.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final


class DagAcflError(Exception):
    """Base of all errors of this project; ``code`` never changes once released."""

    code: ClassVar[str] = "error"


class ModelError(DagAcflError):
    """The bytes of a model are refused."""


class ModelMalformedError(ModelError):
    """The bytes are not a safetensors file."""

    code = "model-malformed"


class ModelTooLargeError(ModelError):
    """The header or the whole model is larger than the limit."""

    code = "model-too-large"

    def __init__(self, message: str, *, limit: int = 0) -> None:
        super().__init__(message)
        self.limit = limit


class ModelLayoutError(ModelError):
    """The tensors' names, dtypes or shapes are not those that genesis names."""

    code = "model-layout"


class ModelNotCanonicalError(ModelError):
    """The right tensors in another encoding: other order, padding, metadata."""

    code = "model-not-canonical"


class ModelNotFiniteError(ModelError):
    """A value is NaN, infinite, or beyond the largest magnitude that the ledger allows."""

    code = "model-not-finite"


class ModelNormError(ModelError):
    """The model's norm is beyond the ledger's bounds; cosine similarity cannot see scale, so admission must."""

    code = "model-norm"

    def __init__(self, message: str, *, norm: float = 0.0, bound: float = 0.0) -> None:
        super().__init__(message)
        self.norm: float = norm
        self.bound: float = bound


class StepTooLongError(ModelError):
    """The model lies further from the average of its parents than the ledger allows; shorten its step to ``bound``.

    Attributes:
        norm: Euclidean norm of the step, or of its part in ``tensor``.
        bound: The longest that it may be.
        tensor: Where it is too long; empty: on the whole.
    """

    code = "step-too-long"

    def __init__(self, message: str, *, norm: float = 0.0, bound: float = 0.0, tensor: str = "") -> None:
        super().__init__(message)
        self.norm: float = norm
        self.bound: float = bound
        self.tensor: str = tensor


class TransactionError(DagAcflError):
    """A transaction is refused."""


class HeaderMalformedError(TransactionError):
    """The header's bytes are not the one canonical encoding."""

    code = "header-malformed"


class WrongLedgerError(TransactionError):
    """The transaction was made for another ledger."""

    code = "wrong-ledger"


class ParentsError(TransactionError):
    """The list of parents is wrong: none, too many, itself, one named twice, or not its author's to name."""

    code = "parents-invalid"


class ParentsUnknownError(TransactionError):
    """Parents that this server does not hold (yet)."""

    code = "parents-unknown"

    def __init__(self, message: str = "parents are unknown here", *, missing: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.missing: tuple[str, ...] = tuple(missing)


class ParentsStaleError(TransactionError):
    """The parents lie further back than the freshness window; ask for a new selection."""

    code = "parents-stale"


class SignatureError(TransactionError):
    """A signature or public key does not verify."""

    code = "signature-invalid"


class SignatureRequiredError(TransactionError):
    """A publication shows no author, or the ledger admits authors with a key only."""

    code = "signature-required"


class SequenceConflictError(TransactionError):
    """The author already published another transaction under this sequence number, or is not nearly so far."""

    code = "sequence-conflict"

    def __init__(self, message: str, *, existing: str = "", next_sequence: int = 0) -> None:
        super().__init__(message)
        self.existing: str = existing
        self.next_sequence: int = next_sequence


class DigestMismatchError(TransactionError):
    """A declared id, digest or size is not that of the bytes."""

    code = "digest-mismatch"

    def __init__(self, message: str, *, claimed: str = "", computed: str = "") -> None:
        super().__init__(message)
        self.claimed: str = claimed
        self.computed: str = computed


class ActInvalidError(TransactionError):
    """An act's bytes are not the one canonical encoding, or it may not be of this ledger."""

    code = "act-invalid"


class TransactionInvalidError(TransactionError):
    """Another field is outside its range, or the selection was made for another author."""

    code = "transaction-invalid"


class UnknownError(DagAcflError):
    """What was asked for is not here."""


class TransactionUnknownError(UnknownError):
    """No transaction of this id is known here."""

    code = "transaction-unknown"

    def __init__(self, message: str = "no such transaction", *, transaction: str = "") -> None:
        super().__init__(message)
        self.transaction = transaction


class ModelUnknownError(UnknownError):
    """No model of this digest is held here."""

    code = "model-unknown"


class ModelPrunedError(UnknownError):
    """The model was dropped to save space, or erased; its transaction stays, and so does the proof of it."""

    code = "model-pruned"

    def __init__(self, message: str = "the model was pruned here", *, digest: str = "") -> None:
        super().__init__(message)
        self.digest = digest


class EvidenceArchivedError(UnknownError):
    """The evidence was moved to an archive (``dag-acfl ledger archive``), which the server's operator has."""

    code = "evidence-archived"


class BaseUnknownError(UnknownError):
    """A model came coded (``fl_core.step_coding``) by one that is not at hand here; send it whole."""

    code = "base-unknown"


class SelectionUnknownError(UnknownError):
    """No selection of this id is kept here (any more)."""

    code = "selection-unknown"


class CursorUnknownError(UnknownError):
    """The cursor is not one that this server gave; start again without one."""

    code = "cursor-unknown"


class AccessError(DagAcflError):
    """Who asks may not."""


class TokenRequiredError(AccessError):
    """The server asks for a bearer token here; its operator makes one with ``dag-acfl tokens create``."""

    code = "token-required"


class TokenInvalidError(AccessError):
    """The bearer token is unknown to this server, revoked, expired, or malformed."""

    code = "token-invalid"


class TokenScopeError(AccessError):
    """The bearer token is valid, and its scope is not enough for this route."""

    code = "token-scope"


class TokenAuthorError(AccessError):
    """The bearer token was made for other authors than the one that it publishes as."""

    code = "token-author"


class AuthorRefusedError(AccessError):
    """The ledger's acts do not let this author publish: it is not listed, was rotated, or has signed two rotations."""

    code = "author-refused"


class CredentialsMismatchError(AccessError):
    """A peer's signature where a token is asked for, or a token where only a peer may ask."""

    code = "credentials-mismatch"


class QuotaExceededError(AccessError):
    """An author, or a token, has published as much as this server takes for now; wait, or ask another server."""

    code = "quota-exceeded"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s: int = retry_after_s


class GossipError(DagAcflError):
    """What a peer says breaks the protocol between servers."""


class GossipFrameError(GossipError):
    """A frame of a reconciliation breaks a rule, or a reconciliation does not end."""

    code = "gossip-frame-invalid"


class CheckpointMalformedError(GossipError):
    """A checkpoint's bytes are not the one canonical encoding, or a field is out of range."""

    code = "checkpoint-malformed"


class CheckpointRefusedError(GossipError):
    """A checkpoint of another ledger, of no member, older than one before, or against the acts in effect here."""

    code = "checkpoint-refused"


class ConfigurationError(DagAcflError):
    """A name or a parameter that a person wrote is wrong."""


class GenesisError(ConfigurationError):
    """A genesis document breaks its own rules."""

    code = "genesis-invalid"


class UnknownNameError(ConfigurationError):
    """A registry does not know this name; the message lists those that it does."""

    code = "name-unknown"

    def __init__(self, kind: str, name: str, known: Iterable[str], *, group: str = "") -> None:
        self.kind: str = kind
        self.name: str = name
        self.known: tuple[str, ...] = tuple(sorted(known))
        others = f"; or install the package that has it among its entry points {group}" if group else ""
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(self.known)}{others}")


class ParameterError(ConfigurationError):
    """A parameter is unknown, of the wrong type, or out of range."""

    code = "parameter-invalid"


class PartFailedError(DagAcflError):
    """A selector or an aggregator of an installed package raised an error; the message says which, and where."""

    code = "part-failed"


class ShapeMismatchError(DagAcflError):
    """Arrays that must agree in shape do not."""

    code = "shape-mismatch"


def _tree(root: type[DagAcflError]) -> Iterable[type[DagAcflError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


ERRORS_BY_CODE: Final[dict[str, type[DagAcflError]]] = {
    cls.code: cls for cls in _tree(DagAcflError) if "code" in vars(cls)
}
"""Every code of this module and its class: what the SDK raises when a server answers with that code."""
