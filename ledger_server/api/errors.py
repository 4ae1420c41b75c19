"""Each error's HTTP answer: one row per code of ``fl_core.errors``, and those that only a server has."""

from collections.abc import Mapping
from typing import Final

from fl_core.errors import ERRORS_BY_CODE
from ledger_server.http.problems import ProblemKind

CATALOGUE: Final[Mapping[str, ProblemKind]] = {
    "error": ProblemKind(500, "Error"),
    "model-malformed": ProblemKind(422, "The model is not a safetensors file"),
    "model-too-large": ProblemKind(413, "The model is too large"),
    "model-layout": ProblemKind(422, "The model's tensors are not those of genesis"),
    "model-not-canonical": ProblemKind(422, "The model is not canonically encoded"),
    "model-not-finite": ProblemKind(422, "The model holds values that are not finite"),
    "model-norm": ProblemKind(422, "The model's norm is beyond the ledger's bounds"),
    "header-malformed": ProblemKind(422, "The header is not canonical"),
    "wrong-ledger": ProblemKind(422, "The transaction is for another ledger"),
    "parents-invalid": ProblemKind(422, "The parents are not valid"),
    "parents-unknown": ProblemKind(409, "Parents are unknown here"),
    "parents-stale": ProblemKind(422, "The parents are too old"),
    "signature-invalid": ProblemKind(422, "The signature does not verify"),
    "signature-required": ProblemKind(422, "A signature is required"),
    "sequence-conflict": ProblemKind(409, "The sequence number is used"),
    "digest-mismatch": ProblemKind(422, "A digest does not match"),
    "act-invalid": ProblemKind(422, "The act is not valid"),
    "transaction-invalid": ProblemKind(422, "The transaction is not valid"),
    "transaction-unknown": ProblemKind(404, "The transaction is unknown here"),
    "model-unknown": ProblemKind(404, "The model is unknown here"),
    "model-pruned": ProblemKind(410, "The model was pruned here"),
    "selection-unknown": ProblemKind(404, "The selection is unknown here"),
    "cursor-unknown": ProblemKind(410, "The cursor is unknown here"),
    "token-required": ProblemKind(401, "A bearer token is required"),
    "token-invalid": ProblemKind(401, "The bearer token is not valid"),
    "token-scope": ProblemKind(403, "The bearer token's scope is not enough"),
    "credentials-mismatch": ProblemKind(403, "Credentials of another kind are required"),
    "checkpoint-malformed": ProblemKind(422, "The checkpoint is not canonical"),
    "gossip-frame-invalid": ProblemKind(400, "The gossip frame is not valid"),
    "genesis-invalid": ProblemKind(422, "The genesis is not valid"),
    "name-unknown": ProblemKind(422, "The name is unknown"),
    "parameter-invalid": ProblemKind(422, "A parameter is not valid"),
    "shape-mismatch": ProblemKind(422, "Shapes do not match"),
    "model-corrupt": ProblemKind(503, "A stored model is damaged"),
    "selector-unavailable": ProblemKind(503, "The selector is not available"),
    "store-unavailable": ProblemKind(503, "The database is not available"),
    "store-error": ProblemKind(503, "The database does not do what was asked"),
    "store-location": ProblemKind(503, "The database is not where it was"),
    "store-inconsistent": ProblemKind(500, "The database contradicts the ledger"),
    "schema-behind": ProblemKind(503, "The database is older than this server"),
    "schema-ahead": ProblemKind(503, "The database is newer than this server"),
    "ledger-exists": ProblemKind(409, "There is a ledger already"),
}
"""Status and title per code; the titles are stable for people, the codes for programs."""

assert ERRORS_BY_CODE.keys() <= CATALOGUE.keys(), "every code of the core has a row"
