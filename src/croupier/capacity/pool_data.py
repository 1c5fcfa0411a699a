"""A pool as JSON data and its state in one sentence, for the command line and web pages."""

from typing import Any, Final

import msgspec

from croupier.api import meta
from croupier.api.gpu import GPUPool

PROBLEM_CONDITIONS: Final = ("Misconfigured", "Maintenance", "CapacityLow", "AccessUnresolved")
"""Conditions that report a problem when True, most severe first."""


def as_data(pool: GPUPool) -> dict[str, Any]:
    return {
        "pool": pool.metadata.name,
        "spec": msgspec.to_builtins(pool.spec),
        "status": msgspec.to_builtins(pool.status),
    }


def state(pool: GPUPool) -> str:
    """The most severe problem with its message, or the availability of the pool."""
    for kind in PROBLEM_CONDITIONS:
        problem = meta.condition(pool.status.conditions, kind)
        if problem is not None and problem.status == "True":
            return f"{kind}: {problem.message or problem.reason}"
    ready = meta.condition(pool.status.conditions, "Available")
    if ready is None:
        return "not reconciled yet"
    return "Available" if ready.status == "True" else f"not available: {ready.message or ready.reason}"
