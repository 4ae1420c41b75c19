"""The vectors of docs/conformance/v1.json, read as a stranger would: with struct, hashlib and json only.

Each vector is checked twice: our code gives what the file says, and so does a second, naive implementation that
stands here, so that neither file nor code can drift alone.
"""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.aggregation import AGGREGATORS, ArraySource, FedAvg, example_weights
from fl_core.aggregation.clipping import clipped
from fl_core.dag.genesis import parse_genesis
from fl_core.dag.signature import Role, is_weak_key, verify
from fl_core.dag.transaction import decode_header, split_author, transaction_id
from fl_core.errors import ERRORS_BY_CODE, SignatureError, TransactionInvalidError
from fl_core.models import ModelLayout, TensorSpec, check_model, encode_flat, flat
from fl_core.selection.evidence import evidence_id, parse_evidence
from fl_core.types import PublicKey, TxId, digest_of
from tests.reference import robust_aggregation as robust
from tests.reference.aggregation import fedavg

FILE = Path(__file__).parents[2] / "docs" / "conformance" / "v1.json"
VECTORS: dict[str, Any] = json.loads(FILE.read_bytes())


def cases(kind: str, *, by: str = "name") -> Any:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=[str(case.get(by)) for case in VECTORS[kind]])


def layout_named(name: str) -> ModelLayout:
    (found,) = [case for case in VECTORS["layouts"] if case["name"] == name]
    return ModelLayout(tuple(TensorSpec(t["name"], t["dtype"], tuple(t["shape"])) for t in found["tensors"]))


def naive_header(fields: dict[str, Any]) -> bytes:
    """docs/protocol.md, line by line."""
    kind_of_author, _, author = fields["author"].partition(":")
    out = b"dagacfl\x01" + bytes.fromhex(fields["ledger"])
    out += bytes([fields["kind"], {"anon": 0, "key": 1}[kind_of_author]]) + bytes.fromhex(author)
    for name in ("sequence", "created_at_ms", "num_examples"):
        out += fields[name].to_bytes(8, "big")
    out += bytes.fromhex(fields["model_digest"]) + fields["model_size"].to_bytes(8, "big")
    out += bytes.fromhex(fields["attachment_digest"])
    out += len(fields["parents"]).to_bytes(2, "big") + bytes.fromhex("".join(fields["parents"]))
    out += len(fields["metrics"]).to_bytes(2, "big")
    for name in sorted(fields["metrics"]):
        out += bytes([len(name)]) + name.encode() + struct.pack(">d", fields["metrics"][name])
    return out


@cases("headers")
def test_header_has_these_bytes_and_this_id(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["header"])
    header = decode_header(data)
    assert naive_header(case["fields"]) == data == header.encode()
    assert {name: getattr(header, name) for name in case["fields"]} == {
        **case["fields"],
        "parents": tuple(case["fields"]["parents"]),
    }
    assert hashlib.sha256(b"dag-acfl/transaction/v1\0" + data).hexdigest() == case["id"] == transaction_id(data)


@cases("headers")
def test_header_has_these_signatures(case: dict[str, Any]) -> None:
    seeds = {key["public_key"]: bytes.fromhex(key["seed"]) for key in VECTORS["keys"]}
    signed = [(case["issuer"], case["issuer_signature"], Role.ISSUER)]
    kind, _, author = case["fields"]["author"].partition(":")
    if kind == "key":
        signed.append((author, case["author_signature"], Role.AUTHOR))
    else:
        assert case["author_signature"] is None
    for public, signature, role in signed:
        tag = f"dag-acfl/{role.name.lower()}/v1\0".encode()
        key = Ed25519PrivateKey.from_private_bytes(seeds[public])
        assert key.sign(tag + bytes.fromhex(case["id"])).hex() == signature
        verify(PublicKey(public), TxId(case["id"]), bytes.fromhex(signature), role=role)


@cases("keys")
def test_seed_gives_this_public_key(case: dict[str, Any]) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case["seed"]))
    assert key.public_key().public_bytes_raw().hex() == case["public_key"]


@cases("headers_refused")
def test_malformed_header_is_refused_under_this_code(case: dict[str, Any]) -> None:
    with pytest.raises(ERRORS_BY_CODE[case["code"]]) as refused:
        decode_header(bytes.fromhex(case["header"]))
    assert refused.value.code == case["code"]


@cases("signatures_refused")
def test_signature_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(SignatureError):
        verify(case["public_key"], case["id"], bytes.fromhex(case["signature"]), role=Role[case["role"].upper()])


def test_all_keys_of_small_order_are_among_the_vectors() -> None:
    listed = {case["public_key"] for case in VECTORS["signatures_refused"] if case["name"].startswith("weak key")}
    assert len(listed) == 10
    assert all(is_weak_key(PublicKey(key)) for key in listed)


@cases("authors", by="author")
def test_author_id_is_taken_or_refused(case: dict[str, Any]) -> None:
    if case["valid"]:
        kind, digits = split_author(case["author"])
        assert kind.author(digits) == case["author"]
    else:
        with pytest.raises(TransactionInvalidError):
            split_author(case["author"])


@cases("layouts")
def test_layout_has_this_prefix(case: dict[str, Any]) -> None:
    width, rank = {"F32": 4, "F16": 2, "BF16": 2}, {"F32": 0, "BF16": 1, "F16": 2}
    assert case["tensors"] == sorted(case["tensors"], key=lambda t: (rank[t["dtype"]], t["name"]))
    entries, at = [], 0
    for tensor in case["tensors"]:
        end = at + width[tensor["dtype"]] * int(np.prod(tensor["shape"], dtype=int))
        shape = ",".join(map(str, tensor["shape"]))
        entries.append(
            f'"{tensor["name"]}":{{"dtype":"{tensor["dtype"]}","shape":[{shape}],"data_offsets":[{at},{end}]}}'
        )
        at = end
    text = "{" + ",".join(entries) + "}"
    text += " " * (-len(text) % 8)
    prefix = len(text).to_bytes(8, "little") + text.encode()
    layout = layout_named(case["name"])
    assert prefix.hex() == case["prefix"] == layout.prefix.hex()
    assert len(prefix) + at == case["size"] == layout.nbytes


@cases("models", by="layout")
def test_values_become_these_bytes(case: dict[str, Any]) -> None:
    layout, data = layout_named(case["layout"]), bytes.fromhex(case["model"])
    assert encode_flat(layout, np.array(case["values"], np.float32)) == data
    assert digest_of(data) == case["digest"]
    assert encode_flat(layout, flat(layout, data)) == data
    check_model(layout, data)
    if layout.is_float32:
        assert data == layout.prefix + struct.pack(f"<{len(case['values'])}f", *case["values"])


def test_small_dtypes_round_to_nearest_and_ties_to_even() -> None:
    (case,) = [each for each in VECTORS["models"] if each["layout"] == "three dtypes"]
    body = bytes.fromhex(case["model"])[-14:]
    # 0.1 as float32; 1/3 and 1.00390625 as bfloat16; 0.1, 2049 and 6e-8 as IEEE half precision.
    assert body == struct.pack("<f", 0.1) + bytes.fromhex("ab3e803f") + struct.pack("<3e", 0.1, 2048.0, 2**-24)


@cases("models_refused")
def test_file_is_refused_under_this_code(case: dict[str, Any]) -> None:
    with pytest.raises(ERRORS_BY_CODE[case["code"]]) as refused:
        check_model(layout_named("two layers"), bytes.fromhex(case["model"]))
    assert refused.value.code == case["code"]


@cases("genesis", by="ledger")
def test_genesis_document_is_canonical_and_covered_by_the_ledgers_id(case: dict[str, Any]) -> None:
    document = case["document"].encode("ascii")
    assert json.dumps(json.loads(document), sort_keys=True, separators=(",", ":")).encode() == document
    assert hashlib.sha256(document).hexdigest() == case["digest"]
    assert parse_genesis(document).digest == case["digest"]
    (first,) = [each for each in VECTORS["headers"] if each["name"] == "genesis"]
    assert first["fields"]["attachment_digest"] == case["digest"]
    assert first["id"] == case["ledger"]


@cases("evidence")
def test_evidence_is_canonical_and_has_this_id(case: dict[str, Any]) -> None:
    encoded = case["evidence"].encode("ascii")
    assert json.dumps(json.loads(encoded), sort_keys=True, separators=(",", ":")).encode() == encoded
    assert hashlib.sha256(encoded).hexdigest() == case["id"] == evidence_id(encoded)
    assert parse_evidence(encoded).encode() == encoded


@cases("aggregates")
def test_models_have_this_mean_to_the_byte(case: dict[str, Any]) -> None:
    layout = layout_named(case["layout"])
    vectors = [flat(layout, bytes.fromhex(model)) for model in case["models"]]
    capped = [min(count, case["num_examples_cap"]) for count in case["num_examples"]]
    naive = np.zeros(layout.num_parameters, np.float32)
    for place, (vector, count) in enumerate(zip(vectors, capped, strict=True)):
        for index, value in enumerate(vector):
            term = np.float32(np.float32(count / sum(capped)) * value)
            naive[index] = term if place == 0 else np.float32(naive[index] + term)
    weights = example_weights(case["num_examples"], case["num_examples_cap"])
    ours = FedAvg().aggregate([ArraySource(vector) for vector in vectors], weights)
    assert encode_flat(layout, naive).hex() == case["aggregate"]
    assert encode_flat(layout, ours).hex() == case["aggregate"]


@cases("robust_aggregates")
def test_models_have_this_robust_aggregate_to_the_byte(case: dict[str, Any]) -> None:
    layout = layout_named(case["layout"])
    genesis = flat(layout, bytes.fromhex(case["genesis"]))
    models = [flat(layout, bytes.fromhex(model)) for model in case["models"]]
    name, params, growth = case["aggregator"]["name"], case["aggregator"]["params"], case["clip_growth"]
    naive = models if growth is None else robust.clipped(models, genesis, growth)
    if len(naive) > 1:
        twin = {
            "fedavg": lambda: fedavg(naive, [1.0] * len(naive)),
            "median": lambda: robust.median(naive),
            "trimmed-mean": lambda: robust.trimmed_mean(naive, params["trim_share"]),
            "krum": lambda: robust.multi_krum(naive, params["byzantine"], 1),
            "multi-krum": lambda: robust.multi_krum(naive, params["byzantine"], params["keep"]),
        }
        naive = [twin[name]()]
    sources = [ArraySource(model) for model in models]
    if growth is not None:
        sources = clipped(sources, genesis_model=ArraySource(genesis), growth=growth)
    ours = AGGREGATORS.build(name, params).aggregate(sources, [1.0] * len(sources))
    assert encode_flat(layout, naive[0]).hex() == case["aggregate"]
    assert encode_flat(layout, ours).hex() == case["aggregate"]


@cases("tips", by="digest")
def test_tips_have_this_digest(case: dict[str, Any]) -> None:
    assert case["tips"] == sorted(case["tips"])
    assert hashlib.sha256(bytes.fromhex("".join(case["tips"]))).hexdigest() == case["digest"]
