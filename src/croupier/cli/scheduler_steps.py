"""Installation steps of a scheduler configuration for kubeadm, k3s and managed control planes."""

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
    """Configuration documents, and the steps to install them."""

    documents: Sequence[Any]
    steps: Sequence[str] = field(default=())
    beside: dict[str, Any] = field(default_factory=dict)
    """Additional files to write to the same folder, by name."""


def printed(where: str, wish: Wish, second: Second, *, file: str, manifest: Path | None) -> Printed:
    if where == "managed":
        return Printed(schedulers.second(wish, second), _managed_steps(wish))
    config = configuration.configuration(wish)
    if where == "kubeadm":
        return _kubeadm(config, wish, file or schedulers.KUBEADM_FILE, manifest)
    if where == "k3s":
        return Printed([config], _k3s_steps(file or schedulers.K3S_FILE))
    return Printed([config])


def _kubeadm(config: Any, wish: Wish, file: str, manifest: Path | None) -> Printed:
    extra_files, replaced = {}, ""
    if manifest is not None:
        (pod, *_) = reading.documents(manifest, "--manifest") or [None]
        extra_files = {"kube-scheduler.yaml": schedulers.kubeadm_manifest(pod, wish, file)}
        replaced = f"{Path(file).parent}/kube-scheduler.yaml"
    return Printed([config], _kubeadm_steps(wish, file, replaced), extra_files)


def _kubeadm_steps(wish: Wish, file: str, replaced: str) -> list[str]:
    folders = ", ".join(schedulers.folders(wish, file))
    change = (
        f"mv {replaced} {schedulers.KUBEADM_MANIFEST}"
        if replaced
        else f"in {schedulers.KUBEADM_MANIFEST} add --config={file} to the command, and mount {folders} "
        "(hostPath of type Directory, read-only, at the same path); or use --manifest"
    )
    return [
        f"Copy this file to {file} on every control plane node.",
        f"Then: {change}. The kubelet restarts the scheduler; keep no copy of the old manifest there, "
        "because the kubelet would start it as well.",
        "To keep the change across kubeadm upgrades, add it to the kubeadm configuration "
        "(kubectl -n kube-system edit configmap kubeadm-config):",
        as_yaml(schedulers.kubeadm_settings(wish, file)).rstrip(),
        _where_asked(wish),
    ]


def _k3s_steps(file: str) -> list[str]:
    return [
        f"Copy this file to {file} on every server.",
        f"Add to {schedulers.K3S_CONFIG} (if kube-scheduler-arg is already set, extend it):",
        as_yaml(schedulers.k3s_settings(file)).rstrip(),
        f"This equals k3s server --kube-scheduler-arg=config={file}. Then: systemctl restart k3s.",
    ]


def _managed_steps(wish: Wish) -> list[str]:
    return [
        f"A second scheduler. Pods that request cards must set spec.schedulerName: {wish.scheduler_name}.",
        "The default scheduler of the cluster places all other pods.",
    ]


def _where_asked(wish: Wish) -> str:
    if wish.files is None:
        return (
            f"The scheduler calls {wish.url}: run croupier extender on the same hosts, in the host network."
        )
    return (
        f"The scheduler calls {wish.url}. A static pod cannot resolve Service names: use the address of the "
        "Service, and include it in the certificate."
    )


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full instead of YAML anchors."""
        return True


def as_yaml(data: Any) -> str:
    return yaml.dump(data, Dumper=_Plain, sort_keys=False)
