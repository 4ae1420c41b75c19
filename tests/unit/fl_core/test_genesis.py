"""The genesis document is canonical, strict, and refuses what a ledger could not live with."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.genesis import (
    RULES,
    SUPPORTED,
    Bounds,
    Component,
    Genesis,
    Member,
    canonical_json,
    check_supported,
    compare_layers,
    parse_genesis,
)
from fl_core.errors import GenesisError, UnknownNameError
from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import PublicKey, TxId
from tests.builders import LAYOUT, make_genesis

KEYS = [PublicKey(f"{number:064x}") for number in range(3)]
WITH_BUFFERS = ModelLayout.of([TensorSpec(name, "F32", (2,)) for name in ("bn.mean", "bn.var", "fc.weight")])


def changed(**fields: Any) -> bytes:
    """The test genesis's document with fields replaced, in canonical form."""
    return canonical_json({**json.loads(make_genesis().document), **fields})


scalars = st.text(max_size=10) | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
tables = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True), scalars, max_size=3)
# Rules of later versions are read as well; those that this one knows have the parameters that it knows.
later = st.builds(Component, st.just("later-rule"), tables)


@st.composite
def geneses(draw: st.DrawFn) -> Genesis:
    buffers = draw(st.sets(st.sampled_from(["bn.mean", "bn.var"])))
    equal = Component("equal")
    return Genesis(
        name=draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}", fullmatch=True)),
        layout=WITH_BUFFERS,
        buffers=tuple(sorted(buffers)),
        local=(TensorSpec("head", "F16", (3,)),) if draw(st.booleans()) else (),
        comparison=draw(st.sampled_from([Component("all"), compare_layers(["fc.weight"])]) | later),
        selector=draw(later),
        candidates=draw(later),
        aggregator=draw(later),
        weights=draw(
            st.just(equal) | later | st.builds(lambda n: Component("examples", {"factor": n}), st.integers(1, 99))
        ),
        freshness=draw(later),
        authors=draw(st.booleans().map(lambda flag: Component("listed", {"keys_only": flag}))),
        members=tuple(Member(key, "a") for key in sorted(draw(st.sets(st.sampled_from(KEYS))))),
        threshold=draw(st.just("majority") | st.integers(1, 256)),
        bounds=Bounds(max_norm=draw(st.floats(1e-300, 1e300)), max_parents=draw(st.integers(1, 1024))),
        supersedes=draw(st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex).map(TxId)),
        training=draw(tables),
        extensions=draw(tables),
    )


@given(geneses())
def test_document_reads_back(genesis: Genesis) -> None:
    found = parse_genesis(genesis.document)
    assert found == genesis
    assert (found.document, found.digest) == (genesis.document, genesis.digest)


@given(geneses(), st.data())
def test_flipped_bit_is_another_ledger_or_none(genesis: Genesis, data: st.DataObject) -> None:
    flipped = bytearray(genesis.document)
    bit = data.draw(st.integers(0, 8 * len(flipped) - 1))
    flipped[bit // 8] ^= 1 << (bit % 8)
    try:
        other = parse_genesis(bytes(flipped))
    except GenesisError:
        return
    assert other.document == bytes(flipped)
    assert other.digest != genesis.digest


def test_other_rules_are_another_ledger() -> None:
    assert make_genesis(max_parents=8).digest != make_genesis().digest


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"{}",
        b'{"a":' * 100_000,
        make_genesis().document + b" ",
        json.dumps(json.loads(make_genesis().document)).encode(),
        changed(format="dag-acfl/genesis/v2"),
        changed(surplus=1),
        changed(name=""),
        changed(name=5),
        changed(name="a\u0000"),
        changed(layout=[]),
        changed(layout=[{"name": "w", "dtype": "F64", "shape": [1], "role": "parameter"}]),
        changed(layout=[{"name": "w", "dtype": "F32", "shape": [1], "role": "other"}]),
        changed(layout=[{"name": "w", "dtype": "F32", "shape": [1], "role": "buffer"}]),
        changed(layout=5),
        changed(comparison=None),
        changed(comparison={"name": "layers", "params": {"tensors": ""}}),
        changed(comparison={"name": "layers", "params": {"tensors": "nope"}}),
        changed(comparison={"name": "layers", "params": {"tensors": "fc.weight fc.bias"}}),
        changed(comparison={"name": "layers", "params": {"tensors": 5}}),
        changed(comparison={"name": "layers", "params": {}}),
        changed(comparison={"name": "all", "params": {"tensors": "fc.bias"}}),
        changed(selector={"name": "Top K", "params": {}}),
        changed(selector={"name": 5, "params": {}}),
        changed(selector={"name": "top-k"}, aggregator=None),
        changed(weights={"name": "examples", "params": {"factor": 0}}),
        changed(weights={"name": "equal", "params": {"factor": 1}}),
        changed(freshness={"name": "time", "params": {"window_s": True}}),
        changed(authors={"name": "open", "params": {"keys_only": 1}}),
        changed(members=[{"key": "ab", "name": "a"}]),
        changed(members=[{"key": KEYS[1], "name": "a"}, {"key": KEYS[0], "name": "a"}]),
        changed(members=[{"key": KEYS[0], "name": "a"}] * 2),
        changed(members=[{"key": KEYS[0], "name": ""}]),
        changed(threshold=0),
        changed(threshold="all"),
        changed(threshold=True),
        changed(supersedes="ab"),
        changed(supersedes=5),
        changed(training={"epochs": [1]}),
        changed(training={"Epochs": 1}),
        changed(extensions={"a": None}),
        changed(bounds={}),
        changed(bounds={"max_parents": 0}),
        changed(bounds={"max_parents": True}),
        changed(bounds={"max_parents": 2000}),
        changed(bounds={"max_norm": 5}),
        changed(bounds={"unknown": 1}),
        b"{" + b" " * (1 << 20) + b"}",
    ],
)
def test_what_is_no_canonical_document_is_refused(document: bytes) -> None:
    with pytest.raises(GenesisError):
        parse_genesis(document)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_norm": float("nan")},
        {"max_step_growth": 0.5},
        {"max_abs_value": 3e38},
        {"max_noise_std": -1.0},
        {"max_noise_std": 1},
        {"max_evidence_bytes": 0},
    ],
)
def test_bound_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(GenesisError):
        Bounds(**fields)


def test_a_parameter_must_be_a_finite_scalar() -> None:
    with pytest.raises(GenesisError):
        Component("top-k", {"k": float("inf")})
    with pytest.raises(GenesisError):
        Component("top-k", {"k": [1]})  # type: ignore[dict-item]


def test_every_bound_is_in_the_document() -> None:
    assert set(json.loads(make_genesis().document)["bounds"]) == {field.name for field in fields(Bounds)}


def test_canonical_json_sorts_and_keeps_floats_exactly() -> None:
    assert canonical_json({"b": 0.1, "a": [1, "é"]}) == b'{"a":[1,"\\u00e9"],"b":0.1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_buffers_are_never_compared() -> None:
    genesis = replace(make_genesis(layout=WITH_BUFFERS), comparison=Component("all"), buffers=("bn.mean", "bn.var"))
    assert genesis.compared == ("fc.weight",)
    with pytest.raises(GenesisError):
        replace(genesis, comparison=compare_layers(["bn.mean"]))


def test_local_tensor_is_part_of_no_model() -> None:
    genesis = replace(make_genesis(), local=(TensorSpec("head", "F32", (9,)),))
    assert parse_genesis(genesis.document) == genesis
    assert genesis.layout == LAYOUT
    with pytest.raises(GenesisError):
        replace(genesis, local=(TensorSpec("fc.bias", "F32", (1,)),))


@pytest.mark.parametrize("rule", SUPPORTED)
def test_rule_of_a_later_version_is_read_and_not_served(rule: str) -> None:
    genesis = parse_genesis(replace(make_genesis(), **{rule: Component("later-rule", {"x": 1})}).document)
    with pytest.raises(UnknownNameError):
        check_supported(genesis)


@pytest.mark.parametrize("rule", RULES)
def test_no_genesis_names_code_to_import(rule: str) -> None:
    document = make_genesis().document
    known = getattr(parse_genesis(document), rule).name
    place = json.loads(document)
    place[rule]["name"] = "os:getcwd"
    with pytest.raises(
        GenesisError, match=r"a ledger names its rules by words such as top-k \(small letters, .+ not 'os:getcwd'"
    ):
        parse_genesis(canonical_json(place))
    place[rule]["name"] = known
    assert parse_genesis(canonical_json(place)).document == document


def test_a_document_of_before_small_sketches_is_read_as_it_stands_and_compares_all_that_are_offered() -> None:
    content = json.loads(make_genesis(max_candidates=1000, max_compared=1000).document)
    assert "max_compared" not in content["bounds"]
    again = parse_genesis(canonical_json(content))
    assert again.bounds.max_compared == 1000
    assert again.document == canonical_json(content)


def test_a_bound_on_what_is_compared_stands_in_the_document_where_more_are_offered() -> None:
    genesis = make_genesis(max_candidates=5000, max_compared=1000)
    assert json.loads(genesis.document)["bounds"]["max_compared"] == 1000
    assert parse_genesis(genesis.document) == genesis
