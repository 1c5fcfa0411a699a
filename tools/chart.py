"""Generates the files of the Helm chart, and renders the chart to plain manifests.

RBAC, admission policies, CRDs and webhook configurations are defined once, in the code or in deployments/,
and copied to charts/croupier/files; its README comes from the comments of values.yaml
(tools/chart_readme.py). deployments/default is the chart rendered with its default values, for
installations without Helm; src/croupier/ops/permissions.json has the permissions that the chart grants, for
`croupier doctor`. Both contain a digest of the chart, so that a stale file is detected without Helm.

python -m tools.chart            write the files
python -m tools.chart --check    exit 1 and list the stale files
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, get_args

import yaml

from croupier.admission import (
    annotation_policy,
    configurations,
    guard_policy,
    mark_policy,
    priority_policy,
    protection,
)
from croupier.admission.configurations import ServiceTarget, WebhookConfigurationOptions
from croupier.admission.guard_policy import GuardPolicy
from croupier.api import crds
from croupier.capacity.manager import CapacityManagerKind
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.nodes.bootstrap import DCGM, GFD
from croupier.ops import scheduler_config
from croupier.ops.scheduler_manifests import SECOND_SCHEDULER_NAME
from croupier_lab import binaries
from croupier_lab.binaries import BinarySources
from tools import chart_readme, generate_crds

CHART: Final = "charts/croupier"
FILES: Final = f"{CHART}/files"
NAMESPACE: Final = DEFAULT_NAMESPACE

RENDERED: Final = "deployments/default/croupier.yaml"
SERVICES: Final = {GFD: "GFD_IMAGE", DCGM: "DCGM_EXPORTER_IMAGE"}
"""Placeholders in the policy of service pods, which the chart replaces with the configured images."""
PERMISSIONS: Final = "src/croupier/ops/permissions.json"
CAPACITY_MANAGERS: Final = get_args(CapacityManagerKind)
CHECKED_OPTIONS: Final = (
    "--set=webhook.certManager.enabled=true",
    "--set=scheduler.enabled=false",
    "--set=ui.enabled=true",
    "--skip-tests",
)
"""Values with which the chart grants every account what it needs at least: no own CA, no second scheduler."""
KUBERNETES: Final = "1.36.0"
"""The Kubernetes version for which the plain manifests are rendered."""
DIGEST_HEADER: Final = "# rendered from charts/croupier (make generate), digest "
COPIED: Final = "# copied from {source} by make generate\n"
GENERATED: Final = "# Written by make generate.\n"
ONLY_HELM: Final = (
    r"^ +((annotations:\n +)?helm\.sh/resource-policy: keep|helm\.sh/chart: .*|"
    r"app\.kubernetes\.io/managed-by: Helm)\n"
)
"""Lines of a rendered object that are not true without Helm."""
LONG: Final = 80
MONITORING: Final = (
    "prometheus-rule.yaml",
    "pod-monitors.yaml",
    "dashboard.json",
    "dashboard-utilisation.json",
)

CONFIGURATIONS: Final = """\
# The output of `croupier webhook-config`. croupier webhook sets and updates the CA bundle; applying this file
# again does not change the bundle.
"""
REQUIRE_MARK: Final = """\
# A pod that requests cards without the mark gpu.mps.io/ledger is refused. The API server enforces this by
# itself, even while croupier webhook is down. With the mark the scheduler calls the extender, so no pod gets
# cards without the ledger.
"""
GRANT_VARIABLES: Final = """\
# A pod that requests cards cannot set variables that would show it other cards or raise its limits. The
# webhook overrules or refuses them first; this holds while it is down, and for ephemeral containers.
"""
GUARD: Final = """\
# The guard of containers without cards in mode {mode}: docs/guard.md. Apply one of the guard files.
"""
GUARD_IMAGES: Final = """\
# With mode Void: adds NVIDIA_VISIBLE_DEVICES=void for images that set the variable themselves.
"""
UNKNOWN_ANNOTATIONS: Final = """\
# A warning for annotations with Croupier's prefixes that are not known. Nothing is refused.
"""
RESERVATION_PRIORITY: Final = """\
# The priority of a Reservation needs a right: the verb use on its PriorityClass, or on
# reservationpriorities.mps.nvidia.com for a plain number.
"""
KEEP_REQUEST: Final = """\
# The request of a pod was charged to quotas when the pod was created, so the annotations that are part of it
# cannot be changed; nor can the annotations and labels that record its admission to a pool.
"""
PROTECT: Final = """\
# Only Croupier's service accounts may write managed fields, even if RBAC lets others edit the objects. The
# accounts are the same in all three policies.
"""
SERVICE_PODS: Final = "# The chart replaces the placeholders with the configured images.\n"

_POLICY: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_MUTATING_POLICY: Final = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
_CLUSTER: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
_LOCAL: Final = ("Role", "RoleBinding")
COPIES: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("rbac/access", "deployments/access/roles.yaml", ("ClusterRole",)),
    ("rbac/limits", "deployments/cpu/rbac.yaml", (*_CLUSTER, *_LOCAL)),
    ("rbac/market", "deployments/cpu/agent.yaml", (*_CLUSTER, *_LOCAL)),
    ("rbac/node", "deployments/node/rbac.yaml", (*_CLUSTER, *_LOCAL)),
    ("rbac/webhook", "deployments/webhook/rbac.yaml", _CLUSTER),
    ("rbac/webhook-certificate", "deployments/webhook/rbac-certificate.yaml", (*_CLUSTER, *_LOCAL)),
    ("policies/limits", "deployments/cpu/own-namespace.yaml", _POLICY),
    ("policies/market", "deployments/cpu/agent.yaml", _POLICY),
    ("policies/node", "deployments/node/own-node.yaml", _POLICY),
    ("policies/allocation", "deployments/mps-dra/protect-allocation.yaml", _POLICY),
    ("policies/priority", "deployments/mps-dra/reservation-priority.yaml", _POLICY),
    ("policies/mark", "deployments/webhook/require-mark.yaml", _POLICY),
    ("policies/request", "deployments/webhook/keep-request.yaml", _POLICY),
    ("policies/variables", "deployments/webhook/grant-variables.yaml", _POLICY),
    *(
        (f"guard/{mode}", f"deployments/webhook/guard-{mode}.yaml", (*_POLICY, *_MUTATING_POLICY))
        for mode in ("warn", "deny", "void", "images")
    ),
    ("policies/annotations", "deployments/webhook/unknown-annotations.yaml", _POLICY),
    ("policies/pools", "deployments/pools/protect.yaml", _POLICY),
    ("features", "deployments/nfd/node-feature-rule.yaml", ("NodeFeatureRule",)),
)


class HelmFailed(Exception):
    """The plain manifests are stale, and Helm is missing or failed."""


def files(root: Path) -> dict[str, str]:
    """The copied and generated files: content by path in the repository."""
    wish = WebhookConfigurationOptions(ServiceTarget(NAMESPACE))
    second = scheduler_config.SchedulerConfigOptions(
        scheduler_name=SECOND_SCHEDULER_NAME, lease_namespace=NAMESPACE
    )
    deployments = _deployments(wish)
    sources = {source: deployments.get(source) or (root / source).read_text() for _, source, _ in COPIES}
    return {
        **deployments,
        **{
            f"{FILES}/{name}.yaml": COPIED.format(source=source) + _of_kinds(sources[source], kinds)
            for name, source, kinds in COPIES
        },
        **{
            f"{FILES}/monitoring/{name}": (root / "deployments/monitoring" / name).read_text()
            for name in MONITORING
        },
        **{
            f"{FILES}/crds/{name}": generate_crds.dump_yaml([crd]) for name, crd in crds.definitions().items()
        },
        f"{FILES}/policies/services.yaml": _documents(SERVICE_PODS, protection.service_documents(SERVICES)),
        f"{FILES}/webhook/mutating.yaml": _plain(configurations.mutating(wish)),
        f"{FILES}/webhook/validating.yaml": _plain(configurations.validating(wish)),
        f"{FILES}/scheduler.yaml": _plain(scheduler_config.configuration(second)),
        chart_readme.README: chart_readme.render((root / chart_readme.VALUES).read_text()),
    }


def _deployments(webhook: WebhookConfigurationOptions) -> dict[str, str]:
    """The manifests that the code defines."""
    defined = {
        "webhook/configurations": (CONFIGURATIONS, configurations.documents(webhook)),
        "mps-dra/reservation-priority": (RESERVATION_PRIORITY, priority_policy.documents()),
        "webhook/require-mark": (REQUIRE_MARK, mark_policy.documents()),
        "webhook/keep-request": (KEEP_REQUEST, protection.pod_documents()),
        "webhook/grant-variables": (GRANT_VARIABLES, guard_policy.grant_documents()),
        **{
            f"webhook/guard-{mode.lower()}": (GUARD.format(mode=mode), guard_policy.guard_documents(mode))
            for mode in get_args(GuardPolicy)
        },
        "webhook/unknown-annotations": (UNKNOWN_ANNOTATIONS, annotation_policy.documents()),
        "webhook/guard-images": (GUARD_IMAGES, guard_policy.image_documents()),
        "pools/protect": (PROTECT, protection.managed_documents()),
    }
    return {f"deployments/{name}.yaml": _documents(*content) for name, content in defined.items()}


def digest(root: Path) -> str:
    """The digest of all files of the chart."""
    content = hashlib.sha256()
    for path in sorted(file for file in (root / CHART).rglob("*") if file.is_file()):
        content.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def stale(root: Path) -> list[str]:
    wanted = files(root)
    differing = [path for path, text in wanted.items() if _read(root / path) != text]
    problems = [f"{path} is stale" for path in differing]
    problems += [f"{path} has no source" for path in _leftovers(root, wanted)]
    current = digest(root)
    rendered = [path for path in (RENDERED, PERMISSIONS) if current not in _read(root / path)]
    return problems + [f"{path} differs from the rendered chart" for path in rendered]


def write(root: Path, render: Callable[..., str]) -> list[str]:
    """Update all files; return the changed paths."""
    wanted = files(root)
    changed = [path for path, text in wanted.items() if _read(root / path) != text]
    for path in changed:
        _write(root / path, wanted[path])
    for path in _leftovers(root, wanted):
        (root / path).unlink()
        changed.append(path)
    current = digest(root)
    if current not in _read(root / RENDERED):
        _write(root / RENDERED, f"{DIGEST_HEADER}{current}\n{_manifests(root, render)}")
        changed.append(RENDERED)
    if current not in _read(root / PERMISSIONS):
        _write(root / PERMISSIONS, _permissions(root, render, current))
        changed.append(PERMISSIONS)
    return changed


def rendered(root: Path, *options: str) -> str:
    """The chart as rendered by `helm template`."""
    helm = binaries.search(["helm"], BinarySources()).found.get("helm")
    if helm is None:
        raise HelmFailed("cannot render the chart: helm is missing; run `croupier lab build --helm` once")
    command = [str(helm.path), "template", "croupier", str(root / CHART), f"--namespace={NAMESPACE}"]
    done = subprocess.run(
        [*command, f"--kube-version={KUBERNETES}", *options], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise HelmFailed(f"cannot render the chart: {done.stderr.strip()}")
    return done.stdout


def _manifests(root: Path, render: Callable[..., str]) -> str:
    """With the namespace, which Helm would create, and without what only Helm reads or writes."""
    text = render(root, "--set=namespace.create=true", "--skip-tests")
    return re.sub(ONLY_HELM, "", text, flags=re.MULTILINE)


def _permissions(root: Path, render: Callable[..., str], current: str) -> str:
    """By capacity manager and service account, one permission on a line."""
    granted = {
        manager: _granted(
            yaml.safe_load_all(render(root, f"--set=settings.capacityManager={manager}", *CHECKED_OPTIONS))
        )
        for manager in CAPACITY_MANAGERS
    }
    text = json.dumps({"chart": current, **granted}, indent=1)
    return re.sub(r"\{[^{}]*\}", lambda rule: json.dumps(json.loads(rule[0])), text) + "\n"


def _granted(documents: Iterable[Any]) -> dict[str, list[dict[str, Any]]]:
    """The permissions of each account by the roles of its name; others are shared, or optional."""
    objects = [document for document in documents if document]
    roles = {(item["kind"], item["metadata"]["name"]): item.get("rules") for item in objects}
    verbs: dict[str, dict[tuple[str, str, bool, str], dict[str, None]]] = {}
    for binding in (item for item in objects if item["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        role, here = binding["roleRef"], binding["kind"] == "RoleBinding"
        if role["name"] not in [subject["name"] for subject in binding["subjects"]]:
            continue
        account = verbs.setdefault(role["name"], {})
        for rule in roles[(role["kind"], role["name"])]:
            targets = product(rule["apiGroups"], rule["resources"], rule.get("resourceNames", [""]))
            for group, resource, name in targets:
                account.setdefault((group, resource, here, name), {}).update(dict.fromkeys(rule["verbs"]))
    return {
        account: [
            {"verbs": list(rights[right]), "resource": resource}
            | {key: value for key, value in (("group", group), ("here", here), ("name", name)) if value}
            for right in sorted(rights)
            for group, resource, here, name in [right]
        ]
        for account, rights in sorted(verbs.items())
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    parser.add_argument("--root", type=Path, default=generate_crds.REPOSITORY, help="the repository")
    options = parser.parse_args(arguments)
    if options.check:
        problems = stale(options.root)
        sys.stderr.writelines(f"{problem}\n" for problem in problems)
        return 1 if problems else 0
    try:
        sys.stdout.writelines(f"wrote {path}\n" for path in write(options.root, rendered))
    except HelmFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _of_kinds(text: str, kinds: Sequence[str]) -> str:
    """The documents of these kinds, unchanged and with comments."""
    documents = re.split(r"^---\n", text, flags=re.MULTILINE)
    chosen = [document for document in documents if (yaml.safe_load(document) or {}).get("kind") in kinds]
    return "---\n".join(document if document.endswith("\n") else f"{document}\n" for document in chosen)


def _documents(comment: str, documents: list[dict[str, Any]]) -> str:
    return f"{comment}{GENERATED}" + "---\n".join(map(_plain, documents))


def _plain(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110)


class _Dumper(yaml.SafeDumper):
    """Long strings, such as CEL expressions, without quotes, and lists of short ones on one line."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=">" if len(data) > LONG else None)

    def represent_list(self, data: Any) -> yaml.SequenceNode:
        short = all(isinstance(item, str) and len(item) <= LONG for item in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=short)


_Dumper.add_representer(str, _Dumper.represent_str)
_Dumper.add_representer(list, _Dumper.represent_list)


def _leftovers(root: Path, wanted: dict[str, str]) -> list[str]:
    files = (str(file.relative_to(root)) for file in sorted((root / FILES).rglob("*")) if file.is_file())
    return [path for path in files if path not in wanted]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
