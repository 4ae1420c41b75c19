"""A server whose genesis names a robust rule: what it hands out, and that `verify` recomputes the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dag_acfl.sources import open_source
from fl_core.aggregation import AGGREGATORS
from fl_core.dag.genesis import Component
from fl_core.errors import ModelNormError
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.node import Publication
from fl_core.selection.change_points import BeastPriors
from fl_core.types import TxId, Vector32, Vector64, digest_of
from fl_core.verify import VerifyProgress, verify
from ledger_server.founding import create_ledger
from ledger_server.publishing import LedgerService
from ledger_server.store import open_store
from tests.builders import CREATED_AT_MS, ISSUER, make_genesis, new_secret
from tests.databases import DatabaseUrls
from tests.reference import robust_aggregation as robust
from tests.reference.aggregation import fedavg
from tests.serving import secret_for

SIZE = 20_000  # more than a piece, and no whole number of pieces
LAYOUT = ModelLayout.of([TensorSpec("w", "F32", (SIZE,))])
EXAMPLES = (10, 20, 30, 40, 50, 5000)
TWINS = {
    "fedavg": fedavg,
    "median": lambda models, counts: robust.median(models),
    "trimmed-mean": lambda models, counts: robust.trimmed_mean(models, 0.2),
    "krum": lambda models, counts: robust.multi_krum(models, 1, 1),
    "multi-krum": lambda models, counts: robust.multi_krum(models, 1, 0),
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database opened by its URL has its data folder in the current one."""
    monkeypatch.chdir(tmp_path)


def no_detector(_: Vector64, __: BeastPriors) -> Vector64:
    raise AssertionError("top-k asks no detector")


def first_model() -> Vector32:
    return np.random.default_rng(0).standard_normal(SIZE, dtype=np.float32)


def six_models() -> list[Vector32]:
    """Five honest ones, and one whose update is fifty times as long."""
    rng = np.random.default_rng(1)
    steps = 0.5 * rng.standard_normal((6, SIZE), dtype=np.float32)
    steps[3] *= 50
    return list(first_model() + steps)


CASES = [
    (name, growth_rule, 100 if (number + other) % 2 else 0)
    for number, name in enumerate(AGGREGATORS)
    for other, growth_rule in enumerate(("refuse", "clip"))
]
"""Every rule with both ways of growth, with and without cached models; and so every way of growth."""


@pytest.mark.parametrize(("name", "growth_rule", "cached_models"), CASES)
def test_a_server_averages_by_genesis_rule_and_the_ledger_verifies(
    name: str, growth_rule: str, cached_models: int, sqlite_url: str, tmp_path: Path
) -> None:
    growth = 1.5 if growth_rule == "clip" else 100.0
    genesis = replace(
        make_genesis(layout=LAYOUT, selector_params={"k": 8}, growth_rule=growth_rule, max_step_growth=growth),
        aggregator=Component(name),
    )
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        create_ledger(store, genesis, encode_flat(LAYOUT, first_model()), key=ISSUER, now_ms=CREATED_AT_MS)
        service = LedgerService(
            store,
            key=ISSUER,
            now_ms=lambda: CREATED_AT_MS + 1000,
            detect=no_detector,
            cache_bytes=cached_models * LAYOUT.nbytes,
            recent_selections=4,
        )
        given: dict[TxId, tuple[Vector32, int]] = {}
        for model, count in zip(six_models(), EXAMPLES, strict=True):
            publication = Publication(num_examples=count, parents=(service.id,), secret=new_secret())
            given[service.publish(publication, encode_flat(LAYOUT, model)).transaction] = model, count
        evidence = service.selections.select_for(next(iter(given)))[0].evidence
        parents = evidence.selection.parents
        assert set(parents) == given.keys()
        models, counts = [given[each][0] for each in parents], [float(given[each][1]) for each in parents]
        if growth_rule == "clip":
            models = robust.clipped(models, first_model(), 1.5)
        expected = encode_flat(LAYOUT, TWINS[name](models, counts))
        assert evidence.aggregate == digest_of(expected)
        handed_out = service.aggregates.model(evidence.aggregate)
        assert bytes(handed_out) == expected
        selection = service.selections.select_for(parents[1])[0]
        child = flat(LAYOUT, expected) + np.float32(0.01)
        publication = Publication(num_examples=1, selection=selection.id, secret=secret_for(service, selection.id))
        service.publish(publication, encode_flat(LAYOUT, child))
        service.close()
    seen: list[VerifyProgress] = []
    with open_source(sqlite_url) as source:
        assert list(verify(source, progress=seen.append)) == []
    assert seen[-1].aggregates == 1


def test_what_grew_too_much_is_refused_by_default_and_admitted_where_it_is_clipped(
    database_urls: DatabaseUrls, tmp_path: Path
) -> None:
    scaled = encode_flat(LAYOUT, 1000 * first_model())
    for growth_rule, url in zip(("refuse", "clip"), database_urls(2), strict=True):
        norm = float(np.linalg.norm(first_model()))
        genesis = make_genesis(layout=LAYOUT, growth_rule=growth_rule, max_norm=5000 * norm)
        with open_store(url, data_dir=tmp_path) as store:
            create_ledger(store, genesis, encode_flat(LAYOUT, first_model()), key=ISSUER, now_ms=CREATED_AT_MS)
            service = LedgerService(
                store,
                key=ISSUER,
                now_ms=lambda: CREATED_AT_MS + 1000,
                detect=no_detector,
                cache_bytes=0,
                recent_selections=4,
            )
            publication = Publication(num_examples=1, parents=(service.id,), secret=new_secret())
            if growth_rule == "refuse":
                with pytest.raises(ModelNormError):
                    service.publish(publication, scaled)
            else:
                assert service.publish(publication, scaled).transaction
                with pytest.raises(ModelNormError):  # the absolute bound holds for everybody
                    service.publish(publication, encode_flat(LAYOUT, 10_000 * first_model()))
            service.close()
