"""What deployments/pools installs: as the code has it, and accepted as it is."""

from pathlib import Path
from typing import Any

import yaml

from croupier.admission import protection
from croupier.lab.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2] / "deployments"


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / path).read_text()))


def test_the_policies_are_those_the_code_writes():
    assert documents("pools/protect.yaml") == protection.managed_documents()
    assert documents("webhook/keep-request.yaml") == protection.pod_documents()


def test_every_account_that_is_trusted_has_one_of_ours_behind_it():
    made = {
        one["metadata"]["name"]
        for path in ROOT.glob("*/*.yaml")
        for one in yaml.safe_load_all(path.read_text())
        if one and one["kind"] == "ServiceAccount"
    }
    by_choice = {"croupier-ledger"}  # in the chart, where the ledger is in the API server

    assert set(protection.ACCOUNTS) <= made | by_choice


def test_the_api_server_takes_them_without_a_word(cluster: Cluster):
    """It checks the types of every expression, and warns of what it cannot make sense of."""
    for path in ("pools", "webhook"):
        files = [f"-f={one}" for one in sorted((ROOT / path).glob("*.yaml")) if _is_policy(one)]
        said = cluster.kubectl("apply", "--dry-run=server", *files)
        assert said.stdout.count("created (server dry run)") >= 2
        assert said.stderr == ""


def _is_policy(path: Path) -> bool:
    return "ValidatingAdmissionPolicy" in path.read_text()
