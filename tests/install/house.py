"""A lab with a real node, and on it the chart's image: what `helm install` needs, and nothing more.

There is neither DNS nor kube-proxy in a lab, so pods find the API server by a name in their hosts file; that
and the simulated cards is all an installation there is told.
"""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from croupier.lab import containerd, image, lifecycle, own_image, places, realnode, relay
from croupier.lab.binaries import Sources
from croupier.lab.command import output
from croupier.lab.controlplane import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER
from croupier.lab.image import Running
from croupier.lab.lab import Lab
from croupier.lab.lifecycle import Plan
from croupier.lab.progress import Silent
from croupier.lab.testrun import TestRun
from tests.install import rendering

NAMESPACE = "d8-gpu-operator"
RELEASE = "croupier"
SERVER = "kubernetes.default.svc"
"""A name in the certificate of the lab's API server."""
UPSTREAM = "croupier.lab/kube-scheduler"
OLD, NEW = "0.1.0", "0.1.1"
WITHIN = "8m"
"""How long helm waits: a dozen processes start at once, on a machine that may have two busy cores."""


PATIENCE = 300.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first truthy answer."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.3)
    raise AssertionError(f"not within {PATIENCE:g} seconds: {what}")


@dataclass(frozen=True)
class House:
    lab: Lab
    folder: Path
    program: Path

    def helm(self, *words: str) -> str:
        command = [
            str(self.program),
            *words,
            f"--namespace={NAMESPACE}",
            f"--kubeconfig={self.lab.kubeconfig}",
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"helm {' '.join(words)}: {ended.stderr}\n{self.trouble()}"
        return ended.stdout

    def install(self, version: str, *options: str) -> None:
        """Install the chart of that version, or change what is installed into it; until all is ready."""
        wanted = [f"--values={self._values()}", "--wait", f"--timeout={WITHIN}", *options]
        self.helm("upgrade", "--install", RELEASE, str(self._chart(version)), *wanted)
        for agents in ("croupier-node", "croupier-market"):  # helm lets a tenth be missing, which may be all
            self.kubectl("rollout", "status", f"ds/{agents}", "-n", NAMESPACE, f"--timeout={WITHIN}")

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.lab.kubectl(*words, stdin=stdin).stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def trouble(self) -> str:
        """What a person would look at."""
        pods = self.lab.kubectl("get", "pods", "-n", NAMESPACE, check=False).stdout
        events = self.lab.kubectl("events", "-n", NAMESPACE, "--types=Warning", check=False).stdout
        return f"{pods}\n{events[-3000:]}"

    def _chart(self, version: str) -> Path:
        folder = self.folder / f"chart-{version}"
        if not folder.exists():
            shutil.copytree(rendering.ROOT / "charts/croupier", folder)
            written = folder / "Chart.yaml"
            written.write_text(written.read_text().replace(f"ersion: {OLD}", f"ersion: {version}"))
        return folder

    def _values(self) -> Path:
        node = self.get("node", realnode.NAME)
        (address,) = (one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
        file = self.folder / "values.yaml"
        file.write_text(
            yaml.safe_dump(
                {
                    "image": {"repository": own_image.TAG, "pullPolicy": "Never"},
                    "scheduler": {"image": {"repository": UPSTREAM}},
                    "apiServer": {"host": SERVER, "port": relay.PORT},
                    "hostAliases": [{"ip": address, "hostnames": [SERVER]}],
                    "node": {"cards": "simulated=SIM-70GB:4"},
                }
            )
        )
        return file


@asynccontextmanager
async def raised(run: TestRun, folder: Path) -> AsyncIterator[House]:
    program = rendering.helm()
    lab = await run.private(Plan(parts=(ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)))
    try:
        await lifecycle.join_real_node(lab, Sources(), Silent())
        await _load(lab, folder)
        yield House(lab, folder, program)
    finally:
        await run.end(lab, keep_logs=False)


async def _load(lab: Lab, folder: Path) -> None:
    """Our image, under two versions, and that of an upstream scheduler."""
    await realnode.load(lab, await _own(f"{own_image.TAG}:{OLD}"))
    ctr = (*realnode.inside(lab), lab.record.binaries["ctr"], "--address", containerd.SOCKET)
    names = [f"{own_image.TAG}:{version}" for version in (OLD, NEW)]
    await output(*ctr, "--namespace", containerd.NAMESPACE, "images", "tag", *names)
    root, archive = folder / "scheduler", folder / "scheduler.tar"
    (root / "usr/local/bin").mkdir(parents=True)
    shutil.copy(lab.record.binaries["kube-scheduler"], root / "usr/local/bin/kube-scheduler")
    version = json.loads(lab.kubectl("version", "-o", "json").stdout)["serverVersion"]["gitVersion"]
    image.pack(root, archive, tag=f"{UPSTREAM}:{version}", running=Running(user="65532:65532"))
    await realnode.load(lab, archive)


async def _own(tag: str) -> Path:
    """Kept in the cache for as long as nothing changes of what it is made of: it takes a minute to build."""
    content = hashlib.sha256(tag.encode())
    sources = own_image.CHECKOUT / "src/croupier"
    made_of = [*sources.rglob("*.py"), *(own_image.CHECKOUT / "image").iterdir()]
    for path in sorted(one for one in made_of if one.is_file()):
        content.update(str(path.relative_to(own_image.CHECKOUT)).encode() + path.read_bytes())
    archive = places.cache() / "own-image" / f"{content.hexdigest()[:16]}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        before = list(archive.parent.iterdir())
        unfinished = archive.with_suffix(f".{os.getpid()}")
        await own_image.build(unfinished, places.cache(), Silent(), tag=tag)
        unfinished.rename(archive)
        for one in before:
            one.unlink(missing_ok=True)
    return archive
