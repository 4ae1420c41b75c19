"""Conformance vectors: bytes and answers that every implementation of the protocol must agree on.

    python -m docs.generate        writes docs/conformance/v1.json

All keys come from seeds that stand in the file; nobody but these vectors uses them. What is refused names the
problem code (docs/protocol.md).
"""

import itertools
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.aggregation import AGGREGATORS, ArraySource, FedAvg, example_weights
from fl_core.dag.acts import (
    Act,
    ActKind,
    SignedAct,
    acts_digest,
    acts_in_effect,
    encode_signed_acts,
    sign_act,
    sign_rotation,
)
from fl_core.dag.author import AuthorKind, author_of_secret
from fl_core.dag.checkpoint import Checkpoint, Entry, below, sign_checkpoint
from fl_core.dag.figures import Figures, Step, step_from
from fl_core.dag.genesis import Bounds, Component, Genesis, Member, compare_layers
from fl_core.dag.receipt import issue_receipt
from fl_core.dag.signature import Role, public_key_of, sign
from fl_core.dag.transaction import Header, Kind, transaction_id
from fl_core.models import ModelLayout, TensorSpec, encode_flat
from fl_core.selection.evidence import Evidence, TooFew, evidence_id
from fl_core.selection.protocol import RankedCandidate, Selection
from fl_core.sketch import Sketch
from fl_core.step_coding import decode_step, encode_step
from fl_core.types import ZERO_ID, AuthorId, Digest, JsonScalar, TxId, digest_of

FORMAT: Final = "dag-acfl/conformance/v1"
CREATED_AT_MS: Final = 1_700_000_000_000
SEEDS: Final = {"author": "01" * 32, "issuer": "02" * 32, "other": "03" * 32, "newcomer": "04" * 32}
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
"""Of Ed25519's base point: S + ORDER is another S that a careless verifier takes."""

LAYOUTS: Final = {
    "two layers": ModelLayout.of([TensorSpec("fc2.weight", "F32", (2, 3)), TensorSpec("fc1.bias", "F32", (3,))]),
    "one value": ModelLayout.of([TensorSpec("w", "F32", (1,))]),
    "a scalar": ModelLayout.of([TensorSpec("scale", "F32", ())]),
    "three dtypes": ModelLayout.of(
        [TensorSpec("a", "F16", (3,)), TensorSpec("b", "F32", (1,)), TensorSpec("c", "BF16", (2, 1))]
    ),
}
SMALL: Final = LAYOUTS["two layers"]


def key(name: str) -> Ed25519PrivateKey:
    """The key of one of ``SEEDS``."""
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SEEDS[name]))


def author() -> AuthorId:
    """The author with a key."""
    return AuthorKind.ED25519.author(public_key_of(key("author")))


def model_of(layout: ModelLayout, *values: float) -> bytes:
    """A model file: these values, then zeros."""
    vector = np.zeros(layout.num_parameters, np.float32)
    vector[: len(values)] = values
    return encode_flat(layout, vector)


GENESIS: Final = Genesis(
    name="conformance",
    layout=SMALL,
    comparison=compare_layers(["fc2.weight"]),
    selector=Component("beast", {"alpha": 0.5}),
    aggregator=Component("fedavg"),
    training={"epochs": 1, "initial_epochs": 2, "learning_rate": 0.1},
)
GENESIS_HEADER: Final = Header(
    ledger=TxId(ZERO_ID),
    kind=Kind.GENESIS,
    author=AuthorKind.ED25519.author(public_key_of(key("issuer"))),
    sequence=0,
    created_at_ms=CREATED_AT_MS,
    num_examples=0,
    start=Digest(ZERO_ID),
    model_digest=digest_of(model_of(SMALL, 1, 2, 3)),
    model_size=SMALL.nbytes,
    attachment_digest=GENESIS.digest,
    parents=(),
)
LEDGER: Final = transaction_id(GENESIS_HEADER.encode())


def site(**changes: Any) -> Header:
    """A transaction of the ledger of these vectors."""
    fields: dict[str, Any] = {
        "ledger": LEDGER,
        "kind": Kind.UPDATE,
        "author": author(),
        "sequence": 0,
        "created_at_ms": CREATED_AT_MS + 1,
        "num_examples": 600,
        "start": digest_of(model_of(SMALL, 1, 2, 3)),
        "model_digest": digest_of(model_of(SMALL, 1, 2, 4)),
        "model_size": SMALL.nbytes,
        "attachment_digest": Digest(ZERO_ID),
        "parents": (LEDGER,),
    }
    return Header(**{**fields, **changes})


def headers() -> dict[str, Header]:
    """Headers that every implementation must encode so."""
    parents = tuple(sorted((TxId("ab" * 32), TxId("0f" * 32), TxId("ff" * 32))))
    return {
        "genesis": GENESIS_HEADER,
        "a first transaction": site(),
        "an author with a secret": site(author=author_of_secret("5e" * 32)),
        "three parents, evidence and metrics": site(
            parents=parents,
            sequence=7,
            attachment_digest=Digest("c4" * 32),
            metrics={"loss": 0.1, "accuracy": 0.8125, "a.b-c_9": -1e-300, "zero": 0.0},
        ),
        "noise, a metric of the system's and extensions": site(
            noise_std=0.125, metrics={"_epsilon": 8.0}, extensions={"b": b"", "a": bytes.fromhex("00ff")}
        ),
        "the largest integers": site(
            sequence=2**63 - 1, created_at_ms=2**63 - 1, num_examples=2**63 - 1, model_size=2**63 - 1
        ),
    }


def header_vector(name: str, header: Header) -> dict[str, Any]:
    """One header, its bytes, its id and the signatures of it."""
    encoded = header.encode()
    identity = transaction_id(encoded)
    by = "issuer" if header.kind is Kind.GENESIS else "author"
    signs = header.author.startswith(AuthorKind.ED25519.prefix)
    return {
        "name": name,
        "fields": {
            "ledger": header.ledger,
            "kind": int(header.kind),
            "author": header.author,
            "sequence": header.sequence,
            "created_at_ms": header.created_at_ms,
            "num_examples": header.num_examples,
            "noise_std": header.noise_std,
            "start": header.start,
            "model_digest": header.model_digest,
            "model_size": header.model_size,
            "attachment_digest": header.attachment_digest,
            "parents": list(header.parents),
            "metrics": dict(header.metrics),
            "extensions": {name: value.hex() for name, value in header.extensions.items()},
        },
        "header": encoded.hex(),
        "id": identity,
        "author_signature": sign(key(by), identity, role=Role.AUTHOR).hex() if signs else None,
    }


def headers_refused() -> list[dict[str, str]]:
    """Bytes that are no header, each one step from one that is."""
    good = site(parents=(TxId("11" * 32), TxId("22" * 32)), metrics={"a": 1.0, "b": 2.0}).encode()
    first, second = good[212:244], good[244:276]
    tail = good[276:]
    a, b = tail[2:12], tail[12:22]

    def changed(at: int, new: bytes) -> bytes:
        return good[:at] + new + good[at + len(new) :]

    cases = {
        "empty": (b"", "header-malformed"),
        "cut inside the fixed part": (good[:100], "header-malformed"),
        "cut inside a parent": (good[:200], "header-malformed"),
        "cut inside a metric": (good[:-3], "header-malformed"),
        "cut inside the extensions": (good[:-1], "header-malformed"),
        "a byte too many": (good + b"\0", "header-malformed"),
        "another magic": (changed(0, b"DAGACFL\x01"), "header-malformed"),
        "version 2": (changed(7, b"\x02"), "header-malformed"),
        "unknown kind": (changed(40, b"\x02"), "header-malformed"),
        "unknown author kind": (changed(41, b"\x02"), "header-malformed"),
        "a sequence of 2^63": (changed(74, bytes([128]) + bytes(7)), "transaction-invalid"),
        "no parent": (good[:210] + b"\0\0" + tail, "parents-invalid"),
        "parents descending": (good[:212] + second + first + tail, "parents-invalid"),
        "a parent twice": (good[:212] + first + first + tail, "parents-invalid"),
        "genesis with parents": (changed(40, b"\x00"), "parents-invalid"),
        "metrics descending": (good[:276] + tail[:2] + b + a + tail[22:], "header-malformed"),
        "a metric twice": (good[:276] + tail[:2] + a + a + tail[22:], "header-malformed"),
        "a metric that is NaN": (changed(290, bytes.fromhex("7ff8000000000000")), "transaction-invalid"),
        "a metric that is infinite": (changed(290, bytes.fromhex("7ff0000000000000")), "transaction-invalid"),
        "a metric that is -0.0": (changed(290, bytes.fromhex("8000000000000000")), "transaction-invalid"),
        "a metric's name with a capital": (changed(279, b"A"), "transaction-invalid"),
        "a metric without a name": (good[:276] + b"\0\1\0" + good[-10:], "transaction-invalid"),
        "noise of -0.0": (changed(98, bytes.fromhex("8000000000000000")), "transaction-invalid"),
        "noise below 0": (changed(98, bytes.fromhex("bff0000000000000")), "transaction-invalid"),
        "no start": (changed(106, bytes(32)), "transaction-invalid"),
        "extensions descending": (good[:-2] + b"\0\2" + b"\1b\0\0" + b"\1a\0\0", "header-malformed"),
        "an extension twice": (good[:-2] + b"\0\2" + b"\1a\0\0" * 2, "header-malformed"),
        "17 extensions": (good[:-2] + b"\0\x11", "header-malformed"),
        "an extension of 513 bytes": (good[:-2] + b"\0\1" + b"\1a\2\1" + bytes(513), "header-malformed"),
    }
    return [{"name": name, "header": data.hex(), "code": code} for name, (data, code) in cases.items()]


def signatures_refused() -> list[dict[str, str]]:
    """Signatures and keys that must not pass."""
    identity = transaction_id(site().encode())
    good = sign(key("author"), identity, role=Role.AUTHOR)
    public = public_key_of(key("author"))
    larger = (int.from_bytes(good[32:], "little") + ORDER).to_bytes(32, "little")
    forged = bytes.fromhex("01" + "00" * 31) + bytes(32)
    weak = {
        "order 1": "01" + "00" * 31,
        "order 2": "ec" + "ff" * 30 + "7f",
        "order 4": "00" * 32,
        "order 4, sign bit": "00" * 31 + "80",
        "order 8": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "order 8, sign bit": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "order 8, the other": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "order 8, the other, sign bit": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "y = p, not canonical": "ed" + "ff" * 30 + "7f",
        "y = p + 1, not canonical": "ee" + "ff" * 30 + "7f",
    }
    cases = {
        "of the other role": (public, sign(key("author"), identity, role=Role.SELECTION)),
        "of another key": (public, sign(key("other"), identity, role=Role.AUTHOR)),
        "of another id": (public, sign(key("author"), TxId("00" * 32), role=Role.AUTHOR)),
        "without a domain": (public, key("author").sign(bytes.fromhex(identity))),
        "S not reduced": (public, good[:32] + larger),
        "63 bytes": (public, good[:63]),
        "empty": (public, b""),
        **{f"weak key, {name}": (each, forged) for name, each in weak.items()},
    }
    return [
        {"name": name, "public_key": each, "id": identity, "role": "author", "signature": data.hex()}
        for name, (each, data) in cases.items()
    ]


def layout_vectors() -> list[dict[str, Any]]:
    """Layouts and the one prefix of their files."""
    return [
        {
            "name": name,
            "tensors": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in layout.tensors],
            "prefix": layout.prefix.hex(),
            "size": layout.nbytes,
        }
        for name, layout in LAYOUTS.items()
    ]


def models() -> list[dict[str, Any]]:
    """Values and the bytes that they become."""
    cases = {
        "two layers": (1.5, -2.0, 0.1, 3.0, -0.0, 1e-40, 1e38, -1e38, 0.0),
        "one value": (0.1,),
        "a scalar": (2.0,),
        # b (F32), then c (BF16: 1/3 down, 1.00390625 a tie to even), then a (F16: nearest, ties to even).
        "three dtypes": (0.1, 1 / 3, 1.00390625, 0.1, 2049.0, 6e-8),
    }
    found = []
    for name, values in cases.items():
        data = model_of(LAYOUTS[name], *values)
        stored = [float(value) for value in np.array(values, np.float32)]
        found.append({"layout": name, "values": stored, "model": data.hex(), "digest": digest_of(data)})
    return found


def coded_models() -> list[dict[str, Any]]:
    """Models by what they differ by from a base; None: by none."""
    layout, name = LAYOUTS["three dtypes"], "three dtypes"
    model, base = (model_of(layout, *values) for values in ((0.1, 1 / 3, 1, 0.1, 2049, 6e-8), (0.2, -1, 1, 0.1, 0, 0)))
    two = LAYOUTS["two layers"]
    round_, near = (
        model_of(two, *values)
        for values in ((1.5, -2, 0.25, 3, 0, 0.75, 8, -8), (1.25, -1.9, 0.2, 3.3, 1e-40, 1, 1e38, 0))
    )
    cases = {
        "by their bits": (name, model, encode_step(layout, model, base, base_digest=digest_of(base)), base),
        "by no base": (name, model, encode_step(layout, model, None, base_digest=Digest(ZERO_ID)), None),
        "on a grid": ("two layers", round_, encode_step(two, round_, near, base_digest=digest_of(near)), near),
    }
    # Deflated, by stored blocks, which every library writes alike.
    plane = zlib.compress(bytes([2] * two.num_parameters), 0)
    head = b"dag-acfl step 1\n" + bytes(32) + struct.pack("<2h", -1, -1)
    coded = head + struct.pack("<BQ", 2, len(plane)) + plane + 3 * struct.pack("<BQ", 0, 0)
    cases["deflated"] = ("two layers", bytes(decode_step(two, coded, None)), coded, None)
    return [
        {
            "name": what,
            "layout": of,
            "base": None if other is None else other.hex(),
            "coded": body.hex(),
            "model": whole.hex(),
        }
        for what, (of, whole, body, other) in cases.items()
    ]


def models_refused() -> list[dict[str, str]]:
    """Files that are not canonical models of the layout "two layers"."""
    good = model_of(SMALL, 1, 2, 3)
    prefix, body = SMALL.prefix, good[len(SMALL.prefix) :]
    header: dict[str, Any] = json.loads(prefix[8:])

    def file(text: bytes, data: bytes = body) -> bytes:
        return len(text).to_bytes(8, "little") + text + data

    def text_of(content: Mapping[str, Any]) -> bytes:
        text = json.dumps(content, separators=(",", ":")).encode()
        return text + b" " * (-len(text) % 8)

    renamed = {"fc1.bias": header["fc1.bias"], "fc2.weights": header["fc2.weight"]}
    wrong_shape = {**header, "fc2.weight": {**header["fc2.weight"], "shape": [3, 2]}}
    hole = {
        "fc1.bias": header["fc1.bias"],
        "fc2.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [16, 40]},
    }
    swapped = {
        "fc2.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "fc1.bias": {"dtype": "F32", "shape": [3], "data_offsets": [24, 36]},
    }
    nan, infinity = bytes.fromhex("0000c07f"), bytes.fromhex("0000807f")
    cases = {
        "empty": (b"", "model-malformed"),
        "seven bytes": (good[:7], "model-malformed"),
        "a length word beyond the file": ((2**20).to_bytes(8, "little") + good[8:], "model-malformed"),
        "a length word of 2^63": ((2**63).to_bytes(8, "little") + good[8:], "model-too-large"),
        "no JSON": (file(b"[" * 64), "model-malformed"),
        "cut": (good[:-1], "model-malformed"),
        "a byte too many": (good + b"\0", "model-malformed"),
        "a tensor of another name": (file(text_of(renamed)), "model-layout"),
        "a tensor of another shape": (file(text_of(wrong_shape)), "model-layout"),
        "a hole between tensors": (file(text_of(hole), body[:12] + bytes(4) + body[12:]), "model-malformed"),
        "tensors in another order": (file(text_of(swapped), body[12:] + body[:12]), "model-not-canonical"),
        "with __metadata__": (file(text_of({"__metadata__": {"a": "b"}, **header})), "model-not-canonical"),
        "JSON after spaces": (file(b" " * 8 + prefix[8:]), "model-not-canonical"),
        "padded further": (file(prefix[8:] + b" " * 8), "model-not-canonical"),
        "NaN": (prefix + nan + body[4:], "model-not-finite"),
        "infinity": (prefix + infinity + body[4:], "model-not-finite"),
        "beyond 1e38": (prefix + np.float32(1.01e38).tobytes() + body[4:], "model-not-finite"),
    }
    return [{"name": name, "model": data.hex(), "code": code} for name, (data, code) in cases.items()]


def aggregates() -> list[dict[str, Any]]:
    """FedAvg to the byte: models in ascending order of their transactions."""
    cases = {
        "one model": ([(0.1, 0.2, 0.3)], [5], 3),
        "equal weights": ([(0.1, 1e-7, 3.0), (0.7, 1.0, -3.0), (0.3, -1.0, 1.5)], [1, 1, 1], 3),
        "weights by examples": ([(0.1, 0.2, 0.3), (1.1, 2.2, 3.3)], [600, 25], 1_000_000),
        "claims far from the median": ([(0.1, 0.2, 0.3), (1.1, 2.2, 3.3), (0.5, 0.5, 0.5)], [2**62, 100, 7], 3),
        "the lower of two claims is the median": ([(0.1, 0.2, 0.3), (1.1, 2.2, 3.3)], [1000, 100], 3),
    }
    found = []
    for name, (values, num_examples, factor) in cases.items():
        vectors = [np.array([*each, *[0.0] * 6], np.float32) for each in values]
        weights = example_weights(num_examples, factor=factor)
        mean = FedAvg().aggregate([ArraySource(vector) for vector in vectors], weights)
        found.append(
            {
                "name": name,
                "layout": "two layers",
                "models": [encode_flat(SMALL, vector).hex() for vector in vectors],
                "num_examples": num_examples,
                "factor": factor,
                "aggregate": encode_flat(SMALL, mean).hex(),
            }
        )
    return found


def robust_aggregates() -> list[dict[str, Any]]:
    """The other aggregators to the byte, and the largest share that each model can have of a value."""
    steps = [[(row * 53 + value * 71 + row * row * value) % 199 - 99 for value in range(9)] for row in range(7)]
    models = np.array([value * 37 % 17 - 8 for value in range(9)], np.float32) / 8 + np.array(steps, np.float32) / 100
    models[2], models[5] = -40 * models[2], 1e6
    models[:, 0] = [0.0, -0.0, 0.0, -0.0, -0.0, 0.0, -0.0]
    rules: list[tuple[str, dict[str, JsonScalar]]] = [
        ("median", {}),
        ("trimmed-mean", {"trim_share": 0.0}),
        ("trimmed-mean", {"trim_share": 0.3}),
        ("krum", {"byzantine": 0}),
        ("krum", {"byzantine": 2}),
        ("multi-krum", {"byzantine": 2, "keep": 0}),
        ("multi-krum", {"byzantine": 1, "keep": 6}),
    ]
    found = []
    for (name, params), count in itertools.product(rules, (1, 2, 4, 7)):
        rule, weights = AGGREGATORS.build(name, params), [1.0] * count
        aggregate = rule.aggregate([ArraySource(model) for model in models[:count]], weights)
        found.append(
            {
                "name": f"{name} {params} of {count}",
                "layout": "two layers",
                "aggregator": {"name": name, "params": params},
                "models": [encode_flat(SMALL, model).hex() for model in models[:count]],
                "aggregate": encode_flat(SMALL, aggregate).hex(),
                "shares": rule.shares(weights),
            }
        )
    return found


def steps() -> list[dict[str, Any]]:
    """An update's step: from the average of its parents to its model."""
    average = np.array([value * 37 % 17 - 8 for value in range(9)], np.float32) / 8
    change = np.array([value * 53 % 19 - 9 for value in range(9)], np.float32) / 100
    found = []
    for name, model in {"none": average, "short": average + change, "scaled": 1000 * average}.items():
        step = step_from(average, model, layout=SMALL)
        case = {"name": name, "layout": "two layers", "average": encode_flat(SMALL, average).hex()}
        found.append({**case, "model": encode_flat(SMALL, model).hex(), "norm": step.norm, "by_tensor": step.by_tensor})
    return found


def evidence() -> list[dict[str, str]]:
    """Selection evidence and its id."""
    first = site()
    identity = transaction_id(first.encode())
    chosen = RankedCandidate(identity, first.author, 0.9375, 0.5, None, selected=True)
    parents = Selection((identity,), "parents", "robust: all", 1, (chosen,))
    own = Selection((LEDGER,), "own", "robust: none resembles", 0, ())
    aggregate = digest_of(model_of(SMALL, 1, 2, 4))
    found = []
    two = Selection(
        tuple(sorted((identity, TxId("ab" * 32)))),
        "parents",
        "robust: change point",
        1,
        (chosen, RankedCandidate(TxId("cd" * 32), author(), -1e-07, 0.0, 0.125, selected=False)),
    )
    cases: list[tuple[str, Selection, dict[str, Any]]] = [
        ("a joiner takes one", parents, {"author": None, "reference": None, "weights": (1.0,)}),
        ("nobody resembles", own, {"author": None, "reference": None}),
        (
            "an author takes two",
            two,
            {
                "author": author(),
                "reference": TxId("ab" * 32),
                "weights": (0.96, 0.04),
                "too_few": TooFew(2, 5),
                "extensions": {"later": 1.0},
            },
        ),
    ]
    for name, selection, more in cases:
        encoded = Evidence(
            **more,
            ledger=LEDGER,
            reference_model=aggregate,
            selector="beast",
            params={"alpha": 0.5},
            selection=selection,
            aggregate=aggregate,
            aggregate_size=SMALL.nbytes,
        ).encode()
        found.append({"name": name, "evidence": encoded.decode("ascii"), "id": evidence_id(encoded)})
    return found


def evidence_refused() -> list[dict[str, str]]:
    """Documents that are no evidence, each one step from one that is."""
    content = json.loads(evidence()[2]["evidence"])

    def changed(**members: Any) -> str:
        return json.dumps({**content, **members}, sort_keys=True, separators=(",", ":"))

    first = content["candidates"][0]
    cases = {
        "spaces": json.dumps(content, sort_keys=True),
        "version 2": changed(format="dag-acfl/evidence/v2"),
        "an unknown member": changed(surplus=1),
        "no parents": changed(parents=[]),
        "parents descending": changed(parents=content["parents"][::-1]),
        "an unknown source": changed(source="other"),
        "a cut below 0": changed(cut=-1),
        "a cut that is no whole number": changed(cut=1.0),
        "a similarity that is a whole number": changed(candidates=[{**first, "similarity": 1}]),
        "an author without a kind": changed(candidates=[{**first, "author": "5e" * 32}]),
        "selected that is a number": changed(candidates=[{**first, "selected": 1}]),
        "a weight for one of two": changed(weights=[1.0]),
        "a weight below 0": changed(weights=[1.5, -0.5]),
        "an asker in capitals": changed(asker={**content["asker"], "model": "AB" * 32}),
        "a list among extensions": changed(extensions={"a": [1]}),
        "a rule of 201 characters": changed(rule="x" * 201),
    }
    return [{"name": name, "evidence": text, "code": "transaction-invalid"} for name, text in cases.items()]


def sketches() -> list[dict[str, Any]]:
    """Vectors and what they are folded into, as float32 values."""
    values = [float(number * (-1) ** number) / 3 for number in range(1, 21)]
    cases = {
        "three chunks, the last one short": (values, 8, 7),
        "shorter than the sketch": (values[:3], 5, 1),
        "beyond what a value may be": ([1e38] * 9, 1, 2),
    }
    return [
        {
            "name": name,
            "dimensions": dimensions,
            "seed": seed,
            "values": np.array(those, "<f4").tobytes().hex(),
            "sketch": Sketch(len(those), dimensions=dimensions, seed=seed)
            .of(np.array(those, np.float32))
            .astype("<f4")
            .tobytes()
            .hex(),
        }
        for name, (those, dimensions, seed) in cases.items()
    ]


def authors() -> list[dict[str, Any]]:
    """Texts that are author ids, and texts that are not."""
    digits = "5e" * 32
    valid = [f"key:{digits}", f"hash:{digits}"]
    wrong = [
        digits,
        f"KEY:{digits}",
        f"key:{digits.upper()}",
        f"key:{digits[:-1]}",
        f"anon:{digits}",
        f"hash:{digits}0",
        f"key: {digits}",
        "",
    ]
    return [{"author": text, "valid": text in valid} for text in (*valid, *wrong)]


WHOLE_GENESIS: Final = Genesis(
    name="everything",
    layout=LAYOUTS["three dtypes"],
    buffers=("c",),
    local=(TensorSpec("head.weight", "F32", (2, 2)),),
    comparison=Component("sketch", {"dimensions": 4096, "seed": 7}),
    selector=Component("least-squares", {"penalty": 0.5, "max_penalty": 1e-05}),
    candidates=Component("newest"),
    aggregator=Component("trimmed-mean", {"trim_share": 0.2}),
    weights=Component("equal"),
    freshness=Component("time", {"window_s": 604800}),
    authors=Component("listed", {"keys_only": True}),
    members=tuple(
        sorted((Member(public_key_of(key(name)), name) for name in ("issuer", "other")), key=lambda each: each.key)
    ),
    threshold=2,
    bounds=Bounds(max_norm=123456789.0, max_layer_growth=4.0),
    supersedes=TxId("ab" * 32),
    training={"epochs": 2, "note": "Küche", "shuffle": True, "learning_rate": 1e-05},
    extensions={"later": 1.0},
)
"""Every member of the document, some of them rules of later versions."""


def genesis_documents() -> list[dict[str, Any]]:
    """Documents that are canonical; the first is the ledger of these vectors."""
    return [
        {
            "name": each.name,
            "document": each.document.decode("ascii"),
            "digest": each.digest,
            "ledger": LEDGER if each is GENESIS else None,
        }
        for each in (GENESIS, WHOLE_GENESIS)
    ]


def genesis_refused() -> list[dict[str, str]]:
    """Documents that are none, each one step from one that is."""
    content = json.loads(GENESIS.document)
    later = json.loads(WHOLE_GENESIS.document)

    def changed(base: Mapping[str, Any] = content, **members: Any) -> str:
        return json.dumps({**base, **members}, sort_keys=True, separators=(",", ":"))

    def without(name: str) -> str:
        return json.dumps(
            {key: value for key, value in content.items() if key != name}, sort_keys=True, separators=(",", ":")
        )

    cases = {
        "spaces": json.dumps(content, sort_keys=True),
        "keys in another order": json.dumps(dict(reversed(content.items())), separators=(",", ":")),
        "beyond ASCII": json.dumps(later, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        "a float as a whole number": changed(bounds={**content["bounds"], "max_norm": 1000000000}),
        "a whole number as a float": changed(bounds={**content["bounds"], "max_parents": 64.0}),
        "version 2": changed(format="dag-acfl/genesis/v2"),
        "an unknown member": changed(surplus=1),
        "no bounds": without("bounds"),
        "no threshold": without("threshold"),
        "a threshold of 0": changed(threshold=0),
        "an unknown role": changed(layout=[{**content["layout"][0], "role": "other"}, content["layout"][1]]),
        "only buffers": changed(layout=[{**each, "role": "buffer"} for each in content["layout"]]),
        "a comparison of no tensor": changed(comparison={"name": "layers", "params": {"tensors": "fc3.weight"}}),
        "a rule without its parameters": changed(freshness={"name": "time", "params": {}}),
        "a sketch of more values than are compared as they are": changed(
            comparison={"name": "sketch", "params": {"dimensions": 65537, "seed": 1}}
        ),
        "a rule with one parameter more": changed(comparison={"name": "all", "params": {"tensors": "fc2.weight"}}),
        "members descending": changed(later, members=later["members"][::-1]),
        "a member twice": changed(later, members=[later["members"][0]] * 2),
        "a ledger's id in capitals": changed(supersedes="AB" * 32),
        "a list as a parameter": changed(selector={"name": "beast", "params": {"alpha": [0.5]}}),
        "no list of members": changed(members=None),
    }
    return [{"name": name, "document": text, "code": "genesis-invalid"} for name, text in cases.items()]


def secrets() -> list[dict[str, str]]:
    """Secrets and the authors that show them."""
    return [{"secret": secret, "author": author_of_secret(secret)} for secret in ("5e" * 32, "0" * 64)]


def receipts() -> list[dict[str, Any]]:
    """Receipts of the first update, and bytes that are none."""
    identity = transaction_id(site().encode())
    found = []
    for received_at_ms, version in ((CREATED_AT_MS + 2, 0), (2**63 - 1, 2**63 - 1)):
        receipt = issue_receipt(key("issuer"), identity, received_at_ms=received_at_ms, members_version=version)
        fields = {"issuer": receipt.issuer, "received_at_ms": received_at_ms, "members_version": version}
        found.append({"id": identity, "fields": fields, "receipt": receipt.encode().hex()})
    return found


def an_act(kind: ActKind, subject: str, target: str = "", **changes: Any) -> Act:
    """An act of the ledger of these vectors."""
    fields: dict[str, Any] = {"ledger": LEDGER, "number": 1, "created_at_ms": CREATED_AT_MS, **changes}
    return Act(kind=kind, subject=subject, object=target, **fields)


def acts() -> list[dict[str, Any]]:
    """An act of each kind, its bytes, its id, and what it is with two signatures."""
    digits, member = "ab" * 32, "member:" + public_key_of(key("other"))
    first = an_act(ActKind.ADD_MEMBER, member, details={"name": "b", "url": "https://b.example"})
    cases = [
        first,
        an_act(ActKind.REMOVE_MEMBER, member, number=2, previous=first.id),
        an_act(ActKind.ROTATE_MEMBER, member, f"member:{digits}"),
        an_act(ActKind.LIST_AUTHOR, f"hash:{digits}"),
        an_act(ActKind.UNLIST_AUTHOR, author()),
        an_act(ActKind.ROTATE_AUTHOR, author(), f"hash:{digits}"),
        an_act(ActKind.QUARANTINE, f"update:{digits}", details={"reason": "vertauschte Klassen – Küche"}),
        an_act(ActKind.LIFT, f"act:{first.id}", number=2**63 - 1, previous=first.id),
        an_act(ActKind.ERASE, author()),
        an_act(ActKind.SUCCEED, f"ledger:{digits}"),
        an_act(ActKind.ROTATE_SELF, author(), f"key:{public_key_of(key('newcomer'))}", created_at_ms=0),
    ]
    return [
        {
            "fields": {
                "ledger": each.ledger,
                "number": each.number,
                "previous": each.previous,
                "created_at_ms": each.created_at_ms,
                "kind": int(each.kind),
                "subject": each.subject,
                "object": each.object,
                "details": dict(each.details),
            },
            "act": each.encode().hex(),
            "id": each.id,
            "signed": sign_act(each, key("issuer"), key("author")).encode().hex(),
        }
        for each in cases
    ]


def acts_refused() -> list[dict[str, str]]:
    """Bytes that are no act."""
    good = an_act(ActKind.QUARANTINE, "update:" + "ab" * 32, details={"a": "x", "b": "y"}).encode()

    own_rotation = sign_rotation(key("author"), key("newcomer"), ledger=LEDGER).act_bytes

    def changed(at: int, new: bytes) -> bytes:
        return good[:at] + new + good[at + len(new) :]

    cases = {
        "empty": b"",
        "cut": good[:-1],
        "a byte too many": good + b"\0",
        "version 2": changed(7, b"\2"),
        "number 0": changed(40, bytes(8)),
        "number 2 without a previous act": changed(47, b"\2"),
        "a previous act of number 1": changed(48, b"\1"),
        "a time of 2^63": changed(80, b"\x80"),
        "an unknown kind": changed(88, b"\x0c"),
        "an author's own rotation with a time": own_rotation[:87] + b"\1" + own_rotation[88:],
        "a subject that the kind has not": changed(89, b"\3"),
        "an unknown kind of subject": changed(89, b"\7"),
        "no subject": changed(89, bytes(33)),
        "an object that the kind has not": changed(122, b"\3"),
        "bytes of no object": changed(123, b"\1"),
        "details descending": good[:157] + good[162:167] + good[157:162],
        "text that is not UTF-8": good[:-1] + b"\xff",
    }
    return [{"name": name, "act": data.hex(), "code": "act-invalid"} for name, data in cases.items()]


def acts_in_effect_vectors() -> list[dict[str, Any]]:
    """Sets of signed acts, and which of them are in effect: three founders, more than half of whom must sign."""
    founders = [public_key_of(key(name)) for name in ("author", "issuer", "other")]
    joined = an_act(ActKind.ADD_MEMBER, "member:" + public_key_of(key("newcomer")))
    left = an_act(ActKind.REMOVE_MEMBER, "member:" + founders[0])
    bad = an_act(ActKind.QUARANTINE, "update:" + "ab" * 32)
    later = an_act(ActKind.QUARANTINE, author(), number=2, previous=joined.id)
    lifted = an_act(ActKind.LIFT, f"act:{bad.id}", number=2, previous=bad.id)
    early, of_later = an_act(ActKind.LIFT, f"act:{bad.id}"), an_act(ActKind.LIFT, f"act:{later.id}")
    cases: dict[str, tuple[list[SignedAct], list[TxId]]] = {
        "one of three": ([sign_act(bad, key("author"))], []),
        "two of three": ([sign_act(bad, key("author"), key("other"))], []),
        "one, and a stranger": ([sign_act(bad, key("author"), key("newcomer"))], []),
        "a newcomer signs the next": (
            [
                sign_act(joined, key("author"), key("other")),
                sign_act(later, key("author"), key("other"), key("newcomer")),
            ],
            [],
        ),
        "two of four are not enough": (
            [sign_act(joined, key("author"), key("other")), sign_act(later, key("author"), key("newcomer"))],
            [],
        ),
        "at the same time": (
            [sign_act(left, key("issuer"), key("other")), sign_act(bad, key("author"), key("other"))],
            [],
        ),
        "lifted": (
            [sign_act(bad, key("author"), key("other")), sign_act(lifted, key("author"), key("other"))],
            [],
        ),
        "lifted before it is in effect": (
            [sign_act(bad, key("author")), sign_act(early, key("author"), key("other"))],
            [],
        ),
        "a lift of an act that is not here": ([sign_act(early, key("author"), key("other"))], []),
        "a lift of an act with a greater number": (
            [
                sign_act(joined, key("author"), key("other")),
                sign_act(later, key("author"), key("other"), key("newcomer")),
                sign_act(of_later, key("author"), key("other")),
            ],
            [],
        ),
        "previous not in effect": (
            [sign_act(bad, key("author")), sign_act(lifted, key("author"), key("other"))],
            [],
        ),
        "an author's own rotation is none of the members'": (
            [sign_rotation(key("author"), key("newcomer"), ledger=LEDGER), sign_act(bad, key("author"), key("other"))],
            [],
        ),
        "settled": (
            [sign_act(left, key("issuer"), key("other")), sign_act(bad, key("author"), key("other"))],
            [bad.id],
        ),
        "a quarantine beside a settled act": (
            [sign_act(left, key("issuer"), key("other")), sign_act(bad, key("author"), key("other"))],
            [left.id],
        ),
    }
    found = []
    for name, (signed, settled) in cases.items():
        state = acts_in_effect(signed, founders=founders, threshold="majority", settled=settled)
        found.append(
            {
                "name": name,
                "founders": founders,
                "threshold": "majority",
                "settled": settled,
                "acts": encode_signed_acts(signed).hex(),
                "acts_digest": acts_digest(signed),
                "in_effect": list(state.acts),
                "members": sorted(state.members),
                "members_version": state.members_version,
            }
        )
    return found


def checkpoints() -> list[dict[str, Any]]:
    """A checkpoint with everything, one with nothing, and how they travel."""
    first, other = transaction_id(site().encode()), TxId("ab" * 32)
    figures = [Figures(1.5), Figures(2.0, Step(0.5, (0.25, 0.125)), (0.5, 0.0, 0.5))]
    entries = [Entry(id_, 3, author(), 7, 600, each) for id_, each in zip(sorted((first, other)), figures, strict=True)]
    common: dict[str, Any] = {"ledger": LEDGER, "member": public_key_of(key("issuer")), "created_at_ms": CREATED_AT_MS}
    cases = {
        "nothing below": Checkpoint(
            **common, horizon_ms=0, below=below([]), members_version=0, receipts=(), acts=(), entries=()
        ),
        "two below": Checkpoint(
            **common,
            horizon_ms=CREATED_AT_MS + 5,
            below=below([LEDGER, first]),
            members_version=1,
            receipts=((first, issue_receipt(key("issuer"), first, received_at_ms=CREATED_AT_MS + 2)),),
            acts=((1, TxId("cd" * 32)),),
            entries=tuple(entries),
        ),
    }
    return [
        {
            "name": name,
            "below": [LEDGER, first] if each.entries else [],
            "below_digest": each.below.digest,
            "below_sum": each.below.total,
            "checkpoint": each.encode().hex(),
            "id": each.id,
            "signed": sign_checkpoint(each, key("issuer")).hex(),
        }
        for name, each in cases.items()
    ]


def conformance_vectors() -> dict[str, Any]:
    """The whole file's content."""
    tips = [TxId("11" * 32), TxId("22" * 32)]
    return {
        "format": FORMAT,
        "keys": [{"name": name, "seed": seed, "public_key": public_key_of(key(name))} for name, seed in SEEDS.items()],
        "headers": [header_vector(name, header) for name, header in headers().items()],
        "headers_refused": headers_refused(),
        "signatures_refused": signatures_refused(),
        "authors": authors(),
        "secrets": secrets(),
        "receipts": receipts(),
        "acts": acts(),
        "acts_refused": acts_refused(),
        "acts_in_effect": acts_in_effect_vectors(),
        "checkpoints": checkpoints(),
        "layouts": layout_vectors(),
        "models": models(),
        "models_refused": models_refused(),
        "coded_models": coded_models(),
        "genesis": genesis_documents(),
        "genesis_refused": genesis_refused(),
        "evidence": evidence(),
        "evidence_refused": evidence_refused(),
        "aggregates": aggregates(),
        "robust_aggregates": robust_aggregates(),
        "steps": steps(),
        "sketches": sketches(),
        "tips": [{"tips": tips, "digest": digest_of(b"".join(map(bytes.fromhex, tips)))}],
    }
