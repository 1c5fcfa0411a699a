"""A Prometheus server that scrapes Croupier as configured by deployments/monitoring."""

import json
import random
import shutil
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from croupier_lab import ports, probe, process, user_dirs
from croupier_lab.probe import Endpoint
from croupier_lab.process import LabProcess, Program

MONITORS = Path(__file__).resolve().parents[2] / "deployments/monitoring/pod-monitors.yaml"
SCRAPE_SECONDS = 1


def program() -> str | None:
    """Path of prometheus: installed, or unpacked by `make setup`."""
    return shutil.which("prometheus") or shutil.which(user_dirs.cache() / "prometheus/usr/bin/prometheus")


@dataclass(frozen=True, slots=True)
class Prometheus:
    port: int
    running: LabProcess

    def up(self) -> bool:
        try:
            return probe.get(Endpoint(f"http://127.0.0.1:{self.port}/-/ready"))[0] == 200
        except OSError:
            return False

    def ask(self, expression: str) -> list[Any]:
        """Result of an instant query."""
        query = urllib.parse.urlencode({"query": expression})
        status, body = probe.get(Endpoint(f"http://127.0.0.1:{self.port}/api/v1/query?{query}"))
        assert status == 200, body
        answer: list[Any] = json.loads(body)["data"]["result"]
        return answer


def start(
    binary: str, folder: Path, targets: Mapping[str, Sequence[int]], nodes: Mapping[str, str]
) -> Prometheus:
    """Start Prometheus; `nodes` maps agents to their node."""
    (port,) = ports.free(1, chance=random.Random())  # noqa: S311  # a port, no secret
    jobs = [_job(name, at, nodes) for name, at in targets.items()]
    file = folder / "prometheus.yaml"
    settings = {"global": {"scrape_interval": f"{SCRAPE_SECONDS}s"}, "scrape_configs": jobs}
    file.write_text(yaml.safe_dump(settings))
    argv = (
        binary,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )
    return Prometheus(port, process.start(Program("prometheus", argv), folder))


def _job(name: str, ports: Sequence[int], nodes: Mapping[str, str]) -> dict[str, Any]:
    agents = {True: "croupier-agents", False: "croupier"}
    monitors = {monitor["metadata"]["name"]: monitor for monitor in yaml.safe_load_all(MONITORS.read_text())}
    (endpoint,) = monitors[agents[name in nodes]]["spec"]["podMetricsEndpoints"]
    added = [relabeling["targetLabel"] for relabeling in endpoint.get("relabelings", ())]
    labels = dict.fromkeys(added, nodes.get(name, ""))
    return {
        "job_name": name,
        "honor_labels": endpoint["honorLabels"],
        "metrics_path": endpoint["path"],
        "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports], "labels": labels}],
    }
