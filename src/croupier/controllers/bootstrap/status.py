"""What is written about the fitness of a node, as the fields of one writer."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from croupier.api.gpu import GPUNodeInventory
from croupier.api.gpu.node import Bootstrap, BootstrapWorkload, GPUNodeInventoryStatus, Monitoring
from croupier.controllers import conditions
from croupier.core.nodes.bootstrap import NEVER, NodeFacts, Verdict

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
"""What is worth a Warning when it becomes True."""
_MOST_WORKLOADS: Final = 32


def meant(
    found: GPUNodeInventory, facts: NodeFacts, verdict: Verdict, now: datetime
) -> GPUNodeInventoryStatus:
    """The fields that are ours, as they shall be; but for the two times, which are no news by themselves."""
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
                BootstrapWorkload(name=one.name, ready=one.ready, message="" if one.ready else one.message)
                for one in sorted(facts.services, key=lambda one: one.name)[:_MOST_WORKLOADS]
            ),
        ),
        conditions=conditions.kept(verdict.conditions, old.conditions, now),
    )


def as_is(found: GPUNodeInventory) -> GPUNodeInventoryStatus:
    old = found.status
    own = conditions.of(CONDITIONS, old.conditions)
    return GPUNodeInventoryStatus(monitoring=old.monitoring, bootstrap=old.bootstrap, conditions=own)


def dated(status: GPUNodeInventoryStatus, facts: NodeFacts, now: datetime) -> GPUNodeInventoryStatus:
    """With the time of this look and of the last heartbeat, now that it is written anyway."""
    now = now.replace(microsecond=0)
    last = status.monitoring.last_heartbeat
    if facts.quiet != NEVER:
        last = now - timedelta(seconds=int(facts.quiet))
    return replace(
        status,
        monitoring=replace(status.monitoring, last_heartbeat=last),
        bootstrap=replace(status.bootstrap, last_run=now),
    )
