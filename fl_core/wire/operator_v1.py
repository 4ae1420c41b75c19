"""What a server's operator does over HTTP, version 1: routes, and every message body.

For the console's page, and for programs that have an operator's token. Identifiers and times are those of ``v1``.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from fl_core.dag.encoding import MAX_VALUE_BYTES
from fl_core.wire.v1 import Answer, Author, Count, HexId, Request

MEMBERS: Final = "/v1/operator/members"
REMOVALS: Final = "/v1/operator/members/removals"
SIGNATURES: Final = "/v1/operator/members/signatures"
QUARANTINES: Final = "/v1/operator/quarantines"
LIFTS: Final = "/v1/operator/quarantines/lifts"
TOKENS: Final = "/v1/operator/tokens"
REVOCATIONS: Final = "/v1/operator/tokens/revocations"
PRUNING: Final = "/v1/operator/pruning"

MAX_DAYS: Final = 36_500
MAX_SHOWN: Final = 200
"""Acts, and authors, that an answer lists."""

Reason = Annotated[str, Field(max_length=MAX_VALUE_BYTES)]
TokenName = Annotated[str, Field(min_length=1, max_length=64)]


class MembersRequest(Request):
    """Propose servers as members, or sign what proposes them."""

    servers: Annotated[list[Annotated[str, Field(max_length=2048)]], Field(min_length=1, max_length=32)] = Field(
        description="NAME=URL#KEY of each, as `dag-acfl ledger join` prints it."
    )


class RemovalRequest(Request):
    """Propose that a member is none any more, or sign what does."""

    member: HexId = Field(description="Its key.")


class SignatureRequest(Request):
    """Sign what another member has proposed."""

    act: HexId


class QuarantineRequest(Request):
    """Quarantine an author or an update, or only see what descends from it."""

    subject: Annotated[str, Field(pattern=r"^(key:|hash:|update:)[0-9a-f]{64}$", max_length=71)]
    reason: Annotated[Reason, Field(min_length=1)] = Field(description="For all to read.")
    dry_run: bool = Field(default=True, description="Only say what would be withheld.")


class LiftRequest(Request):
    """End a quarantine."""

    act: HexId = Field(description="The quarantine's.")
    reason: Reason = ""


class TokenRequest(Request):
    """Make a client's token; an operator's is made on the server's machine."""

    name: TokenName = Field(description="For whom it is; unique.")
    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] | None = Field(default=None, description="Null: it never expires.")
    authors: Annotated[list[Author], Field(max_length=100)] = Field(
        default=[], description="Who may publish with it; none: anybody."
    )


class RevocationRequest(Request):
    """Revoke a token for good."""

    token: TokenName = Field(description="Its name or id.")


class PruneRequest(Request):
    """Drop models that nobody can be offered any more, for some seconds; or only count them."""

    keep_days: Annotated[float, Field(ge=0, le=MAX_DAYS)] = Field(
        description="What was received in the last so many days of ledger time stays."
    )
    dry_run: bool = Field(default=True, description="Only count.")
    after: HexId | None = Field(default=None, description="Where to go on: of the answer before.")


class MemberOut(Answer):
    """A server that is a member of the ledger."""

    name: str
    key: HexId
    url: str = Field(description="As its act says; may be empty.")


class ActOut(Answer):
    """What members have decided, or what one has proposed."""

    act: HexId
    kind: str
    what: str = Field(description="In words.")
    reason: str
    created_at: str = Field(description="By who proposed it, RFC 3339 in UTC.")
    state: Literal["in effect", "proposed", "past"] = Field(
        description="Proposed: too few members have signed. Past: it can take effect no more."
    )
    needed: Count = Field(description="Signatures of members that put it into effect.")
    signed_by: list[str] = Field(description="Members, by name.")
    waits_for: list[str] = Field(description="Members that may sign yet, by name.")
    is_signed_here: bool = Field(
        description="Whether this server has signed. A quarantine then holds here, unless it has signed a lift, too."
    )


class MembersOut(Answer):
    """The members of the ledger, and what they have decided."""

    ledger: HexId
    public_key: HexId = Field(description="This server's.")
    is_member: bool = Field(description="Whether this server is one, and so may propose and sign.")
    needed: Count = Field(description="Signatures that an act needs now.")
    members: list[MemberOut]
    acts: list[ActOut] = Field(description="Those that wait for signatures first, then the newest; so many at most.")
    acts_in_all: Count


class DecidedOut(Answer):
    """How each act stands that a request has proposed or signed."""

    acts: list[ActOut]


class DescentOut(Answer):
    """What of one author's updates descends from what would be quarantined."""

    author: Author
    descendants: Count = Field(description="Updates with such a step in their model.")
    beyond: Count = Field(description="Of these, those that would be offered to nobody.")
    clean: HexId | None = Field(description="Its newest update that would be offered; null: none.")


class QuarantinedOut(DecidedOut):
    """What a quarantine withholds, as this server sees it now; no acts where it was only asked for."""

    subjects: list[str] = Field(description="Authors under all their names, and updates.")
    max_taint: float
    descendants: Count
    beyond: Count
    authors_in_all: Count
    authors: list[DescentOut] = Field(description="Those with most of them first; so many at most.")


class TokenOut(Answer):
    """A token, without its secret."""

    id: str = Field(description="The first 12 digits of its SHA-256.")
    name: str
    scope: Literal["client", "metrics", "operator"]
    created_at: str
    expires_at: str | None = Field(description="Null: never.")
    authors: list[Author] = Field(description="Who may publish with it; none: anybody.")
    is_valid: bool
    is_yours: bool = Field(description="Whether it is the one that was shown for this answer.")


class TokensOut(Answer):
    """The tokens of this server, oldest first."""

    items: list[TokenOut]


class NewTokenOut(Answer):
    """A new token; its secret is nowhere else."""

    secret: str
    token: TokenOut


class PrunedOut(Answer):
    """What was pruned, or would be, in the part of the models that was looked at."""

    dry_run: bool
    transactions: Count
    kept: Count = Field(description="Transactions whose models are here and stay by the rule.")
    models: Count = Field(description="Models that went, or would.")
    nbytes: Count = Field(description="Their size.")
    held: Count = Field(description="Models that stay.")
    is_whole: bool = Field(description="Whether the last part was looked at; if not, ask again with `after`.")
    after: HexId | None
    storage_bytes: Count = Field(description="What the journal takes now.")
