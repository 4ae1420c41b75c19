"""Every problem type: one row per code of an error class, and those that the server has besides.

A code has one status, and a title that says what it means. docs/protocol.md lists them, ``/problems/<code>`` shows
them, and tests hold them to what the source raises.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from fl_core.errors import ERRORS_BY_CODE


class ProblemType(NamedTuple):
    """The status that a code comes with, and what it means; the title is stable for people, the code for programs."""

    status: int
    title: str


ERROR_TYPES: Final[Mapping[str, ProblemType]] = {
    "error": ProblemType(500, "Error"),
    "model-malformed": ProblemType(422, "The model is not a safetensors file"),
    "model-too-large": ProblemType(413, "The model is too large"),
    "model-layout": ProblemType(422, "The model's tensors are not those of genesis"),
    "model-not-canonical": ProblemType(422, "The model is not canonically encoded"),
    "model-not-finite": ProblemType(422, "The model holds values that are not finite"),
    "model-norm": ProblemType(422, "The model's norm is beyond the ledger's bounds"),
    "step-too-long": ProblemType(422, "The model lies too far from the average of its parents"),
    "header-malformed": ProblemType(422, "The header is not canonical"),
    "wrong-ledger": ProblemType(422, "The transaction is for another ledger"),
    "parents-invalid": ProblemType(422, "The parents are not valid"),
    "parents-unknown": ProblemType(409, "Parents are unknown here"),
    "parents-stale": ProblemType(422, "The parents are too old"),
    "signature-invalid": ProblemType(422, "The signature does not verify"),
    "signature-required": ProblemType(422, "A signature is required"),
    "sequence-conflict": ProblemType(409, "The sequence number is used, or far beyond the author's next"),
    "digest-mismatch": ProblemType(422, "A digest does not match"),
    "act-invalid": ProblemType(422, "The act is not valid"),
    "members-refused": ProblemType(409, "This server cannot propose or sign that"),
    "transaction-invalid": ProblemType(422, "The transaction is not valid"),
    "transaction-unknown": ProblemType(404, "The transaction is unknown here"),
    "model-unknown": ProblemType(404, "The model is unknown here"),
    "model-pruned": ProblemType(410, "The model was pruned here"),
    "evidence-archived": ProblemType(410, "The evidence was moved to an archive, which the server's operator has"),
    "base-unknown": ProblemType(409, "The model that another one is coded by is unknown here"),
    "selection-unknown": ProblemType(404, "The selection is unknown here"),
    "cursor-unknown": ProblemType(410, "The cursor is unknown here"),
    "token-required": ProblemType(401, "A bearer token is required"),
    "token-invalid": ProblemType(401, "The bearer token is not valid"),
    "token-scope": ProblemType(403, "The bearer token's scope is not enough"),
    "token-author": ProblemType(403, "The bearer token is other authors'"),
    "author-refused": ProblemType(403, "The ledger's members do not let this author publish"),
    "credentials-mismatch": ProblemType(403, "Credentials of another kind are required"),
    "quota-exceeded": ProblemType(429, "An author or a token publishes more than this server takes; see Retry-After"),
    "checkpoint-malformed": ProblemType(422, "The checkpoint is not canonical"),
    "checkpoint-refused": ProblemType(422, "This ledger does not go by the checkpoint"),
    "gossip-frame-invalid": ProblemType(400, "The gossip frame is not valid"),
    "genesis-invalid": ProblemType(422, "The genesis is not valid"),
    "name-unknown": ProblemType(422, "The name is unknown"),
    "parameter-invalid": ProblemType(422, "A parameter is not valid"),
    "shape-mismatch": ProblemType(422, "Shapes do not match"),
    "part-failed": ProblemType(503, "A part of an installed package failed"),
    "model-corrupt": ProblemType(503, "A stored model is damaged"),
    "store-unavailable": ProblemType(503, "The database is not available"),
    "store-error": ProblemType(503, "The database does not do what was asked"),
    "store-location": ProblemType(503, "The database is not where it was"),
    "store-inconsistent": ProblemType(500, "The database contradicts the ledger"),
    "schema-behind": ProblemType(503, "The database is older than this server"),
    "schema-ahead": ProblemType(503, "The database is newer than this server"),
    "ledger-exists": ProblemType(409, "There is a ledger already"),
}
"""Of ``fl_core.errors`` and the server's own error classes."""

REFUSAL_TYPES: Final[Mapping[str, ProblemType]] = {
    "request-malformed": ProblemType(400, "The bytes are not an HTTP/1.1 request"),
    "body-malformed": ProblemType(400, "The body is not a multipart form, or ends before its closing boundary"),
    "json-malformed": ProblemType(400, "The body is not JSON"),
    "token-in-query": ProblemType(400, "A token belongs into the Authorization field; a URL ends up in logs"),
    "peer-signature-required": ProblemType(401, "Only peers may ask here, and their requests are signed"),
    "peer-signature-malformed": ProblemType(401, "The signature's fields have not the one form of the protocol"),
    "peer-unknown": ProblemType(401, "The signing key is no peer's of this server"),
    "peer-signature-stale": ProblemType(
        401, "The signature was made too long ago, or ahead of this server's clock, or before the server began"
    ),
    "peer-signature-invalid": ProblemType(401, "The signature does not verify for this request"),
    "peer-nonce-used": ProblemType(401, "This very request was made before"),
    "peer-digest-mismatch": ProblemType(401, "The body is not the one that was signed"),
    "peer-wrong-recipient": ProblemType(403, "The request is signed for another server"),
    "peer-banned": ProblemType(403, "This server does not speak to the peer (any more: it sent what no server sends)"),
    "not-found": ProblemType(404, "There is nothing at this path"),
    "method-not-allowed": ProblemType(405, "This path has other methods; Allow lists them"),
    "elsewhere": ProblemType(
        421,
        "A server that asks no token answers only to names of its own machine, and no web page of elsewhere; nor does "
        "such a page do what operators do",
    ),
    "request-timeout": ProblemType(408, "The request's head or body did not arrive in time"),
    "body-too-large": ProblemType(413, "The body, or a part of the form, is larger than this path takes"),
    "unsupported-media-type": ProblemType(
        415, "The body, or a part of the form, has another type than this path takes"
    ),
    "content-encoding-unsupported": ProblemType(415, "Bodies are taken as they are, without Content-Encoding"),
    "range-not-satisfiable": ProblemType(416, "The range lies outside the model"),
    "request-invalid": ProblemType(
        422, "A field is unknown, missing, or not what it must be; `errors` lists where and why"
    ),
    "json-refused": ProblemType(
        422, "JSON that two readers could take differently: a name twice, a number too large, too deep"
    ),
    "parts-invalid": ProblemType(422, "A part of the form is missing, unknown, or stands twice"),
    "query-invalid": ProblemType(422, "A query parameter is unknown, stands twice, or has no such value"),
    "headers-too-large": ProblemType(431, "The request's head is too large or has too many fields"),
    "internal-error": ProblemType(500, "A fault of the server; its log has the reason under the request's id"),
    "draining": ProblemType(503, "The server is shutting down"),
    "catching-up": ProblemType(503, "The server is still fetching what its peers hold; of `/readyz` alone"),
    "too-busy": ProblemType(
        503,
        "As many requests or bytes, or as many of yours, are in progress as may be. Retry-After says of a selection "
        "when your turn comes, in which you are let in before others",
    ),
    "source-damaged": ProblemType(503, "The results that this console shows can no longer be read; of `ledger view`"),
    "too-many-connections": ProblemType(503, "As many connections, or as many of one address, are open as may be"),
}
"""Of what the server refuses before the ledger is asked."""

PROBLEM_TYPES: Final[Mapping[str, ProblemType]] = {**ERROR_TYPES, **REFUSAL_TYPES}

assert ERRORS_BY_CODE.keys() <= ERROR_TYPES.keys(), "every code of the core has a row"
