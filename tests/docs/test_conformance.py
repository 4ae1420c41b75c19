"""The vectors of docs/conformance/v1.json, read as a stranger would: with struct, hashlib and json only.

Each vector is checked twice: our code gives what the file says, and so does a second, naive implementation that
stands here, so that neither file nor code can drift alone.
"""

import hashlib
import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from docs import vectors
from fl_core.aggregation import AGGREGATORS, ArraySource, FedAvg, example_weights
from fl_core.dag.acts import acts_digest, acts_in_effect, decode_act, decode_signed_acts
from fl_core.dag.author import author_of_secret, split_author
from fl_core.dag.checkpoint import decode_checkpoint, open_checkpoint
from fl_core.dag.figures import step_from
from fl_core.dag.genesis import parse_genesis
from fl_core.dag.receipt import decode_receipt
from fl_core.dag.signature import Role, is_weak_key, verify
from fl_core.dag.transaction import decode_header, transaction_id
from fl_core.errors import ERRORS_BY_CODE, SignatureError, TransactionInvalidError
from fl_core.models import ModelLayout, TensorSpec, check_model, encode_flat, flat
from fl_core.selection.evidence import evidence_id, parse_evidence
from fl_core.sketch import Sketch
from fl_core.step_coding import decode_step
from fl_core.types import PublicKey, TxId, digest_of
from ledger_server.founding import create_ledger
from ledger_server.store import open_store
from tests.reference import robust_aggregation as robust
from tests.reference.aggregation import fedavg, naive_weights
from tests.reference.sketch import sketch as naive_sketch
from tests.reference.step_coding import decode as naive_decode
from tests.serving import serving

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
    out += bytes([fields["kind"], {"hash": 0, "key": 1}[kind_of_author]]) + bytes.fromhex(author)
    for name in ("sequence", "created_at_ms", "num_examples"):
        out += fields[name].to_bytes(8, "big")
    out += struct.pack(">d", fields["noise_std"]) + bytes.fromhex(fields["start"])
    out += bytes.fromhex(fields["model_digest"]) + fields["model_size"].to_bytes(8, "big")
    out += bytes.fromhex(fields["attachment_digest"])
    out += len(fields["parents"]).to_bytes(2, "big") + bytes.fromhex("".join(fields["parents"]))
    out += len(fields["metrics"]).to_bytes(2, "big")
    for name in sorted(fields["metrics"]):
        out += bytes([len(name)]) + name.encode() + struct.pack(">d", fields["metrics"][name])
    return out + naive_map({name: bytes.fromhex(value) for name, value in fields["extensions"].items()})


def naive_map(entries: dict[str, bytes]) -> bytes:
    out = len(entries).to_bytes(2, "big")
    for name in sorted(entries):
        out += bytes([len(name)]) + name.encode() + len(entries[name]).to_bytes(2, "big") + entries[name]
    return out


@cases("headers")
def test_header_has_these_bytes_and_this_id(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["header"])
    header = decode_header(data)
    assert naive_header(case["fields"]) == data == header.encode()
    assert {name: getattr(header, name) for name in case["fields"]} == {
        **case["fields"],
        "parents": tuple(case["fields"]["parents"]),
        "extensions": {name: bytes.fromhex(value) for name, value in case["fields"]["extensions"].items()},
    }
    assert hashlib.sha256(b"dag-acfl/transaction/v1\0" + data).hexdigest() == case["id"] == transaction_id(data)


KEYS = {key["public_key"]: Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key["seed"])) for key in VECTORS["keys"]}


@cases("headers")
def test_header_has_this_signature(case: dict[str, Any]) -> None:
    kind, _, author = case["fields"]["author"].partition(":")
    if kind == "hash":
        assert case["author_signature"] is None
        return
    signed = b"dag-acfl/author/v1\0" + bytes.fromhex(case["id"])
    assert KEYS[author].sign(signed).hex() == case["author_signature"]
    verify(PublicKey(author), case["id"], bytes.fromhex(case["author_signature"]), role=Role.AUTHOR)


def test_the_signed_publication_of_the_protocol_is_published(tmp_path: Path, sqlite_url: str) -> None:
    text = (FILE.parents[1] / "protocol.md").read_text("utf-8").partition("### A signed publication")[2]
    header, values, part = re.findall(r"```(?:text|json)\n(.*?)```", text, re.DOTALL)[:3]
    data = bytes.fromhex("".join(line.split()[0] for line in header.splitlines()))
    said = dict(line.split() for line in values.splitlines())
    identity = hashlib.sha256(b"dag-acfl/transaction/v1\0" + data).digest()
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(said["seed"]))
    fields, model = json.loads(part), bytes.fromhex(said["model"])
    assert identity.hex() == said["id"] == fields["id"]
    assert key.sign(b"dag-acfl/author/v1\0" + identity).hex() == said["signature"] == fields["signature"]
    assert f"key:{key.public_key().public_bytes_raw().hex()}" == fields["author"]
    assert hashlib.sha256(model).hexdigest() == fields["model_digest"]
    store = open_store(sqlite_url, data_dir=tmp_path)
    first = vectors.model_of(vectors.SMALL, 1, 2, 3)
    create_ledger(store, vectors.GENESIS, first, key=vectors.key("issuer"), now_ms=vectors.CREATED_AT_MS)
    store.close()
    with serving(sqlite_url, tmp_path, new=False) as server:
        answer = server.post(fields, model)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["id"], answer.json()["header"]) == (said["id"], data.hex())


@cases("secrets", by="secret")
def test_secret_shows_this_author(case: dict[str, Any]) -> None:
    digest = hashlib.sha256(b"dag-acfl/author-secret/v1\0" + case["secret"].encode()).hexdigest()
    assert f"hash:{digest}" == case["author"] == author_of_secret(case["secret"])


@cases("receipts", by="id")
def test_receipt_has_these_bytes(case: dict[str, Any]) -> None:
    fields = case["fields"]
    numbers = fields["received_at_ms"].to_bytes(8, "big") + fields["members_version"].to_bytes(8, "big")
    signature = KEYS[fields["issuer"]].sign(b"dag-acfl/receipt/v1\0" + bytes.fromhex(case["id"]) + numbers)
    assert (bytes.fromhex(fields["issuer"]) + numbers + signature).hex() == case["receipt"]
    receipt = decode_receipt(bytes.fromhex(case["receipt"]))
    assert {name: getattr(receipt, name) for name in fields} == fields
    receipt.verify(case["id"])


def naive_act(fields: dict[str, Any]) -> bytes:
    def subject(text: str) -> bytes:
        kind, _, digits = text.partition(":")
        kinds = ["", "hash", "key", "member", "update", "act", "ledger"]
        return bytes([kinds.index(kind)]) + bytes.fromhex(digits or "00" * 32)

    out = b"dag-act\x01" + bytes.fromhex(fields["ledger"]) + fields["number"].to_bytes(8, "big")
    out += bytes.fromhex(fields["previous"]) + fields["created_at_ms"].to_bytes(8, "big") + bytes([fields["kind"]])
    out += subject(fields["subject"]) + subject(fields["object"])
    return out + naive_map({name: text.encode() for name, text in fields["details"].items()})


@cases("acts", by="id")
def test_act_has_these_bytes_and_signatures(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["act"])
    act = decode_act(data)
    assert naive_act(case["fields"]) == data == act.encode()
    assert {name: getattr(act, name) for name in case["fields"]} == case["fields"]
    assert hashlib.sha256(b"dag-acfl/act/v1\0" + data).hexdigest() == case["id"] == act.id
    (signed,) = decode_signed_acts(bytes.fromhex(case["signed"]), most=1)
    signed.verify()
    out = len(data).to_bytes(4, "big") + data + len(signed.signatures).to_bytes(2, "big")
    for signer in sorted(signed.signatures):
        message = b"dag-acfl/act-signature/v1\0" + bytes.fromhex(case["id"])
        out += bytes.fromhex(signer) + KEYS[signer].sign(message)
    assert out.hex() == case["signed"] == signed.encode().hex()


@cases("acts_refused")
def test_malformed_act_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ERRORS_BY_CODE[case["code"]]):
        decode_act(bytes.fromhex(case["act"]))


@cases("acts_in_effect")
def test_acts_in_effect(case: dict[str, Any]) -> None:
    acts = decode_signed_acts(bytes.fromhex(case["acts"]), most=100)
    state = acts_in_effect(
        acts, founders=case["founders"], threshold=case["threshold"], settled=tuple(map(TxId, case["settled"]))
    )
    assert list(state.acts) == case["in_effect"]
    assert (sorted(state.members), state.members_version) == (case["members"], case["members_version"])
    parts = [
        bytes.fromhex(each.id)
        + len(each.signatures).to_bytes(2, "big")
        + bytes.fromhex("".join(sorted(each.signatures)))
        for each in sorted(acts, key=lambda each: each.id)
    ]
    assert hashlib.sha256(b"".join(parts)).hexdigest() == case["acts_digest"] == acts_digest(acts)


@cases("checkpoints")
def test_checkpoint_has_these_bytes(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["checkpoint"])
    checkpoint = decode_checkpoint(data)
    below = sorted(case["below"])
    assert hashlib.sha256(bytes.fromhex("".join(below))).hexdigest() == case["below_digest"]
    total = sum(int.from_bytes(bytes.fromhex(each), "little") for each in below) % 2**256
    assert total.to_bytes(32, "little").hex() == case["below_sum"]
    out = b"dagckpt\x01" + bytes.fromhex(checkpoint.ledger + checkpoint.member)
    for number in (checkpoint.created_at_ms, checkpoint.horizon_ms, len(below)):
        out += number.to_bytes(8, "big")
    out += bytes.fromhex(case["below_sum"] + case["below_digest"]) + checkpoint.members_version.to_bytes(8, "big")
    out += len(checkpoint.receipts).to_bytes(2, "big")
    for identity, receipt in checkpoint.receipts:
        out += bytes.fromhex(identity) + receipt.encode()
    out += len(checkpoint.acts).to_bytes(4, "big")
    for number, identity in checkpoint.acts:
        out += number.to_bytes(8, "big") + bytes.fromhex(identity)
    out += len(checkpoint.entries).to_bytes(4, "big")
    for entry in checkpoint.entries:
        kind, _, author = entry.author.partition(":")
        out += bytes.fromhex(entry.id) + entry.depth.to_bytes(8, "big")
        out += bytes([["hash", "key"].index(kind)]) + bytes.fromhex(author)
        out += entry.sequence.to_bytes(8, "big") + entry.num_examples.to_bytes(8, "big")
        figures, step = entry.figures, entry.figures.step
        out += struct.pack(">Bd", step is not None, figures.norm)
        if step is not None:
            out += struct.pack(">dH", step.norm, len(step.by_tensor)) + struct.pack(
                f">{len(step.by_tensor)}d", *step.by_tensor
            )
        out += struct.pack(f">H{len(figures.shares)}f", len(figures.shares), *figures.shares)
    assert out == data
    assert hashlib.sha256(b"dag-acfl/checkpoint-id/v1\0" + data).hexdigest() == case["id"]
    signature = KEYS[checkpoint.member].sign(b"dag-acfl/checkpoint/v1\0" + bytes.fromhex(case["id"]))
    assert (data + signature).hex() == case["signed"]
    assert open_checkpoint(bytes.fromhex(case["signed"])) == checkpoint


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


@cases("genesis_refused")
def test_document_that_is_no_genesis_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ERRORS_BY_CODE[case["code"]]):
        parse_genesis(case["document"].encode("utf-8"))


@cases("genesis")
def test_genesis_document_is_canonical_and_covered_by_the_ledgers_id(case: dict[str, Any]) -> None:
    document = case["document"].encode("ascii")
    assert json.dumps(json.loads(document), sort_keys=True, separators=(",", ":")).encode() == document
    assert hashlib.sha256(document).hexdigest() == case["digest"]
    assert parse_genesis(document).digest == case["digest"]
    if case["ledger"] is None:
        return
    (first,) = [each for each in VECTORS["headers"] if each["name"] == "genesis"]
    assert first["fields"]["attachment_digest"] == case["digest"]
    assert first["id"] == case["ledger"]


@cases("evidence")
def test_evidence_is_canonical_and_has_this_id(case: dict[str, Any]) -> None:
    encoded = case["evidence"].encode("ascii")
    assert json.dumps(json.loads(encoded), sort_keys=True, separators=(",", ":")).encode() == encoded
    assert hashlib.sha256(encoded).hexdigest() == case["id"] == evidence_id(encoded)
    assert parse_evidence(encoded).encode() == encoded


@cases("evidence_refused")
def test_document_that_is_no_evidence_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ERRORS_BY_CODE[case["code"]]):
        parse_evidence(case["evidence"].encode("ascii"))


@cases("aggregates")
def test_models_have_this_mean_to_the_byte(case: dict[str, Any]) -> None:
    layout = layout_named(case["layout"])
    vectors = [flat(layout, bytes.fromhex(model)) for model in case["models"]]
    counted = naive_weights(case["num_examples"], case["factor"])
    weights = example_weights(case["num_examples"], factor=case["factor"])
    ours = FedAvg().aggregate([ArraySource(vector) for vector in vectors], weights)
    assert encode_flat(layout, fedavg(vectors, counted)).hex() == case["aggregate"]
    assert encode_flat(layout, ours).hex() == case["aggregate"]


@cases("robust_aggregates")
def test_models_have_this_robust_aggregate_to_the_byte(case: dict[str, Any]) -> None:
    layout = layout_named(case["layout"])
    models = [flat(layout, bytes.fromhex(model)) for model in case["models"]]
    name, params = case["aggregator"]["name"], case["aggregator"]["params"]
    twin = {
        "median": lambda: robust.median(models),
        "trimmed-mean": lambda: robust.trimmed_mean(models, params["trim_share"]),
        "krum": lambda: robust.multi_krum(models, params["byzantine"], 1),
        "multi-krum": lambda: robust.multi_krum(models, params["byzantine"], params["keep"]),
    }
    naive = twin[name]() if len(models) > 1 else models[0]
    rule, weights = AGGREGATORS.build(name, params), [1.0] * len(models)
    ours = rule.aggregate([ArraySource(model) for model in models], weights)
    assert encode_flat(layout, naive).hex() == case["aggregate"]
    assert encode_flat(layout, ours).hex() == case["aggregate"]
    assert rule.shares(weights) == case["shares"]


@cases("steps")
def test_update_has_this_step(case: dict[str, Any]) -> None:
    layout = layout_named(case["layout"])
    average, model = (flat(layout, bytes.fromhex(case[name])) for name in ("average", "model"))
    squares = [float(change) ** 2 for change in (model - average)]
    by_tensor = [math.sqrt(math.fsum(squares[piece])) for piece in layout.tensor_slices]
    step = step_from(average, model, layout=layout)
    assert step.by_tensor == tuple(case["by_tensor"]) == pytest.approx(by_tensor, rel=1e-12)
    assert step.norm == case["norm"] == pytest.approx(math.sqrt(math.fsum(squares)), rel=1e-12)


@cases("coded_models")
def test_coded_model_is_this_one(case: dict[str, Any]) -> None:
    layout, coded, model = layout_named(case["layout"]), bytes.fromhex(case["coded"]), bytes.fromhex(case["model"])
    base = None if case["base"] is None else bytes.fromhex(case["base"])
    assert bytes(decode_step(layout, coded, base)) == model == naive_decode(layout, coded, base)


@cases("sketches")
def test_vector_has_this_sketch_to_the_byte(case: dict[str, Any]) -> None:
    values = np.frombuffer(bytes.fromhex(case["values"]), "<f4")
    drawn = {"dimensions": case["dimensions"], "seed": case["seed"]}
    assert Sketch(len(values), **drawn).of(values).tobytes().hex() == case["sketch"]
    assert np.array(naive_sketch(values.tolist(), **drawn), "<f4").tobytes().hex() == case["sketch"]


@cases("tips", by="digest")
def test_tips_have_this_digest(case: dict[str, Any]) -> None:
    assert case["tips"] == sorted(case["tips"])
    assert hashlib.sha256(bytes.fromhex("".join(case["tips"]))).hexdigest() == case["digest"]
