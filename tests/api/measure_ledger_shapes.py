"""Measures the cost of a ledger write for several wire formats of its holders.

    python -m tests.api.measure_ledger_shapes --kubeconfig PATH

The results are in docs/decisions/0002-shape-of-the-ledger.md. It creates its own CRDs (group
shapes.example.com) and deletes them afterwards.
"""

import argparse
import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from croupier.api import crds
from croupier.api.mps import ledger_codec, ledger_summary
from croupier.api.mps.ledger import NodeReservationSpec
from croupier.kube.client import api_client, codec, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import AlreadyExists, NotFound
from croupier.kube.client.resource import Raw, Resource
from tests.api.scenario_tables import KIND

GROUP = "shapes.example.com"
DEFINITIONS: Resource[Raw] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, dict
)
CARDS = 8
COUNTS = (1, 7, 32)
WRITES = 100

TEXT = {"type": "string", "maxLength": 400}
NUMBER = {"type": "integer"}
ATOMIC = {"x-kubernetes-list-type": "atomic"}


def fields(**properties: Any) -> Raw:
    return {"type": "object", "properties": properties}


def entries(item: Raw, most: int, **words: Any) -> Raw:
    return {"type": "array", "maxItems": most, "items": item, **(words or ATOMIC)}


def table(value: Raw, most: int) -> Raw:
    return {
        "type": "object",
        "maxProperties": most,
        "additionalProperties": value,
        "x-kubernetes-map-type": "atomic",
    }


def keyed(item: Raw, most: int, key: str) -> Raw:
    by_key = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return entries({**item, "required": [key]}, most, **by_key)


def pods(card: int, count: int) -> list[tuple[str, str]]:
    return [(f"default/training-job-{card}-{i}", str(uuid.UUID(int=card * 1000 + i))) for i in range(count)]


def as_objects(card: int, count: int) -> Raw:
    share = max(1, 100 // count)
    bound = {"percent": share, "state": "Bound"}
    return {"holders": [{"podUID": uid, "podKey": key, **bound} for key, uid in pods(card, count)]}


def as_map(card: int, count: int) -> Raw:
    return {"holders": {f"{key}/{uid}": max(1, 100 // count) for key, uid in pods(card, count)}}


def slot(index: int) -> Raw:
    return {"id": f"1g.10gb-{index}", "profile": "1g.10gb", "start": index, "size": 1}


def in_slots(card: int, count: int) -> Raw:
    return {"slots": [{**slot(i), "holder": "/".join(pod)} for i, pod in enumerate(pods(card, count))]}


def beside_slots(card: int, count: int) -> Raw:
    held = {"/".join(pod): slot(i)["id"] for i, pod in enumerate(pods(card, count))}
    return {"slots": [slot(i) for i in range(count)], "holders": held}


def packed_slots(card: int, count: int) -> Raw:
    held = {"/".join(pod): slot(i)["id"] for i, pod in enumerate(pods(card, count))}
    return {"slots": {slot(i)["id"]: f"1g.10gb@{i}+1" for i in range(count)}, "holders": held}


SLOT = {"id": TEXT, "profile": TEXT, "start": NUMBER, "size": NUMBER}
OBJECT = fields(podUID=TEXT, podKey=TEXT, percent=NUMBER, state=TEXT)


@dataclass(frozen=True)
class Shape:
    """`holders` are the fields of a card that hold holders; none of them means the real ledger."""

    mode: str
    made: Callable[[int, int], Raw]
    holders: Raw | None = None
    keyed: bool = False
    summary: bool = False


SHAPES = {
    "percent: keyed list of objects": Shape(
        "Percent", as_objects, {"holders": keyed(OBJECT, 64, "podUID")}, True
    ),
    "percent: atomic list of objects": Shape("Percent", as_objects, {"holders": entries(OBJECT, 64)}),
    "percent: atomic map": Shape("Percent", as_map, {"holders": table(NUMBER, 64)}),
    "percent: NodeReservation with all its rules": Shape("Percent", as_map),
    "percent: NodeReservation with its summary": Shape("Percent", as_map, summary=True),
    "MIG: slots and a map of holders": Shape(
        "MIG", beside_slots, {"slots": entries(fields(**SLOT), 8), "holders": table(TEXT, 64)}
    ),
    "MIG: packed slots and a map of holders": Shape(
        "MIG", packed_slots, {"slots": table(TEXT, 8), "holders": table(TEXT, 64)}
    ),
    "MIG: holder in its slot": Shape("MIG", in_slots, {"slots": entries(fields(**SLOT, holder=TEXT), 8)}),
    "MIG: NodeReservation with all its rules": Shape("MIG", in_slots),
    "MIG: NodeReservation with its summary": Shape("MIG", in_slots, summary=True),
}


def definition(number: int, shape: Shape) -> Raw:
    name = f"shape{number}"
    made = crds.definition(KIND["NodeReservation"])
    names = {"plural": f"{name}s", "singular": name, "kind": name.capitalize(), "listKind": f"{name}List"}
    made["metadata"] = {"name": f"{name}s.{GROUP}"}
    made["spec"] |= {"group": GROUP, "names": names}
    if shape.holders is not None:
        plain = {"id": TEXT, "index": NUMBER, "mode": TEXT, "epoch": NUMBER, "capacityPercent": NUMBER}
        card = fields(**plain, **shape.holders)
        cards = keyed(card, 32, "id") if shape.keyed else entries(card, 32)
        made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = fields(spec=fields(cards=cards))
    return made


def ledger(shape: Shape, count: int) -> Raw:
    gives = {"capacityPercent": 100} if shape.mode == "Percent" else {}
    cards = [
        {
            "id": f"node-1-0000-{i:02d}-00-0",
            "index": i,
            "mode": shape.mode,
            "epoch": 1,
            **gives,
            **shape.made(i, count),
        }
        for i in range(CARDS)
    ]
    spec: Raw = {"cards": cards}
    if shape.summary:
        given = ledger_codec.decode("node-1", codec.convert(NodeReservationSpec, spec))
        spec["summary"] = msgspec.to_builtins(ledger_summary.summary(given))
    return {"metadata": {"name": f"with-{count}"}, "spec": spec}


async def known(api: Client, number: int, shape: Shape) -> Resource[Raw]:
    made = definition(number, shape)
    try:
        await api.create(DEFINITIONS, made)
    except AlreadyExists:
        sys.stderr.write(f"{made['metadata']['name']} is left from an earlier run; taken as it is\n")
    names = made["spec"]["names"]
    return Resource(GROUP, "v1", names["plural"], names["kind"], False, dict)


async def served(api: Client, resource: Resource[Raw]) -> None:
    while True:
        try:
            await api.list(resource)
        except NotFound:
            await asyncio.sleep(0.1)
        else:
            return


async def measure(api: Client) -> dict[tuple[str, int], float]:
    """Milliseconds of a PUT. Shapes take turns, and the best tenth counts: neighbours slow the rest down."""
    objects: dict[tuple[str, int], tuple[Resource[Raw], Raw]] = {}
    for number, (name, shape) in enumerate(SHAPES.items()):
        resource = await known(api, number, shape)
        await served(api, resource)
        for count in COUNTS if shape.mode == "Percent" else COUNTS[:2]:
            objects[name, count] = resource, await api.create(resource, ledger(shape, count))
    times: dict[tuple[str, int], list[float]] = {key: [] for key in objects}
    for _ in range(WRITES):
        for key, (resource, body) in objects.items():
            body["spec"]["cards"][0]["epoch"] += 1
            started = time.perf_counter()
            objects[key] = resource, await api.update(resource, body)
            times[key].append(1000 * (time.perf_counter() - started))
    for number, shape in enumerate(SHAPES.values()):
        await api.delete(DEFINITIONS, definition(number, shape)["metadata"]["name"])
    return {key: statistics.quantiles(each, n=10)[0] for key, each in times.items()}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    options = parser.parse_args()
    async with api_client.connect(config.load(options.kubeconfig)) as api:
        fast = await measure(api)
    sys.stdout.write(
        f"| {CARDS} cards, holders on each | " + " | ".join(map(str, COUNTS)) + " |\n|---|---|---|---|\n"
    )
    for name in SHAPES:
        row = [f"{fast[name, count]:.1f}" if (name, count) in fast else "" for count in COUNTS]
        sys.stdout.write(f"| {name} | {' | '.join(row)} |\n")


if __name__ == "__main__":
    asyncio.run(main())
