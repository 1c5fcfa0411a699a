"""`croupier scheduler-config --for ...`: the output works with kubeadm, k3s and managed control planes."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from croupier_lab import kubeconfig
from croupier_lab.controlplane import SCHEDULER
from croupier_lab.lab import Lab
from tests import polling
from tests.cli.scheduler_process import TIMEOUT, running_scheduler
from tests.cli.test_scheduler_config import app

TLS = ("--url", "https://10.96.0.40:9440", "--ca", "/pki/ca.crt", "--cert", "/etc/x/c", "--key", "/etc/x/k")
STATIC_POD = """
apiVersion: v1
kind: Pod
metadata: {name: kube-scheduler, namespace: kube-system}
spec:
  hostNetwork: true
  containers:
  - name: kube-scheduler
    image: kube-scheduler:v1.36.4
    command:
    - kube-scheduler
    - --authentication-kubeconfig=/etc/kubernetes/scheduler.conf
    - --authorization-kubeconfig=/etc/kubernetes/scheduler.conf
    - --bind-address=127.0.0.1
    - --kubeconfig=/etc/kubernetes/scheduler.conf
    - --leader-elect=true
    volumeMounts:
    - {name: kubeconfig, mountPath: /etc/kubernetes/scheduler.conf, readOnly: true}
  volumes:
  - name: kubeconfig
    hostPath: {path: /etc/kubernetes/scheduler.conf, type: FileOrCreate}
"""
"""The relevant part of kubeadm's static pod."""
MANAGED = ("--for", "managed", "--image", "kube-scheduler:v1.36.4")


def output_of(*args: str) -> str:
    ended = CliRunner().invoke(app, args)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def documents(*args: str) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(output_of(*args))}


def static_pod(folder: Path) -> Path:
    path = folder / "static.yaml"
    path.write_text(STATIC_POD)
    return path


def changed_static_pod(folder: Path, *args: str) -> dict[str, Any]:
    file = folder / "croupier/scheduler.yaml"
    output_of("--for", "kubeadm", "--write", str(file), "--manifest", str(static_pod(folder)), *args)
    pod: dict[str, Any] = yaml.safe_load((file.parent / "kube-scheduler.yaml").read_text())
    return pod


def test_the_output_is_yaml_with_the_steps_as_comments():
    for place, file in {
        "kubeadm": "/etc/kubernetes/croupier/scheduler.yaml",
        "k3s": "/var/lib/rancher",
    }.items():
        text = output_of("--for", place)
        assert text.startswith("# Copy this file to ")
        assert file in text
        assert yaml.safe_load(text)["clientConnection"]["kubeconfig"], (
            "kube-scheduler ignores --kubeconfig if --config is set"
        )


def test_only_the_needed_fields_of_the_static_pod_change(tmp_path: Path):
    before, after = yaml.safe_load(STATIC_POD), changed_static_pod(tmp_path)
    (old,), (new,) = before["spec"].pop("containers"), after["spec"].pop("containers")

    assert new["command"] == [*old["command"], f"--config={tmp_path}/croupier/scheduler.yaml"]
    assert new["volumeMounts"][:-1] == old["volumeMounts"]
    assert new["volumeMounts"][-1] == {
        "name": "croupier",
        "mountPath": f"{tmp_path}/croupier",
        "readOnly": True,
    }
    assert after["spec"]["volumes"][:-1] == before["spec"].pop("volumes")
    after["spec"].pop("volumes")
    assert after == before


def test_all_folders_are_mounted_and_the_change_is_idempotent(tmp_path: Path):
    once = changed_static_pod(tmp_path, *TLS)
    mounted = [volume["hostPath"]["path"] for volume in once["spec"]["volumes"][1:]]
    assert mounted == [f"{tmp_path}/croupier", "/pki", "/etc/x"]

    (tmp_path / "static.yaml").write_text(yaml.safe_dump(once))
    file = str(tmp_path / "croupier/scheduler.yaml")
    again = ("--for", "kubeadm", "--write", file, "--manifest", str(tmp_path / "static.yaml"), *TLS)
    output = output_of(*again)

    assert yaml.safe_load((tmp_path / "croupier/kube-scheduler.yaml").read_text()) == once
    assert (
        f"mv {tmp_path}/croupier/kube-scheduler.yaml /etc/kubernetes/manifests/kube-scheduler.yaml" in output
    )


def test_the_steps_contain_settings_that_survive_upgrades():
    kept = yaml.safe_load(commented(output_of("--for", "kubeadm"), "scheduler:"))
    assert kept["scheduler"]["extraArgs"] == [
        {"name": "config", "value": "/etc/kubernetes/croupier/scheduler.yaml"}
    ]
    assert [volume["hostPath"] for volume in kept["scheduler"]["extraVolumes"]] == [
        "/etc/kubernetes/croupier"
    ]
    argument = yaml.safe_load(commented(output_of("--for", "k3s"), "kube-scheduler-arg:"))[
        "kube-scheduler-arg"
    ]
    assert argument == ["config=/var/lib/rancher/k3s/server/croupier-scheduler.yaml"]


def commented(text: str, key: str) -> str:
    """The YAML block in the comments that begins with `key`."""
    found = re.search(rf"^# {key}\n(# [ -].*\n)*", text, re.MULTILINE)
    assert found is not None
    return found[0].replace("# ", "", 1).replace("\n# ", "\n")


def test_a_second_scheduler_uses_loopback_or_a_client_certificate():
    near = documents(*MANAGED, "--extender-image", "croupier:1", "--capacity-manager", "CRD")
    extender, scheduler = near["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--listen=127.0.0.1:9440" in extender["args"]
    assert "--capacity-manager=CRD" in extender["args"]
    assert scheduler["image"] == "kube-scheduler:v1.36.4"
    configuration = yaml.safe_load(near["ConfigMap"]["data"]["scheduler.yaml"])
    assert configuration["profiles"] == [{"schedulerName": "croupier-scheduler"}]
    assert configuration["leaderElection"]["resourceNamespace"] == "d8-gpu-operator"

    far = documents(
        *MANAGED, "--url", "https://croupier-extender.d8-gpu-operator.svc:9440", "--tls-secret", "s"
    )
    spec = far["Deployment"]["spec"]["template"]["spec"]
    (alone,) = spec["containers"]
    tls = yaml.safe_load(far["ConfigMap"]["data"]["scheduler.yaml"])["extenders"][0]["tlsConfig"]
    assert spec["serviceAccountName"] == far["ServiceAccount"]["metadata"]["name"] == "croupier-scheduler"
    assert {str(Path(file).parent) for file in tls.values()} <= {
        mount["mountPath"] for mount in alone["volumeMounts"]
    }


REFUSED = {
    "unknown cluster": (["--for", "openshift"], "must be kubeadm, k3s or managed"),
    "a second one without an image": (["--for", "managed"], "needs --image"),
    "no extender in the pod": (MANAGED, "--extender-image"),
    "an extender elsewhere without a Secret": ([*MANAGED, *TLS], "--tls-secret"),
    "a manifest for k3s": (["--for", "k3s", "--manifest", "x"], "requires --for kubeadm"),
    "a manifest of something else": (
        ["--for", "kubeadm", "--write", "{folder}/s.yaml", "--manifest", "{folder}/other.yaml"],
        "no container of the manifest runs kube-scheduler",
    ),
}


@pytest.mark.parametrize(("args", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_options_are_rejected(args: Sequence[str], message: str, tmp_path: Path):
    (tmp_path / "other.yaml").write_text("kind: Pod\nspec: {containers: [{name: a, command: [etcd]}]}\n")
    ended = CliRunner().invoke(app, [word.replace("{folder}", str(tmp_path)) for word in args])

    assert ended.exit_code == 2
    assert message in " ".join(ended.output.split())


async def test_kube_scheduler_runs_with_the_kubeadm_configuration(lab: Lab, tmp_path: Path):
    pod = await asyncio.to_thread(
        changed_static_pod, tmp_path, "--kubeconfig-path", str(lab.site.kubeconfig(SCHEDULER))
    )
    command = pod["spec"]["containers"][0]["command"][1:]

    async with running_scheduler(
        lab, tmp_path, with_lab_kubeconfigs(lab, command, {"/etc/kubernetes/scheduler.conf": SCHEDULER})
    ):
        pass


async def test_kube_scheduler_runs_with_the_k3s_configuration(lab: Lab, tmp_path: Path):
    """k3s passes its own flags first, then the configured arguments."""
    file = tmp_path / "scheduler.yaml"
    place = ("--for", "k3s", "--write", str(file), "--kubeconfig-path", str(lab.site.kubeconfig(SCHEDULER)))
    output = await asyncio.to_thread(output_of, *place)
    (argument,) = re.findall(r"--kube-scheduler-arg=(\S+)\.", output)
    command = ["--bind-address=127.0.0.1", "--kubeconfig=/k3s", "--profiling=false", f"--{argument}"]

    async with running_scheduler(lab, tmp_path, with_lab_kubeconfigs(lab, command, {"/k3s": SCHEDULER})):
        pass


async def test_the_printed_rbac_is_enough_for_a_second_scheduler(
    lab: Lab, namespace: str, clean_cluster: None, tmp_path: Path
):
    args = (*MANAGED, "--extender-image", "croupier:1", "-n", namespace)
    *rights, configured, deployed = yaml.safe_load_all(await asyncio.to_thread(output_of, *args))
    lab.kubectl("create", "serviceaccount", "croupier-extender", "-n", namespace)
    lab.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    try:
        file = tmp_path / "scheduler.yaml"
        file.write_text(yaml.safe_dump(with_kubeconfig(lab, tmp_path, namespace, configured)))
        folder = deployed["spec"]["template"]["spec"]["containers"][1]["volumeMounts"][0]["mountPath"]
        command = deployed["spec"]["template"]["spec"]["containers"][1]["command"][1:]
        here = [word.replace(f"{folder}/", f"{tmp_path}/") for word in command]
        async with running_scheduler(lab, tmp_path, here):
            lab.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([NODE, pod_for("croupier-scheduler")]))
            path = "-o=jsonpath={.spec.nodeName}"
            lab.kubectl("get", "node", "any-node")
            await polling.until(
                lambda: lab.kubectl("get", "pod", "plain", path).stdout == "any-node", "the pod", TIMEOUT
            )
    finally:
        lab.kubectl("delete", "pod", "plain", "--ignore-not-found", "--grace-period=0", "--force")
        lab.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(rights))


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "any-node"},
    "status": {"allocatable": {"pods": "9", "cpu": "9"}, "capacity": {"pods": "9", "cpu": "9"}},
}


def pod_for(scheduler: str) -> dict[str, Any]:
    spec = {
        "schedulerName": scheduler,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "any"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": spec}


def with_kubeconfig(lab: Lab, folder: Path, namespace: str, configured: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with a kubeconfig file instead of the pod's service account."""
    token = lab.kubectl("create", "token", "croupier-extender", "-n", namespace).stdout.strip()
    account = kubeconfig.with_token(folder / "account", lab.kubeconfig, user="account", token=token)
    settings: dict[str, Any] = yaml.safe_load(configured["data"]["scheduler.yaml"])
    settings["clientConnection"]["kubeconfig"] = str(account)
    return settings


def with_lab_kubeconfigs(lab: Lab, command: Sequence[str], files: Mapping[str, str]) -> list[str]:
    """Replace the host's kubeconfig paths with those of the lab."""
    known = {name: str(lab.site.kubeconfig(part)) for name, part in files.items()}
    return [re.sub("|".join(known), lambda found: known[found[0]], word) for word in command]
