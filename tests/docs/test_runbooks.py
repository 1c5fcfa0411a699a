"""docs/alerts.md has a table row and a runbook for every alert."""

import re

import yaml

from tests.docs.blocks import ROOT


def test_every_alert_has_a_row_and_a_runbook():
    rules = yaml.safe_load((ROOT / "deployments/monitoring/prometheus-rule.yaml").read_text())
    alerts = [
        rule["alert"] for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule
    ]
    page = (ROOT / "docs/alerts.md").read_text()

    assert alerts
    assert re.findall(r"^\| `(\w+)` ", page, re.MULTILINE) == re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert [name for name in alerts if f"### {name}\n" not in page] == []
