"""The reference says what the programs are made of, and is noticed when it does not."""

import re

import pytest

from croupier.api import crds
from croupier.cli.reference import __main__ as reference
from croupier.cli.reference import kinds, metrics
from tests.docs import blocks
from tests.docs.blocks import ROOT

OURS = re.compile(r"^(croupier|gpu|gpupool|mbcas|reservations)_[a-z_]+$")
SERIES = re.compile(r"_(bucket|sum|count)$")


def test_the_pages_are_as_they_would_be_written():
    assert reference.stale(ROOT) == [], "run: make generate"


def test_a_stale_page_is_named_and_mended(tmp_path, capsys):
    reference.write(tmp_path)
    page = tmp_path / "docs/reference/metrics.md"
    page.write_text("nothing is counted")

    assert reference.main(["--check", "--root", str(tmp_path)]) == 1
    assert "docs/reference/metrics.md is stale" in capsys.readouterr().err
    assert reference.main(["--root", str(tmp_path)]) == 0
    assert reference.main(["--check", "--root", str(tmp_path)]) == 0


def test_every_field_says_what_it_is():
    silent = [
        f"{kind.resource.kind}: {field.path}"
        for kind in crds.KINDS
        for field in kinds.fields(kind)
        if not field.says
    ]

    assert silent == []


def test_no_metric_has_two_meanings():
    found = metrics.every()
    names = [one.name for one in found]

    assert {"gpupool_capacity_available", "reservations_total", "croupier_store_relists_total"} <= set(names)
    assert sorted(set(names)) == sorted(names)
    assert [one.name for one in found if not one.says] == []


def test_metrics_that_pages_name_are_counted():
    known = {one.name for one in metrics.every()}
    named = {
        (f"{page.relative_to(ROOT)}:{number}", word)
        for page in blocks.pages()
        for number, span in blocks.spans(page)
        if OURS.match(word := SERIES.sub("", span.split("{")[0]))
    }

    assert named
    assert sorted(f"{where}: {word}" for where, word in named if word not in known) == []


def test_rules_ask_for_metrics_that_are_counted():
    known = {one.name for one in metrics.every()}
    rules = (ROOT / "deployments/monitoring/prometheus-rule.yaml").read_text()
    asked = set(re.findall(r"\b(?:croupier|gpu|gpupool|mbcas)_[a-z_]+", rules))
    asked = {name for name in asked if "_io_" not in name}  # resources, as kube-state-metrics labels them

    assert asked
    assert asked - known == set()


def test_a_metric_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    (tmp_path / "kube").mkdir()
    (tmp_path / "kube/odd.py").write_text(
        'from prometheus_client import Counter\nCounter(name(), "Things that happened")\n'
    )
    monkeypatch.setattr(metrics, "SOURCE", tmp_path)

    with pytest.raises(metrics.UnreadableMetricError, match=r"kube/odd.py:2: write the name"):
        metrics.every()
