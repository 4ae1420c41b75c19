"""A server whose genesis names a robust rule: what it hands out, and that `verify` recomputes the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dag_acfl.sources import open_source
from fl_core.aggregation import AGGREGATORS
from fl_core.dag.genesis import Component
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.node import Publication
from fl_core.types import TxId, Vector32, digest_of
from fl_core.verify import VerifyProgress, verify
from ledger_server.founding import create_ledger
from ledger_server.publishing import LedgerService
from ledger_server.store import open_store
from ledger_server.store.journal import Store
from tests.builders import CREATED_AT_MS, ISSUER, make_genesis, new_secret
from tests.reference import robust_aggregation as robust
from tests.reference.aggregation import fedavg
from tests.serving import secret_for

SIZE = 20_000  # more than a piece, and no whole number of pieces
LAYOUT = ModelLayout.of([TensorSpec("w", "F32", (SIZE,))])
EXAMPLES = (10, 20, 30, 40, 50, 5000)
TWINS = {
    "fedavg": fedavg,
    "median": lambda models, counts: robust.median(models),
    "trimmed-mean": lambda models, counts: robust.trimmed_mean(models, 0.34),
    "krum": lambda models, counts: robust.multi_krum(models, 1, 1),
    "multi-krum": lambda models, counts: robust.multi_krum(models, 1, 0),
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database opened by its URL has its data folder in the current one."""
    monkeypatch.chdir(tmp_path)


def restarted(store: Store, cached_models: int = 0) -> LedgerService:
    return LedgerService(
        store,
        key=ISSUER,
        now_ms=lambda: CREATED_AT_MS + 1000,
        cache_bytes=cached_models * LAYOUT.nbytes,
        recent_selections=4,
    )


def first_model() -> Vector32:
    return np.random.default_rng(0).standard_normal(SIZE, dtype=np.float32)


def six_models() -> list[Vector32]:
    """Five honest ones, and one whose update is fifty times as long."""
    rng = np.random.default_rng(1)
    steps = 0.5 * rng.standard_normal((6, SIZE), dtype=np.float32)
    steps[3] *= 50
    return list(first_model() + steps)


@pytest.mark.parametrize(
    ("name", "cached_models"), [(name, 100 * (place % 2)) for place, name in enumerate(AGGREGATORS)]
)
def test_a_server_averages_by_genesis_rule_and_the_ledger_verifies(
    name: str, cached_models: int, sqlite_url: str, tmp_path: Path
) -> None:
    genesis = replace(
        make_genesis(layout=LAYOUT, selector_params={"k": 8}, max_step_growth=100.0),
        aggregator=Component(name),
    )
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        create_ledger(store, genesis, encode_flat(LAYOUT, first_model()), key=ISSUER, now_ms=CREATED_AT_MS)
        service = restarted(store, cached_models)
        given: dict[TxId, tuple[Vector32, int]] = {}
        for model, count in zip(six_models(), EXAMPLES, strict=True):
            publication = Publication(num_examples=count, parents=(service.id,), secret=new_secret())
            given[service.publish(publication, encode_flat(LAYOUT, model)).transaction] = model, count
        evidence = service.selections.select_for(next(iter(given)))[0].evidence
        parents = evidence.selection.parents
        assert set(parents) == given.keys()
        models, counts = [given[each][0] for each in parents], [float(given[each][1]) for each in parents]
        expected = encode_flat(LAYOUT, TWINS[name](models, counts))
        assert evidence.aggregate == digest_of(expected)
        handed_out = service.aggregates.model(evidence.aggregate)
        assert bytes(handed_out) == expected
        selection = service.selections.select_for(parents[1])[0]
        child = flat(LAYOUT, expected) + np.float32(0.01)
        publication = Publication(num_examples=1, selection=selection.id, secret=secret_for(service, selection.id))
        published = service.publish(publication, encode_flat(LAYOUT, child)).transaction
        shares = AGGREGATORS.build(name, {}).shares(counts)
        node = service.node.graph.newest_of(service.node.nodes_of([published])[0].author)
        assert node is not None
        assert node.figures.step is not None
        assert node.figures.step.norm == pytest.approx(0.01 * SIZE**0.5, rel=1e-4)
        assert node.figures.shares == pytest.approx(shares, rel=1e-6)
        service.close()
        assert restarted(store).node.graph.get(published) == node, "read from the journal"
    seen: list[VerifyProgress] = []
    with open_source(sqlite_url) as source:
        assert list(verify(source, progress=seen.append)) == []
    assert seen[-1].aggregates == 1
