"""All parts share one namespace, which is in one kustomization, so that deleting a part keeps the others."""

import re
from pathlib import Path
from typing import Any

import pytest_asyncio
import yaml

from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier_lab.lab import Lab
from tests.deployments.manifests import documents

ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENTS = ROOT / "deployments"
WHOLE = "default"
"""The rendered chart, which contains everything."""
PARTS = ("mps-dra", "webhook", "node", "cpu")
"""The parts with processes, in the order in which a pod meets them."""
WORKLOADS = ("Deployment", "DaemonSet")
APPLIED = re.compile(r"kubectl apply -k (?:deployments|config)/([a-z-]+)")
BLOCK = re.compile(r"```.*?```|(?:^    .*\n)+", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("examples/**/*.md"))]


def test_the_namespace_is_in_one_kustomization():
    having = {
        folder.name
        for folder in DEPLOYMENTS.iterdir()
        if any(item["kind"] == "Namespace" for item in documents(folder))
    }

    assert having == {"namespace", WHOLE}


def test_the_parts_with_processes_are_complete():
    in_namespace = {
        folder.name
        for folder in DEPLOYMENTS.iterdir()
        if any(item["kind"] in WORKLOADS for item in documents(folder))
    }

    assert in_namespace == {*PARTS, WHOLE}


def test_every_page_applies_the_namespace_first():
    applied = [
        (page.name, APPLIED.findall(block))
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        if {*APPLIED.findall(block)} & {*PARTS}
    ]

    assert applied
    assert [page for page, names in applied if names[0] != "namespace"] == []


@pytest_asyncio.fixture
async def lab(private_lab: Any) -> Lab:
    """A private API server, because the policies apply to all pods and the namespace is deleted."""
    opened: Lab = await private_lab()
    return opened


def test_parts_are_installed_on_an_empty_cluster_and_removed_one_by_one(lab: Lab):
    lab.kubectl("apply", "-k", str(DEPLOYMENTS / "namespace"))
    lab.kubectl("apply", "-k", str(ROOT / "config/crd"))
    for part in PARTS:
        lab.kubectl("apply", "-k", str(DEPLOYMENTS / part))
    before = _workloads(lab)

    lab.kubectl("delete", "-k", str(DEPLOYMENTS / "cpu"), "--wait=false")

    phase = lab.kubectl("get", "namespace", DEFAULT_NAMESPACE, "-o", "jsonpath={.status.phase}").stdout
    assert phase == "Active"
    removed = {
        item["metadata"]["name"] for item in documents(DEPLOYMENTS / "cpu") if item["kind"] in WORKLOADS
    }
    assert removed
    assert _workloads(lab) == before - removed


def _workloads(lab: Lab) -> set[str]:
    found = lab.kubectl("get", "deployments,daemonsets", "-n", DEFAULT_NAMESPACE, "-o", "yaml").stdout
    return {item["metadata"]["name"] for item in yaml.safe_load(found)["items"]}
