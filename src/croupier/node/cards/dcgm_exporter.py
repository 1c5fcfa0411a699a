"""Readings of the DCGM exporter, if one runs on the node.

It provides more readings than NVML. They are optional: if the exporter does not answer in time, the readings
of NVML are used.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import aiohttp
import structlog
from prometheus_client.parser import text_string_to_metric_families

from croupier.api.core_v1 import Pod
from croupier.core.model.gpu_card import GpuCard
from croupier.core.nodes import bootstrap
from croupier.core.nodes.bootstrap import DCGM
from croupier.kube.client.clock import Clock
from croupier.node.cards.card_driver import DriverSnapshot

PORT: Final = 9400
TIMEOUT: Final = 2.0
"""The timeout of a request in seconds."""
PREFIX: Final = "DCGM_FI_"

DcgmReadings = Mapping[str, Mapping[str, str]]
"""Readings by the UUID of the card and the name of the metric."""

log = structlog.get_logger(__name__)


class DcgmExporter:
    """`pods` are those of the node. Only trusted namespaces count, because any user may label a pod."""

    def __init__(
        self,
        pods: Callable[[], Iterable[Pod]],
        clock: Clock,
        *,
        trusted_namespaces: frozenset[str],
        every: float = 10.0,
        port: int = PORT,
    ) -> None:
        self._pods = pods
        self._clock = clock
        self._trusted_namespaces = trusted_namespaces
        self._every = every
        self._port = port
        self._asked: float | None = None
        self._read: DcgmReadings | None = None

    async def read(self) -> DcgmReadings | None:
        """The last readings, at most `every` seconds old. None if there is no exporter or no answer."""
        now = self._clock.monotonic()
        if self._asked is None or now - self._asked >= self._every:
            self._asked, self._read = now, await self._ask()
        return self._read

    async def _ask(self) -> DcgmReadings | None:
        address = next((address for pod in self._pods() if (address := self._address(pod))), "")
        if not address:
            return None
        url = f"http://{address}:{self._port}/metrics"
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                aiohttp.ClientSession(raise_for_status=True) as session,
                session.get(url) as answer,
            ):
                text = (await answer.read()).decode(errors="replace")
            return parse(text)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.warning(f"the DCGM exporter at {address} does not answer", address=address, error=str(error))
            return None

    def _address(self, pod: Pod) -> str:
        named = bootstrap.kind_of(pod.metadata.labels) == DCGM
        believed = pod.metadata.namespace in self._trusted_namespaces
        return pod.status.pod_ip if named and believed and pod.status.phase == "Running" else ""


def parse(text: str) -> DcgmReadings:
    """The readings of whole cards. Those of MIG devices are skipped."""
    readings: dict[str, dict[str, str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            uuid = sample.labels.get("UUID", "")
            if uuid and sample.name.startswith(PREFIX) and not sample.labels.get("GPU_I_ID"):
                readings.setdefault(uuid, {})[sample.name] = f"{sample.value:g}"
    return readings


def with_readings(seen: DriverSnapshot, readings: DcgmReadings) -> DriverSnapshot:
    """The snapshot with the readings of the exporter instead of those of the driver."""
    return replace(
        seen, cards=tuple(_card_with_readings(card, readings.get(card.uuid)) for card in seen.cards)
    )


def _card_with_readings(card: GpuCard, readings: Mapping[str, str] | None) -> GpuCard:
    return card if not readings else replace(card, health=replace(card.health, metrics=readings))
