"""The heartbeat Lease of a node's agent, with the report of the agent in an annotation."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from croupier.api.core_v1 import Lease
from croupier.api.wire import Wire

_MAX_NAME_LENGTH: Final = 253

MAX_REPORT_BYTES: Final = 200_000
"""The largest report in an annotation. All annotations of an object together may have 256 KiB."""

Report = TypeVar("Report", bound=Wire)


@dataclass(frozen=True, slots=True)
class ReportLease(Generic[Report]):
    """The Leases of one kind of agent."""

    prefix: str
    """The prefix of the name of the Lease."""
    node_annotation: str
    report_annotation: str
    report: type[Report]

    def name(self, node: str) -> str:
        """The name of the Lease, shortened with a hash if it would be too long for an object name."""
        full = f"{self.prefix}{node}"
        if len(full) <= _MAX_NAME_LENGTH:
            return full
        return f"{full[: _MAX_NAME_LENGTH - 17]}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"

    def node_of(self, lease: Lease) -> str:
        """The node's name from the annotation, else from the name of the Lease, which may be shortened."""
        meta = lease.metadata
        return meta.annotations.get(self.node_annotation, meta.name.removeprefix(self.prefix))

    def decode(self, lease: Lease) -> Report | None:
        """The report, or None if it is missing or cannot be decoded (another version may have written it)."""
        try:
            return msgspec.json.decode(
                lease.metadata.annotations.get(self.report_annotation, ""), type=self.report
            )
        except msgspec.MsgspecError:
            return None

    def body(
        self,
        node: str,
        namespace: str,
        report: str,
        *,
        labels: Mapping[str, str],
        seconds: int,
        moment: str,
    ) -> dict[str, Any]:
        """The Lease to apply. `seconds` is its duration, `moment` its renew time."""
        return {
            "metadata": {
                "name": self.name(node),
                "namespace": namespace,
                "labels": labels,
                "annotations": {self.node_annotation: node, self.report_annotation: report},
            },
            "spec": {"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": moment},
        }
