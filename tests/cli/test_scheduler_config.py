"""`croupier scheduler-config` prints a configuration for kube-scheduler, and rejects invalid options."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from croupier.cli.scheduler_config import scheduler_config
from croupier_lab import controlplane
from croupier_lab.controlplane import SCHEDULER
from croupier_lab.lab import Lab
from tests.cli.scheduler_process import running_scheduler

FILES = ("--ca", "/pki/ca.crt", "--cert", "/pki/tls.crt", "--key", "/pki/tls.key")

app = typer.Typer()
app.command()(scheduler_config)


def printed(*args: str) -> dict[str, Any]:
    ended = CliRunner().invoke(app, args)
    assert ended.exit_code == 0, ended.output
    config: dict[str, Any] = yaml.safe_load(ended.stdout)
    return config


def test_the_extender_is_called_for_managed_resources_and_is_not_ignorable():
    (extender,) = printed()["extenders"]

    assert extender["urlPrefix"] == "http://127.0.0.1:9440"
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True
    assert extender["managedResources"] == [
        {"name": "gpu.mps.io/ledger", "ignoredByScheduler": True},
        {"name": "gpu.mps.io/percent", "ignoredByScheduler": True},
        {"name": "nvidia.com/gpu"},
    ]


def test_the_scheduler_sends_every_node():
    assert printed()["percentageOfNodesToScore"] == 100


def test_tls_files_are_configured():
    (extender,) = printed("--url", "https://extender.example:9440", *FILES)["extenders"]

    assert extender["enableHTTPS"] is True
    assert extender["tlsConfig"] == {
        "caFile": "/pki/ca.crt",
        "certFile": "/pki/tls.crt",
        "keyFile": "/pki/tls.key",
    }


def test_a_second_scheduler_has_its_own_name_and_lease():
    config = printed("--scheduler-name", "gpu-scheduler", "--qps", "2000", "--kubeconfig-path", "/etc/kc")

    assert config["profiles"] == [{"schedulerName": "gpu-scheduler"}]
    assert config["leaderElection"]["resourceName"] == "gpu-scheduler"
    assert config["clientConnection"] == {"kubeconfig": "/etc/kc", "qps": 2000, "burst": 4000}


REFUSED = {
    "TLS without files": (["--url", "https://x:1"], "needs --ca, --cert and --key"),
    "files without TLS": (["--url", "http://127.0.0.1:1", *FILES], "does not use TLS"),
    "no TLS over the network": (["--url", "http://10.0.0.1:1"], "without TLS over the network"),
    "incomplete TLS files": (["--ca", "/pki/ca.crt"], "must be set together"),
    "invalid URL": (["--url", "extender"], "is not the URL of an extender"),
}


@pytest.mark.parametrize(("args", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_options_are_rejected(args, message):
    ended = CliRunner().invoke(app, args)

    assert ended.exit_code == 2
    assert message in ended.output


def test_resources_of_the_cluster_are_listed(lab: Lab, clean_cluster: None):
    for name, resource in (("mig-node", "nvidia.com/mig-1g.10gb"), ("other", "example.com/fpga")):
        lab.kubectl(
            "create",
            "-f",
            "-",
            stdin=yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name},
                    "status": {"allocatable": {resource: "7"}, "capacity": {resource: "7"}},
                }
            ),
        )
    lab.kubectl(
        "create",
        "-f",
        "-",
        stdin=yaml.safe_dump(
            {
                "apiVersion": "gpu.deckhouse.io/v1alpha1",
                "kind": "GPUPool",
                "metadata": {"name": "blue"},
                "spec": {"allocation": {"mode": "Exclusive"}},
            }
        ),
    )

    (extender,) = printed("--kubeconfig", str(lab.kubeconfig))["extenders"]

    names = [resource["name"] for resource in extender["managedResources"]]
    assert names[2:] == ["gpu.deckhouse.io/blue", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]


async def test_kube_scheduler_accepts_the_configuration(lab: Lab, tmp_path: Path):
    """Uses TLS; the tests of the extender cover the configuration without TLS."""
    pki = lab.site.pki
    own = lab.site.pair(SCHEDULER)
    config = await asyncio.to_thread(
        printed,
        *("--url", "https://127.0.0.1:9440", "--ca", str(pki / "ca.crt")),
        *("--cert", str(own.certificate), "--key", str(own.key)),
        *("--scheduler-name", "gpu-scheduler", "--no-leader-elect"),
        *("--kubeconfig-path", str(lab.site.kubeconfig(SCHEDULER)), "--kubeconfig", str(lab.kubeconfig)),
    )
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(config))
    command = controlplane.program(SCHEDULER, lab.site).argv[1:]

    async with running_scheduler(lab, tmp_path, (*command, f"--config={file}")):
        pass
