"""Types that every Kubernetes object shares (metadata, owners, conditions) and name formats of our kinds."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Meta, field

from croupier.api.wire import INT64, Rule, Wire, cel_rules, example, matches, rule, schema
from croupier.core.model.condition import ConditionStatus, DesiredCondition

DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_NAME: Final = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
"""The schema limits lengths: counted repetitions make a regular expression many times slower to match."""

PART_OF: Final = {"app.kubernetes.io/part-of": "croupier"}
"""The label on every object of an installation."""
PART_OF_SELECTOR: Final = ",".join(f"{name}={value}" for name, value in PART_OF.items())
"""The label selector for these objects."""

MIG_PROFILE: Final = "^([1-7]c[.])?[1-7]g[.][0-9]+gb([+][a-z.]+)?$"
MIG_PROFILE_MESSAGE: Final = "must be a MIG profile such as 1g.10gb, 2g.20gb or 1g.10gb+me"

NodeName: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=253),
    matches(f"^{DNS_NAME}$", "must be the name of a node: lower-case letters, digits, '-' and '.'"),
    example("node-1"),
]
MIGProfile: TypeAlias = Annotated[
    str,
    Meta(max_length=32),
    matches(MIG_PROFILE, MIG_PROFILE_MESSAGE),
    example("1g.10gb"),
]
LABEL_KEY_MESSAGE: Final = "must be the key of a label, such as topology.kubernetes.io/zone"
LabelKey: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=316),
    cel_rules(rule("!format.qualifiedName().validate(self).hasValue()", LABEL_KEY_MESSAGE)),
    example("topology.kubernetes.io/zone"),
]
LabelValue: TypeAlias = Annotated[
    str,
    Meta(max_length=63),
    cel_rules(
        rule(
            "!format.labelValue().validate(self).hasValue()",
            "must be the value of a label: letters, digits, '-', '_' and '.', as in eu-west-1",
        )
    ),
    example("eu-1"),
]
Labels: TypeAlias = Annotated[
    dict[str, LabelValue],
    Meta(max_length=64),
    cel_rules(
        rule(
            "self.all(key, !format.qualifiedName().validate(key).hasValue())",
            "a key is not the key of a label, such as topology.kubernetes.io/zone",
        )
    ),
    example({"topology.kubernetes.io/zone": "eu-1"}),
]
ObservedGeneration: TypeAlias = Annotated[int, Meta(ge=0), INT64, example(2)]


class OwnerReference(Wire, frozen=True, kw_only=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Wire, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or only the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Condition(Wire, frozen=True, kw_only=True):
    """One aspect of the object's state at a point in time."""

    type: Annotated[str, Meta(min_length=1, max_length=316), example("Available")]
    """The type of the condition."""
    status: Annotated[ConditionStatus, example("True")]
    """Whether the condition holds: True, False or Unknown."""
    last_transition_time: datetime
    """The time at which the status last changed."""
    reason: Annotated[
        str,
        Meta(min_length=1, max_length=1024),
        matches(
            "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "must be one word in CamelCase, such as DriverMissing"
        ),
        example("Ready"),
    ]
    """The reason for the last transition: one CamelCase word that programs may rely on."""
    message: Annotated[str, Meta(max_length=32768), example("all cards of the node are ready")] = ""
    """A human-readable explanation of the condition."""
    observed_generation: ObservedGeneration | None = None
    """The metadata.generation of the object that this condition was computed from."""


class _TypedCondition(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...


_AnyCondition = TypeVar("_AnyCondition", bound=_TypedCondition)


def condition(conditions: Iterable[_AnyCondition], kind: str) -> _AnyCondition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[_TypedCondition], kind: str) -> bool:
    return any(condition.type == kind and condition.status == "True" for condition in conditions)


def updated_condition(
    desired: DesiredCondition, old: Iterable[Condition], *, now: datetime, generation: int
) -> Condition:
    """The condition to write. It keeps its transition time unless its status changes.

    `generation` is that of the object as it was read for the decision.
    """
    before = condition(old, desired.type)
    same = before is not None and before.status == desired.status
    return Condition(
        type=desired.type,
        status=desired.status,
        reason=desired.reason,
        message=desired.message,
        last_transition_time=before.last_transition_time if before and same else now.replace(microsecond=0),
        observed_generation=generation,
    )


Conditions: TypeAlias = Annotated[
    tuple[Condition, ...],
    Meta(max_length=32),
    schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["type"]),
]


class LabelSelectorRequirement(Wire, frozen=True, kw_only=True):
    """A requirement on one label."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need values; Exists and DoesNotExist have none",
        ),
    )

    key: LabelKey
    """The key of the label."""
    operator: Annotated[Literal["In", "NotIn", "Exists", "DoesNotExist"], example("In")]
    """How the label must relate to the values: In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[LabelValue, ...], Meta(max_length=64), example(["eu-1", "eu-2"])] = ()
    """The values for the operators In and NotIn. Leave empty for Exists and DoesNotExist."""


class LabelSelector(Wire, frozen=True, kw_only=True):
    """Selects objects by their labels. All requirements must hold. An empty selector matches every object."""

    match_labels: Labels = field(default_factory=dict)
    """Labels that must have exactly the given values."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Meta(max_length=64)] = ()
    """Further requirements on labels."""
