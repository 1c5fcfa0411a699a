"""Commands find the namespace of the installation, whatever it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.api.meta import PART_OF
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.ops.installation import SeveralInstallations, find_namespace
from croupier_lab import shared_cluster
from tests.cli.env import croupier
from tests.polling import until_async

CONTAINER = {"name": "main", "image": "any"}
DAEMON_SET = {
    "selector": {"matchLabels": {"app": "any"}},
    "template": {
        "metadata": {"labels": {"app": "any"}},
        "spec": {"nodeSelector": {"no": "such"}, "containers": [CONTAINER]},
    },
}
TRACES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a process": (
        kinds.DAEMON_SETS,
        {"metadata": {"name": "croupier-node", "labels": PART_OF}, "spec": DAEMON_SET},
    ),
    "the account of a removed process": (
        kinds.SERVICE_ACCOUNTS,
        {"metadata": {"name": "croupier-node", "labels": PART_OF}},
    ),
    "a Lease that was left": (kinds.LEASES.raw, {"metadata": {"name": "croupier-pools"}, "spec": {}}),
}


@asynccontextmanager
async def trace(api: Client, namespace: str, kind: Any, body: dict[str, Any]) -> AsyncIterator[None]:
    await api.create(kind, body, namespace=namespace)
    try:
        yield
    finally:
        await api.delete(kind, body["metadata"]["name"], namespace=namespace)


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:

        async def nothing_is_installed() -> bool:
            """Namespaces of other tests may still be terminating, with Leases in them."""
            try:
                return await find_namespace(connected) == DEFAULT_NAMESPACE
            except SeveralInstallations:
                return False

        await until_async(nothing_is_installed, "traces of other tests to be gone", within=120)
        yield connected


@pytest_asyncio.fixture
async def second(cluster: Any, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name = shared_cluster.create_namespace(cluster, f"{request.node.name}-second")
    yield name
    shared_cluster.delete_namespace(cluster, name, ())


@pytest.mark.parametrize(("kind", "body"), TRACES.values(), ids=TRACES)
async def test_the_namespace_is_found_by(kind, body, api, namespace):
    async with trace(api, namespace, kind, body):
        assert await find_namespace(api) == namespace
    assert await find_namespace(api) == DEFAULT_NAMESPACE, "nothing is installed"


async def test_processes_count_more_than_what_was_left_elsewhere(api, namespace, second):
    process, left = TRACES["a process"], TRACES["a Lease that was left"]
    async with trace(api, namespace, *left), trace(api, second, *process):
        assert await find_namespace(api) == second


async def test_two_installations_need_a_choice(api, cluster, namespace, second):
    process = TRACES["a process"]
    async with trace(api, namespace, *process), trace(api, second, *process):
        with pytest.raises(SeveralInstallations, match="choose one with --namespace"):
            await find_namespace(api)
        refused = croupier("doctor", kubeconfig=cluster.kubeconfig)
        assert refused.code == 1
        assert f"in the namespaces {min(namespace, second)}, {max(namespace, second)}: choose" in refused.err
        chosen = croupier(
            "doctor", "-n", second, "--only", "processes", "-o", "json", kubeconfig=cluster.kubeconfig
        )
        assert chosen.data["findings"] == []


async def test_without_the_right_to_search_it_is_the_default_one(cluster, namespace):
    account = {"Impersonate-User": (f"system:serviceaccount:{namespace}:default",)}
    async with api_client.connect(replace(config.load(cluster.kubeconfig), impersonate=account)) as api:
        assert await find_namespace(api) == DEFAULT_NAMESPACE
