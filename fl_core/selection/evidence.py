"""Selection evidence: who asked, what was compared and what was decided, as canonical JSON that a header names.

BEAST repeats itself to the bit only on one build with one CPU path, so nobody recomputes a choice: the
evidence records what was compared and what was decided, and what can be recomputed (the aggregate, from
the parents) is named by its digest. The SHA-256 of these bytes is the selection's id.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from fl_core.dag.author import split_author
from fl_core.dag.encoding import MAX_INTEGER
from fl_core.dag.genesis import Component, canonical_json, check_scalars
from fl_core.errors import GenesisError, TransactionInvalidError
from fl_core.selection.protocol import RankedCandidate, Selection
from fl_core.types import AuthorId, Digest, JsonScalar, TxId, digest_of, is_hex_id

FORMAT: Final = "dag-acfl/evidence/v1"
MAX_EVIDENCE_BYTES: Final = 16 << 20
"""What is read at all; a ledger's bounds set the real one."""
MAX_RULE: Final = 200
LED_BACK_FROM: Final = "led_back_from"
"""The extension that names the update that was asked with, where it is withheld (``fl_core.trust.offering``)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TooFew:
    """An average of fewer models than its rule needs: how many there were, and how many it needs."""

    models: int
    needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One run of the selector.

    Args:
        ledger: Whose updates.
        author: Who asked; None for a client that has not published yet.
        reference: The update that it asked with, or that stands for it; None where the client sent its model, or begins
            anew from genesis's.
        reference_model: Digest of the model that was compared.
        selector: Name in the registry.
        params: All parameters of the selector, defaults included.
        selection: The outcome.
        weights: Share of each parent's model in the average, in the parents' order; empty where the rule has none.
        too_few: Where the average had fewer models than its rule needs.
        aggregate: Digest of the resulting model.
        aggregate_size: Its size in bytes.
        extensions: Kept as they are, for what this version does not know.
    """

    ledger: TxId
    author: AuthorId | None
    reference: TxId | None
    reference_model: Digest
    selector: str
    params: Mapping[str, JsonScalar]
    selection: Selection
    weights: tuple[float, ...] = ()
    too_few: TooFew | None = None
    aggregate: Digest
    aggregate_size: int
    extensions: Mapping[str, JsonScalar] = field(default_factory=dict)

    def encode(self) -> bytes:
        return canonical_json(
            {
                "format": FORMAT,
                "ledger": self.ledger,
                "asker": {"author": self.author, "update": self.reference, "model": self.reference_model},
                "selector": {"name": self.selector, "params": dict(self.params)},
                "rule": self.selection.rule,
                "source": self.selection.source,
                "cut": self.selection.cut,
                "parents": list(self.selection.parents),
                "candidates": [
                    {
                        "update": c.transaction,
                        "author": c.author,
                        "similarity": c.similarity,
                        "update_similarity": c.update_similarity,
                        "score": c.probability,
                        "selected": c.selected,
                    }
                    for c in self.selection.candidates
                ],
                "weights": list(self.weights),
                "too_few": None if self.too_few is None else asdict(self.too_few),
                "aggregate": {"digest": self.aggregate, "size": self.aggregate_size},
                "extensions": dict(self.extensions),
            }
        )


def evidence_id(encoded: bytes) -> Digest:
    """The selection's id."""
    return digest_of(encoded)


def parse_evidence(encoded: bytes) -> Evidence:
    """Read evidence back.

    Raises:
        TransactionInvalidError: Not selection evidence of this version, or not canonical.
    """
    if len(encoded) > MAX_EVIDENCE_BYTES:
        raise TransactionInvalidError(f"selection evidence has at most {MAX_EVIDENCE_BYTES} bytes")
    try:
        content: dict[str, Any] = json.loads(encoded)
        if b"\\ud" in encoded:  # half of a surrogate pair is no text: no answer could hold it
            json.dumps(content, ensure_ascii=False).encode()
        if content["format"] != FORMAT:
            raise TransactionInvalidError(f"evidence format {content['format']!r}; this version reads {FORMAT!r}")
        asker, few = content["asker"], content["too_few"]
        selector = Component(content["selector"]["name"], content["selector"]["params"])
        check_scalars("extensions", content["extensions"])
        evidence = Evidence(
            ledger=TxId(_hex_id(content["ledger"])),
            author=None if asker["author"] is None else _author(asker["author"]),
            reference=None if asker["update"] is None else TxId(_hex_id(asker["update"])),
            reference_model=Digest(_hex_id(asker["model"])),
            selector=selector.name,
            params=selector.params,
            selection=_selection(content),
            weights=tuple(_number(weight) for weight in content["weights"]),
            too_few=None if few is None else TooFew(_count(few["models"]), _count(few["needed"])),
            aggregate=Digest(_hex_id(content["aggregate"]["digest"])),
            aggregate_size=_count(content["aggregate"]["size"]),
            extensions=content["extensions"],
        )
        canonical = evidence.encode() == encoded
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, GenesisError) as error:
        raise TransactionInvalidError(f"not selection evidence: {error}"[:300]) from error
    if not canonical:
        raise TransactionInvalidError("the selection evidence is not in canonical form")
    if len(evidence.weights) not in (0, len(evidence.selection.parents)) or any(w < 0 for w in evidence.weights):
        raise TransactionInvalidError("weights are one for each parent, at least 0, or none")
    return evidence


def _selection(content: Mapping[str, Any]) -> Selection:
    source = content["source"]
    parents = tuple(TxId(_hex_id(parent)) for parent in content["parents"])
    if source not in ("parents", "own") or not parents:
        raise TransactionInvalidError("selection evidence names no parents, or an unknown source")
    ranked = tuple(
        RankedCandidate(
            transaction=TxId(_hex_id(c["update"])),
            author=_author(c["author"]),
            similarity=_number(c["similarity"]),
            update_similarity=_number(c["update_similarity"]),
            probability=None if c["score"] is None else _number(c["score"]),
            selected=_of_type(c["selected"], bool),
        )
        for c in content["candidates"]
    )
    rule = _of_type(content["rule"], str)
    if len(rule) > MAX_RULE:
        raise TransactionInvalidError(f"the rule's name has at most {MAX_RULE} characters")
    return Selection(parents=parents, source=source, rule=rule, cut=_count(content["cut"]), candidates=ranked)


def _of_type(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TransactionInvalidError(f"evidence holds {str(value)[:40]!r} where a {kind.__name__} belongs")
    return value


def _number(value: object) -> float:
    number = _of_type(value, float)
    if not math.isfinite(number):
        raise TransactionInvalidError("numbers in evidence are finite")
    return number


def _count(value: object) -> int:
    number = _of_type(value, int)
    if not 0 <= number <= MAX_INTEGER:
        raise TransactionInvalidError("counts in evidence are between 0 and 2^63 - 1")
    return number


def _author(value: object) -> AuthorId:
    split_author(_of_type(value, str))
    return AuthorId(str(value))


def _hex_id(value: object) -> str:
    text = _of_type(value, str)
    if not is_hex_id(text):
        raise TransactionInvalidError("an id in the evidence is not 64 lowercase hexadecimal digits")
    return text
