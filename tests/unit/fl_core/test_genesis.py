"""The genesis document is canonical, strict, and refuses what a ledger could not live with."""

import json
from typing import Any

import pytest

from fl_core.dag.genesis import Component, Genesis, Policy, canonical_json, parse_genesis, policy_fields
from fl_core.errors import GenesisError
from tests.builders import LAYOUT, make_genesis


def changed(**fields: Any) -> bytes:
    """The test genesis's document with fields replaced, in canonical form."""
    return canonical_json({**json.loads(make_genesis().document), **fields})


def test_a_document_read_back_is_the_same_genesis() -> None:
    genesis = make_genesis(selector="beast", selector_params={"alpha": 0.5, "min_tips": 1})
    assert parse_genesis(genesis.document) == genesis
    assert parse_genesis(genesis.document).digest == genesis.digest


def test_other_rules_are_another_ledger() -> None:
    assert make_genesis(policy=Policy(max_parents=8)).digest != make_genesis().digest


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
        changed(name="a\u0000"),
        changed(layout=[]),
        changed(layout=[{"name": "w", "dtype": "F64", "shape": [1]}]),
        changed(layout=5),
        changed(similarity_layers=[]),
        changed(similarity_layers=["nope"]),
        changed(selector={"name": "Top K", "params": {}}),
        changed(selector={"name": "top-k"}, aggregator=None),
        changed(training={"epochs": [1]}),
        changed(training={"Epochs": 1}),
        changed(policy={}),
        changed(policy={"max_parents": 0}),
        changed(policy={"max_parents": True}),
        changed(policy={"max_parents": 2000}),
        changed(policy={"max_norm": 5}),
        changed(policy={"unknown": 1}),
        b"{" + b" " * (1 << 20) + b"}",
    ],
)
def test_what_is_no_canonical_document_is_refused(document: bytes) -> None:
    with pytest.raises(GenesisError):
        parse_genesis(document)


@pytest.mark.parametrize(
    "fields",
    [
        {"freshness_window": 0},
        {"num_examples_cap": -1},
        {"max_norm": float("nan")},
        {"max_norm_growth": 0.5},
        {"norm_rule": "shrink"},
        {"norm_rule": ["clip"]},
        {"max_abs_value": 3e38},
        {"max_created_ahead_s": -1},
        {"require_author_signature": 1},
    ],
)
def test_a_policy_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(GenesisError):
        Policy(**fields)


def test_a_parameter_must_be_a_finite_scalar() -> None:
    with pytest.raises(GenesisError):
        Component("top-k", {"k": float("inf")})
    with pytest.raises(GenesisError):
        Component("top-k", {"k": [1]})  # type: ignore[dict-item]


def test_every_policy_field_is_in_the_document() -> None:
    clipping = make_genesis(policy=Policy(norm_rule="clip"))
    assert set(json.loads(clipping.document)["policy"]) == set(policy_fields())
    assert parse_genesis(clipping.document) == clipping


def test_refusing_norms_is_not_written_so_that_older_ledgers_keep_their_ids() -> None:
    policy = json.loads(make_genesis().document)["policy"]
    assert "norm_rule" not in policy
    assert parse_genesis(make_genesis().document).policy.norm_rule == "refuse"
    with pytest.raises(GenesisError, match="canonical"):
        parse_genesis(changed(policy={**policy, "norm_rule": "refuse"}))


def test_canonical_json_sorts_and_keeps_floats_exactly() -> None:
    assert canonical_json({"b": 0.1, "a": [1, "é"]}) == b'{"a":[1,"\\u00e9"],"b":0.1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_similarity_layers_may_name_several_tensors() -> None:
    genesis = Genesis(
        name="two",
        layout=LAYOUT,
        similarity_layers=("fc.weight", "fc.bias"),
        selector=Component("top-k", {"k": 2}),
        aggregator=Component("fedavg"),
    )
    assert parse_genesis(genesis.document) == genesis
