"""Genesis: what the members of a ledger agree on before the first transaction, in one document.

The document is canonical JSON (sorted keys, no spaces, ASCII) and is the attachment of the genesis
transaction, so its SHA-256 is part of the ledger's id: a server with other rules has another ledger.
It holds the model's layout, which tensors are compared, the selector and aggregator with all their
parameters, hints for training, and the policy, which bounds what any request may cost.

The document only names selector and aggregator; whether these names exist is checked by who builds them
(``fl_core.selection.SELECTORS.build``), so that a newer server's ledger can still be verified offline.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Final

from fl_core.errors import GenesisError, ModelLayoutError
from fl_core.models import MAX_ABS_VALUE, ModelLayout, TensorSpec
from fl_core.types import Digest, JsonScalar, digest_of

FORMAT: Final = "dag-acfl/genesis/v1"
MAX_DOCUMENT_BYTES: Final = 1 << 20
NORM_RULES: Final = ("refuse", "clip")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
_COMPONENT: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_KEY: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The bounds that every member enforces. All counts and lengths are at least 1.

    Raises:
        GenesisError: A bound is out of range.
    """

    max_parents: int = 64
    """Most transactions that one may approve, so also the most models in one average."""
    max_candidates: int = 1000
    """Most tips that one selection compares; the deepest are kept."""
    freshness_window: int = 200
    """A tip is offered while it lies at most this many generations behind the deepest transaction."""
    num_examples_cap: int = 10_000
    """An author's weight in FedAvg counts at most this many examples, whatever it claims."""
    max_norm: float = 1e9
    """Largest Euclidean norm of a model."""
    max_norm_growth: float = 10.0
    """Largest ratio of a model's norm to the median norm of its parents and genesis; where ``norm_rule`` is
    ``clip``, of its update's to those of the models averaged with it (``fl_core.aggregation.clipping``)."""
    norm_rule: str = "refuse"
    """What happens to a model beyond ``max_norm_growth``: ``refuse`` it, or admit it and ``clip`` it in averages."""
    max_abs_value: float = MAX_ABS_VALUE
    """Largest magnitude of one value, at most 1e38."""
    max_created_ahead_s: int = 600
    """How far a creation time may lie ahead of the admitting server's clock, in seconds."""
    require_author_signature: bool = False
    """Whether authors without a key are refused."""

    def __post_init__(self) -> None:
        for name in ("max_parents", "max_candidates", "freshness_window", "num_examples_cap"):
            _check_integer(name, getattr(self, name), low=1, high=2**31)
        _check_integer("max_created_ahead_s", self.max_created_ahead_s, low=0, high=2**31)
        if self.max_parents > 1024:
            raise GenesisError(f"policy.max_parents is {self.max_parents}; the header's format allows 1024")
        for name, low, high in (
            ("max_norm", 0.0, 1e300),
            ("max_norm_growth", 1.0, 1e300),
            ("max_abs_value", 0.0, MAX_ABS_VALUE),
        ):
            value = getattr(self, name)
            if type(value) is not float or not low < value <= high or not math.isfinite(value):
                raise GenesisError(f"policy.{name} must be a number in ({low:g}, {high:g}], not {value!r}")
        if self.norm_rule not in NORM_RULES:
            raise GenesisError(f"policy.norm_rule must be one of {', '.join(NORM_RULES)}, not {self.norm_rule!r}")
        if type(self.require_author_signature) is not bool:
            raise GenesisError("policy.require_author_signature must be true or false")


@dataclass(frozen=True, slots=True)
class Component:
    """A selector or an aggregator: its name in the registry and its parameters."""

    name: str
    params: Mapping[str, JsonScalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if _COMPONENT.fullmatch(self.name) is None:
            raise GenesisError(f"component name {self.name!r} must match {_COMPONENT.pattern}")
        _check_scalars(f"{self.name}.params", self.params)


@dataclass(frozen=True)
class Genesis:
    """The agreed rules of one ledger.

    Args:
        name: What people call the ledger; letters, digits, space, ``.``, ``_``, ``-``; at most 64.
        layout: Tensors of every model.
        similarity_layers: Names of the tensors that are compared (DAG-ACFL, III-D: the last layer).
        selector: Chooses tips.
        aggregator: Makes one model of the chosen tips.
        training: Hints for clients, such as ``epochs`` (E), ``initial_epochs`` (E′), ``learning_rate``.
        policy: Bounds.

    Raises:
        GenesisError: A field breaks its rule.
    """

    name: str
    layout: ModelLayout
    similarity_layers: tuple[str, ...]
    selector: Component
    aggregator: Component
    training: Mapping[str, JsonScalar] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise GenesisError(f"ledger name {self.name!r} must match {_NAME.pattern}")
        if not self.similarity_layers:
            raise GenesisError("similarity_layers must name at least one tensor of the layout")
        try:
            self.layout.slices(self.similarity_layers)
        except ModelLayoutError as error:
            raise GenesisError(f"similarity_layers: {error}") from error
        _check_scalars("training", self.training)

    @cached_property
    def document(self) -> bytes:
        """The canonical bytes."""
        content = {
            "format": FORMAT,
            "name": self.name,
            "layout": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in self.layout.tensors],
            "similarity_layers": list(self.similarity_layers),
            "selector": {"name": self.selector.name, "params": dict(self.selector.params)},
            "aggregator": {"name": self.aggregator.name, "params": dict(self.aggregator.params)},
            "training": dict(self.training),
            "policy": _policy_content(self.policy),
        }
        return canonical_json(content)

    @cached_property
    def digest(self) -> Digest:
        """SHA-256 of the document: the genesis transaction's attachment digest."""
        return digest_of(self.document)


def parse_genesis(document: bytes) -> Genesis:
    """Read a genesis document back.

    Raises:
        GenesisError: Not a genesis document of this version, not canonical, or a rule is broken.
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        raise GenesisError(f"a genesis document has at most {MAX_DOCUMENT_BYTES} bytes")
    try:
        content = json.loads(document)
        if content["format"] != FORMAT:
            raise GenesisError(f"genesis format {content['format']!r}; this version reads {FORMAT!r}")
        genesis = Genesis(
            name=content["name"],
            layout=ModelLayout(tuple(TensorSpec(t["name"], t["dtype"], tuple(t["shape"])) for t in content["layout"])),
            similarity_layers=tuple(content["similarity_layers"]),
            selector=Component(**content["selector"]),
            aggregator=Component(**content["aggregator"]),
            training=content["training"],
            policy=Policy(**content["policy"]),
        )
    except GenesisError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ModelLayoutError) as error:
        raise GenesisError(f"not a genesis document: {error}"[:300]) from error
    if genesis.document != document:
        raise GenesisError("the genesis document is not in canonical form")
    return genesis


def canonical_json(content: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys, no spaces, ASCII only; floats as the shortest text that reads back the same.

    Raises:
        ValueError: A number is NaN or infinite.
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def policy_fields() -> tuple[str, ...]:
    """Names of the policy's bounds, in order."""
    return tuple(f.name for f in fields(Policy))


def _policy_content(policy: Policy) -> dict[str, JsonScalar]:
    content = asdict(policy)
    if policy.norm_rule == "refuse":
        del content["norm_rule"]  # as in documents from before there was a choice, whose ledgers keep their ids
    return content


def _check_integer(name: str, value: object, *, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise GenesisError(f"policy.{name} must be an integer in [{low}, {high}], not {value!r}")


def _check_scalars(where: str, values: Mapping[str, JsonScalar]) -> None:
    if not isinstance(values, Mapping) or len(values) > 64:
        raise GenesisError(f"{where} must be a table of at most 64 entries")
    for key, value in values.items():
        if not isinstance(key, str) or _KEY.fullmatch(key) is None:
            raise GenesisError(f"{where}: key {key!r} must match {_KEY.pattern}")
        if not isinstance(value, str | int | float | bool):
            raise GenesisError(f"{where}.{key} must be text, a number, true or false")
        if isinstance(value, float) and not math.isfinite(value):
            raise GenesisError(f"{where}.{key} must be finite")
