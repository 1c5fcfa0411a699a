"""The write of an action is one patch, and its command lines do the same."""

import json
import shlex
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.api import planned_write
from croupier.api.gpu import GPUDevice, GPUPool
from croupier.api.gpu.pool import PoolAllocation
from croupier.api.mps import Reservation
from croupier.core.explanation.card_outcomes import CardsAction, CardVerb
from croupier.core.model.refusal import Refusal

NAME = "node-1-0000-65-00-0"
ASSIGNMENT, DRAIN = "gpu.deckhouse.io/assignment", "gpu.deckhouse.io/drain"
IGNORE, CONFIRMED = "gpu.deckhouse.io/ignore", "gpu.deckhouse.io/confirmed"
RETIRED = "gpu.deckhouse.io/retired"


def patched(metadata: dict[str, Any]) -> str:
    body = msgspec.json.encode({"metadata": metadata}).decode()
    return shlex.join(["kubectl", "patch", "gpudevice", NAME, "--type", "merge", "-p", body])


def device(**annotations: str) -> GPUDevice:
    named = {f"gpu.deckhouse.io/{key}": value for key, value in annotations.items()}
    return msgspec.convert(
        {"metadata": {"name": NAME, "resourceVersion": "7", "annotations": named}}, GPUDevice
    )


def pool(mode: str = "Exclusive", *, unit: str | None = None, **allocation: Any) -> GPUPool:
    spec: dict[str, Any] = {"allocation": {"mode": mode, **allocation}}
    if unit is not None:
        spec["resource"] = {"unit": unit}
    return msgspec.convert(
        {"metadata": {"name": "a", "resourceVersion": "8", "generation": 3}, "spec": spec}, GPUPool
    )


def act(verb: CardVerb, pool: str = "", reason: str = "") -> CardsAction:
    return CardsAction(verb, (NAME,), pool, reason)


def annotation(key: str, value: str | None) -> dict[str, Any]:
    return {"annotations": {key: value}}


KUBECTL = f"kubectl annotate gpudevice {NAME}"
CARDS = {
    "assign": (
        act("assign", "a"),
        annotation(ASSIGNMENT, "a"),
        f"croupier assign {NAME} a",
        f"{KUBECTL} {ASSIGNMENT}=a --overwrite",
    ),
    "unassign": (
        act("unassign"),
        annotation(ASSIGNMENT, None),
        f"croupier unassign {NAME}",
        f"{KUBECTL} {ASSIGNMENT}-",
    ),
    "drain with a reason": (
        act("drain", reason="broken fan"),
        annotation(DRAIN, "broken fan"),
        f"croupier drain {NAME} --reason 'broken fan'",
        f"{KUBECTL} '{DRAIN}=broken fan' --overwrite",
    ),
    "drain": (
        act("drain"),
        annotation(DRAIN, "by hand"),
        f"croupier drain {NAME}",
        f"{KUBECTL} '{DRAIN}=by hand' --overwrite",
    ),
    "undrain": (
        act("undrain"),
        annotation(DRAIN, None),
        f"croupier drain {NAME} --undo",
        f"{KUBECTL} {DRAIN}-",
    ),
    "retire": (
        act("retire"),
        {"labels": {IGNORE: "true"}, "annotations": {ASSIGNMENT: None, RETIRED: "by hand"}},
        f"croupier retire {NAME}",
        patched({"labels": {IGNORE: "true"}, "annotations": {ASSIGNMENT: None, RETIRED: "by hand"}}),
    ),
    "retire for a reason": (
        act("retire", reason="worn out"),
        {"labels": {IGNORE: "true"}, "annotations": {ASSIGNMENT: None, RETIRED: "worn out"}},
        f"croupier retire {NAME} --reason 'worn out'",
        patched({"labels": {IGNORE: "true"}, "annotations": {ASSIGNMENT: None, RETIRED: "worn out"}}),
    ),
    "unretire": (
        act("unretire"),
        {"labels": {IGNORE: None}, "annotations": {RETIRED: None}},
        f"croupier retire {NAME} --undo",
        patched({"labels": {IGNORE: None}, "annotations": {RETIRED: None}}),
    ),
}


@pytest.mark.parametrize(("action", "metadata", "command", "kubectl"), CARDS.values(), ids=CARDS)
def test_the_write_of_an_action_on_a_card(action, metadata, command, kubectl):
    found = planned_write.card(action, device())

    assert found.patch == {"metadata": metadata}
    assert (found.command, found.kubectl) == (command, kubectl)
    assert (found.resource.kind, found.name, found.version) == ("GPUDevice", NAME, "7")
    assert (found.namespace, found.uid) == (None, "")


def test_an_assignment_that_takes_two_steps_is_written_step_by_step():
    action, card = act("assign", "a"), device(assignment="b")

    found = planned_write.card(action, card)

    assert isinstance(planned_write.change_of(action, card), Refusal)
    assert found.patch == {"metadata": annotation(ASSIGNMENT, None)}
    assert found.command == f"croupier unassign {NAME} && croupier assign {NAME} a"
    assert found.kubectl == f"{KUBECTL} {ASSIGNMENT}-"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
@settings(max_examples=50)
def test_a_reason_stays_one_word_of_the_shell(reason):
    found = planned_write.card(act("drain", reason=reason), device())

    assert shlex.split(found.command) == ["croupier", "drain", NAME, "--reason", reason]
    assert shlex.split(found.kubectl)[4] == f"{DRAIN}={reason}"
    assert found.patch == {"metadata": annotation(DRAIN, reason)}


def test_a_confirmation_names_the_generation():
    found = planned_write.confirm(pool())

    assert found.patch == {"metadata": annotation(CONFIRMED, "3")}
    assert found.command == "croupier pools confirm a"
    assert found.kubectl == f"kubectl annotate gpupool a {CONFIRMED}=3 --overwrite"
    assert (found.resource.kind, found.name, found.version) == ("GPUPool", "a", "8")


def test_a_release_deletes_the_reservation_of_this_uid():
    meta = {"name": "mine", "namespace": "team", "uid": "u9", "resourceVersion": "9"}
    spec = {"podKey": "team/job", "nodeName": "node-1", "numCards": 1, "percentPerCard": 50}

    found = planned_write.release(msgspec.convert({"metadata": meta, "spec": spec}, Reservation))

    assert (found.patch, found.namespace, found.uid, found.version) == (None, "team", "u9", "9")
    assert found.command == found.kubectl == "kubectl delete reservation mine -n team"


SMALL: dict[str, Any] = {"mode": "MIG", "migProfile": "1g.10gb"}
SLICES: dict[str, Any] = {"mode": "TimeSlice", "timeSlice": {"maxSlicesPerDevice": 4}}
SHARE = {
    "from whole cards to MIG": (pool(), SMALL, SMALL, {}),
    "another profile": (pool(**SMALL), {"mode": "MIG", "migProfile": "2g.20gb"}, {}, {}),
    "from a profile to a layout": (
        pool(**SMALL),
        {"mode": "MIG", "migLayout": [{"profile": "1g.10gb", "count": 2}]},
        {},
        {"migProfile": None},
    ),
    "from MIG to slices": (pool(**SMALL), SLICES, SLICES, {"migProfile": None}),
    "from slices to whole cards": (pool(**SLICES), {"mode": "Exclusive"}, {}, {"timeSlice": None}),
    "other fields are kept": (
        pool(**SMALL, maxDevicesPerNode=2, rollout="PerCard"),
        {"mode": "MPS"},
        {"mode": "MPS", "maxDevicesPerNode": 2, "rollout": "PerCard"},
        {"migProfile": None},
    ),
}


@pytest.mark.parametrize(("old", "changes", "result", "removed"), SHARE.values(), ids=SHARE)
def test_fields_of_other_modes_are_removed(old, changes, result, removed):
    found = planned_write.share(old, changes)
    wanted = planned_write.wanted_allocation(old, changes)

    assert found.patch == {"spec": {"allocation": {**changes, **removed}}}
    assert wanted == msgspec.convert(result or changes, PoolAllocation)
    assert found.command == found.kubectl
    words = shlex.split(found.kubectl)
    assert words[:-1] == ["kubectl", "patch", "gpupool", "a", "--type", "merge", "-p"]
    assert json.loads(words[-1]) == found.patch


UNITS = {
    "a unit of the old mode": ("Card", {"mode": "MPS"}, True),
    "a unit of the new mode": ("Percent", {"mode": "MPS"}, False),
    "the mode stays": ("Card", {}, False),
    "no unit": (None, {"mode": "MPS"}, False),
}


@pytest.mark.parametrize(("unit", "changes", "removed"), UNITS.values(), ids=UNITS)
def test_a_unit_of_another_mode_is_removed(unit, changes, removed):
    patch = planned_write.share(pool(unit=unit), changes).patch

    assert patch is not None
    assert patch["spec"].get("resource") == ({"unit": None} if removed else None)


INVALID = {
    "an unknown field": ({"mode": "MPS", "colour": "red"}, "the allocation has unknown fields: colour"),
    "an unknown mode": ({"mode": "Half"}, "the allocation is invalid: Invalid enum value 'Half'"),
    "a number out of range": (
        {"mode": "TimeSlice", "timeSlice": {"maxSlicesPerDevice": 0}},
        "the allocation is invalid: Expected `int` >= 1",
    ),
}


@pytest.mark.parametrize(("changes", "why"), INVALID.values(), ids=INVALID)
def test_an_invalid_allocation_is_refused(changes, why):
    found = planned_write.wanted_allocation(pool(), changes)

    assert isinstance(found, Refusal)
    assert found.reason.startswith(why)


ALLOCATIONS = st.sampled_from(
    [
        {"mode": "Exclusive"},
        {"mode": "MPS"},
        SMALL,
        SLICES,
        {"mode": "MIG", "migLayout": [{"profile": "1g.10gb", "count": 2}]},
    ]
)


@given(ALLOCATIONS, ALLOCATIONS)
@settings(max_examples=50)
def test_the_patch_leads_to_the_wanted_allocation(old, new):
    source = pool(**old)

    write, wanted = planned_write.share(source, new), planned_write.wanted_allocation(source, new)

    assert write.patch is not None
    merged = {**old, **write.patch["spec"]["allocation"]}
    kept = {name: value for name, value in merged.items() if value is not None}
    assert wanted == msgspec.convert(kept, PoolAllocation)
