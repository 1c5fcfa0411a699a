"""Every alert fires when it should and clears when that is over; Prometheus itself says so."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.lab import places

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deployments/monitoring/prometheus-rule.yaml").read_text())["spec"]["groups"]
ALERTS = {rule["alert"]: rule for group in RULES for rule in group["rules"] if "alert" in rule}
CASES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
PROMISED = {
    "GPUDriverMissing",
    "GPUNodeWithoutPool",
    "GPUPoolCapacityLow",
    "GPUReservationExpired",
    "GPUDeviceDegraded",
    "GPUUnassignedDevice",
    "GPUNodeFeatureMissing",
    "Maintenance",
    "Misconfigured",
    "GPULedgerDivergence",
    "GPUAgentSilent",
    "GPUModeChangeStuck",
    "GPUWebhookCertificateEnding",
    "GPUReconcileFailing",
}
OTHERS = {"kube_node_status_allocatable"}
"""Figures that kube-state-metrics exports."""


@pytest.fixture(scope="module")
def promtool() -> str:
    unpacked = places.cache() / "prometheus/usr/bin/promtool"
    found = shutil.which("promtool") or shutil.which(unpacked)
    if found is None:
        pytest.skip("promtool is not here: `make setup` fetches the Debian package prometheus where it can")
    return found


def test_every_promised_alert_exists_with_a_case_and_a_runbook_line():
    assert ALERTS.keys() == PROMISED
    assert CASES.keys() == PROMISED
    assert [name for name, rule in ALERTS.items() if len(rule["annotations"]["runbook"]) < 20] == []


def test_every_alert_is_explained():
    told = (ROOT / "docs/alerts.md").read_text()

    assert [name for name in ALERTS if f"| `{name}` |" not in told] == []


def test_every_figure_in_an_expression_is_one_we_export():
    """A metric that was renamed would leave an alert that can never fire."""
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    used = {
        name
        for group in RULES
        for rule in group["rules"]
        for name in re.findall(
            r"\b(?:gpu|gpupool|croupier|kube)_[a-z_]+\b", re.sub('"[^"]*"', "", rule["expr"])
        )
    }
    assert used

    assert [name for name in sorted(used - OTHERS) if not is_exported(name, source)] == []


def test_prometheus_accepts_the_rules(promtool, tmp_path):
    ended = check(promtool, "check", rules_file(tmp_path))

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", sorted(CASES))
def test_it_fires_and_clears(promtool, tmp_path, name):
    ended = check(promtool, "test", story_file(tmp_path, name, fires=CASES[name]["fires"]))

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_case_that_does_not_fire_is_noticed(promtool, tmp_path):
    assert check(promtool, "test", story_file(tmp_path, "GPUDriverMissing", fires=1)).returncode != 0


def is_exported(name: str, source: str) -> bool:
    """By its whole name, or as one of a family whose names are put together."""
    family = name.rpartition("_")[0]
    return re.search(rf'"{name.removesuffix("_total")}(_total)?"|f"{family}_\{{', source) is not None


def check(promtool: str, verb: str, file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, verb, "rules", str(file)], capture_output=True, text=True, check=False)


def rules_file(folder: Path) -> Path:
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": RULES}))
    return file


def story_file(folder: Path, name: str, *, fires: int) -> Path:
    """Promtool's own kind of test: series in, alerts out."""
    case, rule = CASES[name], ALERTS[name]
    labels = {"severity": rule["labels"]["severity"], **extra_labels(name), **case["labels"]}
    words = {key: filled(text, case) for key, text in rule["annotations"].items()}
    firing = {"exp_labels": labels, "exp_annotations": words}
    times: tuple[tuple[int, list[Any]], ...] = ((fires, [firing]), (case["clears"], []))
    wanted = [{"eval_time": f"{at}m", "alertname": name, "exp_alerts": alerts} for at, alerts in times]
    story = {
        "rule_files": [str(rules_file(folder))],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": text} for key, text in case["series"].items()],
                "alert_rule_test": wanted,
            }
        ],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(story))
    return file


def extra_labels(name: str) -> dict[str, str]:
    """A comparison keeps the condition it compared."""
    found = re.search(r'condition="(\w+)"', ALERTS[name]["expr"])
    return {"condition": found[1]} if found and not CASES[name]["labels"].get("state") else {}


def filled(text: str, case: dict[str, Any]) -> str:
    for key, value in case["labels"].items():
        text = text.replace(f"{{{{ $labels.{key} }}}}", value)
    return text.replace("{{ $value }}", "1")
