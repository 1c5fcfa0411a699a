"""What every Kubernetes object has: metadata, owners, conditions; and the names that recur in our kinds."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, field

from croupier.api.wire import INT64, Rule, Wire, matches, rule, schema

DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_NAME: Final = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
"""Lengths are bounded by the schema: counted repetitions make an expression many times slower to match."""

PART_OF: Final = {"app.kubernetes.io/part-of": "croupier"}
"""The label of all that an installation consists of,"""
OURS: Final = ",".join(f"{name}={value}" for name, value in PART_OF.items())
"""and what selects it."""

MIG_PROFILE: Final = "^([1-7]c[.])?[1-7]g[.][0-9]+gb([+][a-z.]+)?$"
MIG_PROFILE_MESSAGE: Final = "must be a MIG profile such as 1g.10gb, 2g.20gb or 1g.10gb+me"

NodeName: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=253),
    matches(f"^{DNS_NAME}$", "must be the name of a node: lower-case letters, digits, '-' and '.'"),
]
MIGProfile: TypeAlias = Annotated[
    str,
    Meta(max_length=32),
    matches(MIG_PROFILE, MIG_PROFILE_MESSAGE),
]
Labels: TypeAlias = dict[str, Annotated[str, Meta(max_length=63)]]


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
        """`namespace/name`, or the name alone of what lives in no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Condition(Wire, frozen=True, kw_only=True):
    """One aspect of the object's state, as observed at one time."""

    type: Annotated[str, Meta(min_length=1, max_length=316)]
    """Name of the aspect, such as ReadyForPooling."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    last_transition_time: datetime
    """When the status last changed."""
    reason: Annotated[
        str,
        Meta(min_length=1, max_length=1024),
        matches(
            "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "must be one word in CamelCase, such as DriverMissing"
        ),
    ]
    """Why, as one word that programs may rely on."""
    message: Annotated[str, Meta(max_length=32768)] = ""
    """Why, as a sentence for people."""
    observed_generation: Annotated[int, Meta(ge=0), INT64] | None = None
    """The generation of the object this was judged by."""


Conditions: TypeAlias = Annotated[
    tuple[Condition, ...],
    Meta(max_length=32),
    schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["type"]),
]


class LabelRequirement(Wire, frozen=True, kw_only=True):
    """One requirement on a label."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need values; Exists and DoesNotExist have none",
        ),
    )

    key: Annotated[str, Meta(min_length=1, max_length=316)]
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label relates to the values."""
    values: Annotated[tuple[Annotated[str, Meta(max_length=63)], ...], Meta(max_length=64)] = ()
    """The values of In and NotIn."""


class LabelSelector(Wire, frozen=True, kw_only=True):
    """Matches objects by their labels; every requirement must hold, and none matches all."""

    match_labels: Annotated[Labels, Meta(max_length=64)] = field(default_factory=dict)
    """Labels that must have exactly these values."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Meta(max_length=64)] = ()
    """Requirements on labels."""
