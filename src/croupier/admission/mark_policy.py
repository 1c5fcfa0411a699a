"""A ValidatingAdmissionPolicy: no pod gets cards without the ledger, even while the webhook is down.

The webhook sets the mark and may be skipped while it does not answer. The API server enforces this policy
itself: a pod that requests cards without the mark is refused with a message that says why. The policy is
generated here from the names in the code, and written to deployments/webhook/require-mark.yaml.

Only new pods are checked: running pods are not affected. The mirror of a static pod is admitted, because
refusing it would hide a running pod.
"""

from collections.abc import Mapping
from typing import Any, Final

from croupier.admission import policies
from croupier.admission.policies import AdmissionPolicy
from croupier.api.core_v1 import MIRROR
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, MIG, PERCENT, POOL, RATIO

NAME: Final = "croupier-require-mark"

_WEBHOOK: Final = "croupier webhook is down or was not called"
_UNMARKED: Final = (
    f"the pod requests {{item}} without the mark {LEDGER}, because {_WEBHOOK}: "
    f'create it again when the webhook runs, or set {LEDGER}: "1" together with {{item}} yourself'
)
_NOT_CONVERTED: Final = (
    f"the annotations {CARDS} and {RATIO} were not converted to a request of {PERCENT}, because {_WEBHOOK}: "
    "create the pod again when the webhook runs"
)
_SETS_NODE_NAME: Final = (
    "the pod requests {item} and sets spec.nodeName, which would bypass the ledger: "
    "remove spec.nodeName and select nodes by a nodeSelector or by affinity"
)

_OURS: Final = f"name in ['{GPU}', '{PERCENT}'] || name.startsWith('{MIG}') || name.startsWith('{POOL}')"
_ANNOTATED: Final = " || ".join(f"'{name}' in object.metadata.annotations" for name in (CARDS, RATIO))
_VARIABLES: Final = {
    "containers": (
        "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
    ),
    # The API server defaults requests to limits before admission, so requests are complete.
    "requests": (
        "variables.containers.filter(one, has(one.resources) && has(one.resources.requests))"
        ".map(one, one.resources.requests)"
    ),
    "asked": (
        f"variables.requests.map(amounts, amounts.filter(name, ({_OURS}) && amounts[name] != '0'))"
        ".filter(names, size(names) > 0).map(names, names[0])"
    ),
    "marked": f"variables.requests.exists(amounts, '{LEDGER}' in amounts && amounts['{LEDGER}'] != '0')",
    "annotated": f"has(object.metadata.annotations) && ({_ANNOTATED})",
    "shared": (
        f"variables.requests.exists(amounts, amounts.exists(name, (name == '{PERCENT}' || "
        f"name.startsWith('{POOL}')) && amounts[name] != '0'))"
    ),
}
NO_MIRROR: Final = (
    "!(request.userInfo.username.startsWith('system:node:') && has(object.metadata.annotations) "
    f"&& '{MIRROR}' in object.metadata.annotations)"
)


def documents(namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The policy and its binding; `namespaces` is a label selector of namespaces, all by default."""
    nothing, ours = "size(variables.asked) == 0", ("asked", "one of our resources")
    return AdmissionPolicy(
        NAME,
        [{**policies.rule("", ["pods"], "CREATE"), "apiVersions": ["v1"], "scope": "Namespaced"}],
        _VARIABLES,
        [
            policies.validation("!variables.annotated || variables.shared", _NOT_CONVERTED),
            policies.validation(f"{nothing} || variables.marked", _UNMARKED, *ours),
            policies.validation(f"{nothing} || !has(object.spec.nodeName)", _SETS_NODE_NAME, *ours),
        ],
        namespaces=policies.USER_NAMESPACES,
        conditions={"no-mirror-of-a-static-pod": NO_MIRROR},
    ).documents(namespaces)


def unmarked(asked: str) -> str:
    return _UNMARKED.format(item=asked)


def not_converted() -> str:
    return _NOT_CONVERTED


def sets_node_name(asked: str) -> str:
    return _SETS_NODE_NAME.format(item=asked)
