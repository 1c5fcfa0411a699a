"""`scripts/configure-mig-profiles.sh` against a real API server and real agents."""

import asyncio
import contextlib
import hashlib
import os
import secrets
import shlex
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.node.agent import gpu_labels
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.controllers.ledger_env import running
from tests.node.agent_env import AgentEnv, agent_env
from tests.polling import until

SCRIPT = Path(__file__).parents[3] / "scripts" / "configure-mig-profiles.sh"
SMALL, TWO, THREE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.30gb"
LONG = 120.0


@dataclass(frozen=True)
class ScriptResult:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class ConfigureScript:
    """Runs the script with kubectl for the test cluster."""

    kubectl: Path
    row: str

    @property
    def selector(self) -> str:
        return f"test.croupier/row={self.row}"

    async def run(self, *words: str) -> ScriptResult:
        environment = {**os.environ, "KUBECTL": str(self.kubectl)}
        process = await asyncio.create_subprocess_exec(
            "sh",
            str(SCRIPT),
            *words,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return ScriptResult(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture(scope="module")
def ours(cluster: Cluster, crds: Any) -> Iterator[str]:
    name = shared_cluster.create_namespace(cluster, "layouts")
    yield name
    shared_cluster.delete_namespace(cluster, name)


@pytest.fixture
def script(cluster: Cluster, tmp_path: Path) -> ConfigureScript:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {shlex.join(cluster.command())} "$@"\n')
    kubectl.chmod(0o755)
    return ConfigureScript(kubectl, secrets.token_hex(3))


@contextlib.asynccontextmanager
async def node(cluster: Cluster, script: ConfigureScript, ours: str, folder: Path) -> AsyncIterator[AgentEnv]:
    name = f"mig-{secrets.token_hex(3)}"
    folder = folder / name
    folder.mkdir()
    async with agent_env(cluster.kubeconfig, name, ours, folder) as made:
        labels = {"test.croupier/row": script.row}
        await made.api.create(kinds.NODES, {"metadata": {"name": name, "labels": labels}})
        await until(lambda: made.nodes.named(name), "the node to be seen", LONG)
        try:
            yield made
        finally:
            await made.leaves()


@contextlib.asynccontextmanager
async def at_work(env: AgentEnv, cards: str = "SIM-70GB:4") -> AsyncIterator[None]:
    agent = env.agent(cards=cards)
    stores = (env.nodes, env.pods, env.devices, env.maps)
    ends = [store.subscribe(lambda _: agent.wake()) for store in stores]
    async with running(agent.run(asyncio.Event())):
        yield
    for end in ends:
        end()


@pytest_asyncio.fixture
async def two(cluster, script, ours, tmp_path):
    async with node(cluster, script, ours, tmp_path) as one, node(cluster, script, ours, tmp_path) as other:
        yield one, other


async def offers(env: AgentEnv, **wanted: int) -> None:
    names = {"small": SMALL, "two": TWO, "three": THREE}
    expected = {names[key]: str(count) for key, count in wanted.items()}

    def right() -> bool:
        shown = env.allocatable()
        return all(shown.get(name, "0") == expected.get(name, "0") for name in names.values())

    await until(right, f"{env.node} to offer {expected}", LONG)


async def test_nodes_are_repartitioned_by_layout_name_repeatedly(script, two):
    one, other = two
    async with at_work(one), at_work(other):
        small = await script.run("small", "--selector", script.selector)
        assert small == ScriptResult(0, small.out, "")
        assert f"{one.node}: requested layout small\n" in small.out
        assert f"{other.node}: layout applied, and the kubelet offers every device\n" in small.out
        for env in two:
            found = await env.api.get(kinds.NODES, env.node)
            assert found.status.allocatable[SMALL] == "28", "complete when the script returns"

        versions = [env.shown().metadata.annotations for env in two]
        again = await script.run("small", "--selector", script.selector)
        assert again.code == 0
        assert f"{one.node}: layout small is already requested\n" in again.out
        assert [env.shown().metadata.annotations for env in two] == versions

        medium = await script.run("medium", one.node)
        assert medium.code == 0, medium.err
        await offers(one, two=8, three=4)
        await offers(other, small=28)

        whole = await script.run("whole", one.node, "--devices", "0")
        assert whole.code == 0, whole.err
        await offers(one, two=6, three=3)


async def test_a_dry_run_writes_nothing(script, two):
    one, _ = two
    ended = await script.run("medium", "--selector", script.selector, "--dry-run")

    assert ended.code == 0
    assert f"{one.node}: would request layout medium\n" in ended.out
    assert "      2g.20gb: 2\n      3g.30gb: 1\n" in ended.out
    node = await one.api.get(kinds.NODES, one.node)
    assert "run.ai/mig.config" not in node.metadata.annotations


async def test_an_impossible_layout_fails_with_the_agents_message(script, two):
    one, _ = two
    async with at_work(one, "H100:2"):
        ended = await script.run("medium", one.node)

    assert ended.code == 1
    assert f"{one.node}: failed: annotation run.ai/mig.config: mig-configs.selected[0]: card 0" in ended.err
    assert 'the card has no MIG profile "3g.30gb"; did you mean' in ended.err


async def test_a_timeout_is_reported_with_what_the_node_waits_for(script, two):
    slow, silent = two
    slow.suffers(cards={"all": {"slow": 3600}})
    async with at_work(slow):
        asked = await script.run("small", "--selector", script.selector, "--no-wait")
        assert asked.code == 0
        await until(lambda: gpu_labels.MIG_HASH in slow.shown().metadata.labels, "the agent to see it", LONG)

        ended = await script.run("small", "--selector", script.selector, "--timeout", "1")

    assert ended.code == 1
    assert f"{slow.node}: not applied within 1 s: card" in ended.err
    assert f"{silent.node}: no reaction within 1 s; is `croupier node` running there?" in ended.err


async def says(env: AgentEnv, text: str, **allocatable: str) -> None:
    """The agent has applied the layout; the kubelet offers these devices."""
    made = {
        gpu_labels.MIG_HASH: hashlib.sha256(text.encode()).hexdigest()[:16],
        gpu_labels.MIG_STATE: "success",
    }
    labels = {**made, f"{SMALL}.count": "28", "nvidia.com/gpu.count": "4"}
    await env.api.patch(kinds.NODES, env.node, {"metadata": {"labels": labels}})
    amounts = {SMALL: allocatable["small"], TWO: allocatable["two"], "cpu": "8"}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    await env.api.patch(kinds.NODES, env.node, status, subresource="status")


async def test_it_waits_until_the_kubelet_offers_every_device(script, two):
    one, _ = two
    await script.run("small", one.node, "--no-wait")
    text = (await one.api.get(kinds.NODES, one.node)).metadata.annotations["run.ai/mig.config"]
    await says(one, text, small="21", two="8")

    partly = await script.run("small", one.node, "--timeout", "1")
    assert partly.code == 1
    (line,) = partly.err.splitlines()
    assert line.startswith(f"{one.node}: applied, but after 1 s the kubelet offers only ")
    assert {f"{SMALL} 21 of 28", f"{TWO} 8 of 0"} == set(line.partition(" only ")[2].split(", "))

    running_script = asyncio.create_task(script.run("small", one.node))
    await says(one, text, small="28", two="0")
    complete = await running_script
    assert (complete.code, complete.err) == (0, "")
    assert f"{one.node}: layout applied, and the kubelet offers every device\n" in complete.out


WRONG = {
    "nothing": ([], "Usage:"),
    "no such layout": (["large", "node-1"], "no layout is called large; there are: small medium whole"),
    "no nodes": (["small"], "which nodes?"),
    "both ways": (["small", "node-1", "--all"], "name nodes or select them, not both"),
    "an unknown option": (["small", "--force"], "--force is not known"),
    "an option without its value": (["small", "--selector"], "--selector needs a value"),
    "no number": (["small", "node-1", "--timeout", "2m"], "write whole seconds"),
    "no such node": (["small", "no-such-node"], 'nodes "no-such-node" not found'),
    "a label that no node has": (["small", "-l", "no.such/label=x"], "no node has the label no.such/label=x"),
}


@pytest.mark.parametrize(("words", "sentence"), WRONG.values(), ids=WRONG)
async def test_invalid_arguments_are_refused(script, words, sentence):
    ended = await script.run(*words)

    assert ended.code == 2
    assert sentence in ended.err


async def test_the_layouts_are_shown(script):
    assert (await script.run("--list")).out.splitlines()[0].split() == ["small", "1g.10gb:7"]
