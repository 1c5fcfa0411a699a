"""Structural OpenAPI schemas from Structs.

Docstrings of Structs and the strings below fields become descriptions. The latter are read from the source.
An `example` of a field becomes the last sentence of its description, so text and data cannot differ.
"""

import ast
import inspect
import json
import textwrap
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import inspect as shape

from croupier.kube.client.resource import Resource

Schema: TypeAlias = dict[str, Any]

CEL_RULES = "x-kubernetes-validations"
EXAMPLE: Final = "x-example"
EXAMPLE_TIME: Final = "2030-01-31T12:00:00Z"


def struct_schema(type_: type[msgspec.Struct]) -> Schema:
    """The schema of a Struct, without references."""
    return _type_schema(shape.type_info(type_))


def object_schema(resource: Resource[Any]) -> Schema:
    """The schema of a whole object: the API server describes `metadata` itself."""
    whole = with_examples(struct_schema(resource.type))
    properties: Schema = {
        "apiVersion": _constant("Group and version of the kind.", resource.api_version),
        "kind": _constant("Name of the kind.", resource.kind),
        **whole["properties"],
        "metadata": {"type": "object"},
    }
    return {**whole, "properties": properties}


def with_examples(node: Schema) -> Schema:
    """The schema with the example of each field at the end of its description."""
    nested = {
        keyword: with_examples(node[keyword])
        for keyword in ("items", "additionalProperties")
        if isinstance(node.get(keyword), dict)
    }
    if "properties" in node:
        nested["properties"] = {name: with_examples(child) for name, child in node["properties"].items()}
    made = {keyword: value for keyword, value in node.items() if keyword != EXAMPLE} | nested
    value = example(node)
    if value is not None and "description" in node:
        made["description"] = f"{node['description']} Example: {_spelled(value)}."
    return made


def example(node: Schema) -> Any:
    """A valid value of a field without fields of its own, if there is one."""
    match node:
        case {"x-example": value}:
            return value
        case {"enum": values}:
            return node.get("default", values[0])
        case {"type": "boolean"}:
            return True
        case {"format": "date-time"}:
            return EXAMPLE_TIME
        case {"items": item}:
            value = example(item)
            return None if value is None else [value]
    return None


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _constant(description: str, value: str) -> Schema:
    return with_examples({"type": "string", "description": description, EXAMPLE: value})


def _type_schema(node: shape.Type) -> Schema:
    match node:
        case shape.Metadata(type=inner, extra_json_schema=extra):
            return _merged(_type_schema(inner), extra or {})
        case shape.UnionType(types=types):
            (only,) = [type_ for type_ in types if not isinstance(type_, shape.NoneType)]
            return _type_schema(only)
        case shape.StructType():
            return _struct(node)
        case shape.VarTupleType(item_type=item):
            bounds = _without_none(minItems=node.min_length, maxItems=node.max_length)
            return {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                **bounds,
                "items": _type_schema(item),
            }
        case shape.DictType(value_type=value):
            bounds = _without_none(minProperties=node.min_length, maxProperties=node.max_length)
            return {"type": "object", **bounds, "additionalProperties": _type_schema(value)}
        case _:
            return _scalar(node)


def _scalar(node: shape.Type) -> Schema:
    match node:
        case shape.StrType(min_length=shortest, max_length=longest, pattern=pattern):
            return {"type": "string", **_without_none(minLength=shortest, maxLength=longest, pattern=pattern)}
        case shape.IntType(ge=least, le=most):
            return {"type": "integer", **_without_none(minimum=least, maximum=most)}
        case shape.BoolType():
            return {"type": "boolean"}
        case shape.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case shape.LiteralType(values=values):
            return {"type": "string", "enum": sorted(values)}
    raise TypeError(f"{type(node).__name__} is not supported in a CRD; add it to api/schema.py")


def _struct(node: shape.StructType) -> Schema:
    described = _descriptions(node.cls)
    properties = {field.encode_name: _field(field, described.get(field.name, "")) for field in node.fields}
    required = sorted(field.encode_name for field in node.fields if field.required)
    schema: Schema = {"type": "object"}
    if node.cls.__doc__:
        schema["description"] = inspect.cleandoc(node.cls.__doc__)
    if required:
        schema["required"] = required
    if properties:
        schema["properties"] = properties
    return _merged(schema, {CEL_RULES: list(rules)} if (rules := getattr(node.cls, "rules", ())) else {})


def _field(field: shape.Field, description: str) -> Schema:
    schema = _type_schema(field.type)
    if description:
        schema = {
            "description": description,
            **{keyword: schema[keyword] for keyword in schema if keyword != "description"},
        }
    default = _default(field, schema)
    return schema if default is None else {**schema, "default": default}


def _default(field: shape.Field, schema: Schema) -> Any:
    """The default of the field, without null and empty values. For a Struct, the defaults of its fields."""
    if isinstance(field.default, msgspec.Struct):
        inside = schema.get("properties", {}).items()
        return {name: property_["default"] for name, property_ in inside if "default" in property_} or None
    return None if field.default is msgspec.NODEFAULT else field.default or None


def _merged(schema: Schema, extra: Schema) -> Schema:
    rules = [*schema.get(CEL_RULES, []), *extra.get(CEL_RULES, [])]
    return {**schema, **extra, **({CEL_RULES: rules} if rules else {})}


def _without_none(**keywords: Any) -> Schema:
    return {keyword: value for keyword, value in keywords.items() if value is not None}


@cache
def _descriptions(cls: type) -> dict[str, str]:
    """The string that follows each field in the class body."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101  # getsource of a class is a class
    described = {}
    for statement, after in zip(body.body, body.body[1:], strict=False):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                described[name] = inspect.cleandoc(text)
    return described
