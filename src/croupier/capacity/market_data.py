"""The CPU market of a node as JSON data, for the command line and web pages."""

from datetime import datetime
from typing import Any

import msgspec

from croupier.api import market_report
from croupier.api.core_v1 import Lease
from croupier.core.model.agent_liveness import MARKET_AGENT_TIMEOUT


def seconds_since_heartbeat(lease: Lease, now: datetime) -> float:
    try:
        return max(0.0, (now - datetime.fromisoformat(lease.spec.renew_time)).total_seconds())
    except ValueError:
        return float("inf")


def as_data(lease: Lease, now: datetime) -> dict[str, Any]:
    """The report in the agent's Lease; without a readable report only whether the agent is alive."""
    report = market_report.LEASE.decode(lease)
    fields = {} if report is None else {name: getattr(report, name) for name in report.__struct_fields__}
    data: dict[str, Any] = {
        "node": market_report.LEASE.node_of(lease),
        "alive": seconds_since_heartbeat(lease, now) <= MARKET_AGENT_TIMEOUT,
        "lastSeen": lease.spec.renew_time or None,
    }
    if not fields:
        return data
    names = {"dry_run": "dryRun"}
    plain = msgspec.to_builtins({names.get(name, name): value for name, value in fields.items()})
    return {**data, **plain, "node": data["node"]}
