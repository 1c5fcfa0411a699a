"""Policies about environment variables that show a container cards which it does not hold.

Two rules, both enforced by the API server itself, so that they hold while every process of Croupier is down
and no pod ever waits for one:

Pods that hold cards may not set variables that override the grant (core/pods/device_variables.py). The
webhook overrules or refuses them first; the policy holds while the webhook is down, and for ephemeral
containers, which come later and by another path.

Containers without cards may not choose cards: the guard, with the modes of the setting `guard.mode`. Warn
and Deny are a ValidatingAdmissionPolicy. Void is a MutatingAdmissionPolicy that sets NVIDIA_VISIBLE_DEVICES
to void. Images may set the variable themselves, which admission cannot see, so a second policy adds void to
every container without cards, for clusters with nodes whose default runtime is NVIDIA's.

The reasons are in docs/decisions/0018-guard-of-visible-devices.md. The policies are written to deployments/
and to the chart by `make generate`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from croupier.admission import mark_policy, policies
from croupier.admission.configurations import EXCLUDED
from croupier.admission.policies import NAME_LABEL, AdmissionPolicy
from croupier.core.nodes.bootstrap import TRUSTED_NAMESPACES
from croupier.core.pods.device_variables import (
    CUDA_VISIBLE,
    HARMLESS,
    LIMIT_PREFIXES,
    LIMITS,
    OVERRIDES,
    VISIBLE,
    VOID,
    offence,
)
from croupier.core.pods.request_parser import GPU, MIG, PERCENT, POOL

GuardPolicy: TypeAlias = Literal["Warn", "Deny", "Void"]

GRANT_VARIABLES: Final = "croupier-grant-variables"
GUARD: Final = "croupier-guard"
GUARD_IMAGES: Final = "croupier-guard-images"
EXEMPT: Final = "gpu.deckhouse.io/guard"
"""The namespace label that exempts a namespace from the guard, with the value `off`."""
OTHER_VENDORS: Final = ("amd.com/", "gpu.intel.com/", "habana.ai/", "huawei.com/")
"""Resources of other vendors' cards. Their runtimes read CUDA_VISIBLE_DEVICES too."""

UNREQUESTED: Final = (
    f"{{item}}, but the pod requests no cards: request cards, or remove the variable, or set it to {VOID}"
)
SHOWS_OTHERS: Final = (
    "{item}, which would show cards that the container does not hold: remove the variable; "
    "the card request decides which cards a container sees"
)

_CARDS: Final = f"(name in ['{GPU}', '{PERCENT}'] || name.startsWith('{MIG}') || name.startsWith('{POOL}'))"
_OTHER_CARDS: Final = " || ".join(
    f"name.startsWith('{prefix}')" for prefix in (GPU, MIG, POOL, PERCENT, *OTHER_VENDORS)
)
"""Also cards of other device plugins, such as nvidia.com/gpu.shared."""
_RULES: Final = [
    {**policies.rule("", ["pods"], "CREATE"), "apiVersions": ["v1"], "scope": "Namespaced"},
    {
        **policies.rule("", ["pods/ephemeralcontainers"], "UPDATE"),
        "apiVersions": ["v1"],
        "scope": "Namespaced",
    },
]
_UNSET: Final = f"!one.?env.orValue([]).exists(each, each.name == '{VISIBLE}')"
_OLD: Final = "oldObject.spec.?ephemeralContainers.orValue([])"
_EPHEMERAL: Final = "request.?subResource.orValue('') == 'ephemeralcontainers'"
_VARIABLES: Final = {
    "regular": "object.spec.containers + object.spec.?initContainers.orValue([])",
    # Only those that are added: the others were checked when they came.
    "checked": (
        f"{_EPHEMERAL} ? object.spec.?ephemeralContainers.orValue([])"
        f".filter(one, !{_OLD}.exists(old, old.name == one.name)) : variables.regular"
    ),
}
_CONDITIONS: Final = {"no-mirror-of-a-static-pod": mark_policy.NO_MIRROR}
# The services of NVIDIA's operator and of monitoring see every card, and hold none.
_GUARDED: Final[dict[str, Any]] = {
    "matchExpressions": [
        {"key": NAME_LABEL, "operator": "NotIn", "values": sorted({*EXCLUDED, *TRUSTED_NAMESPACES})},
        {"key": EXEMPT, "operator": "NotIn", "values": ["off"]},
    ]
}


def grant_documents(namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Variables of pods that hold cards; `namespaces` is a label selector of namespaces, all by default."""
    limits = f"each.name in [{policies.quoted(LIMITS)}] || " + " || ".join(
        f"each.name.startsWith('{prefix}')" for prefix in LIMIT_PREFIXES
    )
    holds = f"variables.regular.exists(one, {_requests(_CARDS)})"
    return AdmissionPolicy(
        GRANT_VARIABLES,
        _RULES,
        {
            **_VARIABLES,
            "holds": holds,
            "limits": f"variables.holds ? {_offences(limits)} : []",
            "visible": f"variables.holds ? {_offences(_shows(VISIBLE))} : []",
        },
        [
            policies.validation(
                "size(variables.limits) == 0", OVERRIDES, "limits", "a container sets a limit"
            ),
            policies.validation(
                "size(variables.visible) == 0", SHOWS_OTHERS, "visible", f"a container sets {VISIBLE}"
            ),
        ],
        namespaces=policies.USER_NAMESPACES,
        conditions=_CONDITIONS,
    ).documents(namespaces)


def guard_documents(mode: GuardPolicy, namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The guard of containers without cards, in one of its modes."""
    if mode == "Void":
        shown = f"one.?env.orValue([]).exists(each, {_shows(VISIBLE)})"
        unread = f"(size(one.?envFrom.orValue([])) > 0 && {_UNSET})"  # `env` replaces what `envFrom` sets
        return _void(GUARD, f"variables.unheld && ({shown} || {unread})", namespaces)
    shown = f"{_shows(VISIBLE)} || {_shows(CUDA_VISIBLE)}"
    return AdmissionPolicy(
        GUARD,
        _RULES,
        {**_VARIABLES, "unheld": _UNHELD, "shown": f"variables.unheld ? {_offences(shown)} : []"},
        [
            policies.validation(
                "size(variables.shown) == 0", UNREQUESTED, "shown", f"a container sets {VISIBLE}"
            )
        ],
        namespaces=_GUARDED,
        conditions=_CONDITIONS,
        # A pod beyond the limits of CEL's cost is refused only where the guard must hold.
        failure="Fail" if mode == "Deny" else "Ignore",
        action=mode,
    ).documents(namespaces)


def image_documents(namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Adds void to containers without cards, for images that set NVIDIA_VISIBLE_DEVICES themselves.

    A container of a pod that holds cards is included if it requests none: the runtime would show it all.
    """
    return _void(GUARD_IMAGES, f"{_NO_CLAIMS} && !({_requests(_OTHER_CARDS)}) && {_UNSET}", namespaces)


def unrequested(container: str, variable: str) -> str:
    return UNREQUESTED.format(item=offence(container, variable))


def shows_others(container: str) -> str:
    return SHOWS_OTHERS.format(item=offence(container, VISIBLE))


def _void(name: str, concerned: str, namespaces: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """A MutatingAdmissionPolicy that sets NVIDIA_VISIBLE_DEVICES to void in the concerned containers."""
    kinds = ("containers", "initContainers")
    created = " + ".join(f"({_patches(kind, concerned)})" for kind in kinds)
    added = _patches("ephemeralContainers", f"!{_OLD}.exists(old, old.name == one.name) && {concerned}")
    policy = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": _RULES, "namespaceSelector": _GUARDED},
        "matchConditions": policies.expressions(_CONDITIONS),
        "variables": policies.expressions({"regular": _VARIABLES["regular"], "unheld": _UNHELD}),
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": f"{_EPHEMERAL} ? {added} : {created}"}}
        ],
    }
    where = {"matchResources": {"namespaceSelector": dict(namespaces)}} if namespaces else {}
    return [
        policies.document(name, "MutatingAdmissionPolicy", policy),
        policies.document(name, "MutatingAdmissionPolicyBinding", {"policyName": name, **where}),
    ]


def _patches(kind: str, concerned: str) -> str:
    """The list of the patches of one list of containers. Each replaces the env of one container."""
    kept = f"one.?env.orValue([]).filter(each, each.name != '{VISIBLE}')"
    void = f"[{{'name': '{VISIBLE}', 'value': '{VOID}'}}]"
    patch = f"JSONPatch{{op: 'add', path: '/spec/{kind}/' + string(index) + '/env', value: {kept} + {void}}}"
    return f"object.spec.?{kind}.orValue([]).transformList(index, one, {concerned}, {patch})"


def _requests(cards: str) -> str:
    """Whether the container `one` requests cards."""
    return f"one.?resources.requests.orValue({{}}).exists(name, {cards}) || " + (
        f"one.?resources.limits.orValue({{}}).exists(name, {cards})"
    )


def _shows(variable: str) -> str:
    """Whether the variable `each` may make cards visible. A value from another object is unknown."""
    harmless = policies.quoted(HARMLESS[variable])
    return (
        f"(each.name == '{variable}' && (has(each.valueFrom) || !(each.?value.orValue('') in [{harmless}])))"
    )


def _offences(concerned: str) -> str:
    """The offences of the checked containers, at most one of each, as in `device_variables.offence`."""
    before, between = offence("{}", "{}").split("{}")[:2]
    sets = f"one.?env.orValue([]).exists(each, {concerned})"
    first = f"one.env.filter(each, {concerned})[0].name"
    return f"variables.checked.filter(one, {sets}).map(one, '{before}' + one.name + '{between}' + {first})"


# The devices of a ResourceClaim are not visible to admission, so its pods are left alone.
_NO_CLAIMS: Final = "size(object.spec.?resourceClaims.orValue([])) == 0"
_UNHELD: Final = f"{_NO_CLAIMS} && !variables.regular.exists(one, {_requests(_OTHER_CARDS)})"
