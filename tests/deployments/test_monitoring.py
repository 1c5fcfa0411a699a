"""What deployments/monitoring and the chart give to Prometheus and Grafana: complete, alike, as it was set.

Whether every panel shows something is tried on processes that run: tests/install/test_day.py.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.deployments import test_alerts
from tests.deployments.test_alerts import promtool  # noqa: F401  # a fixture
from tests.install import rendering

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deployments/monitoring"
CHART = ROOT / "charts/croupier"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
PANELS = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
OPERATOR = "monitoring.coreos.com/v1/PrometheusRule"


def rendered(*sets: str) -> list[dict[str, Any]]:
    """The chart, as helm renders it for a cluster with the Prometheus operator."""
    return rendering.objects(f"--api-versions={OPERATOR}", *(f"--set={one}" for one in sets))


def monitors() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "pod-monitors.yaml").read_text()))


def test_the_chart_has_the_same_files():
    for name in ("prometheus-rule.yaml", "pod-monitors.yaml", "dashboard.json"):
        theirs = CHART / "files/monitoring" / name
        assert theirs.read_text() == (FOLDER / name).read_text(), f"copy {name} from deployments/monitoring"


def test_kubectl_makes_a_config_map_that_grafana_finds(cluster):
    made = {
        (one["kind"], one["metadata"]["name"]): one
        for one in yaml.safe_load_all(cluster.kubectl("kustomize", str(FOLDER)).stdout)
    }
    shown = made["ConfigMap", "croupier-dashboard"]

    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(shown["data"]["croupier.json"]) == DASHBOARD
    assert {kind for kind, _ in made} == {"ConfigMap", "PodMonitor", "PrometheusRule"}


def test_every_process_is_scraped_once():
    pods = rendering.pods(rendered("settings.capacityManager=CRD")).values()
    assert len(pods) >= 9
    for pod in pods:
        labels = pod["metadata"]["labels"]
        minded = [one for one in monitors() if selects(one["spec"]["selector"], labels)]
        assert len(minded) == 1, labels
        ports = {
            port["name"] for container in pod["spec"]["containers"] for port in container.get("ports", ())
        }
        (endpoint,) = minded[0]["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in ports, labels
        assert endpoint["honorLabels"], "the figures have labels called pod and namespace of their own"


def test_without_the_operator_the_chart_has_none_of_it_and_by_choice_neither():
    kinds = {one["kind"] for one in rendered("settings.monitoring.serviceMonitor=false")}

    assert kinds.isdisjoint({"PrometheusRule", "PodMonitor"})


def test_alerts_come_as_they_are_set(promtool, tmp_path):  # noqa: F811  # the fixture
    chosen = ("capacityLow.percent=25", "capacityLow.for=2m", "nodeWithoutPool.for=5m")
    made = rendered(*(f"settings.alerts.{one}" for one in chosen), "monitoring.labels.release=mine")
    (rule,) = (one for one in made if one["kind"] == "PrometheusRule")
    alerts = {
        one["alert"]: one for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one
    }

    assert alerts["GPUPoolCapacityLow"]["expr"] == (
        "100 * gpupool_capacity_available < 25 * gpupool_capacity_total"
    )
    assert alerts["GPUPoolCapacityLow"]["for"] == "2m"
    assert alerts["GPUNodeWithoutPool"]["for"] == alerts["GPUUnassignedDevice"]["for"] == "5m"
    assert rule["metadata"]["labels"]["release"] == "mine"
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": rule["spec"]["groups"]}))
    ended = test_alerts.check(promtool, "check", file)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_by_default_the_chart_has_the_rules_that_were_tried():
    (rule,) = (one for one in rendered() if one["kind"] == "PrometheusRule")

    assert rule["spec"]["groups"] == test_alerts.RULES


def test_panels_are_told_apart_and_lie_side_by_side():
    assert len({one["id"] for one in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for one in DASHBOARD["panels"]:
        place = one["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, one["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert all(target["expr"] for one in PANELS for target in one["targets"])


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    def holds(wanted: dict[str, Any]) -> bool:
        among = labels.get(wanted["key"]) in wanted["values"]
        return among if wanted["operator"] == "In" else not among

    return selector["matchLabels"].items() <= labels.items() and all(
        holds(one) for one in selector.get("matchExpressions", ())
    )
