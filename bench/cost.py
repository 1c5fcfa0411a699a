"""Cost of a piece of work: CPU time of the processes, and the API server's count of writes."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from croupier.kube.client.api_client import Client
from croupier.kube.client.transport import ApiRequest

WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")

_REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds by process, and successful writes by `VERB resource/subresource`."""

    cpu: Mapping[str, float]
    writes: Counter[str]

    def since(self, before: "Cost") -> "Cost":
        cpu = {name: spent - before.cpu.get(name, 0.0) for name, spent in self.cpu.items()}
        return Cost(cpu, self.writes - before.writes)


async def measure(api: Client, processes: Mapping[str, int]) -> Cost:
    text = (await api.raw(ApiRequest("GET", "/metrics"))).decode()
    return Cost({name: _cpu(pid) for name, pid in processes.items()}, _writes(text))


def _cpu(pid: int) -> float:
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system


def _writes(text: str) -> Counter[str]:
    counted: Counter[str] = Counter()
    for found in _REQUESTS.finditer(text):
        labels = dict(_LABEL.findall(found["labels"]))
        if labels["verb"] in WRITES:
            below = f"/{labels['subresource']}" if labels.get("subresource") else ""
            counted[f"{labels['verb']} {labels['resource']}{below}"] += int(float(found["count"]))
    return counted
