from pathlib import Path

import pytest
from prometheus_client import values as kept

from ledger_server.metrics import Metrics, share_metrics


def test_two_servers_in_one_process_count_apart() -> None:
    one, other = (Metrics(build={"version": "1", "commit": commit, "schema": "0001"}) for commit in "ab")
    one.tips.set(5)
    assert one.registry.get_sample_value("dag_acfl_tips") == 5
    assert other.registry.get_sample_value("dag_acfl_tips") == 0
    labels = {"version": "1", "schema": "0001"}
    assert one.registry.get_sample_value("dag_acfl_build_info", {**labels, "commit": "a"}) == 1
    assert other.registry.get_sample_value("dag_acfl_build_info", {**labels, "commit": "a"}) is None


def test_every_metric_has_the_prefix_a_text_and_bounded_labels() -> None:
    bounded = {
        "ledger",
        "queue",
        "reason",
        "method",
        "route",
        "status",
        "code",
        "outcome",
        "source",
        "version",
        "commit",
        "schema",
        "peer",
        "kind",
        "direction",
        "incident",
    }
    metrics = Metrics()
    names = set()
    for family in metrics.registry.collect():
        names.add(family.name)
        assert family.name.startswith(("dag_acfl_", "process_"))
        assert family.documentation.endswith(".")
        assert not any(sample.name.endswith("_created") for sample in family.samples)
    for collector in metrics.registry._collector_to_names:
        assert set(getattr(collector, "_labelnames", ())) <= bounded
    assert len(names) >= 15


def test_one_of_several_processes_answers_also_while_another_creates_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(kept, "ValueClass", kept.ValueClass)  # which the next line sets, for this test alone
    share_metrics("worker-0")
    metrics = Metrics()
    metrics.tips.set(5)
    metrics.selections.labels("created").inc()
    for kind in ("gauge_mostrecent", "counter"):
        (tmp_path / f"{kind}_worker-1.db").touch()
    shown = metrics.exposition().decode().splitlines()
    assert {"dag_acfl_tips 5.0", 'dag_acfl_selections_total{outcome="created"} 1.0'} <= {*shown}
    assert metrics.totals(metrics.selections) == {"created": 1}
