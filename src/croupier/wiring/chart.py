"""What the chart is made of that stands elsewhere already, and the chart as plain manifests.

Rights, policies, kinds and registrations are written once, in the code or under deployments/, and copied into
charts/croupier/files. deployments/default is the chart with its default values, for those without Helm; it
carries a digest of the chart it was rendered from, so that whether it is stale can be seen without Helm.

python -m croupier.wiring.chart            write them
python -m croupier.wiring.chart --check    exit 1 and name the stale ones
"""

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from croupier.admission import configurations, protection
from croupier.admission.configurations import Service, Wish
from croupier.api import crds, generate
from croupier.core.nodes.bootstrap import DCGM, GFD
from croupier.extender import configuration
from croupier.lab import binaries
from croupier.lab.binaries import Sources

CHART: Final = "charts/croupier"
FILES: Final = f"{CHART}/files"
NAMESPACE: Final = "d8-gpu-operator"
SCHEDULER: Final = "croupier-scheduler"
RENDERED: Final = "deployments/default/croupier.yaml"
SERVICES: Final = {GFD: "GFD_IMAGE", DCGM: "DCGM_EXPORTER_IMAGE"}
"""Words in the policy of service pods, for which the chart has the images that are set."""
KUBERNETES: Final = "1.36.0"
"""Whose capabilities the plain manifests assume."""
MARK: Final = "# rendered from charts/croupier (make generate), digest "
COPIED: Final = "# copied from {source} by make generate\n"
OTHERS: Final = (f"{FILES}/monitoring/",)
"""Kept with what they are copies of."""

_POLICY: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_CLUSTER: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
_LOCAL: Final = ("Role", "RoleBinding")
COPIES: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("rbac/limits", "deployments/cpu/rbac.yaml", (*_CLUSTER, *_LOCAL)),
    ("rbac/market", "deployments/cpu/agent.yaml", (*_CLUSTER, *_LOCAL)),
    ("rbac/node", "deployments/node/rbac.yaml", (*_CLUSTER, *_LOCAL)),
    ("rbac/webhook", "deployments/webhook/rbac.yaml", _CLUSTER),
    ("rbac/webhook-certificate", "deployments/webhook/rbac-certificate.yaml", (*_CLUSTER, *_LOCAL)),
    ("policies/limits", "deployments/cpu/own-namespace.yaml", _POLICY),
    ("policies/market", "deployments/cpu/agent.yaml", _POLICY),
    ("policies/node", "deployments/node/own-node.yaml", _POLICY),
    ("policies/allocation", "deployments/mps-dra/protect-allocation.yaml", _POLICY),
    ("policies/mark", "deployments/webhook/require-mark.yaml", _POLICY),
    ("policies/request", "deployments/webhook/keep-request.yaml", _POLICY),
    ("policies/pools", "deployments/pools/protect.yaml", _POLICY),
    ("features", "deployments/nfd/node-feature-rule.yaml", ("NodeFeatureRule",)),
)


class NoHelm(Exception):
    """The plain manifests are stale, and there is no Helm to render them with."""


def files(root: Path) -> dict[str, str]:
    """Path within the repository to content: what is copied or made by the code."""
    copies = {
        f"{FILES}/{name}.yaml": COPIED.format(source=source) + _of_kinds((root / source).read_text(), kinds)
        for name, source, kinds in COPIES
    }
    wish = Wish(Service(NAMESPACE))
    second = configuration.Wish(scheduler_name=SCHEDULER, lease_namespace=NAMESPACE)
    return {
        **copies,
        **{f"{FILES}/crds/{name}": generate.dumped([one]) for name, one in crds.definitions().items()},
        f"{FILES}/policies/services.yaml": _services(),
        f"{FILES}/webhook/mutating.yaml": _plain(configurations.mutating(wish)),
        f"{FILES}/webhook/validating.yaml": _plain(configurations.validating(wish)),
        f"{FILES}/scheduler.yaml": _plain(configuration.configuration(second)),
    }


def digest(root: Path) -> str:
    """Of everything the plain manifests follow from."""
    content = hashlib.sha256()
    for path in sorted(one for one in (root / CHART).rglob("*") if one.is_file()):
        content.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def stale(root: Path) -> list[str]:
    wanted = files(root)
    found = [path for path, text in wanted.items() if _read(root / path) != text]
    complaints = [f"{path} is stale" for path in found]
    complaints += [f"{path} is copied from nowhere" for path in _leftovers(root, wanted)]
    if not _read(root / RENDERED).startswith(MARK + digest(root)):
        complaints.append(f"{RENDERED} is not what the chart renders to")
    return complaints


def write(root: Path, render: Callable[[Path], str]) -> list[str]:
    """Bring everything up to date; the paths that changed."""
    wanted = files(root)
    changed = [path for path, text in wanted.items() if _read(root / path) != text]
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(wanted[path], encoding="utf-8")
    for path in _leftovers(root, wanted):
        (root / path).unlink()
        changed.append(path)
    mark = MARK + digest(root)
    if not _read(root / RENDERED).startswith(mark):
        text = f"{mark}\n{render(root)}"
        (root / RENDERED).parent.mkdir(parents=True, exist_ok=True)
        (root / RENDERED).write_text(text, encoding="utf-8")
        changed.append(RENDERED)
    return changed


def rendered(root: Path, *options: str) -> str:
    """The chart as Helm renders it without a cluster."""
    found = binaries.search(["helm"], Sources()).found.get("helm")
    if found is None:
        raise NoHelm("there is no helm to render the chart with: run `croupier lab build --helm` once")
    command = [str(found.path), "template", "croupier", str(root / CHART), f"--namespace={NAMESPACE}"]
    done = subprocess.run(
        [*command, f"--kube-version={KUBERNETES}", *options], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NoHelm(f"the chart cannot be rendered: {done.stderr.strip()}")
    return done.stdout


def _with_namespace(root: Path) -> str:
    """Who applies plain manifests has no Helm to make the namespace; Helm's own words would say nothing."""
    text = rendered(root, "--set=namespace.create=true")
    return re.sub(r"^ +(annotations:\n +)?helm\.sh/resource-policy: keep\n", "", text, flags=re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m croupier.wiring.chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    parser.add_argument("--root", type=Path, default=generate.CHECKOUT, help="the repository")
    options = parser.parse_args(arguments)
    if options.check:
        complaints = stale(options.root)
        sys.stderr.writelines(f"{one}\n" for one in complaints)
        return 1 if complaints else 0
    try:
        sys.stdout.writelines(f"wrote {path}\n" for path in write(options.root, _with_namespace))
    except NoHelm as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _of_kinds(text: str, kinds: Sequence[str]) -> str:
    """The documents of these kinds, as they are written, comments and all."""
    documents = re.split(r"^---\n", text, flags=re.MULTILINE)
    chosen = [one for one in documents if (yaml.safe_load(one) or {}).get("kind") in kinds]
    return "---\n".join(one if one.endswith("\n") else f"{one}\n" for one in chosen)


def _services() -> str:
    head = "# written by croupier.admission.protection; the chart puts the images in that are set\n"
    return head + "---\n".join(map(_plain, protection.service_documents(SERVICES)))


def _plain(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=110)


def _leftovers(root: Path, wanted: dict[str, str]) -> list[str]:
    there = (str(one.relative_to(root)) for one in sorted((root / FILES).rglob("*")) if one.is_file())
    return [path for path in there if path not in wanted and not path.startswith(OTHERS)]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
