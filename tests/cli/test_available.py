"""`croupier available`: allocatable, allocated and available amounts as tables and JSON."""

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from croupier.api import kinds
from croupier.api.mps import ledger_codec
from croupier.cli import amounts
from croupier.core import quantity
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.model.withheld import Withheld
from croupier.kube.client.api_client import Client
from croupier_lab import nodes
from tests import polling
from tests.cli.env import CommandResult, croupier

SCENARIOS = {
    scenario["name"]: scenario
    for path in sorted((Path(__file__).parents[2] / "scenarios/availability").glob("*.yaml"))
    for scenario in [yaml.safe_load(path.read_text())]
}


async def node(
    api: Client, name: str, devices: dict[str, str], *, reserved_cpu: str = "0", **spec: Any
) -> None:
    """Create a simulated node with 64 CPUs, 256Gi and these devices."""
    body = nodes.manifest(nodes.SimulatedNode(name, "zone-a"), datetime.now(UTC))
    body["spec"] = spec
    status = body["status"]
    status["capacity"] = {**status["capacity"], **devices}
    cpu = quantity.parse("64") - quantity.parse(reserved_cpu)
    status["allocatable"] = {**status["capacity"], "cpu": str(cpu)}
    await api.create(kinds.NODES, body)


async def pod(api: Client, namespace: str, name: str, asks: dict[str, str], *, on: str = "") -> None:
    """Create a pod, bound to the node `on` or left to the scheduler."""
    resources: dict[str, Any] = {
        "requests": asks,
        "limits": {name: amount for name, amount in asks.items() if "/" in name},
    }
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "any", "resources": resources}]}
    spec |= {"nodeName": on} if on else {}
    await api.create(kinds.PODS, {"metadata": {"name": name}, "spec": spec}, namespace=namespace)


async def ask(cluster: Any, *args: str) -> CommandResult:
    return await asyncio.to_thread(croupier, "available", *args, kubeconfig=cluster.kubeconfig)


def line_of(first: str, table: str) -> str:
    """The line that begins with `first`, with collapsed spaces: column widths depend on other nodes."""
    (line,) = [line for line in table.splitlines() if re.match(rf"{re.escape(first)}(   |$)", line)]
    return re.sub(" +", " ", line)


def of_devices(data: dict[str, Any]) -> dict[str, str]:
    """`4 / 3 / 1` for every device in the JSON data."""
    return {
        name: " / ".join(amounts[key] for key in ("allocatable", "allocated", "available"))
        for name, amounts in data.items()
        if "/" in name
    }


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_scenarios(scenario, api, namespace, clean_cluster, cluster):
    for name, devices in scenario["nodes"].items():
        await node(api, name, devices)
    async with asyncio.TaskGroup() as creating:
        for group, pods in enumerate(scenario.get("pods", ())):
            for number in range(pods["count"]):
                name = f"taken-{group}-{number}"
                creating.create_task(pod(api, namespace, name, pods["asks"], on=pods["node"]))

    data = (await ask(cluster, "-o", "json")).data
    shown = {item["node"]: of_devices(item["resources"]) for item in data["nodes"]}
    assert {name: shown[name] for name in scenario["nodes"]} == scenario["shows"]
    assert of_devices(data["totals"]) == scenario["totals"]
    table = (await ask(cluster)).out
    for name, devices in scenario["shows"].items():
        assert all(numbers in line_of(name, table) for numbers in devices.values()), table

    if "next" in scenario:
        await play_next(scenario["next"], api, namespace, cluster)


async def play_next(coming: dict[str, Any], api: Client, namespace: str, cluster: Any) -> None:
    """Create one more pod, which the cluster's scheduler places."""
    await pod(api, namespace, "next", coming["asks"])

    async def placed() -> str:
        return (await api.get(kinds.PODS, "next", namespace=namespace)).spec.node_name

    where = await polling.until_async(placed, "the scheduler to place the next pod")
    assert where == coming["goes to"]
    (item,) = (await ask(cluster, where, "-o", "json")).data["nodes"]
    assert of_devices(item["resources"]) == coming["then shows"]


async def test_all_output_options(api, namespace, clean_cluster, cluster):
    """Uses its own node names, because pods of the scenarios may still be terminating on theirs."""
    await node(api, "rack-2", {"nvidia.com/gpu": "8"}, reserved_cpu="100m")
    await node(api, "rack-10", {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "0"})
    await node(api, "cpu-1", {"hugepages-2Mi": "512Mi"}, unschedulable=True)
    half = {"cpu": "1500m", "memory": "22.5Gi", "nvidia.com/gpu": "1", "gpu.mps.io/ledger": "1"}
    for number in range(4):
        await pod(api, namespace, f"trainer-{number}", half, on="rack-10")

    await _tables(cluster)
    await _wide_and_json(cluster)
    await _typing_errors(cluster)


async def _tables(cluster: Any) -> None:
    every = (await ask(cluster)).out
    assert line_of("NODE", every) == "NODE cpu memory nvidia.com/gpu"
    assert line_of("cpu-1 (cordoned)", every) == "cpu-1 (cordoned) 64 / 0 / 64 256Gi / 0 / 256Gi -"
    assert line_of("rack-2", every) == "rack-2 63.9 / 0 / 63.9 256Gi / 0 / 256Gi 8 / 0 / 8"
    assert line_of("rack-10", every) == "rack-10 64 / 6 / 58 256Gi / 90Gi / 166Gi 4 / 4 / 0"
    assert every.index("rack-2") < every.index("rack-10")
    assert line_of("nvidia.com/gpu", every) == "nvidia.com/gpu 12 4 8 ███████░░░░░░░░░░░░░ 33 %"

    single = (await ask(cluster, "rack-10")).out
    assert single.splitlines() == [
        "Node rack-10, with 4 of 110 pods:",
        "RESOURCE         ALLOCATABLE   ALLOCATED   AVAILABLE   TAKEN",
        "cpu                       64           6          58   ██░░░░░░░░░░░░░░░░░░   9 %",
        "memory                 256Gi        90Gi       166Gi   ████████░░░░░░░░░░░░  35 %",
        "nvidia.com/gpu             4           4           0   ████████████████████ 100 %",
    ]

    ranked = (await ask(cluster, "-r", "gpu")).out
    assert ranked.startswith("nvidia.com/gpu:\n")
    assert ranked.index("rack-2") < ranked.index("rack-10")
    assert "cpu-1" not in ranked

    several = (await ask(cluster, "--resource", "nvidia.com/gpu", "-r", "cpu")).out
    assert line_of("NODE", several) == "NODE nvidia.com/gpu cpu"


async def _wide_and_json(cluster: Any) -> None:
    wide = (await ask(cluster, "rack-2", "-o", "wide")).out
    assert line_of("NODE", wide) == "NODE RESOURCE CAPACITY RESERVED ALLOCATABLE ALLOCATED AVAILABLE TAKEN"
    assert "rack-2 cpu 64 0.1 63.9 0 63.9 ░" in re.sub(" +", " ", wide)
    assert [line.split()[1] for line in wide.splitlines()[1:]] == [
        "cpu",
        "memory",
        "nvidia.com/gpu",
        "ephemeral-storage",
        "pods",
    ]

    data = (await ask(cluster, "-o", "json")).data
    by_node = {item["node"]: item["resources"] for item in data["nodes"]}
    assert by_node["rack-10"]["memory"] == {
        "capacity": "256Gi",
        "reserved": "0",
        "allocatable": "256Gi",
        "allocated": "90Gi",
        "available": "166Gi",
    }
    assert "gpu.mps.io/ledger" not in by_node["rack-10"]  # only pods have this resource
    assert by_node["cpu-1"]["hugepages-2Mi"]["available"] == "512Mi"
    assert data["totals"]["nvidia.com/gpu"]["available"] == "8"
    cordoned = {item["node"]: item["cordoned"] for item in data["nodes"]}
    assert (cordoned["cpu-1"], cordoned["rack-2"]) == (True, False)


async def _typing_errors(cluster: Any) -> None:
    for typed, code, sentence in (
        (("rack-3",), 1, "there is no node rack-3; did you mean rack-2 or rack-10?"),
        (("-r", "gpus"), 1, "no node has gpus and no pod requests it; did you mean nvidia.com/gpu?"),
        (("rack-2", "-r", "zebra"), 1, "node rack-2 does not have zebra and no pod there requests it."),
        (("-o", "text"), 2, "--output text: must be table, wide, json, yaml or name."),
    ):
        answer = await ask(cluster, *typed)
        assert (answer.code, answer.out) == (code, "")
        assert answer.err == f"croupier: {sentence}\n"


async def test_a_card_in_the_ledger_is_free_once(api, namespace, clean_cluster, cluster):
    """Eight cards: a pod has half of one, a Reservation without a pod holds one, and one is withdrawn."""
    await node(api, "shelf-1", {"nvidia.com/gpu": "8"})
    await pod(api, namespace, "half", {"gpu.mps.io/percent": "50", "gpu.mps.io/ledger": "1"}, on="shelf-1")
    cards = tuple(
        replace(
            LedgerCard(f"shelf-1-0000-1{number}-00-0", number),
            holders={0: {f"{namespace}/half": 50}, 1: {f"{namespace}/later": 100}}.get(number, {}),
            healthy=number != 2,
        )
        for number in range(8)
    )
    spec = msgspec.to_builtins(ledger_codec.encode(Ledger("shelf-1", cards)))
    await api.create(kinds.NODE_RESERVATIONS, {"metadata": {"name": "shelf-1"}, "spec": spec})

    (item,) = (await ask(cluster, "shelf-1", "-o", "json")).data["nodes"]
    assert of_devices(item["resources"]) == {
        "nvidia.com/gpu": "8 / 0 / 5",
        "gpu.mps.io/percent": "0 / 50 / 550",
    }
    assert item["cards"] == {"free": 5, "total": 8, "unhealthy": 1, "withheld": {"Unhealthy": 1}}
    table = (await ask(cluster)).out
    assert "8 / 0 / 5" in line_of("shelf-1", table)
    assert "available of gpu.mps.io/percent, nvidia.com/gpu:" in table
    assert "shelf-1   5 of 8 cards; 1 accepts no new pods: 1 not healthy" in table
    assert "-" not in line_of("gpu.mps.io/percent", table).split(" ")[1:4]
    await api.delete(kinds.NODE_RESERVATIONS, "shelf-1")


async def test_drained_and_retired_cards_are_not_available_and_are_named(
    api, namespace, crds, clean_cluster, cluster
):
    """Four cards without a pool and two of a pool; of each, one is drained, and one more is retired."""
    offered = {"nvidia.com/gpu": "4", "gpu.deckhouse.io/team-a": "2"}
    await node(api, "shelf-1", offered)
    fan, worn = Withheld("Drained", "swap the fan"), Withheld("Retired", "worn out")
    reasons = (None, None, fan, worn, None, fan)
    cards = tuple(
        LedgerCard(
            f"shelf-1-0000-1{number}-00-0",
            number,
            "Exclusive" if number > 3 else "Percent",
            pool="team-a" if number > 3 else "",
            healthy=why is None,
            withheld=why,
        )
        for number, why in enumerate(reasons)
    )
    spec = msgspec.to_builtins(ledger_codec.encode(Ledger("shelf-1", cards)))
    await api.create(kinds.NODE_RESERVATIONS, {"metadata": {"name": "shelf-1"}, "spec": spec})

    (item,) = (await ask(cluster, "shelf-1", "-o", "json")).data["nodes"]
    available = {name: amounts["available"] for name, amounts in item["resources"].items() if name in offered}
    assert available == {"nvidia.com/gpu": "2", "gpu.deckhouse.io/team-a": "1"}
    assert item["cards"]["withheld"] == {"Drained": 2, "Retired": 1}
    assert "shelf-1   3 of 5 cards; 3 accept no new pods: 2 drained, 1 retired" in (await ask(cluster)).out
    await api.delete(kinds.NODE_RESERVATIONS, "shelf-1")


WRITTEN = {
    "cores": ("cpu", "64", "64"),
    "a fraction of a core": ("cpu", "63900m", "63.9"),
    "a thousandth": ("cpu", "1m", "0.001"),
    "devices": ("nvidia.com/gpu", "4", "4"),
    "nothing": ("memory", "0", "0"),
    "bytes": ("memory", "1023", "1023"),
    "kibibytes that a kubelet reports": ("memory", "263921132Ki", "251.6Gi"),
    "rounded down": ("memory", "1073741823", "1023.9Mi"),
    "a negative amount": ("memory", "-1536Mi", "-1.5Gi"),
    "huge pages": ("hugepages-1Gi", "4Gi", "4Gi"),
    "a negative number of devices": ("nvidia.com/gpu", "-3", "-3"),
}


@pytest.mark.parametrize(("resource", "amount", "text"), WRITTEN.values(), ids=WRITTEN)
def test_amounts_are_formatted(resource, amount, text):
    assert amounts.text(resource, quantity.parse(amount)) == text


def test_the_order_of_resources():
    names = ["pods", "nvidia.com/mig-10g.80gb", "hugepages-2Mi", "nvidia.com/mig-2g.20gb", "memory", "cpu"]

    assert sorted(names, key=amounts.rank) == [
        "cpu",
        "memory",
        "nvidia.com/mig-2g.20gb",
        "nvidia.com/mig-10g.80gb",
        "hugepages-2Mi",
        "pods",
    ]


def test_help_has_examples():
    shown = croupier("available", "--help")

    assert shown.code == 0
    assert "croupier available -r mig-2g.20gb" in shown.out
