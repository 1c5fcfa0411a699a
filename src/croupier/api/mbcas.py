"""PodAllocation (`allocation.mbcas.io/v1alpha1`): the desired CPU limit of a pod, and its current limit.

`Applied` is a statement about what the kubelet reported. It therefore refers to the observed value
(`observedDesiredCPULimit`), not to the spec, which may already contain the next one. The status keeps the
pod's original limit: an agent that restarts must not take a reduced limit for the original.
"""

from datetime import datetime
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta, field

from croupier.api.meta import DNS_LABEL, DNS_NAME, Conditions, NodeName, ObjectMeta, ObservedGeneration
from croupier.api.wire import (
    ATOMIC_MAP,
    INT64,
    Rule,
    Wire,
    cel_rules,
    cel_string,
    example,
    immutable,
    matches,
    rule,
)
from croupier.core.model.phase import AllocationPhase

_TENTHS: Final = "^([0-9]{1,6}([.][0-9]{1,2}0*)?|[0-9]{0,8}0m)$"

DesiredCPU: TypeAlias = Annotated[
    str,
    Meta(max_length=16),
    cel_rules(
        rule(
            f"self.matches({cel_string(_TENTHS)}) && self.matches('[1-9]')",
            "desiredCPULimit must be a positive multiple of 10m, written like 500m, 1 or 2.5",
        )
    ),
    example("500m"),
]
CPU: TypeAlias = Annotated[
    str,
    Meta(max_length=32),
    cel_rules(rule("isQuantity(self)", "must be a quantity such as 500m, 1 or 2.5")),
    example("2.5"),
]


class PodAllocationSpec(Wire, frozen=True, kw_only=True):
    """The desired CPU limit of the pod."""

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
        immutable("namespace"),
        example("default"),
    ]
    """The namespace of the pod. It must be the namespace of this object. Immutable."""
    pod_name: Annotated[
        str,
        Meta(max_length=253),
        matches(f"^{DNS_NAME}$", "must be the name of a pod"),
        immutable("podName"),
        example("web-0"),
    ]
    """The name of the pod. Immutable."""
    desired_cpu_limit: DesiredCPU
    """The desired CPU limit of the whole pod in multiples of 10m, such as 500m, 1 or 2.5."""
    node_name: NodeName | None = None
    """The node whose agent created this object. Unset in objects created by users. Immutable once set."""


class PodAllocationStatus(Wire, frozen=True, kw_only=True):
    """The current CPU limit of the pod, as reported by the kubelet."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "self.phase != 'Applied' || (has(self.appliedCPULimit)"
            " && has(self.observedDesiredCPULimit) && isQuantity(self.appliedCPULimit)"
            " && isQuantity(self.observedDesiredCPULimit)"
            " && quantity(self.appliedCPULimit).compareTo(quantity(self.observedDesiredCPULimit)) == 0)",
            "phase Applied requires that appliedCPULimit equals observedDesiredCPULimit",
        ),
        rule(
            "self.phase != 'Applied' || (has(self.observedGeneration) && has(self.podUID))",
            "phase Applied requires podUID and observedGeneration",
        ),
        rule(
            "self.phase != 'Failed' || has(self.reason)",
            "phase Failed requires a reason",
        ),
        rule(
            "!has(oldSelf.originalCPULimit) || !has(oldSelf.podUID) || !has(self.podUID)"
            " || self.podUID != oldSelf.podUID"
            " || (has(self.originalCPULimit) && self.originalCPULimit == oldSelf.originalCPULimit)",
            "originalCPULimit cannot change for the same pod",
        ),
    )

    phase: Annotated[AllocationPhase, example("Applied")] = "Pending"
    """Pending, Applied (the kubelet reports the limit in observedDesiredCPULimit) or Failed.

    It refers to the current spec only if observedGeneration equals metadata.generation. Failed is always
    tried again: after 5 seconds, growing to 5 minutes, and at once after a change of this object. A cause in
    the pod or in this object (such as BelowRequest, Guaranteed or NoCPULimit) is evaluated again after every
    change of the pod and every 5 minutes, and written only if the result differs. TooManyAllocations is
    evaluated again when another PodAllocation of the namespace is deleted.
    """
    reason: Annotated[
        str,
        Meta(max_length=1024),
        matches(
            "^[A-Z][A-Za-z0-9]*(: .+)?$", "reason must begin with one CamelCase word, such as Infeasible: ..."
        ),
        example("Infeasible: node-1 has 16 CPUs"),
    ] = ""
    """The reason for the phase: one CamelCase word and an explanation."""
    applied_cpu_limit: CPU | None = None
    """The CPU limit of the whole pod that the kubelet reports. Unset until a limit was applied once."""
    observed_desired_cpu_limit: CPU | None = None
    """The spec.desiredCPULimit that this status was computed from."""
    observed_generation: ObservedGeneration | None = None
    """The metadata.generation that the status was computed from; always set.

    If it is smaller than metadata.generation, phase and appliedCPULimit refer to an older desiredCPULimit.
    """
    pod_uid: Annotated[str, Meta(max_length=36), example("3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11")] = ""
    """The UID of the pod that the status describes. A later pod with the same name has another UID."""
    original_cpu_limit: CPU | None = None
    """The CPU limit of the pod before the first change."""
    original_container_limits: Annotated[
        dict[str, CPU], Meta(max_length=64), ATOMIC_MAP, example({"web": "400m", "proxy": "100m"})
    ] = field(default_factory=dict)
    """The CPU limit of each container before the first change."""
    observed_restarts: Annotated[int, Meta(ge=0), INT64, example(0)] | None = None
    """The number of container restarts at the request. After further restarts the limit is verified again."""
    last_applied_time: datetime | None = None
    """The time at which the kubelet was seen to enforce the limit."""
    last_attempt_time: datetime | None = None
    """The time of the last attempt to change the limit."""
    conditions: Conditions = ()
    """Conditions of the allocation. Each has a reason that programs may rely on."""


class PodAllocation(Wire, frozen=True, kw_only=True):
    """The CPU limit of one pod. It is changed in place, without restarting containers."""

    spec: PodAllocationSpec
    """The desired CPU limit of the pod."""
    metadata: ObjectMeta = ObjectMeta()
    status: PodAllocationStatus = PodAllocationStatus()
    """The current CPU limit of the pod, as reported by the kubelet."""
