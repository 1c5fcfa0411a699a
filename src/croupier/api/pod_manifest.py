"""Read the single workload of a manifest: a Pod, or the pod template of a Deployment, Job, ...

The text comes from a file or a web page. What cannot be read is refused in one sentence.
"""

from typing import Any, Final

import msgspec
import yaml

from croupier.api import convert_pod
from croupier.api.core_v1 import Pod
from croupier.api.yaml_errors import INVALID_SCALARS
from croupier.core import jsonpatch
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.pods import ledger_resource, podspec_view
from croupier.kube.client import codec
from croupier.kube.client.errors import Undecodable

MAX_VALUES: Final = 200_000
"""The largest number of values in a manifest; a few lines of YAML with aliases can stand for billions."""
_TEMPLATE: Final = {
    "Deployment": ("template",),
    "Job": ("template",),
    "ReplicaSet": ("template",),
    "StatefulSet": ("template",),
    "CronJob": ("jobTemplate", "spec", "template"),
}
_KINDS: Final = ("Pod", *_TEMPLATE)


def pod(text: str, namespace: str | None = None) -> Pod | Refusal:
    """The Pod of a manifest, as if it were created now in `namespace`."""
    data = workload(text)
    return data if isinstance(data, Refusal) else decode(data, namespace)


def decode(data: dict[str, Any], namespace: str | None = None) -> Pod | Refusal:
    """The Pod from plain data with `metadata` and `spec`, with its annotations converted as at admission."""
    meta = {"name": "pod", **data["metadata"], "uid": "what-if"}
    meta["namespace"] = namespace or meta.get("namespace") or "default"
    converted = _with_percent({"metadata": meta, "spec": _quantities(data["spec"])})
    if isinstance(converted, Refusal):
        return converted
    try:
        return codec.decode(Pod, msgspec.json.encode(converted))
    except (Undecodable, msgspec.MsgspecError, TypeError, ValueError) as error:
        return Refusal(f"not a valid pod: {error}")


def _with_percent(data: dict[str, Any]) -> Any | Refusal:
    spec = podspec_view.read(data)
    if isinstance(spec, Refusal):
        return Refusal(f"not a valid pod: {spec}")
    added = ledger_resource.add_percent(spec)
    return added if isinstance(added, Refusal) else jsonpatch.apply(data, added)


def schedulable(source: Pod) -> PodView | Refusal:
    """The pod for a simulation of its placement."""
    view = convert_pod.view(source)
    if view.trouble:
        return Refusal(view.trouble)
    if view.node:
        return Refusal(f"the pod sets spec.nodeName ({view.node}), so it is not scheduled")
    return view


def workload(text: str) -> dict[str, Any] | Refusal:
    """The Pod as plain data; other kinds in the text are ignored."""
    listed = documents(text)
    if isinstance(listed, Refusal):
        return listed
    return _only([item for document in listed for item in _flat(document)])


def documents(text: str) -> list[Any] | Refusal:
    """All documents of a YAML or JSON text."""
    try:
        found = list(yaml.safe_load_all(text))
    except RecursionError:
        return Refusal("nested too deeply")
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where is not None else ""
        return Refusal(f"neither YAML nor JSON{line}")
    except INVALID_SCALARS as error:
        return Refusal(f"has a value that cannot be read: {error}")
    return found if _is_small(found) else Refusal(f"more than {MAX_VALUES} values; aliases count each time")


def _is_small(found: list[Any]) -> bool:
    """Whether the documents are small with all aliases expanded, and contain no cycle."""
    count, todo = 0, list(found)
    while todo and count <= MAX_VALUES:
        value = todo.pop()
        count += 1
        if isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list | tuple | set):
            todo.extend(value)
    return not todo


def _flat(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, dict):
        return []
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        return [item for item in items if isinstance(item, dict)]
    return [document]


def _only(objects: list[dict[str, Any]]) -> dict[str, Any] | Refusal:
    workloads = [item for item in objects if item.get("kind") in _KINDS]
    if len(workloads) != 1:
        count = "none" if not workloads else str(len(workloads))
        return Refusal(f"must contain one {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, but contains {count}")
    found = _pod_of(workloads[0])
    if not isinstance(found.get("spec"), dict):
        return Refusal(f"{workloads[0]['kind']} has no pod spec")
    return found


def _pod_of(item: dict[str, Any]) -> dict[str, Any]:
    """The Pod itself, or the pod template with the workload's name and namespace."""
    kind, meta = item["kind"], _mapping(item.get("metadata"))
    if kind == "Pod":
        return {"metadata": meta, "spec": item.get("spec")}
    template = _mapping(item.get("spec"))
    for step in _TEMPLATE[kind]:
        template = _mapping(template.get(step))
    naming = {key: meta[key] for key in ("name", "namespace") if key in meta}
    return {"metadata": {**_mapping(template.get("metadata")), **naming}, "spec": template.get("spec")}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _quantities(spec: Any) -> Any:
    """Convert unquoted quantities such as `nvidia.com/gpu: 2` to strings, as the API server does."""
    if isinstance(spec, dict):
        return {
            key: {name: _text(amount) for name, amount in value.items()}
            if key in ("limits", "requests", "overhead") and isinstance(value, dict)
            else _quantities(value)
            for key, value in spec.items()
        }
    return [_quantities(item) for item in spec] if isinstance(spec, list) else spec


def _text(amount: Any) -> Any:
    return str(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else amount
