"""PodAllocation (`allocation.mbcas.io/v1alpha1`): the CPU limit a pod shall have, and the one it has.

`Applied` is a statement about what the kubelet reported. It is therefore tied to the
value that was judged (`observedDesiredCPULimit`), not to the spec, which may already
ask for the next one. The limit a pod came with is kept in the status: an agent that
restarts must not take a shrunken limit for the original.
"""

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, field

from croupier.api.meta import DNS_LABEL, DNS_NAME, Conditions, NodeName, ObjectMeta
from croupier.api.wire import ATOMIC_MAP, INT64, Rule, Wire, checked, fixed, matches, quoted, rule

AllocationPhase: TypeAlias = Literal["Pending", "Applied", "Failed"]

_TENTHS: Final = "^([0-9]{1,6}([.][0-9]{1,2}0*)?|[0-9]{0,8}0m)$"

DesiredCPU: TypeAlias = Annotated[
    str,
    Meta(max_length=16),
    checked(
        rule(
            f"self.matches({quoted(_TENTHS)}) && self.matches('[1-9]')",
            "desiredCPULimit must be a positive multiple of 10m, written like 500m, 1 or 2.5",
        )
    ),
]
CPU: TypeAlias = Annotated[
    str, Meta(max_length=32), checked(rule("isQuantity(self)", "must be a quantity such as 500m, 1 or 2.5"))
]


class PodAllocationSpec(Wire, frozen=True, kw_only=True):
    """The limit a pod shall have."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "!has(oldSelf.nodeName) || (has(self.nodeName) && self.nodeName == oldSelf.nodeName)",
            "nodeName cannot change once it is set: delete the object and create another",
        ),
    )

    namespace: Annotated[
        str,
        Meta(max_length=63),
        matches(f"^{DNS_LABEL}$", "must be the name of a namespace"),
        fixed("namespace"),
    ]
    """The pod's namespace, which must be that of this object. Immutable."""
    pod_name: Annotated[
        str, Meta(max_length=253), matches(f"^{DNS_NAME}$", "must be the name of a pod"), fixed("podName")
    ]
    """The pod's name. Immutable."""
    desired_cpu_limit: DesiredCPU
    """The CPU limit of the whole pod: a multiple of 10m such as 500m, 1 or 2.5."""
    node_name: NodeName | None = None
    """The node whose agent wrote this; unset in one written by a person. Fixed once set."""


class PodAllocationStatus(Wire, frozen=True, kw_only=True):
    """The limit it has, as the kubelet reports it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "self.phase != 'Applied' || (has(self.appliedCPULimit)"
            " && has(self.observedDesiredCPULimit) && isQuantity(self.appliedCPULimit)"
            " && isQuantity(self.observedDesiredCPULimit)"
            " && quantity(self.appliedCPULimit).compareTo(quantity(self.observedDesiredCPULimit)) == 0)",
            "Applied means that appliedCPULimit equals observedDesiredCPULimit",
        ),
        rule(
            "self.phase != 'Applied' || (has(self.observedGeneration) && has(self.podUID))",
            "Applied is said of one pod and one generation: set podUID and observedGeneration",
        ),
        rule(
            "self.phase != 'Failed' || has(self.reason)",
            "Failed needs a reason",
        ),
        rule(
            "!has(oldSelf.originalCPULimit) || !has(oldSelf.podUID) || !has(self.podUID)"
            " || self.podUID != oldSelf.podUID"
            " || (has(self.originalCPULimit) && self.originalCPULimit == oldSelf.originalCPULimit)",
            "originalCPULimit is written once for a pod",
        ),
    )

    phase: AllocationPhase = "Pending"
    """Applied when the kubelet reports exactly what was asked; Failed is always tried again."""
    reason: Annotated[
        str,
        Meta(max_length=1024),
        matches("^[A-Z][A-Za-z0-9]*(: .+)?$", "reason begins with one stable word, such as Infeasible: ..."),
    ] = ""
    """Why: a stable word and a sentence, such as Infeasible: ..."""
    applied_cpu_limit: CPU | None = None
    """The limit of the whole pod that the kubelet reports."""
    observed_desired_cpu_limit: CPU | None = None
    """The desiredCPULimit this status was judged by."""
    observed_generation: Annotated[int, Meta(ge=0), INT64] | None = None
    """The generation of this object the status was judged by."""
    pod_uid: Annotated[str, Meta(max_length=36)] = ""
    """The pod it is said of; another pod of the same name is another pod."""
    original_cpu_limit: CPU | None = None
    """The limit the pod came with, before the first change."""
    original_container_limits: Annotated[dict[str, CPU], Meta(max_length=64), ATOMIC_MAP] = field(
        default_factory=dict
    )
    """The same for each container."""
    observed_restarts: Annotated[int, Meta(ge=0), INT64] | None = None
    """Restarts of its containers when the change was asked for: after more, the proof begins anew."""
    last_applied_time: datetime | None = None
    """When the limit was found in force."""
    last_attempt_time: datetime | None = None
    """When a change was last tried."""
    conditions: Conditions = ()
    """Details, each with a reason programs may rely on."""


class PodAllocation(Wire, frozen=True, kw_only=True):
    """The CPU limit of one pod, moved in place without a restart."""

    spec: PodAllocationSpec
    """The limit the pod shall have."""
    metadata: ObjectMeta = ObjectMeta()
    status: PodAllocationStatus = PodAllocationStatus()
    """The limit it has."""
