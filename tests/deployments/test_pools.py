"""deployments/pools: accepted by the API server."""

from pathlib import Path

import yaml

from croupier.admission import protection
from croupier_lab.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2] / "deployments"


def test_every_trusted_account_exists():
    made = {
        item["metadata"]["name"]
        for path in ROOT.glob("*/*.yaml")
        for item in yaml.safe_load_all(path.read_text())
        if item and item["kind"] == "ServiceAccount"
    }
    by_choice = {"croupier-ledger"}  # only in the chart, with the ledger in the API server

    assert set(protection.ACCOUNTS) <= made | by_choice


def test_the_api_server_accepts_them_without_warnings(cluster: Cluster):
    """The API server type-checks every expression and warns about errors."""
    for path in ("pools", "webhook"):
        files = [f"-f={item}" for item in sorted((ROOT / path).glob("*.yaml")) if _is_policy(item)]
        applied = cluster.kubectl("apply", "--dry-run=server", *files)
        assert applied.stdout.count("created (server dry run)") >= 2
        assert applied.stderr == ""


def _is_policy(path: Path) -> bool:
    return "ValidatingAdmissionPolicy" in path.read_text()
