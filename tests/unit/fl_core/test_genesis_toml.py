"""A genesis that a person writes becomes a document, or is refused with the place of the mistake."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fl_core.aggregation import AGGREGATORS
from fl_core.candidates import CANDIDATE_RULES
from fl_core.dag.genesis import SKETCH, Bounds, Component, Genesis, Member, compare_layers
from fl_core.dag.genesis_toml import genesis_from_table
from fl_core.dag.profiles import PROFILES, differences, protection
from fl_core.errors import ConfigurationError
from fl_core.models import ModelLayout, TensorSpec
from fl_core.registry import written_params
from fl_core.types import PublicKey
from tests.builders import LAYOUT

FOUNDER = Member(PublicKey("f0" * 32), "founder")


def genesis_of(text: str, **given: Any) -> Genesis:
    return genesis_from_table(tomllib.loads(text), layout=LAYOUT, **given)


def test_name_alone_is_enough() -> None:
    genesis = genesis_of('name = "pilot"', founders=[FOUNDER])
    assert genesis == Genesis(
        name="pilot",
        layout=LAYOUT,
        selector=Component("least-squares", {"min_tips": 4}),
        candidates=Component("newest"),
        aggregator=Component("trimmed-mean", {"trim_share": 0.34}),
        weights=Component("equal"),
        members=(FOUNDER,),
        training={"epochs": 3, "initial_epochs": 3},
    )
    assert (genesis.authors.name, differences(genesis)) == ("open", ())


def test_the_rule_of_authors_brings_its_profile_and_what_is_said_wins() -> None:
    listed = genesis_of('name = "x"\nauthors = { name = "listed" }')
    assert (listed.aggregator.name, listed.weights.name) == ("trimmed-mean", "equal")
    assert (listed.candidates.name, differences(listed)) == ("newest", ())
    other = genesis_of('name = "x"\nweights = { name = "examples" }\nbounds = { max_step_growth = 20 }')
    assert other.weights == Component("examples", {"factor": 3})
    assert differences(other) == ("weights", "max_step_growth")


def test_what_a_ledger_is_told_to_protect_follows_its_rules() -> None:
    def told(text: str) -> tuple[str, str]:
        found = protection(genesis_of(f'name = "x"\n{text}'))
        assert found is not None
        return found.against, found.leaves

    plain, listed = 'aggregator = { name = "fedavg" }', 'authors = { name = "listed" }'
    assert ["one bad client" in told(text)[0] for text in ("", listed, plain)] == [True, True, False]
    assert ["a plain mean drops nobody" in told(text)[1] for text in ("", listed, plain)] == [False, False, True]
    assert ["strangers" in told(text)[0] for text in ("", listed, f"{plain}\n{listed}")] == [False, True, True]
    assert (
        "steps" not in told("bounds = { max_first_step = 1e300, max_step_growth = 1e300, max_layer_growth = 1e300 }")[0]
    )


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ('aggregator = { name = "trimmed-mean", trim_share = 0.1 }', "aggregator"),
        ('aggregator = { name = "krum" }', "aggregator"),
        ('candidates = { name = "tips" }', "candidates"),
        ('selector = { name = "least-squares", min_tips = 1 }', "selector"),
        ('selector = { name = "top-k", k = 3 }', "selector"),
    ],
)
def test_of_rules_that_were_not_attacked_nothing_is_promised(rule: str, named: str) -> None:
    genesis = genesis_of(f'name = "x"\n{rule}')
    found = protection(genesis)
    assert found is not None
    assert "one bad client" not in found.against
    assert "not measured" in found.leaves
    assert differences(genesis) == (named,)


def test_of_authors_of_a_later_version_nothing_is_known() -> None:
    genesis = replace(genesis_of('name = "x"'), authors=Component("elected"))
    assert (protection(genesis), differences(genesis)) == (None, ())


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_what_a_server_carries_out(name: str) -> None:
    genesis = genesis_of(f'name = "x"\nauthors = {{ name = "{name}" }}')
    aggregator = AGGREGATORS.build(genesis.aggregator.name, genesis.aggregator.params)
    assert written_params(aggregator.params) == genesis.aggregator.params, "every parameter is written out"
    assert genesis.candidates.name in CANDIDATE_RULES
    assert aggregator.min_models <= 3, "it works where three models are averaged"


def test_the_rules_of_new_ledgers_are_those_of_their_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8")
    _, _, section = page.partition("## Two kinds of ledger")
    rows = dict(re.findall(r"^\| (\w+) \| (.+?) \|$", section.partition("\n## ")[0], re.MULTILINE))
    for rule in ("candidates", "selector", "aggregator", "weights"):
        told = PROFILES["open"][rule]
        assert all(str(each) in rows[rule] for each in (told.name, *told.params.values())), (rule, rows[rule])
    for bound in ("max_step_growth", "max_layer_growth"):
        assert f"{getattr(Bounds(), bound):g}" in rows["bounds"]
        assert bound in rows["bounds"]


def test_a_trimmed_mean_that_is_only_named_is_that_of_new_ledgers() -> None:
    named = AGGREGATORS.build("trimmed-mean", {})
    assert written_params(named.params) == PROFILES["open"]["aggregator"].params


def test_a_joiner_trains_for_as_many_epochs_as_it_will_later_unless_told_otherwise() -> None:
    assert genesis_of('name = "x"\ntraining = { epochs = 2 }').training == {"epochs": 2, "initial_epochs": 2}
    assert genesis_of('name = "x"\ntraining = { initial_epochs = 9 }').training == {"epochs": 3, "initial_epochs": 9}


def test_large_models_are_compared_by_a_sketch_unless_told_otherwise() -> None:
    large = ModelLayout.of([TensorSpec("embedding", "F32", (1000, 66))])
    told = {
        'name = "x"': SKETCH,
        'name = "x"\ncomparison = { seed = 5 }': Component("sketch", {"dimensions": 8192, "seed": 5}),
        'name = "x"\ncomparison = { name = "all" }': Component("all"),
    }
    for text, expected in told.items():
        assert genesis_from_table(tomllib.loads(text), layout=large).comparison == expected
    small = genesis_of('name = "x"\ncomparison = { name = "sketch", dimensions = 16 }')
    assert small.comparison == Component("sketch", {"dimensions": 16, "seed": 1})


def test_everything_can_be_said() -> None:
    genesis = genesis_of(
        f"""
        name = "pilot"
        threshold = 2
        supersedes = "{"ab" * 32}"
        comparison = {{ name = "layers", tensors = ["fc.weight", "fc.bias"] }}
        selector = {{ name = "top-k", k = 3 }}
        aggregator = {{ name = "trimmed-mean", trim_share = 0.2 }}
        weights = {{ name = "equal" }}
        freshness = {{ window_s = 20 }}
        authors = {{ keys_only = true }}
        bounds = {{ max_parents = 8, max_norm = 100 }}
        training = {{ epochs = 3 }}
        extensions = {{ note = "x" }}
        members = [{{ key = "{"cd" * 32}", name = "b" }}, {{ key = "{"0c" * 32}", name = "a" }}]
        [layout]
        local = [{{ name = "head", dtype = "F32", shape = [2] }}]
        """
    )
    assert genesis.compared == ("fc.bias", "fc.weight")
    assert genesis.comparison == compare_layers(["fc.bias", "fc.weight"])
    assert (genesis.window_ms, genesis.weights.name, genesis.keys_only) == (20_000, "equal", True)
    assert genesis.bounds == Bounds(max_parents=8, max_norm=100.0)
    assert [member.name for member in genesis.members] == ["a", "b"]
    assert [tensor.name for tensor in genesis.local] == ["head"]
    assert (genesis.threshold, genesis.supersedes) == (2, "ab" * 32)


def test_registries_fill_in_parameters() -> None:
    genesis = genesis_of('name = "x"', complete=lambda rule, found: Component(found.name, {**found.params, "at": rule}) if rule == "selector" else found)  # fmt: skip
    assert genesis.selector.params == {"min_tips": 4, "at": "selector"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name = 5",
        'name = "x"\nnmae = 1',
        'name = "x"\nselector = "beast"',
        'name = "x"\ncomparison = { name = "layers", tensors = ["fc3"] }',
        'name = "x"\ncomparison = { name = "layers" }',
        'name = "x"\ncomparison = { name = "sketch", dimensions = 65537 }',
        'name = "x"\ncomparison = { name = "sketch", dimensions = 0 }',
        'name = "x"\ncomparison = { seed = 2 }',
        'name = "x"\ncomparison = { name = 5 }',
        'name = "x"\nfreshness = { window_s = 0 }',
        'name = "x"\nfreshness = { window = 5 }',
        'name = "x"\nauthors = { name = "friends" }',
        'name = "x"\nbounds = { max_parnets = 5 }',
        'name = "x"\nbounds = { max_parents = "5" }',
        'name = "x"\nthreshold = "all"',
        'name = "x"\nmembers = [{ key = "ab" }]',
        'name = "x"\nmembers = 5',
        'name = "x"\nlayout = { buffers = ["fc3"] }',
        'name = "x"\nlayout = { buffer = [] }',
        'name = "x"\nlayout = { local = [{ name = "h", dtype = "F64", shape = [1] }] }',
        'name = "x"\nlayout = { local = [{ name = "h", dtype = "F32", shape = 1 }] }',
        'name = "x"\nsupersedes = "ab"',
        'name = "x"\nsupersedes = 3',
        'name = "x"\ntraining = { epochs = [1] }',
    ],
)
def test_mistake_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        genesis_of(text)
