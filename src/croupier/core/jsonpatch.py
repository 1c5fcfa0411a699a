"""The subset of JSON Patch (RFC 6902) that admission responses need.

A patch names single values, so that unknown fields of an object survive. Applying a patch copies each changed
mapping or list once, so its cost grows with the patch and not with the square of the document.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Op: TypeAlias = Literal["add", "remove", "replace"]


class BadPatchError(ValueError):
    """The patch does not apply to the document; the message says where."""


@dataclass(frozen=True, slots=True)
class Operation:
    op: Op
    path: str
    value: Any = None
    """None for `remove`."""


def pointer(*steps: str | int) -> str:
    """`("limits", "nvidia.com/gpu")` is `/limits/nvidia.com~1gpu`."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def data(operations: Iterable[Operation]) -> list[dict[str, Any]]:
    """The wire format."""
    return [
        {"op": operation.op, "path": operation.path}
        | ({} if operation.op == "remove" else {"value": operation.value})
        for operation in operations
    ]


def apply(document: Any, operations: Iterable[Operation]) -> Any:
    """The changed document; `document` itself is not modified and unchanged parts are shared."""
    draft = _Draft()
    for operation in operations:
        document = draft.changed(document, _steps(operation.path), operation)
    return document


def _steps(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise BadPatchError(f"path {path!r} must begin with a slash")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


class _Draft:
    """The copies that one patch has made; only these are modified."""

    def __init__(self) -> None:
        self._copies: dict[int, Any] = {}  # by id; the values keep the ids in use

    def changed(self, node: Any, steps: list[str], operation: Operation) -> Any:
        """The node with the operation applied below it: a copy, made by the first operation that needs it."""
        if not steps:
            return None if operation.op == "remove" else operation.value
        if isinstance(node, dict):
            return self._changed_object(self._own(node), steps, operation)
        if isinstance(node, list):
            return self._changed_array(self._own(node), steps, operation)
        raise BadPatchError(f"path {operation.path!r} points into a value that has no members")

    def _own(self, node: Any) -> Any:
        if id(node) in self._copies:
            return node
        copy = node.copy()
        self._copies[id(copy)] = copy
        return copy

    def _changed_object(self, node: dict[str, Any], steps: list[str], operation: Operation) -> dict[str, Any]:
        key, *deeper = steps
        if key not in node and (deeper or operation.op != "add"):
            raise BadPatchError(f"path {operation.path!r}: there is no {key!r}")
        if not deeper and operation.op == "remove":
            del node[key]
        else:
            node[key] = self.changed(node.get(key), deeper, operation)
        return node

    def _changed_array(self, node: list[Any], steps: list[str], operation: Operation) -> list[Any]:
        key, *deeper = steps
        adding = operation.op == "add" and not deeper
        at = len(node) if adding and key == "-" else _index(key, operation)
        if at >= len(node) + adding:
            raise BadPatchError(f"path {operation.path!r}: there are only {len(node)} elements")
        if adding:
            node.insert(at, operation.value)
        elif not deeper and operation.op == "remove":
            del node[at]
        else:
            node[at] = self.changed(node[at], deeper, operation)
        return node


def _index(key: str, operation: Operation) -> int:
    if not (key.isascii() and key.isdigit()) or (len(key) > 1 and key.startswith("0")):
        raise BadPatchError(f"path {operation.path!r}: {key!r} is not an array index")
    return int(key)
