"""Installation steps of a scheduler configuration for kubeadm, k3s and managed control planes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier.ops import scheduler_config, scheduler_manifests
from croupier.ops.scheduler_config import SchedulerConfigOptions
from croupier.ops.scheduler_manifests import SecondScheduler


@dataclass(frozen=True, slots=True)
class SchedulerFiles:
    """Configuration documents, and the steps to install them."""

    documents: Sequence[Any]
    steps: Sequence[str] = field(default=())
    extra_files: dict[str, Any] = field(default_factory=dict)
    """Additional files to write to the same folder, by name."""


def prepare(
    where: str, wish: SchedulerConfigOptions, second: SecondScheduler, *, file: str, static_pod: Any = None
) -> SchedulerFiles:
    """`static_pod` is the manifest of kubeadm's scheduler, of which a changed copy is made."""
    if where == "managed":
        return SchedulerFiles(scheduler_manifests.second_scheduler(wish, second), _managed_steps(wish))
    config = scheduler_config.configuration(wish)
    if where == "kubeadm":
        return _kubeadm(config, wish, file or scheduler_manifests.KUBEADM_FILE, static_pod)
    if where == "k3s":
        return SchedulerFiles([config], _k3s_steps(file or scheduler_manifests.K3S_FILE))
    return SchedulerFiles([config])


def _kubeadm(config: Any, wish: SchedulerConfigOptions, file: str, static_pod: Any) -> SchedulerFiles:
    extra_files, replaced = {}, ""
    if static_pod is not None:
        extra_files = {"kube-scheduler.yaml": scheduler_manifests.kubeadm_manifest(static_pod, wish, file)}
        replaced = f"{Path(file).parent}/kube-scheduler.yaml"
    return SchedulerFiles([config], _kubeadm_steps(wish, file, replaced), extra_files)


def _kubeadm_steps(wish: SchedulerConfigOptions, file: str, replaced: str) -> list[str]:
    folders = ", ".join(scheduler_manifests.mounted_folders(wish, file))
    change = (
        f"mv {replaced} {scheduler_manifests.KUBEADM_MANIFEST}"
        if replaced
        else f"in {scheduler_manifests.KUBEADM_MANIFEST} add --config={file} to the command, "
        f"and mount {folders} "
        "(hostPath of type Directory, read-only, at the same path); or use --manifest"
    )
    return [
        f"Copy this file to {file} on every control plane node.",
        f"Then: {change}. The kubelet restarts the scheduler; keep no copy of the old manifest there, "
        "because the kubelet would start it as well.",
        "To keep the change across kubeadm upgrades, add it to the kubeadm configuration "
        "(kubectl -n kube-system edit configmap kubeadm-config):",
        as_yaml(scheduler_manifests.kubeadm_settings(wish, file)).rstrip(),
        _extender_note(wish),
    ]


def _k3s_steps(file: str) -> list[str]:
    return [
        f"Copy this file to {file} on every server.",
        f"Add to {scheduler_manifests.K3S_CONFIG} (if kube-scheduler-arg is already set, extend it):",
        as_yaml(scheduler_manifests.k3s_settings(file)).rstrip(),
        f"This equals k3s server --kube-scheduler-arg=config={file}. Then: systemctl restart k3s.",
    ]


def _managed_steps(wish: SchedulerConfigOptions) -> list[str]:
    return [
        f"A second scheduler. Pods that request cards must set spec.schedulerName: {wish.scheduler_name}.",
        "The default scheduler of the cluster places all other pods.",
    ]


def _extender_note(wish: SchedulerConfigOptions) -> str:
    if wish.files is None:
        return (
            f"The scheduler calls {wish.url}: run croupier extender on the same hosts, in the host network."
        )
    return (
        f"The scheduler calls {wish.url}. A static pod cannot resolve Service names: use the address of the "
        "Service, and include it in the certificate."
    )


class _NoAliasDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full instead of YAML anchors."""
        return True


def as_yaml(data: Any) -> str:
    return yaml.dump(data, Dumper=_NoAliasDumper, sort_keys=False)
