"""Every alert fires and clears, tested with promtool."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier_lab import user_dirs

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deployments/monitoring/prometheus-rule.yaml").read_text())["spec"]["groups"]
ALERTS = {rule["alert"]: rule for group in RULES for rule in group["rules"] if "alert" in rule}
CASES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
ALERT_NAMES = {
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
"""Metrics of kube-state-metrics."""


@pytest.fixture(scope="module")
def promtool() -> str:
    unpacked = user_dirs.cache() / "prometheus/usr/bin/promtool"
    path = shutil.which("promtool") or shutil.which(unpacked)
    if path is None:
        pytest.skip("needs promtool: `make setup` downloads the Debian package prometheus")
    return path


def test_every_alert_has_a_case():
    assert ALERTS.keys() == ALERT_NAMES
    assert CASES.keys() == ALERT_NAMES


@pytest.mark.parametrize("name", sorted(ALERT_NAMES))
def test_an_alert_has_summary_description_and_the_url_of_its_runbook(name):
    annotations = ALERTS[name]["annotations"]
    page, _, anchor = annotations["runbook_url"].partition("#")
    headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text(), re.MULTILINE)

    assert annotations.keys() == {"summary", "description", "runbook_url"}
    assert 20 <= len(annotations["summary"]) <= 120
    assert len(annotations["description"]) > len(annotations["summary"])
    assert anchor in [heading.lower() for heading in headings if heading == name]


def test_every_alert_is_documented():
    text = (ROOT / "docs/alerts.md").read_text()

    assert [name for name in ALERTS if f"| `{name}` |" not in text] == []


def test_every_metric_in_an_expression_is_exported():
    """An alert on a renamed metric could never fire."""
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
    ended = check(promtool, "test", promtool_file(tmp_path, name, fires=CASES[name]["fires"]))

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_case_that_does_not_fire_fails(promtool, tmp_path):
    assert check(promtool, "test", promtool_file(tmp_path, "GPUDriverMissing", fires=1)).returncode != 0


def is_exported(name: str, source: str) -> bool:
    """By its full name, or by the prefix of an f-string."""
    family = name.rpartition("_")[0]
    return re.search(rf'"{name.removesuffix("_total")}(_total)?"|f"{family}_\{{', source) is not None


def check(promtool: str, verb: str, file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, verb, "rules", str(file)], capture_output=True, text=True, check=False)


def rules_file(folder: Path) -> Path:
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": RULES}))
    return file


def promtool_file(folder: Path, name: str, *, fires: int) -> Path:
    """A test file of promtool: input series and expected alerts."""
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
    """The label condition of a comparison, which Prometheus keeps."""
    found = re.search(r'condition="(\w+)"', ALERTS[name]["expr"])
    return {"condition": found[1]} if found and not CASES[name]["labels"].get("state") else {}


def filled(text: str, case: dict[str, Any]) -> str:
    for key, value in case["labels"].items():
        text = text.replace(f"{{{{ $labels.{key} }}}}", value)
    return text.replace("{{ $value }}", "1")
