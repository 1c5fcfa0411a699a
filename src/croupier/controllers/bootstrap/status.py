"""The status fields of a GPUNodeInventory that the bootstrap controller owns."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from croupier.api.gpu import GPUNodeInventory
from croupier.api.gpu.node import Bootstrap, BootstrapWorkload, GPUNodeInventoryStatus, Monitoring
from croupier.controllers.shared import conditions
from croupier.core.nodes.bootstrap import NEVER, BootstrapDecision, BootstrapFacts

CONDITIONS: Final = (
    "DriverMissing",
    "ToolkitMissing",
    "MonitoringMissing",
    "GFDReady",
    "ReadyForPooling",
    "InfraDegraded",
    "DegradedWorkloads",
)
EVENTS: Final = {
    "DriverMissing": "GPUDriverMissing",
    "ToolkitMissing": "GPUToolkitMissing",
    "MonitoringMissing": "GPUMonitoringMissing",
    "DegradedWorkloads": "GPUDegradedWorkloads",
}
"""Reasons of the Warning Events for conditions that become True."""
_MAX_WORKLOADS: Final = 32


def desired(
    found: GPUNodeInventory, facts: BootstrapFacts, verdict: BootstrapDecision, now: datetime
) -> GPUNodeInventoryStatus:
    """The desired fields, without the two timestamps: a changed timestamp alone causes no write."""
    old = found.status
    return GPUNodeInventoryStatus(
        monitoring=Monitoring(
            dcgm_ready=verdict.dcgm_ready,
            last_heartbeat=old.monitoring.last_heartbeat,
            consecutive_heartbeats=verdict.beats,
        ),
        bootstrap=Bootstrap(
            phase=verdict.phase,
            gfd_ready=verdict.gfd_ready,
            toolkit_ready=verdict.toolkit_ready,
            last_run=old.bootstrap.last_run,
            workloads=tuple(
                BootstrapWorkload(name=pod.name, ready=pod.ready, message="" if pod.ready else pod.message)
                for pod in sorted(facts.services, key=lambda pod: pod.name)[:_MAX_WORKLOADS]
            ),
        ),
        conditions=conditions.merge(verdict.conditions, found, now),
    )


def current(found: GPUNodeInventory) -> GPUNodeInventoryStatus:
    old = found.status
    own = conditions.select(CONDITIONS, old.conditions)
    return GPUNodeInventoryStatus(monitoring=old.monitoring, bootstrap=old.bootstrap, conditions=own)


def with_times(
    status: GPUNodeInventoryStatus, facts: BootstrapFacts, now: datetime
) -> GPUNodeInventoryStatus:
    """Add the times of this reconcile and of the last heartbeat, because the status is written anyway."""
    now = now.replace(microsecond=0)
    last = status.monitoring.last_heartbeat
    if facts.since_heartbeat != NEVER:
        last = now - timedelta(seconds=int(facts.since_heartbeat))
    return replace(
        status,
        monitoring=replace(status.monitoring, last_heartbeat=last),
        bootstrap=replace(status.bootstrap, last_run=now),
    )
