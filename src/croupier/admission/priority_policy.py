"""A ValidatingAdmissionPolicy: the priority of a Reservation is a right, not a number that anyone writes.

A Reservation with a higher priority overtakes those that waited longer. Kubernetes gives pods a priority only
through a PriorityClass; here the user must also have the verb `use` on that class, or on the resource
`reservationpriorities` for a plain number. The API server asks its own authorizer, so no process of ours
decides. The checks are cluster-wide: a right within a namespace, even all rights, is not enough. A value that
an update leaves unchanged is not checked, so that existing Reservations stay editable.
"""

from typing import Any, Final

from croupier.admission import policies
from croupier.admission.policies import AdmissionPolicy

NAME: Final = "croupier-reservation-priority"
PRIORITIES: Final = "reservationpriorities"
"""A resource without objects, which only carries the right."""
_GROUP: Final = "mps.nvidia.com"

_NUMBER: Final = (
    f"spec.priority above 0 needs the verb use on {PRIORITIES}.{_GROUP}: leave it out, or set "
    "spec.priorityClassName to a PriorityClass that you may use"
)
_CLASS: Final = (
    "spec.priorityClassName {item} needs the verb use on this PriorityClass: "
    "leave it out, or have an administrator grant the verb to you"
)


def documents() -> list[dict[str, Any]]:
    """The policy and its binding."""
    number = f"authorizer.group('{_GROUP}').resource('{PRIORITIES}').check('use').allowed()"
    named = (
        "authorizer.group('scheduling.k8s.io').resource('priorityclasses')"
        ".name(variables.classes[0]).check('use').allowed()"
    )
    return AdmissionPolicy(
        NAME,
        [{**policies.rule(_GROUP, ["reservations"], "CREATE", "UPDATE"), "scope": "Namespaced"}],
        {
            "old": "oldObject == null ? 0 : oldObject.spec.?priority.orValue(0)",
            "new": "object.spec.?priority.orValue(0)",
            "classes": (
                "oldObject == null && object.spec.?priorityClassName.orValue('') != '' "
                "? [object.spec.priorityClassName] : []"
            ),
        },
        [
            policies.validation(f"variables.new <= 0 || variables.new == variables.old || {number}", _NUMBER),
            policies.validation(
                f"size(variables.classes) == 0 || {named}", _CLASS, "classes", "of a Reservation"
            ),
        ],
    ).documents()


def unauthorized_class(name: str) -> str:
    return _CLASS.format(item=name)


def unauthorized_number() -> str:
    return _NUMBER
