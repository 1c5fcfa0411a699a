"""How our types look as JSON, and how they say what the API server shall enforce.

Everything about a field is written once, where the field is: its type, its bounds
(`Meta`), the rules that need more than a bound (`rule`, `checked`), and, as the
string below it, the sentence that `kubectl explain` shows. The CRDs are derived.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Meta, Struct

_SPELLING: Final = {"id": "ID", "ids": "IDs", "uid": "UID", "cpu": "CPU", "mib": "MiB"}

Word = TypeVar("Word", bound=str)

Rule: TypeAlias = dict[str, str]
"""One CEL rule as a CRD carries it (`x-kubernetes-validations`)."""


def spelled(name: str) -> str:
    """`pod_uid` is `podUID` to Kubernetes, `inventory_ids` is `inventoryIDs`."""
    first, *others = name.split("_")
    return first + "".join(_SPELLING.get(word) or word.capitalize() for word in others)


class Wire(Struct, frozen=True, kw_only=True, rename=spelled, omit_defaults=True, gc=False):
    """What every type on the wire shares. They form no cycles, so the garbage collector may skip them."""


def rule(expression: str, message: str, *, says: str = "") -> Rule:
    """Refuse what the CEL expression does not hold for.

    `message` is the sentence a person reads; `says` is a CEL expression that
    builds a better one from the values (the sentence stays as its fall-back).
    """
    return {"rule": expression, "message": message} | ({"messageExpression": says} if says else {})


def checked(*rules: Rule) -> Meta:
    """Rules on one field: `Annotated[str, checked(rule(...))]`."""
    return Meta(extra_json_schema={"x-kubernetes-validations": list(rules)})


def matches(pattern: str, message: str) -> Meta:
    """A pattern whose refusal is a sentence (the own `pattern` of a schema answers with the expression)."""
    return checked(rule(f"self.matches({quoted(pattern)})", message))


def fixed(what: str) -> Meta:
    """The field keeps the value it was created with."""
    return checked(rule("self == oldSelf", f"{what} cannot change: delete the object and create another"))


def schema(**keywords: Any) -> Meta:
    """Schema words that msgspec has no name for, such as `x_kubernetes_map_type`."""
    return Meta(extra_json_schema={word.replace("_", "-"): value for word, value in keywords.items()})


def table(rows: Mapping[Word, str]) -> str:
    """A CEL map literal, to look things up in a rule."""
    return "{" + ", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in rows.items()) + "}"


def quoted(text: str) -> str:
    """A CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


ATOMIC_MAP: Final = schema(x_kubernetes_map_type="atomic")
"""Replaced as a whole by every writer; also far cheaper to write (docs/decisions/0002)."""

INT32: Final = schema(format="int32")
INT64: Final = schema(format="int64")
