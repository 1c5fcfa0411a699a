"""The first lines of a process: what runs with which settings, what it waits for, and when it is ready."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from croupier.kube.serving import build_info
from croupier.kube.serving.component_runner import Component
from croupier.kube.serving.health import HealthChecks
from croupier.wiring.live_settings import LiveSettings

CACHE: Final = "cache of "
"""How the names of the components begin that run caches."""
POLL_INTERVAL: Final = 0.2
REMINDER_INTERVAL: Final = 60.0
"""Seconds after which a process that is not ready says what it waits for, if that has changed."""

log = structlog.get_logger(__name__)


def log_start(
    components: Sequence[Component], live_settings: LiveSettings, fields: Mapping[str, str]
) -> None:
    caches = sorted(part.name.removeprefix(CACHE) for part in components if part.name.startswith(CACHE))
    waiting = f"waits for caches: {', '.join(caches)}" if caches else "waits for no cache"
    log.info(
        f"{fields['process']} {build_info.version()} starts and {waiting}",
        version=build_info.version(),
        revision=build_info.revision() or "unknown",
        verbosity=live_settings.now.configuration.log_level,
        **fields,
    )


async def log_ready(process: str, checks: HealthChecks) -> None:
    """Log when all readiness checks pass, and before which do not; a standby may wait for days."""
    loop = asyncio.get_running_loop()
    started = checked = loop.time()
    told = ""
    while failed := checks.not_ready():
        reasons = "; ".join(f"{name}: {why}" for name, why in failed.items())
        if reasons != told and loop.time() - checked >= REMINDER_INTERVAL:
            told, checked = reasons, loop.time()
            log.info(f"{process} is not ready: {reasons}", seconds=round(checked - started))
        await asyncio.sleep(POLL_INTERVAL)
    seconds = round(loop.time() - started, 1)
    log.info(f"{process} is ready after {seconds} s", seconds=seconds)
