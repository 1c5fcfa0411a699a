"""The generated schemas contain everything that the Structs declare."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from croupier.api import crds, schema
from croupier.api.wire import Wire, cel_rules, rule
from tests.api.scenario_tables import KIND, ROOT
from tests.api.test_bad_input import nodes, schema_of
from tools import generate_crds


class Part(Wire, frozen=True, kw_only=True):
    """A part."""

    size: Annotated[int, Meta(ge=1, le=9)] = 3
    """How large."""


class Whole(Wire, frozen=True, kw_only=True):
    """A whole."""

    rules = (rule("self.partCount > 0", "needs a part"),)

    part_count: Annotated[int, Meta(ge=0), cel_rules(rule("self < 9", "too many"))]
    """How many."""
    part: Part = Part()
    parts: Annotated[tuple[Part, ...], Meta(max_length=4)] = ()
    """All of them."""
    since: datetime | None = None


def test_the_schema_of_a_struct():
    size = {"description": "How large.", "type": "integer", "minimum": 1, "maximum": 9, "default": 3}
    part = {"type": "object", "description": "A part.", "properties": {"size": size}}

    assert schema.struct_schema(Whole) == {
        "type": "object",
        "description": "A whole.",
        "required": ["partCount"],
        "properties": {
            "partCount": {
                "description": "How many.",
                "type": "integer",
                "minimum": 0,
                "x-kubernetes-validations": [{"rule": "self < 9", "message": "too many"}],
            },
            "part": {**part, "default": {"size": 3}},
            "parts": {
                "description": "All of them.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "maxItems": 4,
                "items": part,
            },
            "since": {"type": "string", "format": "date-time"},
        },
        "x-kubernetes-validations": [{"rule": "self.partCount > 0", "message": "needs a part"}],
    }


@pytest.mark.parametrize("kind", KIND.values(), ids=KIND)
def test_every_field_is_described(kind):
    silent = [
        path
        for path, inner in nodes(schema_of(kind))
        if path and not path.endswith("[]") and not inner.get("description")
    ]

    assert silent == []


@pytest.mark.parametrize("kind", KIND.values(), ids=KIND)
def test_lists_maps_and_texts_are_bounded(kind):
    """Without bounds the API server cannot estimate the cost of rules, and objects could grow forever."""
    bound = {"array": "maxItems", "string": "maxLength"}
    unbounded = [
        path
        for path, inner in nodes(schema_of(kind))
        if inner["type"] in bound
        and bound[inner["type"]] not in inner
        and not inner.keys() & {"enum", "format"}
        if path not in ("apiVersion", "kind")
    ] + [
        path
        for path, inner in nodes(schema_of(kind))
        if "additionalProperties" in inner and "maxProperties" not in inner
    ]

    assert unbounded == []


@pytest.mark.parametrize("kind", KIND.values(), ids=KIND)
def test_defaults_are_those_of_the_structs(kind):
    assert sorted(defaults(kind.resource.type, "")) == sorted(
        (path, inner["default"])
        for path, inner in nodes(schema_of(kind))
        if "default" in inner and inner["type"] != "object"
    )


def defaults(type_: type[msgspec.Struct], path: str) -> Iterator[tuple[str, Any]]:
    """Every non-empty default of a Struct, at any depth."""
    for field in msgspec.structs.fields(type_):
        here = f"{path}.{field.encode_name}" if path else field.encode_name
        required = field.default is msgspec.NODEFAULT
        if not required and field.default and not isinstance(field.default, msgspec.Struct):
            yield here, field.default
        for inner, suffix in structs_in(field.type):
            yield from defaults(inner, here + suffix)


def structs_in(hint: Any, suffix: str = "") -> Iterator[tuple[type[msgspec.Struct], str]]:
    match msgspec.inspect.type_info(hint):
        case msgspec.inspect.StructType(cls=cls) if cls.__name__ != "ObjectMeta":
            yield cls, suffix
        case msgspec.inspect.UnionType(types=types):
            for each in types:
                bare = each.type if isinstance(each, msgspec.inspect.Metadata) else each
                if isinstance(bare, msgspec.inspect.StructType):
                    yield bare.cls, suffix
        case msgspec.inspect.Metadata(type=msgspec.inspect.StructType(cls=cls)):
            yield cls, suffix
        case msgspec.inspect.Metadata(type=inner) | inner:
            items = getattr(inner, "item_type", None)
            if isinstance(items, msgspec.inspect.StructType):
                yield items.cls, "[]"


def test_the_generated_files_in_the_repository_are_up_to_date():
    assert generate_crds.stale_files(ROOT) == []


def test_stale_files_are_listed(tmp_path, capsys):
    assert generate_crds.main(["--root", str(tmp_path)]) == 0
    assert generate_crds.main(["--check", "--root", str(tmp_path)]) == 0
    pools = tmp_path / "config/crd/bases/gpu.deckhouse.io_gpupools.yaml"
    pools.write_text(pools.read_text().replace("maximum: 64", "maximum: 65"))
    (tmp_path / "deployments/mps-dra/reservation-crd.yaml").unlink()
    (tmp_path / "config/crd/bases/old.yaml").write_text("# generated")

    capsys.readouterr()
    assert generate_crds.main(["--check", "--root", str(tmp_path)]) == 1

    assert capsys.readouterr().err.splitlines() == [
        "config/crd/bases/gpu.deckhouse.io_gpupools.yaml is stale",
        "deployments/mps-dra/reservation-crd.yaml is missing",
        "config/crd/bases/old.yaml belongs to a kind that no longer exists",
        "run: make generate",
    ]
    generate_crds.main(["--root", str(tmp_path)])
    assert generate_crds.stale_files(tmp_path) == []


def test_each_kind_has_its_own_file():
    assert sorted(crds.definitions()) == [
        "allocation.mbcas.io_podallocations.yaml",
        "gpu.deckhouse.io_gpudevices.yaml",
        "gpu.deckhouse.io_gpunodeinventories.yaml",
        "gpu.deckhouse.io_gpupools.yaml",
        "mps.nvidia.com_nodereservations.yaml",
        "mps.nvidia.com_reservations.yaml",
    ]
