"""The reference matches the programs, and a stale page is detected."""

import re

import pytest

from bench.registry import BENCHES
from croupier.api import crds
from tests.docs import blocks
from tests.docs.blocks import ROOT
from tools.reference import __main__ as reference
from tools.reference import kinds, metrics

OURS = re.compile(r"^(croupier|gpu|gpupool|mbcas|reservations)_[a-z_]+$")
SERIES = re.compile(r"_(bucket|sum|count)$")
PACKAGES = {"croupier_lab"}
"""Python packages whose names look like metrics."""


def test_the_generated_pages_are_current():
    assert reference.stale(ROOT) == [], "run: make generate"


def test_a_stale_page_is_reported_and_rewritten(tmp_path, capsys):
    reference.write(tmp_path)
    page = tmp_path / "docs/reference/metrics.md"
    page.write_text("nothing is counted")

    assert reference.main(["--check", "--root", str(tmp_path)]) == 1
    assert "docs/reference/metrics.md is stale" in capsys.readouterr().err
    assert reference.main(["--root", str(tmp_path)]) == 0
    assert reference.main(["--check", "--root", str(tmp_path)]) == 0


def test_every_field_has_a_description():
    undescribed = [
        f"{kind.resource.kind}: {field.path}"
        for kind in crds.KINDS
        for field in kinds.fields(kind)
        if not field.says
    ]

    assert undescribed == []


def test_no_metric_has_two_meanings():
    every = metrics.all_metrics()
    names = [metric.name for metric in every]

    assert {"gpupool_capacity_available", "reservations_total", "croupier_store_relists_total"} <= set(names)
    assert sorted(set(names)) == sorted(names)
    assert [metric.name for metric in every if not metric.says] == []


def test_metrics_that_pages_name_exist():
    known = {metric.name for metric in metrics.all_metrics()}
    named = {
        (f"{page.relative_to(ROOT)}:{number}", word)
        for page in blocks.pages()
        for number, span in blocks.spans(page)
        if OURS.match(word := SERIES.sub("", span.split("{")[0]))
    }

    assert named
    assert sorted(f"{where}: {word}" for where, word in named if word not in known | PACKAGES) == []


def test_metrics_that_alert_rules_use_exist():
    known = {metric.name for metric in metrics.all_metrics()}
    rules = (ROOT / "deployments/monitoring/prometheus-rule.yaml").read_text()
    used = set(re.findall(r"\b(?:croupier|gpu|gpupool|mbcas)_[a-z_]+", rules))
    used = {name for name in used if "_io_" not in name}  # resources, as kube-state-metrics labels them

    assert used
    assert used - known == set()


def test_an_unreadable_metric_is_reported(tmp_path, monkeypatch):
    (tmp_path / "kube").mkdir()
    (tmp_path / "kube/odd.py").write_text(
        'from prometheus_client import Counter\nCounter(name(), "Things that happened")\n'
    )
    monkeypatch.setattr(metrics, "SOURCE", tmp_path)

    with pytest.raises(
        metrics.UnreadableMetricError, match=r"kube/odd.py:2: the name and help of a metric must be literals"
    ):
        metrics.all_metrics()


def test_the_benchmarks_that_the_page_lists_exist():
    page = (ROOT / "docs/performance.md").read_text()
    table = page.split("| bench |")[1].split("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(listed) == sorted(BENCHES)


def test_the_folders_of_metrics_exist():
    assert [folder for folder in metrics.PROCESSES if not (metrics.SOURCE / folder).is_dir()] == []
