"""What the API server itself holds, even when we are down: nobody gets cards past the ledger.

The webhook sets the mark and may be passed by when it does not answer. This policy may not: a pod that
asks for cards and does not carry the mark is refused, and its owner reads why. It is written here, from
the names the code uses, and shipped as deployments/webhook/require-mark.yaml.

Only pods that are created are looked at: what runs already goes on. The mirror of a static pod passes,
because refusing it would hide a pod that runs.
"""

from collections.abc import Mapping
from typing import Any, Final

from croupier.admission.configurations import EXCLUDED
from croupier.core.pods.request import CARDS, GPU, MARK, MIG, PERCENT, POOL, RATIO

NAME: Final = "croupier-require-mark"
MIRROR: Final = "kubernetes.io/config.mirror"

_WEBHOOK: Final = "croupier webhook is down or was passed by"
_UNMARKED: Final = (
    f"the pod asks for {{asked}} without the mark {MARK}, because {_WEBHOOK}: "
    f'create it again when the webhook runs, or set {MARK}: "1" beside {{asked}} yourself'
)
_UNTURNED: Final = (
    f"the annotations {CARDS} and {RATIO} were not turned into a request of {PERCENT}, because {_WEBHOOK}: "
    "create the pod again when the webhook runs"
)
_NAMES_ITS_NODE: Final = (
    "the pod asks for {asked} and names its node in spec.nodeName, which would take cards past the ledger: "
    "leave spec.nodeName out and choose nodes by a nodeSelector or by affinity"
)

_OURS: Final = f"name in ['{GPU}', '{PERCENT}'] || name.startsWith('{MIG}') || name.startsWith('{POOL}')"
_ANNOTATED: Final = " || ".join(f"'{one}' in object.metadata.annotations" for one in (CARDS, RATIO))
_VARIABLES: Final = {
    "containers": (
        "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
    ),
    # The API server makes every limit a request before anybody looks, so requests are all there is to see.
    "requests": (
        "variables.containers.filter(one, has(one.resources) && has(one.resources.requests))"
        ".map(one, one.resources.requests)"
    ),
    "asked": (
        f"variables.requests.map(amounts, amounts.filter(name, ({_OURS}) && amounts[name] != '0'))"
        ".filter(names, size(names) > 0).map(names, names[0])"
    ),
    "marked": f"variables.requests.exists(amounts, '{MARK}' in amounts && amounts['{MARK}'] != '0')",
    "annotated": f"has(object.metadata.annotations) && ({_ANNOTATED})",
    "shared": (
        f"variables.requests.exists(amounts, amounts.exists(name, (name == '{PERCENT}' || "
        f"name.startsWith('{POOL}')) && amounts[name] != '0'))"
    ),
}
_NO_MIRROR: Final = (
    "!(request.userInfo.username.startsWith('system:node:') && has(object.metadata.annotations) "
    f"&& '{MIRROR}' in object.metadata.annotations)"
)


def documents(namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The policy and its binding; `namespaces` is a label selector of those it is for, all by default."""
    everywhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(EXCLUDED)}
    narrowed = {"matchResources": {"namespaceSelector": namespaces}} if namespaces else {}
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": NAME},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [_pods()],
                    "namespaceSelector": {"matchExpressions": [everywhere]},
                },
                "matchConditions": [{"name": "no-mirror-of-a-static-pod", "expression": _NO_MIRROR}],
                "variables": [{"name": name, "expression": text} for name, text in _VARIABLES.items()],
                "validations": _validations(),
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": NAME},
            "spec": {"policyName": NAME, "validationActions": ["Deny"], **narrowed},
        },
    ]


def unmarked(asked: str) -> str:
    return _UNMARKED.format(asked=asked)


def unturned() -> str:
    return _UNTURNED


def names_its_node(asked: str) -> str:
    return _NAMES_ITS_NODE.format(asked=asked)


def _pods() -> dict[str, Any]:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "Namespaced",
    }


def _validations() -> list[dict[str, Any]]:
    nothing = "size(variables.asked) == 0"
    return [
        _validation("!variables.annotated || variables.shared", _UNTURNED),
        _validation(f"{nothing} || variables.marked", _UNMARKED),
        _validation(f"{nothing} || !has(object.spec.nodeName)", _NAMES_ITS_NODE),
    ]


def _validation(expression: str, sentence: str) -> dict[str, Any]:
    named = sentence.format(asked="one of our resources")
    telling = " + variables.asked[0] + ".join(f"'{part}'" for part in sentence.split("{asked}"))
    spoken = {"messageExpression": telling} if "{asked}" in sentence else {}
    return {"expression": expression, "message": named, **spoken, "reason": "Forbidden"}
