"""The base class of wire types, and helpers to declare what the API server validates.

Everything about a field is declared in one place: its type, its bounds (`Meta`), its CEL rules (`rule`,
`cel_rules`), an `example`, and, as the string below it, the sentence that `kubectl explain` shows. The CRDs
are generated.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Meta, Struct

_ACRONYMS: Final = {"id": "ID", "ids": "IDs", "uid": "UID", "cpu": "CPU", "mib": "MiB"}

Key = TypeVar("Key", bound=str)

Rule: TypeAlias = dict[str, str]
"""One CEL rule as a CRD carries it (`x-kubernetes-validations`)."""


def json_name(name: str) -> str:
    """The JSON name of a field: `pod_uid` becomes `podUID`, `inventory_ids` becomes `inventoryIDs`."""
    first, *others = name.split("_")
    return first + "".join(_ACRONYMS.get(word) or word.capitalize() for word in others)


class Wire(Struct, frozen=True, kw_only=True, rename=json_name, omit_defaults=True, gc=False):
    """The base class of wire types. They form no reference cycles, so the garbage collector can skip them."""


def rule(expression: str, message: str, *, message_expression: str = "") -> Rule:
    """Refuse objects for which the CEL expression is false.

    `message` is the error. `message_expression` is a CEL expression that builds a more specific one, with
    `message` as its fallback.
    """
    return {"rule": expression, "message": message} | (
        {"messageExpression": message_expression} if message_expression else {}
    )


def cel_rules(*rules: Rule) -> Meta:
    """Rules on one field: `Annotated[str, cel_rules(rule(...))]`."""
    return Meta(extra_json_schema={"x-kubernetes-validations": list(rules)})


def matches(pattern: str, message: str) -> Meta:
    """A pattern with a readable error. A schema's own `pattern` would show the regular expression."""
    return cel_rules(rule(f"self.matches({cel_string(pattern)})", message))


def immutable(what: str) -> Meta:
    """The field is immutable."""
    return cel_rules(rule("self == oldSelf", f"{what} cannot change: delete the object and create another"))


def schema(**keywords: Any) -> Meta:
    """Schema keywords that msgspec does not know, such as `x_kubernetes_map_type`."""
    return Meta(extra_json_schema={name.replace("_", "-"): value for name, value in keywords.items()})


def example(value: Any) -> Meta:
    """A valid value of the field. Its description ends with it, and errors name it."""
    return schema(x_example=value)


def cel_map(rows: Mapping[Key, str]) -> str:
    """A CEL map literal."""
    return "{" + ", ".join(f"{cel_string(key)}: {cel_string(value)}" for key, value in rows.items()) + "}"


def cel_string(text: str) -> str:
    """A CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


ATOMIC_MAP: Final = schema(x_kubernetes_map_type="atomic")
"""Every writer replaces the map as a whole, which is also far cheaper to write (docs/decisions/0002)."""

INT32: Final = schema(format="int32")
INT64: Final = schema(format="int64")
