"""Version 1 of the HTTP API: routes, media types, and every message body.

Requests refuse unknown fields and never coerce (``"1"`` is not an integer); answers may gain fields in
later releases, so clients ignore what they do not know. Identifiers are 64 lowercase hexadecimal digits,
times RFC 3339 in UTC with milliseconds.
"""

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from fl_core.dag.encoding import MAX_ENTRIES, MAX_INTEGER, MAX_VALUE_BYTES
from fl_core.dag.transaction import MAX_METRICS, MAX_PARENTS
from fl_core.types import JsonScalar

MODEL_MEDIA_TYPE: Final = "application/vnd.safetensors"
STEP_MEDIA_TYPE: Final = "application/vnd.dag-acfl.step"
"""A model by what it differs by from another one (``fl_core.step_coding``)."""
PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
MAX_CARRIED_EVIDENCE: Final = 48 * 1024
"""Characters of evidence that a publication may bring along: more than a hundred candidates."""

GENESIS: Final = "/v1/genesis"
SELECTIONS: Final = "/v1/selections"
SELECTION: Final = "/v1/selections/{selection}"
SELECTION_WITHOUT: Final = "/v1/selections/{selection}/without/{parent}"
MODEL: Final = "/v1/models/{digest}"
TRANSACTIONS: Final = "/v1/transactions"
TRANSACTION: Final = "/v1/transactions/{transaction}"
TRANSACTION_MODEL: Final = "/v1/transactions/{transaction}/model"
TRANSACTION_HEADER: Final = "/v1/transactions/{transaction}/header"
TRANSACTION_ATTACHMENT: Final = "/v1/transactions/{transaction}/attachment"
TIPS: Final = "/v1/tips"
CLUSTERS: Final = "/v1/clusters"
CLIENTS: Final = "/v1/clients"
PEERS: Final = "/v1/peers"
ACTS: Final = "/v1/acts"
QUARANTINE: Final = "/v1/quarantine"
COSTS: Final = "/v1/costs"
EVENTS: Final = "/v1/events"
ALARMS: Final = "/v1/alarms"
VIEW_SOURCE: Final = "/v1/view/source"
VIEW_UPDATES: Final = "/v1/view/updates"
VIEW_LEDGER: Final = "/v1/view/ledger"
VIEW_DENSITY: Final = "/v1/view/density"
VIEW_SEARCH: Final = "/v1/view/search"
VIEW_SERVERS: Final = "/v1/view/servers"
VIEW_EVENTS: Final = "/v1/view/events"
VIEW_UPDATE: Final = "/v1/view/updates/{transaction}"
STREAMS: Final = frozenset({EVENTS, VIEW_EVENTS})
"""Answers that end when somebody leaves."""
PROBLEM: Final = "/problems/{code}"
SUPERVISION: Final = frozenset({"/healthz", "/readyz", "/version", "/metrics"})
"""What supervisors ask: answered however many ask for the rest, logged at debug, not traced."""

HexId = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]
Author = Annotated[str, Field(pattern=r"^(key|hash):[0-9a-f]{64}$", max_length=69)]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$", min_length=128, max_length=128)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
MetricName = Annotated[str, Field(pattern=r"^[a-z0-9_.-]{1,64}$", max_length=64)]
MetricValue = Annotated[float, Field(allow_inf_nan=False)]
Metrics = Annotated[dict[MetricName, MetricValue], Field(max_length=2 * MAX_METRICS)]
ExtensionValue = Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=2 * MAX_VALUE_BYTES)]
Extensions = Annotated[dict[MetricName, ExtensionValue], Field(max_length=MAX_ENTRIES)]


class Request(BaseModel):
    """A body that a client sends: strict types, no unknown fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Answer(BaseModel):
    """A body that a server sends; a client ignores fields of later releases."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)
    not_in_brief: ClassVar[frozenset[str]] = frozenset()
    """Members that a brief answer (``?brief=1``) lacks: what a small device needs for no further call."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The class's JSON schema, which asks for no member that a brief answer lacks."""
        described = handler(core_schema)
        schema = handler.resolve_ref_schema(described)
        schema["required"] = [name for name in schema.get("required", ()) if name not in cls.not_in_brief]
        return described


class SelectRequest(Request):
    """Ask for a selection by the id of one's newest transaction (DAG-ACFL's steps 1-3)."""

    transaction: HexId = Field(description="Id of the client's newest transaction.")


class AskerRequest(Request):
    """Who asks for what is left of a selection's average: its asker, by a key's signature or by a secret."""

    author: Author | None = Field(default=None, description="key:<Ed25519 public key>, or hash:<digest of secret>.")
    secret: HexId | None = Field(default=None, description="Of an author without a key, as in its publications.")
    signature: Signature | None = Field(
        default=None, description="The author's Ed25519 signature of the selection's id (docs/protocol.md)."
    )


class CarriedEvidence(Request):
    """A selection's evidence that another server made, with that server's signature.

    A client that publishes elsewhere than where it asked brings the evidence along, so that its transaction, which
    names the evidence and is signed, is the same one on whichever server it arrives.
    """

    document: Annotated[str, Field(max_length=MAX_CARRIED_EVIDENCE)] = Field(
        description="The evidence's canonical JSON; its SHA-256 is the selection's id."
    )
    issuer: HexId = Field(description="Public key of the server that made it.")
    signature: Signature = Field(description="Ed25519 over the selection's id, as docs/protocol.md says.")


class PublishRequest(Request):
    """The ``transaction`` part of a publication; the ``model`` part holds the safetensors bytes.

    A client with a key sends ``author``, ``sequence``, ``created_at_ms`` and ``signature``, from which the
    header is determined to the last byte. One without a key shows its ``secret`` and may leave the others out: the
    server then fills them in.
    """

    selection: HexId | None = Field(
        default=None, description="The selection that led to the model, or whose average was refused."
    )
    parents: Annotated[list[HexId], Field(min_length=1, max_length=MAX_PARENTS)] | None = Field(
        default=None,
        description="One update of the author's own, or genesis: without a selection, or where its average was "
        "refused. Left out: the selection's.",
    )
    num_examples: Annotated[int, Field(ge=1, le=MAX_INTEGER)] = Field(
        description="Examples that the model was trained on."
    )
    metrics: Metrics = Field(default_factory=dict, description="Small numbers to keep, such as accuracy.")
    start: HexId | None = Field(
        default=None,
        description="Digest of the model that training began from. Left out: the selection's aggregate, or the model "
        "of the only parent.",
    )
    noise_std: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Standard deviation of the noise that was added to each value; similarities allow for it.",
    )
    extensions: Extensions = Field(default_factory=dict, description="Kept as they are: by name, hexadecimal.")
    author: Author | None = Field(default=None, description="key:<Ed25519 public key>, or hash:<digest of secret>.")
    secret: HexId | None = Field(
        default=None,
        description="For an author without a key: 64 random hexadecimal digits, its own and always the same. "
        "Shown to the server, never kept; the author is a digest of it.",
    )
    sequence: Count | None = Field(default=None, description="The author's count of transactions, from 0.")
    created_at_ms: Count | None = Field(default=None, description="Milliseconds since 1970 UTC.")
    signature: Signature | None = Field(
        default=None, description="The author's Ed25519 signature of the transaction id (docs/protocol.md)."
    )
    evidence: CarriedEvidence | None = Field(
        default=None, description="The selection's evidence, for a server that did not make it."
    )
    id: HexId | None = Field(default=None, description="The id that the client expects; refused if it differs.")
    model_digest: HexId | None = Field(default=None, description="SHA-256 of the model; refused if it differs.")


class ModelReference(Answer):
    """Where a model's bytes are, and what they hash to."""

    digest: HexId = Field(description="SHA-256 of the bytes; check it.")
    size: Count = Field(description="In bytes.")
    href: str = Field(description="Its route.")


class CandidateOut(Answer):
    """One candidate that was compared, in ranked order."""

    transaction: HexId = Field(description="Its id.")
    author: Author = Field(description="Its author.")
    similarity: float = Field(description="Cosine similarity to the client's model (Eq. 5).")
    update_similarity: float = Field(description="The same after subtracting the genesis model from both.")
    score: float | None = Field(
        description="Of a cut before this candidate: of beast, the probability that a new segment starts here; "
        "null if not computed."
    )
    selected: bool = Field(description="Whether it is a parent.")


class TooFewOut(Answer):
    """How many models an average had, and how many its rule needs to keep out a wrong one."""

    models: Count = Field(description="That there were.")
    needed: Count = Field(description="That the aggregator needs to keep out a wrong one.")


class StepBoundOut(Answer):
    """How far a model may lie from the average of the updates that it names as parents."""

    norm: float | None = Field(description="Longest step, Euclidean norm; null: any.")
    by_tensor: list[float] = Field(
        default_factory=list, description="Longest in each tensor, in the layout's order; none: any."
    )


class SelectionOut(Answer):
    """A selection and its evidence; ``id`` is the SHA-256 of the evidence's canonical bytes."""

    not_in_brief = frozenset(
        {"author", "reference", "reference_model", "selector", "params", "candidates", "weights", "extensions"}
        | {"issuer", "issuer_signature", "max_step", "max_step_alone"}
    )

    id: HexId = Field(description="SHA-256 of the evidence; a publication names it as its selection.")
    ledger: HexId = Field(description="Id of the ledger: of its genesis transaction.")
    author: Author | None = Field(description="Who asked; null for a client that has not published yet.")
    reference: HexId | None = Field(description="The asking transaction; null where a model was sent.")
    reference_model: HexId = Field(description="Digest of the model that was compared.")
    selector: str = Field(description="Name of the selector.")
    params: dict[str, JsonScalar] = Field(default_factory=dict, description="All parameters of the selector.")
    rule: str = Field(description="Which rule of the selector decided.")
    source: Literal["parents", "own"] = Field(
        description="parents: the mean of the parents' models; own: the client keeps its own model."
    )
    cut: Count = Field(description="How many candidates were taken.")
    parents: list[HexId] = Field(description="What a publication approves, ascending.")
    candidates: list[CandidateOut] = Field(
        description="What was taken, and as many that came next, 32 at least, in ranked order."
    )
    weights: list[float] = Field(description="Share of each parent's model in the average, or none.")
    too_few: TooFewOut | None = Field(description="Where the average had fewer models than its rule needs.")
    aggregate: ModelReference = Field(description="The average to train on.")
    max_step: StepBoundOut | None = Field(
        default=None, description="How far from the parents' average a publication on this selection may lie."
    )
    max_step_alone: StepBoundOut | None = Field(
        default=None,
        description="The same where the own newest update is the only parent, or genesis before the first.",
    )
    extensions: dict[str, JsonScalar] = Field(
        default_factory=dict, description="``led_back_from``: the update asked with, where it is withheld."
    )
    issuer: HexId | None = Field(default=None, description="Public key of the server that answers.")
    issuer_signature: Signature | None = Field(
        default=None, description="Its signature of ``id``, for publishing on another server."
    )


class ReceiptOut(Answer):
    """A server's signed word that it received a transaction (docs/protocol.md)."""

    issuer: HexId = Field(description="The server's public key.")
    received_at: str = Field(description="By its clock, RFC 3339 in UTC.")
    received_at_ms: Count = Field(description="The same in milliseconds since 1970 UTC.")
    members_version: Count = Field(description="Of the member list that the server went by.")
    signature: Signature = Field(description="Ed25519 over id, time and version.")


class AttachmentReference(Answer):
    """Where a transaction's attachment (genesis document or selection evidence) is."""

    digest: HexId = Field(description="SHA-256 of its bytes.")
    href: str = Field(description="Its route.")


class TransactionOut(Answer):
    """A transaction as this server holds it; ``header`` has the exact bytes, hexadecimal."""

    not_in_brief = frozenset(
        {"created_at", "metrics", "extensions", "parents", "attachment", "author_signature", "receipt", "header"}
    )

    id: HexId = Field(description="Digest of the header; a selection is asked for by it.")
    ledger: HexId = Field(description="Id of the ledger: of its genesis transaction.")
    kind: Literal["genesis", "update"] = Field(description="genesis: the ledger's first; update: a trained model.")
    author: Author = Field(description="Whose training made it.")
    sequence: Count = Field(description="The author's count of transactions, from 0.")
    created_at: str = Field(description="By the author's clock, RFC 3339 in UTC; never used.")
    created_at_ms: Count = Field(description="The same in milliseconds since 1970 UTC.")
    num_examples: Count = Field(description="Examples that the model was trained on, as its author says.")
    noise_std: float = Field(description="Standard deviation of the noise that was added to each value.")
    metrics: dict[str, float] = Field(description="The author's figures, by name.")
    extensions: dict[str, str] = Field(description="By name, hexadecimal.")
    parents: list[HexId] = Field(description="What it approves, ascending; none in genesis.")
    depth: Count = Field(description="Longest way to genesis.")
    is_tip: bool = Field(description="Whether no transaction approves it yet.")
    start: HexId | None = Field(description="Digest of the model that training began from; null in genesis.")
    model: ModelReference = Field(description="The trained model.")
    attachment: AttachmentReference | None = Field(description="The selection's evidence; in genesis, its document.")
    author_signature: Signature | None = Field(description="Over the id; null where the author has no key.")
    receipt: ReceiptOut = Field(description="Of the server that it was published to.")
    header: str = Field(description="The exact bytes, hexadecimal.")


class TransactionPage(Answer):
    """Transactions in the order this server admitted them; follow ``next`` until it is null."""

    items: list[TransactionOut]
    next: str | None = Field(description="Cursor for ?after=; null at the end.")


class GenesisOut(Answer):
    """The ledger's rules and its first transaction."""

    not_in_brief = frozenset({"document", "transaction"})

    ledger: HexId
    name: str
    document: dict[str, Any]
    document_href: str
    model: ModelReference
    transaction: TransactionOut


class TipOut(Answer):
    """One tip."""

    transaction: HexId
    author: Author
    sequence: Count
    depth: Count


class TipsOut(Answer):
    """All tips, ascending; equal digests on two servers mean equal ledgers."""

    ledger: HexId
    transactions: Count
    digest: HexId = Field(description="SHA-256 of the tips' 32-byte ids, ascending.")
    items: list[TipOut]


class ClusterOut(Answer):
    """One community of authors in the approval graph."""

    authors: list[Author]
    approvals_inside: Count
    approvals_outside: Count


class ClustersOut(Answer):
    """Louvain communities of the approval graph (DAG-ACFL, Eq. 6), largest first."""

    ledger: HexId
    transactions: Count
    modularity: float | None
    clusters: list[ClusterOut]


class ClientOut(Answer):
    """One author and what it published last."""

    author: Author
    newest: HexId
    sequence: Count
    depth: Count
    is_tip: bool
    created_at: str
    num_examples: Count
    metrics: dict[str, float]


class ClientsOut(Answer):
    """All authors, ascending."""

    ledger: HexId
    items: list[ClientOut]


class AlarmOut(Answer):
    """What was odd about an author's updates, of one kind, as this server saw them come in; nothing follows from it."""

    kind: str = Field(description="zero-model, copy, no-step, large-step, unhelpful or unselected.")
    author: Author = Field(description="Whose updates.")
    update: HexId = Field(description="In which it was found last.")
    first: HexId = Field(description="In which it was found first.")
    count: Count = Field(description="How often it was found.")
    value: float = Field(description="What was measured last.")
    bound: float = Field(description="Beyond which it is odd.")
    detail: str = Field(description="In words.")


class AlarmsOut(Answer):
    """All that is odd now, by author and kind."""

    ledger: HexId
    items: list[AlarmOut]


class UpdatesViewOut(Answer):
    """Updates of a part of the journal, a column for each thing, for drawing; genesis is the first."""

    ledger: HexId
    transactions: Count = Field(description="How many the ledger has.")
    first: Count = Field(description="Arrival from which on the part goes.")
    end: Count = Field(description="Arrival before which it ends.")
    found: Count = Field(description="How many of the part are what was asked for.")
    every: Count = Field(description="1: all of these are here; n: each n-th, and no parents.")
    arrivals: list[int]
    ids: list[HexId]
    authors: list[Author] = Field(description="Those of the part, in the order in which they come.")
    author: list[int] = Field(description="Of each update, its place in `authors`.")
    servers: list[HexId] = Field(description="Keys of the servers that updates were published to.")
    server: list[int] = Field(description="Of each update, its place in `servers`.")
    parents: list[list[int]] = Field(description="Of each update, its parents' arrivals, ascending; -1: not looked up.")
    depth: list[int]
    received_at_ms: list[int] = Field(description="By the server that it was published to.")
    num_examples: list[int]
    step: list[float | None] = Field(description="Euclidean norm of its step; null: a parent's model was not here.")
    metrics: dict[str, list[float | None]] = Field(
        description="The authors' figures by name, the 24 most usual; null: not stated."
    )


class RunViewOut(Answer):
    """A run of a simulation: where it stands in its table, and its evaluated rounds, a column for each figure."""

    folder: str = Field(description="Name of its folder.")
    path: str = Field(description="Where that is on the server's machine, as a shell takes it.")
    setting: str = Field(description="The table's row: data, distribution and model.")
    participation: float = Field(description="The share of clients that take part in a round.")
    method: str = Field(description="The table's column.")
    seed: int
    rounds: Count = Field(description="How many it has when it is finished.")
    is_finished: bool
    has_ledger: bool = Field(description="Whether it left a ledger, which a console can show.")
    columns: dict[str, list[float | None]] = Field(
        description="`round`, `virtual_time_s`, `bytes` so far, and figures."
    )
    costs: dict[str, float | str] | None = Field(None, description="Measured and by formulas, once it is finished.")


class ViewSourceOut(Answer):
    """What a console is served from; who finds another ledger or another page than before begins anew."""

    kind: Literal["server", "file", "simulation"] = Field(description="file: a copy of a bundle, not a live server.")
    ledger: HexId | None = Field(description="null: none of the runs left one.")
    page: HexId = Field(description="Digest of the console's own files.")
    name: str = Field("", description="Of the file, or of the folder.")
    run: str = Field("", description="Folder of the run whose ledger is shown.")
    runs: list[RunViewOut] = Field([], description="Of the simulation, at most 200.")


class LaneOut(Answer):
    """How many updates of an author, a cluster or a server there are, column by column."""

    name: str = Field(description="An author's id, a server's key, or a cluster's place in /v1/clusters; -1: none yet.")
    updates: Count
    start: Count = Field(description="The first column that has any.")
    counts: list[int] = Field(description="How many that column and those behind it have, to the last that has any.")


class DensityViewOut(Answer):
    """How many updates there are where, for drawing more of them than there are pixels."""

    ledger: HexId
    transactions: Count = Field(description="How many the ledger has.")
    first: Count
    end: Count
    found: Count = Field(description="How many of the part are what was asked for.")
    low: int = Field(description="Where the first column begins: an arrival, a depth, or ms since 1970.")
    high: int = Field(description="The last value of the last column.")
    columns: Count
    lanes: list[LaneOut] = Field(description="Those with the most updates, at most 250.")
    left_out: Count = Field(description="How many lanes more there are.")


class FoundUpdateOut(Answer):
    """An update that was found."""

    transaction: HexId
    arrival: Count = Field(description="Its place in this server's order of arrival.")
    author: Author


class SearchViewOut(Answer):
    """Whose id begins so, in order."""

    updates: list[FoundUpdateOut]
    authors: list[Author]
    is_all: bool = Field(description="Whether that is all; at most 20 of each are named.")


class StepShareOut(Answer):
    """What a parent had of the average that a model was trained from."""

    transaction: HexId
    share: float = Field(description="The most that its model can have of it, 0 to 1.")


class TensorStepOut(Answer):
    """What training changed in a tensor."""

    tensor: str
    step: float = Field(description="Euclidean norm of the change.")


class OfferedOut(Answer):
    """A client whose model was compared for an update of a simulation."""

    author: Author
    update: HexId | None = Field(description="Its update that the update was trained from; null: it was not taken.")
    similarity: float = Field(description="What it was ranked by: cosine similarity of what was learnt, or of models.")


class UpdateViewOut(Answer):
    """What a server has recorded of an update beside its header, and where it stands."""

    transaction: HexId
    arrival: Count = Field(description="Its place in this server's order of arrival.")
    norm: float | None = Field(description="Euclidean norm of its model; null: nobody here knows it.")
    step: float | None = Field(description="Of its step.")
    tensors: list[TensorStepOut]
    parents: list[StepShareOut]
    taint: float = Field(description="Share of quarantined steps in its model, 0 to 1.")
    is_withheld: bool = Field(description="Whether it is offered to nobody, because of a quarantine.")
    alarms: list[AlarmOut]
    offered: list[OfferedOut] | None = Field(
        None, description="Of a simulation, whose updates carry no selections: who was compared, as they ranked."
    )


class DecisionOut(Answer):
    """A quarantine, or the erasure of an author's models."""

    act: HexId
    kind: Literal["quarantine", "erase"]
    subject: str = Field(description="An author, or `update:` and its id.")
    reason: str
    created_at: str = Field(description="By who proposed it, RFC 3339 in UTC.")
    signed_by: list[HexId] = Field(description="Keys of present and former members.")
    reach: Literal["everywhere", "here", "proposed", "lifted"] = Field(
        description="In effect; on this server, which has signed it; nowhere yet; not any more, here or everywhere."
    )


class AffectedClientOut(Answer):
    """An author with updates that are withheld."""

    author: Author
    state: Literal["quarantined", "erased", "led back", "healed"] = Field(
        description="Led back: its next selection begins from `clean`; healed: it has published a clean one since."
    )
    newest: HexId
    taint: float = Field(description="Share of quarantined steps in its newest model, 0 to 1.")
    withheld: Count = Field(description="How many of its updates are offered to nobody.")
    clean: HexId | None = Field(description="Its newest update that is offered; null: none, it begins from genesis.")


class QuarantineOut(Answer):
    """What the members hold to be bad, and what follows from it on this server."""

    ledger: HexId
    transactions: Count
    max_taint: float = Field(description="Beyond this share of quarantined steps an update is offered to nobody.")
    descendants: Count = Field(description="Updates with a quarantined step in their model.")
    withheld: Count = Field(description="Updates that are offered to nobody.")
    decisions: list[DecisionOut]
    clients: list[AffectedClientOut] = Field(description="Ascending by author.")


class PeerOut(Answer):
    """Another ledger server that this one exchanges transactions with."""

    name: str = Field(description="As the settings say, or the members' act.")
    url: str
    public_key: HexId
    is_neighbour: bool = Field(default=True, description="Whether they gossip; if not, others pass on what it holds.")
    is_reachable: bool = Field(description="Whether its last answer came.")
    is_banned: bool = Field(description="Whether it has sent so much that is invalid that it is not spoken to.")
    last_heard: str | None = Field(description="When it last answered or asked, RFC 3339 in UTC.")
    received_bytes: Count = Field(description="Since this process started, heads included.")
    sent_bytes: Count
    transactions: Count | None = Field(default=None, description="As many as it said that it holds.")
    troubles: list[str] = Field(default=[], description="Why it was not reached, or refused, until it is well again.")
    incidents: dict[str, Count] = Field(
        default={}, description="What it sent that was not taken, by kind, since this process started."
    )


class PeersOut(Answer):
    """This server's own key, and its peers as of now."""

    public_key: HexId
    items: list[PeerOut]


class ServerViewOut(Answer):
    """What a server says of itself and its peers, asked by another one."""

    name: str
    url: str | None = Field(description="None of the server that was asked.")
    public_key: HexId
    transactions: Count | None = Field(description="That it holds; None where it did not answer.")
    peers: list[PeerOut] = Field(description="As it sees them.")
    problem: str = Field(default="", description="Why it did not answer.")


class ServersViewOut(Answer):
    """The servers as they see one another: this one first, then the peers that it asked lately."""

    ledger: HexId
    servers: list[ServerViewOut]


class MovedOut(Answer):
    """Bytes of bodies that moved for one purpose, since the server began."""

    kind: str
    received: Count
    sent: Count


class CostsOut(Answer):
    """Measured bytes and storage beside DAG-ACFL's formulas (Eq. 8 and 10)."""

    ledger: HexId
    transactions: Count
    model_bytes: Count
    received_bytes: Count
    sent_bytes: Count
    publications: Count
    bytes_per_client_round: float | None = Field(description="Measured, per publication of this process.")
    paper_bytes_per_client_round: int = Field(description="Eq. 8 with one server: 2(|hash| + |ω|).")
    storage_bytes: Count
    ledger_payload_bytes: int = Field(description="Eq. 10: transactions × (|ω| + |σ|), σ the mean header.")
    pruned_models: Count = Field(default=0, description="Models whose bytes were dropped by policy.")
    pruned_bytes: Count = Field(default=0, description="Their size.")
    kinds: list[MovedOut] = Field(default=[], description="What was received and sent, by what it was for.")
    archived: Count = Field(default=0, description="Updates, from genesis on, whose evidence an archive may hold.")


class LedgerViewOut(Answer):
    """What all views of a page go by beside updates, each as its own route answers; of a moment ago."""

    clusters: ClustersOut | None = Field(description="null: they are being found for the first time.")
    clients: ClientsOut
    peers: PeersOut
    costs: CostsOut
    alarms: AlarmsOut
    quarantine: QuarantineOut


class VersionOut(Answer):
    """What runs here."""

    name: str
    version: str
    commit: str = Field(default="unknown", description="Of its source.")
    database_schema: str = Field(default="unknown", description="The newest revision of the tables that it knows.")
    api: str
    ledger: HexId
    public_key: HexId


class HealthOut(Answer):
    """Whether the process lives (healthz) or can serve (readyz)."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = Field(default_factory=dict)


class ProblemOut(BaseModel):
    """RFC 9457 problem details; ``type`` is ``/problems/<code>`` and stable."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str = ""
    request_id: str | None = None


def path(template: str, **values: str) -> str:
    """A route's path with its parts filled in: ``path(MODEL, digest=…)``."""
    return template.format_map(values)
