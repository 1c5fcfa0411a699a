"""The one workload a file tells of: a Pod, or the template of what makes pods."""

import sys
from pathlib import Path
from typing import Any, Final

from croupier.cli import terminal

_TEMPLATE: Final = {
    "Deployment": ("template",),
    "Job": ("template",),
    "ReplicaSet": ("template",),
    "StatefulSet": ("template",),
    "CronJob": ("jobTemplate", "spec", "template"),
}
_KINDS: Final = ("Pod", *_TEMPLATE)


def read(path: Path) -> dict[str, Any]:
    """The Pod as plain data; whatever else the file has is passed over. Refuses with exit code 2."""
    return _only(path, [one for document in documents(path) for one in _flat(document)])


def documents(path: Path, option: str = "-f") -> list[Any]:
    """All that the file has, YAML or JSON; `-` is stdin. Refuses with exit code 2."""
    import yaml

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return list(yaml.safe_load_all(text))
    except OSError as error:
        terminal.refuse(f"{option} {path}: {error.strerror}.")
    except UnicodeDecodeError:
        terminal.refuse(f"{option} {path}: it is no text.")
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where is not None else ""
        terminal.refuse(f"{option} {path}: it is neither YAML nor JSON{line}.")


def _flat(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, dict):
        return []
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        return [item for item in items if isinstance(item, dict)]
    return [document]


def _only(path: Path, objects: list[dict[str, Any]]) -> dict[str, Any]:
    workloads = [one for one in objects if one.get("kind") in _KINDS]
    if len(workloads) != 1:
        found = "none" if not workloads else f"{len(workloads)} of them"
        terminal.refuse(
            f"-f {path}: it must have one {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, and has {found}."
        )
    pod = _pod(workloads[0])
    if not isinstance(pod.get("spec"), dict):
        terminal.refuse(f"-f {path}: its {workloads[0]['kind']} has no spec of a pod.")
    return pod


def _pod(workload: dict[str, Any]) -> dict[str, Any]:
    """The pod it is, or would make, under the workload's own name."""
    kind, meta = workload["kind"], _mapping(workload.get("metadata"))
    if kind == "Pod":
        return {"metadata": meta, "spec": workload.get("spec")}
    template = _mapping(workload.get("spec"))
    for step in _TEMPLATE[kind]:
        template = _mapping(template.get(step))
    naming = {key: meta[key] for key in ("name", "namespace") if key in meta}
    return {"metadata": {**_mapping(template.get("metadata")), **naming}, "spec": template.get("spec")}


def _mapping(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
