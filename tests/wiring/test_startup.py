"""A process logs first what it is and what it waits for, then why it is not ready, then that it is ready."""

import asyncio

from structlog.testing import capture_logs

from croupier.kube.serving import build_info
from croupier.kube.serving.component_runner import Component
from croupier.kube.serving.health import HealthChecks
from croupier.wiring import startup
from croupier.wiring.live_settings import LiveSettings


async def idle(stop: asyncio.Event) -> None:
    await stop.wait()


def test_the_first_line_names_version_settings_and_caches(monkeypatch):
    monkeypatch.setenv(build_info.REVISION, "abc123")
    parts = [Component(name, idle) for name in ("cache of pods", "events", "cache of nodes")]

    with capture_logs() as lines:
        startup.log_start(parts, LiveSettings(), {"process": "croupier manager", "settings": "file a.yaml"})

    (line,) = lines
    version = build_info.version()
    assert line.pop("event") == f"croupier manager {version} starts and waits for caches: nodes, pods"
    assert line == {
        "log_level": "info",
        "version": version,
        "revision": "abc123",
        "verbosity": "Info",
        "process": "croupier manager",
        "settings": "file a.yaml",
    }


async def test_a_process_says_why_it_is_not_ready_and_when_it_is(monkeypatch):
    monkeypatch.setattr(startup, "REMINDER_INTERVAL", 0.0)
    monkeypatch.setattr(startup, "POLL_INTERVAL", 0.01)
    reasons = iter(["not synced yet: pods", "not synced yet: pods", "starting", None])
    checks = HealthChecks(ready={"caches": lambda: next(reasons, None)})

    with capture_logs() as lines:
        await startup.log_ready("croupier node", checks)

    assert [line["event"] for line in lines] == [
        "croupier node is not ready: caches: not synced yet: pods",
        "croupier node is not ready: caches: starting",
        f"croupier node is ready after {lines[-1]['seconds']} s",
    ]
