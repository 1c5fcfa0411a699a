"""Hypothesis strategies for any Struct, derived from its type."""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as shape

T = TypeVar("T", bound=msgspec.Struct)

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  # hypothesis adds the zone
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def any_of(type_: type[T]) -> st.SearchStrategy[T]:
    info = shape.type_info(type_)
    assert isinstance(info, shape.StructType)
    required = {field.name: value(field.type) for field in info.fields if field.required}
    optional = {field.name: value(field.type) for field in info.fields if not field.required}
    fields = st.fixed_dictionaries(required, optional=optional)
    return fields.map(lambda given: type_(**given))


def value(node: shape.Type) -> st.SearchStrategy[Any]:  # noqa: PLR0911  # one line per shape there is
    match node:
        case shape.Metadata(type=inner):
            return value(inner)
        case shape.UnionType(types=types):
            return st.one_of(*[value(option) for option in types])
        case shape.NoneType():
            return st.none()
        case shape.StructType(cls=cls):
            return st.deferred(lambda: any_of(cls))
        case shape.VarTupleType(item_type=item):
            return st.lists(value(item), min_size=node.min_length or 0, max_size=3).map(tuple)
        case shape.DictType(value_type=inner):
            return st.dictionaries(TEXTS, value(inner), max_size=3)
        case _:
            return scalar(node)


def scalar(node: shape.Type) -> st.SearchStrategy[Any]:
    match node:
        case shape.StrType(min_length=shortest, max_length=longest):
            alphabet = st.characters(exclude_categories=["Cs"])
            return st.text(alphabet, min_size=shortest or 0, max_size=min(longest or 12, 12))
        case shape.IntType(ge=least, le=most):
            return st.integers(-(2**53) if least is None else least, 2**53 if most is None else most)
        case shape.BoolType():
            return st.booleans()
        case shape.DateTimeType():
            return MOMENTS
        case shape.LiteralType(values=values):
            return st.sampled_from(values)
    raise TypeError(f"no strategy for {node}")
