"""The page in the chart: off by default, no right to write in any mode, and accepted by the API server.

In mode headers the account may impersonate users for the enabled actions and for nothing else, which is tried
on a real API server.
"""

import re
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
import yaml

from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.errors import Forbidden
from croupier_lab import kubeconfig
from croupier_lab.lab import Lab
from tests.install import rbac, rendering
from tests.install.rbac import Permission
from tools.chart import NAMESPACE, HelmFailed

READS = {"get", "list", "watch"}
REVIEW = Permission("authorization.k8s.io", "subjectaccessreviews", "create")
ACTIONS = "ui.actions={cards,pools,reservations}"
HEADERS = ("ui.mode=headers", "ui.tlsSecret=tls", "ui.clientCASecret=proxy-ca")
MODES: dict[str, tuple[str, ...]] = {
    "token": (),
    "token with TLS and a key": ("ui.tlsSecret=tls", "ui.sessionKeySecret=mine"),
    "bearer": ("ui.mode=bearer",),
    "bearer behind an Ingress": (
        "ui.mode=bearer",
        "ui.ingress.enabled=true",
        "ui.ingress.host=gpu.example.com",
        "ui.ingress.className=nginx",
        "ui.ingress.tlsSecret=gpu-tls",
    ),
    "headers": HEADERS,
}
CHOICES = {**MODES, **{f"{name}, with actions": (*chosen, ACTIONS) for name, chosen in MODES.items()}}


def rendered(*values: str) -> list[dict[str, Any]]:
    return rendering.objects("--set=ui.enabled=true", *(f"--set={value}" for value in values))


def page(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in objects if item["metadata"]["name"].startswith("croupier-ui")]


def arguments(objects: list[dict[str, Any]]) -> list[str]:
    (container,) = rendering.pods(objects)["croupier-ui"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


def test_it_is_off_by_default():
    assert page(rendering.objects()) == []


@pytest.mark.parametrize("values", CHOICES.values(), ids=CHOICES)
def test_its_account_has_no_write_verb(values):
    objects = rendered(*values)
    rights = rbac.granted(objects)["croupier-ui"]

    others = {
        right for right in rights if right.verb not in READS and not right.verb.startswith("impersonate")
    }
    assert others == {REVIEW}, "a review stores nothing"
    assert not {right for right in rights if right.resource.startswith(("secrets", "configmaps"))}
    assert {right.namespace for right in rights if right.resource == "leases"} == {NAMESPACE}
    assert not [account for account, _ in rbac.cluster_role_grants(objects) if account == "croupier-ui"]


@pytest.mark.parametrize("values", CHOICES.values(), ids=CHOICES)
def test_it_impersonates_only_in_mode_headers_and_only_for_its_actions(values):
    rights = rbac.granted(rendered(*values))["croupier-ui"]
    found = {(right.verb, right.resource) for right in rights if right.verb.startswith("impersonate")}

    expected = {
        ("impersonate:user-info", "users"),
        ("impersonate:user-info", "groups"),
        ("impersonate-on:user-info:patch", "gpudevices"),
        ("impersonate-on:user-info:patch", "gpupools"),
        ("impersonate-on:user-info:delete", "reservations"),
    }
    assert found == (expected if {"ui.mode=headers", ACTIONS} <= set(values) else set())


@pytest.mark.parametrize("values", CHOICES.values(), ids=CHOICES)
def test_every_file_of_its_arguments_is_mounted(values):
    objects = rendered(*values)
    (container,) = rendering.pods(objects)["croupier-ui"]["spec"]["containers"]
    folders = {mount["mountPath"] for mount in container.get("volumeMounts", ())}
    named = re.findall(r"=(/[a-z-]+)/", " ".join(container["args"]))

    assert set(named) == folders
    assert ("--behind-proxy" in container["args"]) == ("ui.tlsSecret=tls" not in values)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {f"--listen=:{ports['ui']}", f"--health=:{ports['health']}"} <= set(container["args"])


def test_actions_and_mode_are_passed_on():
    plain, headers = arguments(rendered()), arguments(rendered(*HEADERS, ACTIONS))

    assert {"--mode=token", "--session-key=/session/key"} <= set(plain)
    assert not [word for word in plain if word.startswith("--actions")]
    assert {"--mode=headers", "--actions=cards,pools,reservations"} <= set(headers)
    assert "--client-ca=/client-ca/ca.crt" in headers


def test_the_session_key_is_made_only_where_it_is_used():
    def keys(*values: str) -> list[str]:
        return [item["data"]["key"] for item in rendering.of_kind(rendered(*values), "Secret")]

    assert len(keys()) == 1
    assert keys("ui.sessionKeySecret=mine") == keys("ui.mode=bearer") == keys(*HEADERS) == []


def test_one_replica_needs_no_disruption_budget():
    def guarded(*values: str) -> list[str]:
        return [
            item["metadata"]["name"]
            for item in rendering.of_kind(
                rendered("settings.highAvailability=false", *values), "PodDisruptionBudget"
            )
        ]

    assert (guarded(), guarded("ui.replicas=1")) == (["croupier-ui"], [])


def test_its_port_is_open_and_egress_is_the_api_server_only():
    policies = [
        item for item in rendering.of_kind(rendered(), "NetworkPolicy") if _selects_page(item["spec"])
    ]

    assert [item["metadata"]["name"] for item in policies] == ["croupier", "croupier-ui"]
    assert policies[1]["spec"]["policyTypes"] == ["Ingress"]
    assert policies[1]["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": "ui"}]}]


def _selects_page(spec: dict[str, Any]) -> bool:
    labels = rendering.pods(rendered())["croupier-ui"]["metadata"]["labels"]
    return bool(spec["podSelector"]["matchLabels"].items() <= labels.items())


REFUSED = {
    "an unknown mode": (("ui.mode=open",), "mode"),
    "local is not for clusters": (("ui.mode=local",), "mode"),
    "an unknown action": (("ui.actions={pods}",), "actions"),
    "headers without a certificate": (("ui.mode=headers",), "client certificate"),
    "a CA that nothing uses": (("ui.clientCASecret=ca",), "ui.mode=headers only"),
    "an Ingress without a host": (("ui.ingress.enabled=true",), "ui.ingress.host"),
}


@pytest.mark.parametrize(("values", "word"), REFUSED.values(), ids=REFUSED)
def test_invalid_values_are_refused(values, word):
    with pytest.raises(HelmFailed, match=word):
        rendered(*values)


@pytest_asyncio.fixture
async def installed(private_lab: Any) -> Lab:
    """A private lab with the CRDs and the account of mode headers; alice may patch cards and pods."""
    lab: Lab = await private_lab()
    lab.kubectl("create", "namespace", NAMESPACE)
    objects = rendered(*HEADERS, ACTIONS)
    definitions = rendering.of_kind(objects, "CustomResourceDefinition")
    lab.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(definitions))
    lab.kubectl("wait", "--for=condition=Established", "crd", "--all")
    account = [item for item in page(objects) if "Role" in item["kind"] or item["kind"] == "ServiceAccount"]
    lab.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(account))
    resources = "gpudevices.gpu.deckhouse.io,pods,secrets"
    lab.kubectl("create", "clusterrole", "alice", "--verb=get,list,patch,delete", f"--resource={resources}")
    lab.kubectl("create", "clusterrolebinding", "alice", "--clusterrole=alice", "--user=alice")
    return lab


async def test_the_api_server_accepts_it_and_impersonation_is_constrained(installed, tmp_path):
    for values in CHOICES.values():
        applied = installed.kubectl(
            "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(page(rendered(*values)))
        )
        assert applied.stderr == ""

    file = tmp_path / "page.kubeconfig"
    token = installed.kubectl("create", "token", "croupier-ui", "-n", NAMESPACE).stdout.strip()
    kubeconfig.with_token(file, installed.kubeconfig, user="croupier-ui", token=token)
    installed.kubectl(
        "apply",
        "-f",
        "-",
        stdin="{apiVersion: gpu.deckhouse.io/v1alpha1, kind: GPUDevice, metadata: {name: one}}",
    )
    change = {"metadata": {"annotations": {"tried": "yes"}}}

    async def patch(user: str, kind: Any, name: str, *groups: str) -> None:
        headers: dict[str, tuple[str, ...]] = {"Impersonate-User": (user,), "Impersonate-Group": groups}
        identity = {header: values for header, values in headers.items() if any(values)}
        async with api_client.connect(replace(config.load(file), impersonate=identity)) as api:
            namespace = "default" if kind.namespaced else ""
            await api.patch(kind, name, change, namespace=namespace, dry_run=True)

    await patch("alice", kinds.GPU_DEVICES.raw, "one", "team-a")
    refused = (
        ("", kinds.GPU_DEVICES.raw, "one"),  # the page itself
        ("bob", kinds.GPU_DEVICES.raw, "one"),  # a user without the right
        ("alice", kinds.PODS.raw, "any"),  # another resource, although alice may
        ("alice", kinds.GPU_DEVICES.raw, "one", "system:masters"),
        ("system:serviceaccount:kube-system:default", kinds.GPU_DEVICES.raw, "one"),
        ("system:node:gpu-1", kinds.GPU_DEVICES.raw, "one"),
    )
    for attempt in refused:
        with pytest.raises(Forbidden):
            await patch(*attempt)
