"""Reads the resources of a cluster from a file.

The file holds either objects as kubectl prints them (Nodes, and Pods for the used resources), or a
short map from node name to resources: `gpu-worker: {mig-1g.10gb: 28}`.
"""

from collections.abc import Iterable
from typing import Any, Final

from croupier.core import quantity
from croupier.core.availability import AccountedPod, Availability
from croupier.core.model.refusal import Refusal
from croupier.core.pods import podspec_view
from croupier.core.pods.effective_requests import Amounts
from croupier.core.pods.podspec_view import PodSpecView
from croupier.core.pods.request_parser import GPU, MIG

_SHORT: Final = ("gpu", "mig-")
_HINT: Final = f" from resource to count, such as {MIG}1g.10gb: 28"
_DOMAIN: Final = GPU.removesuffix("gpu")


class _InvalidFileError(Exception):
    """The message about an invalid file."""


def read(documents: Iterable[Any]) -> Availability | Refusal:
    """All nodes of all documents; objects that are neither Node nor Pod are ignored."""
    index = Availability()
    try:
        for document in documents:
            _add_document(index, document)
    except _InvalidFileError as nonsense:
        return Refusal(str(nonsense))
    return index if index.nodes() else Refusal("it describes no node")


def _add_document(index: Availability, document: Any) -> None:
    if document is None:
        return
    if not isinstance(document, dict):
        raise _InvalidFileError(
            f"it must contain Nodes or a map from node name to resources, but contains {document!r:.40}"
        )
    kind, items = document.get("kind"), document.get("items")
    if isinstance(items, list):
        for item in items:
            _add_document(index, item)
    elif not isinstance(kind, str):
        for name, has in document.items():
            index.set_node(str(name), _amounts(has, f"node {name}", short=True))
    elif kind == "Node":
        _add_node(index, document)
    elif kind == "Pod":
        _add_pod(index, document)


def _add_node(index: Availability, node: dict[str, Any]) -> None:
    name = _mapping(node.get("metadata"), "metadata of a Node").get("name")
    if not isinstance(name, str) or not name:
        raise _InvalidFileError("a Node must have a name in its metadata")
    status = _mapping(node.get("status"), f"status of node {name}")
    index.set_node(name, _amounts(status.get("allocatable"), f"allocatable of node {name}"))


def _add_pod(index: Availability, pod: dict[str, Any]) -> None:
    """Count its requests if it is bound and has not finished."""
    spec = podspec_view.read(pod)
    if not isinstance(spec, PodSpecView):
        raise _InvalidFileError(f"a Pod cannot be read: {spec}")
    node = (pod.get("spec") or {}).get("nodeName")
    status = _mapping(pod.get("status"), f"status of pod {spec.name}")
    if isinstance(node, str) and node and status.get("phase") not in ("Succeeded", "Failed"):
        key = f"{spec.namespace}/{spec.name}"
        index.set_pod(AccountedPod(key, key, node, podspec_view.total(spec)))


def _amounts(value: Any, where: str, *, short: bool = False) -> Amounts:
    amounts = {}
    for name, written in _mapping(value, where, _HINT).items():
        full = f"{_DOMAIN}{name}" if short and name.startswith(_SHORT) and "/" not in name else name
        try:
            amounts[full] = quantity.parse(str(written))
        except quantity.InvalidQuantityError as invalid:
            raise _InvalidFileError(f"{where}, {name}: {invalid}") from invalid
    return amounts


def _mapping(value: Any, where: str, hint: str = "") -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _InvalidFileError(f"{where} must be a map{hint}")
    return value
