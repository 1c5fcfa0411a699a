"""A ValidatingAdmissionPolicy that warns about unknown annotations with Croupier's prefixes.

A misspelt annotation has no effect, so its owner gets a card or a limit that was not meant. The API server
evaluates the policy by itself: no object is sent to the webhook for it, and it works while the webhook is
down. It only warns. Pods mostly come from templates, whose controllers do not show warnings, so the templates
of workloads are checked too. See docs/decisions/0030-unknown-annotations.md.

The suggestion is the annotation of users that shares most letters and pairs of letters with the unknown one.
"""

from collections.abc import Mapping
from typing import Any, Final

from croupier.admission import known_annotations, mark_policy, policies
from croupier.admission.known_annotations import ANNOTATIONS, PREFIXES
from croupier.admission.policies import AdmissionPolicy
from croupier.api.wire import cel_map

NAME: Final = "croupier-unknown-annotations"
REFERENCE: Final = "docs/reference/annotations.md lists the known annotations"
LEAST_SIMILARITY: Final = 60
"""The similarity, in percent, from which an annotation is suggested."""

_RULES: Final = [
    policies.rule("", ["pods", "nodes"], "CREATE", "UPDATE"),
    policies.rule("apps", ["daemonsets", "deployments", "statefulsets"], "CREATE", "UPDATE"),
    policies.rule("batch", ["cronjobs", "jobs"], "CREATE", "UPDATE"),
    policies.rule("gpu.deckhouse.io", ["gpudevices", "gpupools"], "CREATE", "UPDATE"),
    policies.rule("mps.nvidia.com", ["reservations"], "CREATE", "UPDATE"),
    policies.rule("allocation.mbcas.io", ["podallocations"], "CREATE", "UPDATE"),
]
_PATHS: Final = ("metadata", "spec.template.metadata", "spec.jobTemplate.spec.template.metadata")
"""The metadata of the object and of the pods that it starts."""


def documents(namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The policy and its binding; `namespaces` is a label selector of namespaces, all by default."""
    return AdmissionPolicy(
        NAME,
        _RULES,
        _variables(),
        [
            policies.validation(
                "size(variables.unknown) == 0", "{item}", "sentence", "an annotation is not known"
            )
        ],
        namespaces=policies.USER_NAMESPACES,
        conditions={"no-mirror-of-a-static-pod": mark_policy.NO_MIRROR},
        failure="Ignore",
        action="Warn",
    ).documents(namespaces)


def _variables() -> dict[str, str]:
    """The CEL variables, in the order in which they are used."""
    ours = " || ".join(f"key.startsWith('{prefix}')" for prefix in PREFIXES)
    known = policies.quoted(known_annotations.annotation_keys())
    new = f"({ours}) && !(key in variables.old) && !(key in [{known}])"
    settable = dict.fromkeys(item.key for item in ANNOTATIONS if item.by_users)
    sentence = f"'annotation ' + key + ' is not known' + {_advice()}"
    return {
        "old": f"oldObject == null ? [] : {_keys('oldObject')}",
        "unknown": f"({_keys('object')}).filter(key, {new})",
        "uses": cel_map(known_annotations.other_uses()),
        "settable": f"[{policies.quoted(settable)}]",
        "sentence": f"[variables.unknown.map(key, {sentence}).join('; ')]",
    }


def _keys(root: str) -> str:
    """The annotations of the object `root` and of its templates, as a list of keys in CEL."""
    paths = (path.replace(".", ".?") for path in _PATHS)
    return " + ".join(f"{root}.?{path}.?annotations.orValue({{}}).map(key, key)" for path in paths)


def _advice() -> str:
    """What to do about the annotation `key`, in CEL."""
    best = "variables.settable[scores.indexOf(scores.max())]"
    return (
        "(key in variables.uses ? ': this is the name of ' + variables.uses[key]"
        f" : [variables.settable.map(each, {_similarity('key', 'each')})].map(scores,"
        f" scores.max() >= {LEAST_SIMILARITY} ? '; did you mean ' + {best} + '?' : '; {REFERENCE}')[0])"
    )


def _similarity(key: str, other: str) -> str:
    """How similar the names of two annotations are, in percent, in CEL: Dice's coefficient."""
    name, like = (f"{each}.substring({each}.indexOf('/') + 1)" for each in (key, other))
    parts = "like.split('') + like.split('').transformList(i, c, i > 0, like.substring(i - 1, i + 1))"
    return (
        f"[{name}].map(name, [{like}].map(like, [{parts}].map(parts,"
        " 200 * parts.filter(part, name.contains(part)).size() / (parts.size() + 2 * name.size() - 1)"
        ")[0])[0])[0]"
    )
