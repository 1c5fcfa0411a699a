"""Read the single workload of a manifest: a Pod, or the pod template of a Deployment, Job, ..."""

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
    """The Pod as plain data; other kinds in the file are ignored. Exits with code 2 on errors."""
    return _only(path, [item for document in documents(path) for item in _flat(document)])


def documents(path: Path, option: str = "-f") -> list[Any]:
    """All documents of a YAML or JSON file; `-` is stdin. Exits with code 2 on errors."""
    import yaml

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return list(yaml.safe_load_all(text))
    except OSError as error:
        terminal.usage_error(f"{option} {path}: {error.strerror}.")
    except UnicodeDecodeError:
        terminal.usage_error(f"{option} {path}: not a text file.")
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where is not None else ""
        terminal.usage_error(f"{option} {path}: neither YAML nor JSON{line}.")


def _flat(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, dict):
        return []
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        return [item for item in items if isinstance(item, dict)]
    return [document]


def _only(path: Path, objects: list[dict[str, Any]]) -> dict[str, Any]:
    workloads = [item for item in objects if item.get("kind") in _KINDS]
    if len(workloads) != 1:
        count = "none" if not workloads else str(len(workloads))
        terminal.usage_error(
            f"-f {path}: must contain one {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, but contains {count}."
        )
    pod = _pod(workloads[0])
    if not isinstance(pod.get("spec"), dict):
        terminal.usage_error(f"-f {path}: {workloads[0]['kind']} has no pod spec.")
    return pod


def _pod(workload: dict[str, Any]) -> dict[str, Any]:
    """The Pod itself, or the pod template with the workload's name and namespace."""
    kind, meta = workload["kind"], _mapping(workload.get("metadata"))
    if kind == "Pod":
        return {"metadata": meta, "spec": workload.get("spec")}
    template = _mapping(workload.get("spec"))
    for step in _TEMPLATE[kind]:
        template = _mapping(template.get(step))
    naming = {key: meta[key] for key in ("name", "namespace") if key in meta}
    return {"metadata": {**_mapping(template.get("metadata")), **naming}, "spec": template.get("spec")}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
