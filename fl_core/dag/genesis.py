"""Genesis: what the members of a ledger agree on before the first transaction, in one document.

The document is canonical JSON (sorted keys, no spaces, ASCII) and is the attachment of the genesis
transaction, so its SHA-256 is part of the ledger's id: a server with other rules has another ledger.
It holds the model's layout, the rules by name with their parameters, the bounds of what any request may cost, the
founding members, and hints for training.

The document only names rules; whether these names exist is checked by who builds them
(``fl_core.selection``, ``check_supported``), so that a newer server's ledger can still be verified offline.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final

from fl_core.dag.acts import Threshold
from fl_core.errors import GenesisError, ModelLayoutError, UnknownNameError
from fl_core.models import MAX_ABS_VALUE, ModelLayout, TensorSpec
from fl_core.types import Digest, JsonScalar, PublicKey, TxId, digest_of, is_hex_id

FORMAT: Final = "dag-acfl/genesis/v1"
MAX_DOCUMENT_BYTES: Final = 1 << 20
MAX_MEMBERS: Final = 256
NO_BOUND: Final = 1e300
MAX_EXACT: Final = 1 << 16
"""Values that are compared as they are; of more a sketch, so that memory follows authors and not the model's size."""
DEFAULT_EPOCHS: Final = 3
"""E where a ledger hints none, and E′ likewise: after one pass over few samples updates are mostly noise."""
SUPPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "comparison": ("all", "layers", "sketch"),
    "weights": ("examples", "equal"),
    "freshness": ("time",),
    "authors": ("open", "listed"),
}
"""Rules that this version carries out, beside the registries of selectors, aggregators and candidate rules."""
_PARAMETERS: Final[Mapping[str, Mapping[str, Mapping[str, type]]]] = {
    "comparison": {"all": {}, "layers": {"tensors": str}, "sketch": {"dimensions": int, "seed": int}},
    "weights": {"examples": {"factor": int}, "equal": {}},
    "freshness": {"time": {"window_s": int}},
    "authors": {"open": {"keys_only": bool}, "listed": {"keys_only": bool}},
}
"""Parameters of the rules that this version knows; those of later versions are not looked at."""

_MOST: Final = 2**31
"""The largest bound that is a count."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
_COMPONENT: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_KEY: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What every member enforces. All counts and lengths are at least 1.

    Raises:
        GenesisError: A bound is out of range.
    """

    max_parents: int = 64
    """Most updates that one may name as parents, so also the most models in one average."""
    max_candidates: int = 100_000
    """Most updates that are offered: members take turns, each with its longest-standing author."""
    max_compared: int = 1000
    """Most updates that one selection compares; where more are offered, half as many, whose small sketches are most
    like the asker's. Documents of a ledger that compares all that are offered do not name it, as those before it."""
    max_norm: float = 1e9
    """Largest Euclidean norm of a model."""
    max_first_step: float = 10.0
    """Longest step of all, in norms of genesis's model: that of an update upon genesis (``fl_core.dag.steps``)."""
    max_step_growth: float = 5.0
    """Longest step of an update, in medians of its parents' steps."""
    max_layer_growth: float = 10.0
    """The same of each tensor's step."""
    max_abs_value: float = MAX_ABS_VALUE
    """Largest magnitude of one value, at most 1e38."""
    max_noise_std: float = 0.0
    """Largest ``noise_std`` that an update may declare, which similarities then allow for; 0: none may."""
    max_taint: float = 0.2
    """Beyond this share of quarantined steps in its model an update is offered to nobody (``fl_core.trust``)."""
    max_evidence_bytes: int = 1 << 20
    """Largest evidence of one selection."""

    @property
    def shortlist(self) -> int:
        """How many one selection compares where more than ``max_compared`` are offered."""
        return (self.max_compared + 1) // 2

    @property
    def named(self) -> dict[str, int | float]:
        """By name, as the document has them."""
        bounds = asdict(self)
        if self.max_compared == self.max_candidates:
            del bounds["max_compared"]
        return bounds

    @property
    def limit_steps(self) -> bool:
        """Whether a step can be too long at all."""
        return min(self.max_first_step, self.max_step_growth, self.max_layer_growth) < NO_BOUND

    def __post_init__(self) -> None:
        for name in ("max_parents", "max_candidates", "max_compared", "max_evidence_bytes"):
            _check_integer(f"bounds.{name}", getattr(self, name), low=1, high=_MOST)
        object.__setattr__(self, "max_compared", min(self.max_compared, self.max_candidates))
        if self.max_parents > 1024:
            raise GenesisError(f"bounds.max_parents is {self.max_parents}; the header's format allows 1024")
        for name, low, high in (
            ("max_norm", 0.0, NO_BOUND),
            ("max_first_step", 0.0, NO_BOUND),
            ("max_step_growth", 1.0, NO_BOUND),
            ("max_layer_growth", 1.0, NO_BOUND),
            ("max_abs_value", 0.0, MAX_ABS_VALUE),
        ):
            value = getattr(self, name)
            if type(value) is not float or not low < value <= high or not math.isfinite(value):
                raise GenesisError(f"bounds.{name} must be a number in ({low:g}, {high:g}], not {value!r}")
        if type(self.max_noise_std) is not float or not 0 <= self.max_noise_std <= NO_BOUND:
            raise GenesisError(
                f"bounds.max_noise_std must be a number in [0, {NO_BOUND:g}], not {self.max_noise_std!r}"
            )
        if type(self.max_taint) is not float or not 0 <= self.max_taint <= 1:
            raise GenesisError(f"bounds.max_taint must be a number from 0 to 1, not {self.max_taint!r}")


def check_scalars(where: str, values: Mapping[str, JsonScalar]) -> None:
    """That these are at most 64 texts, numbers and truth values by name.

    Raises:
        GenesisError: They are not.
    """
    if not isinstance(values, Mapping) or len(values) > 64:
        raise GenesisError(f"{where} must be a table of at most 64 entries")
    for key, value in values.items():
        if not isinstance(key, str) or _KEY.fullmatch(key) is None:
            raise GenesisError(f"{where}: key {key!r} must match {_KEY.pattern}")
        if not isinstance(value, str | int | float | bool):
            raise GenesisError(f"{where}.{key} must be text, a number, true or false")
        if isinstance(value, float) and not math.isfinite(value):
            raise GenesisError(f"{where}.{key} must be finite")


@dataclass(frozen=True, slots=True)
class Component:
    """A rule: its name in the registry and its parameters.

    A name has no colon, so that no ledger can say ``module:Class`` and have its servers import it.
    """

    name: str
    params: Mapping[str, JsonScalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _COMPONENT.fullmatch(self.name) is None:
            raise GenesisError(
                f"a ledger names its rules by words such as top-k (small letters, digits and hyphens, at most 32), not "
                f"{self.name!r}; a part of your own gets such a name as an entry point of an installed package"
            )
        check_scalars(f"{self.name}.params", self.params)


FRESHNESS: Final = Component("time", {"window_s": 30 * 24 * 3600})
"""Thirty days: a site that publishes weekly may miss three weeks before its model is offered to nobody."""
RULES: Final[Mapping[str, Component]] = {
    "comparison": Component("all"),
    "selector": Component("beast"),
    "candidates": Component("newest"),
    "aggregator": Component("fedavg"),
    "weights": Component("examples", {"factor": 3}),
    "freshness": FRESHNESS,
    "authors": Component("open", {"keys_only": False}),
}
"""The rules of a ledger and their defaults."""


@dataclass(frozen=True, slots=True)
class Member:
    """A founding member: its server's key, and what people call it."""

    key: PublicKey
    name: str

    def __post_init__(self) -> None:
        if not (isinstance(self.key, str) and is_hex_id(self.key)):
            raise GenesisError("a member's key is 64 lowercase hexadecimal digits")
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            raise GenesisError(f"member name {self.name!r} must match {_NAME.pattern}")


def compare_layers(names: Iterable[str]) -> Component:
    """Compare these tensors, given in the layout's order (DAG-ACFL, III-D: the last layer)."""
    return Component("layers", {"tensors": " ".join(names)})


SKETCH: Final = Component("sketch", {"dimensions": 8192, "seed": 1})
"""1,000 authors take 32 MB, whatever their models' size."""


def compare_all(layout: ModelLayout, buffers: Iterable[str] = ()) -> Component:
    """Compare everything that is trained: as it is up to ``MAX_EXACT`` values, of larger models a sketch."""
    untrained = set(buffers)
    trained = sum(tensor.size for tensor in layout.tensors if tensor.name not in untrained)
    return SKETCH if trained > MAX_EXACT else Component("all")


@dataclass(frozen=True, kw_only=True)
class Genesis:
    """The agreed rules of one ledger.

    Args:
        name: What people call the ledger; letters, digits, space, ``.``, ``_``, ``-``; at most 64.
        layout: Tensors of every model file.
        buffers: Those of them that are not trained (running statistics), in the layout's order: never compared.
        local: Tensors that each client keeps to itself, in a layout's order: part of no model file.
        comparison: What of a model is compared: ``all`` parameters; a ``sketch`` of them, of so many ``dimensions``,
            drawn from a ``seed``; or ``layers``, its ``tensors`` by name. ``compare_all`` says which of the first two.
        selector: Chooses among the candidates.
        candidates: Says what is offered.
        aggregator: Makes one model of the chosen ones.
        weights: What a model weighs in the average: ``examples``, each within a ``factor`` of the median of those
            averaged, or ``equal``.
        freshness: How long an update is offered: for ``window_s`` seconds of ledger ``time``.
        authors: Who may publish: everybody (``open``), or whom acts list (``listed``); with ``keys_only`` only authors
            with a key.
        members: The founding members, ascending by key.
        threshold: How many members must sign an act.
        bounds: What every member enforces.
        supersedes: The ledger that this one continues.
        training: Hints for clients, such as ``epochs`` (E), ``initial_epochs`` (E′), ``learning_rate``.
        extensions: Kept as they are, for what this version does not know.

    Raises:
        GenesisError: A field breaks its rule.
    """

    name: str
    layout: ModelLayout
    comparison: Component = RULES["comparison"]
    selector: Component = RULES["selector"]
    aggregator: Component = RULES["aggregator"]
    buffers: tuple[str, ...] = ()
    local: tuple[TensorSpec, ...] = ()
    candidates: Component = RULES["candidates"]
    weights: Component = RULES["weights"]
    freshness: Component = RULES["freshness"]
    authors: Component = RULES["authors"]
    members: tuple[Member, ...] = ()
    threshold: Threshold = "majority"
    bounds: Bounds = field(default_factory=Bounds)
    supersedes: TxId | None = None
    training: Mapping[str, JsonScalar] = field(default_factory=dict)
    extensions: Mapping[str, JsonScalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            raise GenesisError(f"ledger name {self.name!r} must match {_NAME.pattern}")
        self._check_tensors()
        self._check_rules()
        keys = [member.key for member in self.members]
        if keys != sorted(set(keys)) or len(keys) > MAX_MEMBERS:
            raise GenesisError(f"members must be strictly ascending by key, at most {MAX_MEMBERS}")
        if self.threshold != "majority":
            _check_integer("threshold", self.threshold, low=1, high=MAX_MEMBERS)
        if self.supersedes is not None and not (isinstance(self.supersedes, str) and is_hex_id(self.supersedes)):
            raise GenesisError("supersedes must be a ledger's id, 64 lowercase hexadecimal digits")
        check_scalars("training", self.training)
        check_scalars("extensions", self.extensions)

    def _check_tensors(self) -> None:
        names = [tensor.name for tensor in self.layout.tensors]
        if list(self.buffers) != [name for name in names if name in set(self.buffers)]:
            raise GenesisError("buffers must be tensors of the layout, in its order, each once")
        if len(self.buffers) == len(names):
            raise GenesisError("a model has at least one tensor that is trained")
        try:
            if self.local and ModelLayout.of(self.local).tensors != self.local:
                raise GenesisError("local tensors must stand in a layout's order")
        except ModelLayoutError as error:
            raise GenesisError(f"local: {error}") from error
        if set(names) & {tensor.name for tensor in self.local}:
            raise GenesisError("a local tensor is not one of the layout")

    def _check_rules(self) -> None:
        for rule in _PARAMETERS:
            check_parameters(rule, getattr(self, rule))
        if self.comparison.name == "sketch" and int(self.comparison.params["dimensions"]) > MAX_EXACT:
            raise GenesisError(f"comparison: a sketch has at most {MAX_EXACT} dimensions")
        if self.comparison.name == "layers":
            named = set(self.compared)
            if list(self.compared) != [name for name in self._trained if name in named]:
                raise GenesisError("comparison: tensors must be trained tensors of the layout, in its order, each once")

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """Names of the tensors that are compared, in the layout's order.

        Raises:
            UnknownNameError: A comparison of a later version.
        """
        if self.comparison.name in ("all", "sketch"):
            return self._trained
        if self.comparison.name != "layers":
            raise UnknownNameError("comparison", self.comparison.name, SUPPORTED["comparison"])
        return tuple(str(self.comparison.params["tensors"]).split(" "))

    @property
    def _trained(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.layout.tensors if each.name not in self.buffers)

    @property
    def window_ms(self) -> int:
        """For how long an update is offered, in ledger time, milliseconds."""
        return 1000 * int(self.freshness.params["window_s"])

    @property
    def examples_factor(self) -> int:
        """How far from the median of those averaged a model's number of examples counts."""
        return int(self.weights.params["factor"])

    @property
    def keys_only(self) -> bool:
        """Whether authors without a key are refused."""
        return bool(self.authors.params.get("keys_only", False))

    @cached_property
    def document(self) -> bytes:
        roles = dict.fromkeys(self.buffers, "buffer")
        tensors = [(each, roles.get(each.name, "parameter")) for each in self.layout.tensors]
        tensors += [(each, "local") for each in self.local]
        content = {
            "format": FORMAT,
            "name": self.name,
            "layout": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "role": role} for t, role in tensors],
            **{rule: asdict(getattr(self, rule)) for rule in RULES},
            "bounds": self.bounds.named,
            "members": [asdict(member) for member in self.members],
            "threshold": self.threshold,
            "supersedes": self.supersedes,
            "training": dict(self.training),
            "extensions": dict(self.extensions),
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
        specs = [(TensorSpec(t["name"], t["dtype"], tuple(t["shape"])), t["role"]) for t in content["layout"]]
        genesis = Genesis(
            name=content["name"],
            layout=ModelLayout(tuple(spec for spec, role in specs if role != "local")),
            buffers=tuple(spec.name for spec, role in specs if role == "buffer"),
            local=tuple(spec for spec, role in specs if role == "local"),
            **{rule: Component(**content[rule]) for rule in RULES},
            bounds=Bounds(**{"max_compared": _MOST, **content["bounds"]}),  # who does not name it compares all
            members=tuple(Member(**member) for member in content["members"]),
            threshold=content["threshold"],
            supersedes=content["supersedes"],
            training=content["training"],
            extensions=content["extensions"],
        )
        document_again = genesis.document
    except GenesisError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ModelLayoutError) as error:
        raise GenesisError(f"not a genesis document: {error}"[:300]) from error
    if document_again != document:
        raise GenesisError("the genesis document is not in canonical form")
    return genesis


def check_supported(genesis: Genesis) -> None:
    """That this version carries out the rules that have no registry: asked before a ledger is made or served.

    Raises:
        UnknownNameError: It does not.
    """
    for rule, known in SUPPORTED.items():
        component: Component = getattr(genesis, rule)
        if component.name not in known:
            raise UnknownNameError(f"rule of {rule}", component.name, known)


def canonical_json(content: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys, no spaces, ASCII only; floats as the shortest text that reads back the same.

    Raises:
        ValueError: A number is NaN or infinite.
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def check_parameters(rule: str, component: Component) -> None:
    """That all parameters of a comparison, weights, freshness or authors are written, and no others.

    Numbers are at least 1. A component of a later version may have what it likes.

    Raises:
        GenesisError: They are others, or of another type.
    """
    kinds = _PARAMETERS[rule].get(component.name)
    if kinds is None:
        return
    name = f"{rule} {component.name!r}"
    if unknown := sorted(component.params.keys() - kinds.keys()):
        having = [other for other, known in _PARAMETERS[rule].items() if unknown[0] in known]
        cure = f'it belongs to name = "{having[0]}"' if having else f"known: {', '.join(kinds) or 'none'}"
        raise GenesisError(f"{name} has no parameter {unknown[0]!r}; {cure}")
    if missing := sorted(kinds.keys() - component.params.keys()):
        raise GenesisError(f"{name} lacks its parameter {missing[0]!r}")
    for key, kind in kinds.items():
        value = component.params[key]
        if kind is int:
            _check_integer(f"{name}: {key}", value, low=1, high=_MOST)
        elif type(value) is not kind:
            raise GenesisError(f"{name}: {key} must be {'text' if kind is str else 'true or false'}, not {value!r}")


def _check_integer(name: str, value: object, *, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise GenesisError(f"{name} must be an integer in [{low}, {high}], not {value!r}")
