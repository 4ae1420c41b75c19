"""What Prometheus asks and Grafana shows: every expression is of metrics and labels that a server really has."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fl_core.sync.effects import Failure, Incident
from fl_core.trust.alarms import AlarmKind
from fl_core.types import PublicKey
from fl_core.wire import v1
from ledger_server.gossip.contacts import PeerState
from ledger_server.http.problem_types import PROBLEM_TYPES
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "dag-acfl.json").read_text())
PROMETHEUS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
OF_PROMETHEUS = {"instance", "job", "le"}
"""Labels that a server does not send: of the target, and of a histogram's buckets."""


PROCESS = {
    "cpu_seconds_total",
    "max_fds",
    "open_fds",
    "resident_memory_bytes",
    "start_time_seconds",
    "virtual_memory_bytes",
}


def metrics() -> dict[str, set[str]]:
    """Each name that a server's exposition has, with its labels."""
    found: dict[str, set[str]] = {}
    registry = Metrics().registry
    for collector, names in registry._collector_to_names.items():
        for name in names:
            found[name] = set(getattr(collector, "_labelnames", ()))
    found.update((f"process_{name}", set()) for name in PROCESS)
    return found


METRICS = metrics()


def panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*shown, *(rule["expr"] for rule in ALERTS)]


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_is_of_metrics_and_labels_that_a_server_has(expression: str) -> None:
    names = set(re.findall(r"\b(?:dag_acfl|process)_\w+", expression))
    assert names or expression.startswith(("up{", "sum(up{"))
    assert names <= METRICS.keys()
    known = set().union(*(METRICS[name] for name in names)) | OF_PROMETHEUS
    by = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")}
    assert by <= known
    for name, inside in re.findall(r"\b(\w+)\{([^}]*(?:\\\\\{\w+\\\\\}[^}]*)*)\}", expression):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
        assert labels <= METRICS.get(name, set()) | OF_PROMETHEUS, name


@pytest.mark.skipif(sys.platform != "linux", reason="the process is looked at in /proc")
def test_a_server_says_of_its_process_what_the_expressions_ask() -> None:
    samples = {sample.name for family in Metrics().registry.collect() for sample in family.samples}
    assert {name.removeprefix("process_") for name in samples if name.startswith("process_")} == PROCESS


def test_servers_are_compared_with_those_of_their_own_ledger_only() -> None:
    for expression in expressions():
        if re.search(r"\bmax(?: by \(\w+\) )?\(dag_acfl_transactions\b(?!\{)", expression):
            assert "dag_acfl_ledger_info" in expression, expression


def test_routes_and_outcomes_that_are_named_exist() -> None:
    text = "\n".join(expressions())
    for routes in re.findall(r'route=~"([^"]*)"', text):
        assert set(routes.replace("\\\\", "").split("|")) == {v1.SELECTIONS, v1.MODEL, v1.TRANSACTIONS}
    known = PROBLEM_TYPES.keys() | {"created", "known"}
    for outcome in re.findall(r'outcome=~?"([^"]*)"', text):
        assert any(re.fullmatch(outcome, each) for each in known), outcome
    assert set(re.findall(r'incident="([^"]*)"', text)) <= {each.value for each in Incident}
    reasons = {each for found in re.findall(r'reason[!=]~?"([^"]*)"', text) for each in found.split("|")}
    assert reasons == {"unreachable", "timeout", "draining", "peer-signature-stale"}
    assert reasons <= PROBLEM_TYPES.keys() | {each.value for each in Failure}


def test_what_one_event_alone_raises_an_alert_of_begins_at_zero() -> None:
    peer = PeerState(Peer("ann", "http://127.0.0.1:1", PublicKey("a" * 64)), is_neighbour=True)
    metrics = Metrics()
    metrics.show_peers([peer], transactions=1)
    at_once = [rule["expr"] for rule in ALERTS if re.search(r"(>|==) 0(?!\.)", rule["expr"])]
    asked = re.findall(r'(?:rate|increase)\((\w+)\{(\w+)="([^"]*)"\}', "\n".join(at_once))
    assert {value for _, _, value in asked} >= {
        "store-unavailable",
        "model-corrupt",
        "banned",
        "rolled-back",
        "created",
    }
    for name, label, value in asked:
        whose = {"peer": "ann"} if label == "incident" else {}
        assert metrics.registry.get_sample_value(name, {label: value, **whose}) == 0


def test_a_counter_is_read_as_a_rate_and_a_gauge_as_it_is() -> None:
    for expression in expressions():
        for name in re.findall(r"(?<![\w(])(dag_acfl_\w+_total)|(?<=\()(dag_acfl_\w+_total)", expression):
            at = expression.index("".join(name))
            assert re.search(r"(rate|increase)\($", expression[:at]), expression


def test_builds_of_one_release_are_told_apart() -> None:
    (expression,) = [rule["expr"] for rule in ALERTS if rule["alert"] == "VersionsDiffer"]
    (by,) = re.findall(r"\bby \(([^)]*)\)", expression)
    assert set(by.split(", ")) == {"version", "commit", "schema"} <= METRICS["dag_acfl_build_info"]


def test_a_prediction_waits_for_the_hours_that_it_is_made_of() -> None:
    spans = [
        (span, rule["expr"]) for rule in ALERTS for span in re.findall(r"predict_linear\(\w+\[(\w+)\]", rule["expr"])
    ]
    assert spans
    assert all(re.search(rf"offset {span}\b", expression) for span, expression in spans)


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_the_dashboard_and_its_source_are_provisioned_where_grafana_looks() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert {panel["datasource"]["uid"] for panel in panels()} == {source["uid"]}
    (provider,) = yaml.safe_load((folder / "dashboards" / "dag-acfl.yml").read_text())["providers"]
    place = provider["options"]["path"]
    assert f"./deploy/grafana/dashboards:{place}:ro" in SERVICES["grafana"]["volumes"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{place}/dag-acfl.json"
    assert set(SERVICES["grafana"]["networks"]) & set(SERVICES["prometheus"]["networks"])


def test_prometheus_asks_every_server_and_reads_the_alerts() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    (targets,) = job["static_configs"]
    servers = {name for name in SERVICES if name.startswith("server-")}
    assert set(targets["targets"]) == {f"{name}:8900" for name in servers}
    assert PROMETHEUS["rule_files"] == ["alerts.yml"]
    assert f'up{{job="{job["job_name"]}"}}' in {rule["expr"].partition(" ==")[0] for rule in ALERTS}
    for name in servers:
        assert set(SERVICES[name]["networks"]) & set(SERVICES["prometheus"]["networks"])


def test_every_alert_has_a_severity_a_sentence_and_a_row_in_the_guide() -> None:
    guide = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (critical|warning|info) \| ", guide, re.MULTILINE)
    assert dict(rows) == {rule["alert"]: rule["labels"]["severity"] for rule in ALERTS}
    assert len(rows) == len(ALERTS)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert not rule["annotations"]["summary"].endswith(".")


def test_codes_that_the_guide_names_exist() -> None:
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / "operations.md").read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text))
    assert {"store-unavailable", "peer-unknown"} <= named
    assert named <= PROBLEM_TYPES.keys() | {each.value for each in AlarmKind}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus")
def test_promtool_finds_nothing(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None
    done = subprocess.run(
        [promtool, "check", "config", "prometheus.yml"],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    values = {"$__rate_interval": "5m", "$instance": ".*", "$ledger": "ab" * 32}
    filled = [re.sub(r"\$\w+", lambda found: values[found[0]], each) for each in shown]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(filled)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
