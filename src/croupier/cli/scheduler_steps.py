"""What a person does with a scheduler's configuration: kubeadm, k3s and managed control planes differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier.cli import manifest as reading
from croupier.extender import configuration, schedulers
from croupier.extender.configuration import Wish
from croupier.extender.schedulers import Second


@dataclass(frozen=True, slots=True)
class Printed:
    """Documents, and what is to be done with them."""

    documents: Sequence[Any]
    steps: Sequence[str] = field(default=())
    beside: dict[str, Any] = field(default_factory=dict)
    """Files to be written next to them, by name."""


def printed(where: str, wish: Wish, second: Second, *, file: str, manifest: Path | None) -> Printed:
    if where == "managed":
        return Printed(schedulers.second(wish, second), _managed_steps(wish))
    wanted = configuration.configuration(wish)
    if where == "kubeadm":
        return _kubeadm(wanted, wish, file or schedulers.KUBEADM_FILE, manifest)
    if where == "k3s":
        return Printed([wanted], _k3s_steps(file or schedulers.K3S_FILE))
    return Printed([wanted])


def _kubeadm(wanted: Any, wish: Wish, file: str, manifest: Path | None) -> Printed:
    beside, replaced = {}, ""
    if manifest is not None:
        (pod, *_) = reading.documents(manifest, "--manifest") or [None]
        beside = {"kube-scheduler.yaml": schedulers.kubeadm_manifest(pod, wish, file)}
        replaced = f"{Path(file).parent}/kube-scheduler.yaml"
    return Printed([wanted], _kubeadm_steps(wish, file, replaced), beside)


def _kubeadm_steps(wish: Wish, file: str, replaced: str) -> list[str]:
    seen = ", ".join(schedulers.folders(wish, file))
    change = (
        f"mv {replaced} {schedulers.KUBEADM_MANIFEST}"
        if replaced
        else f"in {schedulers.KUBEADM_MANIFEST} add --config={file} to the command, and mount {seen} "
        "(hostPath of type Directory, read-only, at the same path); --manifest does it for you"
    )
    return [
        f"On every control plane node: put this at {file}.",
        f"Then: {change}. The kubelet starts the scheduler again by itself; keep no copy of the old one in "
        "that folder, it would be started, too.",
        "So that the next kubeadm upgrade keeps it, put the same into its configuration "
        "(kubectl -n kube-system edit configmap kubeadm-config):",
        as_yaml(schedulers.kubeadm_settings(wish, file)).rstrip(),
        _where_asked(wish),
    ]


def _k3s_steps(file: str) -> list[str]:
    return [
        f"On every server: put this at {file}.",
        f"Write into {schedulers.K3S_CONFIG} (where kube-scheduler-arg is set already, add the line there):",
        as_yaml(schedulers.k3s_settings(file)).rstrip(),
        f"which is the same as k3s server --kube-scheduler-arg=config={file}. Then: systemctl restart k3s.",
    ]


def _managed_steps(wish: Wish) -> list[str]:
    return [
        f"A second scheduler. Pods that ask for cards name it: spec.schedulerName: {wish.scheduler_name}.",
        "All others are placed by the scheduler of the cluster, as ever.",
    ]


def _where_asked(wish: Wish) -> str:
    if wish.files is None:
        return f"The scheduler asks {wish.url}: run croupier extender on the same machines, in their network."
    return (
        f"The scheduler asks {wish.url}. A static pod knows no names of Services: use the Service's address, "
        "and have it in the certificate."
    )


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """What is the same twice is written twice: people read it."""
        return True


def as_yaml(data: Any) -> str:
    return yaml.dump(data, Dumper=_Plain, sort_keys=False)
