"""Every metric follows the conventions of Prometheus; only names of the founding designs are exempt."""

import re
from pathlib import Path

import pytest

from tools.reference import metric_names, metrics

ROOT = Path(__file__).parents[2]


def test_every_metric_follows_the_naming_rules():
    every = metrics.all_metrics()
    assert len(every) > 80

    broken = [
        rule
        for metric in every
        for rule in metric_names.violations(
            metric.name, kind=metric.type, labels=metric.labels, text=metric.says
        )
    ]

    assert broken == []


BROKEN = {
    "no prefix": ("gpu_node_devices", "gauge", (), "does not begin with croupier_"),
    "counter without _total": ("croupier_rounds", "counter", (), "only counters, end with _total"),
    "gauge with _total": ("croupier_cards_total", "gauge", (), "only counters, end with _total"),
    "histogram of seconds": ("croupier_queue_seconds", "histogram", (), "_duration_seconds"),
    "gauge of a duration": ("croupier_x_duration_seconds", "gauge", (), "ends with _duration_seconds"),
    "unit": ("mbcas_supply_cpu", "gauge", (), "is not in a base unit"),
    "label": ("croupier_drops_total", "counter", ("why",), "has the vague label why"),
}


@pytest.mark.parametrize(("name", "kind", "labels", "rule"), BROKEN.values(), ids=BROKEN)
def test_a_metric_that_breaks_a_rule_is_named(name, kind, labels, rule):
    (broken,) = metric_names.violations(name, kind=kind, labels=labels, text="Cards of the node")

    assert broken.startswith(f"{name} ")
    assert rule in broken


@pytest.mark.parametrize("text", ["", "cards of a node", "Cards.", "Rounds", "Cards of the node."])
def test_a_help_text_is_a_sentence_without_full_stop(text):
    (broken,) = metric_names.violations("croupier_cards", kind="gauge", labels=(), text=text)

    assert "needs a help text" in broken


def test_the_page_lists_exactly_the_founding_names():
    page = (ROOT / "docs/reference/metrics.md").read_text()
    section = page.partition("## Founding names\n")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == metric_names.FOUNDING_NAMES
    assert f"`{metric_names.FOUNDING_FAMILY}*`" in section


def test_every_founding_name_is_exported():
    exported = {metric.name for metric in metrics.all_metrics()}

    assert exported >= metric_names.FOUNDING_NAMES
