"""The naming rules of metrics, and the names that the founding designs print.

Prometheus conventions: one prefix, `_total` for counters only, base units, histograms of time end with
`_duration_seconds`. A founding name is part of the API: it stays as it is, even if it breaks a rule.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

PREFIX: Final = "croupier_"
FOUNDING_FAMILY: Final = "mbcas_"
"""The founding design of CPU limits prints this prefix, without single names."""
FOUNDING_NAMES: Final = frozenset(
    {
        "gpu_bootstrap_node_phase",
        "gpu_bootstrap_ready",
        "gpu_device_reservation_age_seconds",
        "gpu_device_reserved_total",
        "gpu_device_unassigned_total",
        "gpu_handler_errors_total",
        "gpu_inventory_condition",
        "gpu_inventory_devices_state",
        "gpu_inventory_devices_total",
        "gpupool_assignments",
        "gpupool_capacity_available",
        "gpupool_capacity_total",
        "gpupool_capacity_used",
        "gpupool_node_slots",
        "reservations_active",
        "reservations_failed_total",
        "reservations_total",
    }
)
HISTOGRAM_SUFFIXES: Final = ("_duration_seconds", "_size")
NOT_BASE_UNITS: Final = re.compile(
    r"_(ms|milliseconds?|microseconds?|minutes|hours|percent|cpu|millicores|kb|mib|gib)(_|$)"
)
VAGUE_LABELS: Final = frozenset({"what", "why", "book"})
HELP: Final = re.compile(r"[A-Z0-9][^ ]*( [^ ]+){2,}[^ .!?]")


def violations(name: str, *, kind: str, labels: Iterable[str], text: str) -> list[str]:
    """The rules that a metric breaks, as sentences."""
    rules = [_help(text), *_labels(labels)]
    if name not in FOUNDING_NAMES:
        rules += [_prefix(name), _type(name, kind), _unit(name)]
    return [f"{name} {rule}" for rule in rules if rule]


def _help(text: str) -> str:
    return "" if HELP.fullmatch(text) else "needs a help text of three words or more, without a full stop"


def _labels(labels: Iterable[str]) -> Iterator[str]:
    yield from (f"has the vague label {label}" for label in labels if label in VAGUE_LABELS)


def _prefix(name: str) -> str:
    return "" if name.startswith((PREFIX, FOUNDING_FAMILY)) else f"does not begin with {PREFIX}"


def _type(name: str, kind: str) -> str:
    if (kind == "counter") != name.endswith("_total"):
        return f"is a {kind}: counters, and only counters, end with _total"
    if kind == "histogram" and not name.endswith(HISTOGRAM_SUFFIXES):
        return f"is a histogram and does not end with {' or '.join(HISTOGRAM_SUFFIXES)}"
    if kind != "histogram" and name.endswith("_duration_seconds"):
        return f"is a {kind} and ends with _duration_seconds"
    return ""


def _unit(name: str) -> str:
    return "is not in a base unit" if NOT_BASE_UNITS.search(name) else ""
