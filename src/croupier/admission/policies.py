"""Builds a ValidatingAdmissionPolicy and its binding: rules that the API server enforces by itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from croupier.admission.configurations import EXCLUDED

NAME_LABEL: Final = "kubernetes.io/metadata.name"
USER_NAMESPACES: Final[dict[str, Any]] = {
    "matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": list(EXCLUDED)}]
}
"""A selector of all namespaces but kube-system and our own."""


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    name: str
    rules: list[dict[str, Any]]
    variables: Mapping[str, str]
    validations: list[dict[str, Any]]
    namespaces: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    failure: str = "Fail"
    action: str = "Deny"

    def documents(self, narrowed: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The policy and its binding; `narrowed` is a selector of namespaces."""
        where = {"matchResources": {"namespaceSelector": dict(narrowed)}} if narrowed else {}
        selector = {"namespaceSelector": dict(self.namespaces)} if self.namespaces else {}
        policy: dict[str, Any] = {
            "failurePolicy": self.failure,
            "matchConstraints": {"resourceRules": self.rules, **selector},
            **({"matchConditions": expressions(self.conditions)} if self.conditions else {}),
            "variables": expressions(self.variables),
            "validations": self.validations,
        }
        binding = {"policyName": self.name, "validationActions": [self.action], **where}
        kinds = {"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding}
        return [document(self.name, kind, spec) for kind, spec in kinds.items()]


def document(name: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def rule(group: str, resources: list[str], *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": resources,
    }


def validation(expression: str, message: str, variable: str = "", otherwise: str = "") -> dict[str, Any]:
    """`{item}` in the message is the first item of that CEL variable; in the static message, `otherwise`."""
    parts = (f"'{part}'" if part else "" for part in message.split("{item}"))
    expanded = f" + variables.{variable}[0] + ".join(parts).strip("+ ")
    return {
        "expression": expression,
        "message": message.replace("{item}", otherwise),
        **({"messageExpression": expanded} if variable else {}),
        "reason": "Forbidden",
    }


def quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def expressions(named: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": text} for name, text in named.items()]
