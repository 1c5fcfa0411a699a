"""Requests to the API server of any cluster, through one `kubectl proxy` for each cluster.

kubectl reads every kind of kubeconfig. As a proxy it is loaded only once, which is most of the quarter of a
second that a call of kubectl takes.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from croupier_lab.cluster import Cluster
from croupier_lab.errors import LabError

TIMEOUT = 60.0
SOCKET = "socket"
POLL = 0.01
RETRY = 0.1
"""Seconds; the API server answers 429 for a moment after a CRD was installed."""
# The shell ends the proxy when its input closes, which it also does when this process is killed.
UNTIL_INPUT_CLOSES = '"$@" & read -r line; kill $!'
CONTENT_TYPES = {"POST": "application/json", "PATCH": "application/merge-patch+json"}


class ApiProxy:
    """Close it, or its process runs as long as this one."""

    def __init__(self, cluster: Cluster) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="croupier-proxy-"))
        self._handle = os.open(self._folder, os.O_PATH)
        self._log = self._folder / "log"
        proxy = cluster.command("proxy", f"--unix-socket={SOCKET}")
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                ("sh", "-c", UNTIL_INPUT_CLOSES, "sh", *proxy),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C must not end it before the last clean-up
            )
        self._wait_until_listening()

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a collection; none if its kind does not exist."""
        listed = self._answered("GET", path, accepted=(http.HTTPStatus.NOT_FOUND,))
        return listed.get("items") or []

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The created object; empty if it exists already."""
        return self._answered("POST", path, body, accepted=(http.HTTPStatus.CONFLICT,))

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Merge `body` into the object, if it exists."""
        self._answered("PATCH", path, body, accepted=(http.HTTPStatus.NOT_FOUND,))

    def delete(self, path: str) -> None:
        """Delete the object, if it exists, or all objects of the collection."""
        self._answered("DELETE", path, accepted=(http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT))

    def close(self) -> None:
        self._process.communicate()  # closes its input
        os.close(self._handle)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answered(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, accepted: tuple[int, ...] = ()
    ) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT
        status, content = self._exchange(method, path, body)
        while status == http.HTTPStatus.TOO_MANY_REQUESTS and time.monotonic() < deadline:
            time.sleep(RETRY)
            status, content = self._exchange(method, path, body)
        if status in accepted:
            return {}
        if status >= http.HTTPStatus.BAD_REQUEST:
            text = content.decode(errors="replace").strip()
            raise LabError(f"the API server refused {method} {path} with {status}: {text}")
        answer: dict[str, Any] = json.loads(content)
        return answer

    def _exchange(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            headers = {"Content-Type": CONTENT_TYPES[method]} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"{method} {path} through kubectl proxy failed: {error!r}") from error
        finally:
            connection.close()

    def _connection(self) -> "_UnixConnection":
        # The path of a socket has at most 107 characters, which that of a temporary folder may exceed.
        return _UnixConnection(f"/proc/self/fd/{self._handle}/{SOCKET}")

    def _wait_until_listening(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not self._is_listening():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(errors="replace").strip()
                self.close()
                raise LabError(f"kubectl proxy did not start: {said}")
            time.sleep(POLL)

    def _is_listening(self) -> bool:
        connection = self._connection()
        try:
            connection.connect()
        except OSError:
            return False
        finally:
            connection.close()
        return True


_OPEN: dict[Cluster, ApiProxy] = {}


def connect(cluster: Cluster) -> ApiProxy:
    """The proxy of this cluster, started now if there is none."""
    if cluster not in _OPEN:
        _OPEN[cluster] = ApiProxy(cluster)
    return _OPEN[cluster]


def close(cluster: Cluster) -> None:
    """End the proxy of this cluster, if there is one."""
    if cluster in _OPEN:
        _OPEN.pop(cluster).close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
