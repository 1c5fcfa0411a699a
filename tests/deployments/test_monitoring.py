"""Monitoring objects of deployments/monitoring and of the chart.

tests/install/test_scenario.py checks the panels of the dashboards with running processes.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployments import test_alerts
from tests.deployments.test_alerts import promtool  # noqa: F401  # a fixture
from tests.install import rendering

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deployments/monitoring"
DASHBOARDS: dict[str, dict[str, Any]] = {
    "croupier.json": json.loads((FOLDER / "dashboard.json").read_text()),
    "croupier-utilisation.json": json.loads((FOLDER / "dashboard-utilisation.json").read_text()),
}
OPERATOR = "monitoring.coreos.com/v1/PrometheusRule"


def rendered(*sets: str) -> list[dict[str, Any]]:
    """The chart, rendered for a cluster with the Prometheus operator."""
    return rendering.objects(f"--api-versions={OPERATOR}", *(f"--set={item}" for item in sets))


def monitors() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "pod-monitors.yaml").read_text()))


def test_kustomize_creates_the_dashboard_config_map(cluster):
    made = {
        (item["kind"], item["metadata"]["name"]): item
        for item in yaml.safe_load_all(cluster.kubectl("kustomize", str(FOLDER)).stdout)
    }
    shown = made["ConfigMap", "croupier-dashboard"]

    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert {name: json.loads(text) for name, text in shown["data"].items()} == DASHBOARDS
    assert {kind for kind, _ in made} == {"ConfigMap", "PodMonitor", "PrometheusRule"}


def test_every_process_is_scraped_once():
    pods = rendering.pods(rendered("settings.capacityManager=CRD", "ui.enabled=true")).values()
    assert len(pods) >= 10
    silent = [pod for pod in pods if not any("ports" in part for part in pod["spec"]["containers"])]
    assert [pod["metadata"]["labels"]["app"] for pod in silent] == ["croupier-mps"], "it has no metrics"
    for pod in pods:
        labels = pod["metadata"]["labels"]
        if pod in silent:
            continue
        matching = [item for item in monitors() if selects(item["spec"]["selector"], labels)]
        assert len(matching) == 1, labels
        ports = {
            port["name"] for container in pod["spec"]["containers"] for port in container.get("ports", ())
        }
        (endpoint,) = matching[0]["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in ports, labels
        assert endpoint["honorLabels"], "the metrics have their own labels pod and namespace"


def test_monitoring_can_be_disabled():
    kinds = {item["kind"] for item in rendered("settings.monitoring.serviceMonitor=false")}

    assert kinds.isdisjoint({"PrometheusRule", "PodMonitor"})


def test_settings_change_the_alerts(promtool, tmp_path):  # noqa: F811  # the fixture
    chosen = ("capacityLow.percent=25", "capacityLow.for=2m", "nodeWithoutPool.for=5m")
    runbooks = "https://docs.example.com/alerts/"
    values = ("monitoring.labels.release=mine", f"monitoring.runbookURL={runbooks}")
    made = rendered(*(f"settings.alerts.{item}" for item in chosen), *values)
    (rule,) = (item for item in made if item["kind"] == "PrometheusRule")
    alerts = {
        item["alert"]: item for group in rule["spec"]["groups"] for item in group["rules"] if "alert" in item
    }

    assert alerts["GPUPoolCapacityLow"]["expr"] == (
        "100 * gpupool_capacity_available < 25 * gpupool_capacity_total"
    )
    assert alerts["GPUPoolCapacityLow"]["for"] == "2m"
    assert alerts["GPUNodeWithoutPool"]["for"] == alerts["GPUUnassignedDevice"]["for"] == "5m"
    assert rule["metadata"]["labels"]["release"] == "mine"
    urls = {name: alert["annotations"]["runbook_url"] for name, alert in alerts.items()}
    assert urls == {name: f"{runbooks}#{name.lower()}" for name in alerts}
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": rule["spec"]["groups"]}))
    ended = test_alerts.check(promtool, "check", file)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_default_rules_are_the_tested_rules():
    (rule,) = (item for item in rendered() if item["kind"] == "PrometheusRule")

    assert rule["spec"]["groups"] == test_alerts.RULES


def test_the_chart_has_the_same_dashboards():
    shown = rendering.named(rendered(), "ConfigMap", "croupier-dashboard")

    assert {name: json.loads(text) for name, text in shown["data"].items()} == DASHBOARDS
    assert len({board["uid"] for board in DASHBOARDS.values()}) == len(DASHBOARDS)


@pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)
def test_panels_have_unique_ids_and_do_not_overlap(board):
    assert len({item["id"] for item in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for item in board["panels"]:
        place = item["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, item["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    panels = [item for item in board["panels"] if item["type"] != "row"]
    assert all(target["expr"] for item in panels for target in item["targets"])


def test_the_board_of_utilisation_queries_existing_metrics():
    """tests/install/test_scenario.py runs the queries; this needs no Prometheus."""
    documented = (ROOT / "docs/reference/metrics.md").read_text()
    panels = DASHBOARDS["croupier-utilisation.json"]["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    named = set(re.findall(r"\b(?:gpu|gpupool|mbcas|reservations|croupier)_[a-z_]+", " ".join(expressions)))

    assert len(named) >= 12
    assert {name for name in named if f"| `{name}` |" not in documented} == set()


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    def matches(expression: dict[str, Any]) -> bool:
        among = labels.get(expression["key"]) in expression["values"]
        return among if expression["operator"] == "In" else not among

    return selector["matchLabels"].items() <= labels.items() and all(
        matches(item) for item in selector.get("matchExpressions", ())
    )
