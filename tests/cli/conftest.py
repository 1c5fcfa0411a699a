"""A client of the test cluster, and a server that never answers."""

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


@pytest.fixture
def silent() -> Iterator[tuple[str, list[str]]]:
    """A port that accepts connections and never answers: its URL, and the peers so far."""
    peers: list[str] = []
    open_connections: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, peer = listener.accept()
            except OSError:
                return
            open_connections.append(connection)
            peers.append(str(peer))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", peers
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    for connection in open_connections:
        connection.close()
