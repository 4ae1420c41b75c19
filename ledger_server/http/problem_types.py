"""The problem types that are the server's own: every code that is no row of ``ledger_server.api.errors``.

What each means in one sentence, for ``/problems/<code>`` and docs/protocol.md; a test holds the list to the codes
that the source raises.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class ProblemType(NamedTuple):
    """The status that a code comes with, and what it means."""

    status: int
    meaning: str


PROBLEM_TYPES: Final[Mapping[str, ProblemType]] = {
    "request-malformed": ProblemType(400, "The bytes are not an HTTP/1.1 request."),
    "body-malformed": ProblemType(400, "The body is not a multipart form, or ends before its closing boundary."),
    "json-malformed": ProblemType(400, "The body is not JSON."),
    "bad-request": ProblemType(400, "The request cannot be read."),
    "token-in-query": ProblemType(400, "A token belongs into the Authorization field; a URL ends up in logs."),
    "peer-signature-required": ProblemType(401, "Only peers may ask here, and their requests are signed."),
    "peer-signature-malformed": ProblemType(401, "The signature's fields have not the one form of the protocol."),
    "peer-unknown": ProblemType(401, "The signing key is not on this server's list of peers."),
    "peer-signature-stale": ProblemType(
        401, "The signature was made too long ago, or ahead of this server's clock, or before the server began."
    ),
    "peer-signature-invalid": ProblemType(401, "The signature does not verify for this request."),
    "peer-nonce-used": ProblemType(401, "This very request was made before."),
    "peer-digest-mismatch": ProblemType(401, "The body is not the one that was signed."),
    "peer-wrong-recipient": ProblemType(403, "The request is signed for another server."),
    "peer-banned": ProblemType(403, "This server does not speak to the peer (any more: it sent what no server sends)."),
    "not-found": ProblemType(404, "There is nothing at this path."),
    "method-not-allowed": ProblemType(405, "This path has other methods; Allow lists them."),
    "request-timeout": ProblemType(408, "The request's head or body did not arrive in time."),
    "body-too-large": ProblemType(413, "The body, or a part of the form, is larger than this path takes."),
    "unsupported-media-type": ProblemType(
        415, "The body, or a part of the form, has another type than this path takes."
    ),
    "content-encoding-unsupported": ProblemType(415, "Bodies are taken as they are, without Content-Encoding."),
    "range-not-satisfiable": ProblemType(416, "The range lies outside the model."),
    "request-invalid": ProblemType(
        422, "A field is unknown, missing, or not what it must be; `errors` lists where and why."
    ),
    "json-refused": ProblemType(
        422, "JSON that two readers could take differently: a name twice, a number too large, too deep."
    ),
    "parts-invalid": ProblemType(422, "A part of the form is missing, unknown, or stands twice."),
    "query-invalid": ProblemType(422, "A query parameter is unknown, stands twice, or has no such value."),
    "headers-too-large": ProblemType(431, "The request's head is too large or has too many fields."),
    "internal-error": ProblemType(500, "A fault of the server; its log has the reason under the request's id."),
    "draining": ProblemType(503, "The server is shutting down."),
    "too-busy": ProblemType(503, "As many requests or bytes are in progress as the server takes; see Retry-After."),
    "too-many-connections": ProblemType(503, "As many connections are open as the server takes."),
    "unavailable": ProblemType(503, "Not now; see Retry-After."),
}
