"""Simulated nodes without the taint that admission adds and that only a controller manager would remove."""

from croupier.api import kinds
from croupier.kube.client.api_client import Client


async def untaint_nodes(api: Client) -> None:
    for node in (await api.list(kinds.NODES)).items:
        await api.patch(kinds.NODES, node.metadata.name, {"spec": {"taints": None}})
