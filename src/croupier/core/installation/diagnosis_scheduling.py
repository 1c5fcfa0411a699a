"""Checks of schedulers and of the Leases of Croupier's processes."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from croupier.core.installation import diagnosis
from croupier.core.installation.diagnosis import InstallationProblem, InstallationProblems
from croupier.core.model import name_list


@dataclass(frozen=True, slots=True)
class SchedulingFacts:
    in_memory: str = ""
    """The process that holds the in-memory ledger; empty if there is none."""
    recorded: int = 0
    """Nodes whose ledger is stored in the API server."""
    stale_leases: Mapping[str, str] = field(default_factory=dict)
    """Leases of Croupier that are not renewed, and since when."""
    bypassed: Collection[str] = ()
    """Marked pods that were bound without cards: their scheduler did not call the extender."""
    waiting: Collection[str] = ()
    """Marked pods that have been pending for long without a message of their scheduler."""
    unmarked: Collection[str] = ()
    """Pending pods that request cards without the mark: they were created while Croupier was disabled."""


LEASE_DURATION: Final = timedelta(seconds=15)
"""After which a Lease of a capacity manager has expired."""
CONFIGURE_SCHEDULER: Final = "configure kube-scheduler as croupier scheduler-config prints it"


def scheduling(seen: SchedulingFacts) -> InstallationProblems:
    return (*_extender_calls(seen), *_ledgers(seen))


def _extender_calls(seen: SchedulingFacts) -> Iterator[InstallationProblem]:
    if seen.bypassed:
        what = "they were bound without cards by a scheduler that did not call the extender"
        yield InstallationProblem(
            "error", what, f"pods {diagnosis.join_names(seen.bypassed)}", CONFIGURE_SCHEDULER
        )
    if seen.waiting:
        what = "no scheduler has tried to schedule them"
        remedy = "check that the scheduler in their schedulerName runs and reaches the extender"
        yield InstallationProblem("warning", what, f"pods {diagnosis.join_names(seen.waiting)}", remedy)
    if seen.unmarked:
        what = "they request cards without the ledger resource, so no scheduler asks the ledger about them"
        remedy = "delete them and create them again; they were created while Croupier was disabled or absent"
        yield InstallationProblem("warning", what, f"pods {diagnosis.join_names(seen.unmarked)}", remedy)


def _ledgers(seen: SchedulingFacts) -> Iterator[InstallationProblem]:
    for lease, since in sorted(seen.stale_leases.items()):
        what = f"it has not been renewed {since}: the process that should renew it does not run"
        remedy = "check that the process that renews the Lease runs, and read its log"
        yield InstallationProblem("error", what, f"Lease {lease}", remedy)
    if seen.in_memory and seen.recorded:
        exist = "exists" if seen.recorded == 1 else "exist"
        records = f"{name_list.counted(seen.recorded, 'NodeReservation')} {exist}"
        what = f"{seen.in_memory} keeps the ledger in memory, but {records}, too"
        remedy = "set the same capacityManager for all processes and restart them; the ledger is migrated"
        yield InstallationProblem("error", what, "ledger", remedy)


def is_past(in_memory: datetime | None, shared: datetime | None, now: datetime) -> bool:
    """Whether the in-memory ledger was replaced: the managers that store it have renewed their Lease since.

    The arguments are when each of the two Leases was renewed. A process that was killed leaves its Lease.
    """
    if shared is None or now - shared > diagnosis.HEARTBEAT_TIMEOUT:
        return False
    return in_memory is None or (shared > in_memory and now - in_memory > LEASE_DURATION)
