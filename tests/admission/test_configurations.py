"""Which pods reach us, and what stays untouched in a configuration that is kept right."""

import asyncio
from base64 import b64decode, b64encode
from dataclasses import replace

import pytest

from croupier.admission import configurations
from croupier.admission.configurations import ACCESS, ACCESS_REQUEST, FALLBACK, REQUEST, Service, Url, Wish
from croupier.admission.registration import KINDS
from croupier.admission.review import AdmissionRequest, Verdict
from croupier.api import kinds
from croupier.api.core_v1 import Webhook, WebhookClientConfig, WebhookConfiguration
from croupier.api.meta import ObjectMeta
from croupier.core.jsonpatch import Operation
from croupier.kube.client import PatchType
from croupier.kube.errors import ApiError
from croupier.lab import borrowed
from tests.admission.desk import Desk, free_port, gpu, plain
from tests.kube.waiting import until_async

MINE = {"nvidia.com/gpu": "1"}
CONTAINER = {"name": "main", "image": "any"}


def init(**more: object) -> dict[str, object]:
    asking = {"name": "first", "image": "any", "resources": {"requests": MINE, "limits": MINE}, **more}
    return {**plain(), "initContainers": [asking]}


COME = {
    "a whole card": gpu(),
    "a MIG profile": gpu("nvidia.com/mig-2g.20gb"),
    "a pool": gpu("gpu.deckhouse.io/training"),
    "a percentage": gpu("gpu.mps.io/percent"),
    "the mark": gpu("gpu.mps.io/ledger"),
    "only a limit": plain(limits=MINE),
    "an init container": init(),
    "a sidecar": init(restartPolicy="Always"),
    "the second container": {
        "containers": [CONTAINER, {**CONTAINER, "name": "b", "resources": {"limits": MINE}}]
    },
}
STAY = {
    "nothing": plain(),
    "cpu and memory": plain(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "1"}),
    "somebody else's device": gpu("amd.com/gpu"),
    "a name that only begins like ours": gpu("nvidia.com/gpu.shared"),
}
OUR_ANNOTATIONS = {
    "percentages": {"gpu.mps.io/cards": "1"},
    "a fallback policy": {"gpu-webhook.k8s.io/fallback-policy": "off"},
}


async def test_only_pods_that_name_something_of_ours_reach_us(desk):
    async with desk.open():
        for index, spec in enumerate(STAY.values()):
            await desk.create(f"stay-{index}", spec=spec, annotations={"team": "a"}, dry_run=True)
        for index, spec in enumerate(COME.values()):
            await desk.create(f"come-{index}", spec=spec, dry_run=True)
        for index, annotations in enumerate(OUR_ANNOTATIONS.values()):
            await desk.create(f"note-{index}", annotations=annotations, dry_run=True)

    mutated = [f"come-{index}" for index in range(len(COME))]
    annotated = [f"note-{index}" for index in range(len(OUR_ANNOTATIONS)) for _ in ("mutate", "validate")]
    assert desk.stamp.seen == [*mutated, *annotated]
    assert all(request.dry_run for request in desk.stamp.requests)


async def test_excluded_namespaces_and_other_changes_do_not_reach_us(desk, cluster, request):
    excluded = borrowed.create_namespace(cluster, "excluded")
    request.addfinalizer(lambda: borrowed.delete_namespace(cluster, excluded))
    for name in (desk.namespace, excluded):
        cluster.kubectl("label", "namespace", name, f"guarded-by={desk.namespace}")
    desk.wish = replace(desk.wish, namespaces={"guarded-by": desk.namespace}, excluded=(excluded,))
    async with desk.open():
        await desk.create("elsewhere", spec=gpu(), namespace=excluded, dry_run=True)
        await desk.create("here", spec=gpu())
        await desk.api.patch(
            kinds.PODS, "here", {"metadata": {"labels": {"a": "b"}}}, namespace=desk.namespace
        )
        await desk.api.delete(kinds.PODS, "here", namespace=desk.namespace)

    assert desk.stamp.seen == ["here"]


class Spoiler:
    """A webhook of somebody else that brings in what nobody can obey."""

    def mutate(self, request: AdmissionRequest) -> Verdict:
        annotations = (request.object or {})["metadata"].get("annotations", {})
        return Verdict(operations=(Operation("add", "/metadata/annotations", {**annotations, **BAD}),))


BAD = {"gpu.mps.io/bad": "1"}
LOOKS = {
    "asked again, we see it ourselves": ("IfNeeded", FALLBACK),
    "if not, at the last look": ("Never", REQUEST),
}


@pytest.mark.parametrize(("again", "refuses"), LOOKS.values(), ids=LOOKS)
async def test_what_a_later_webhook_breaks_is_refused_after_all(desk, again, refuses):
    later = Desk(desk.api, desk.namespace, replace(desk.wish, name=f"z-{desk.wish.name}"), free_port())
    later.wish = replace(later.wish, target=Url(f"https://127.0.0.1:{later.port}", "127.0.0.1"))
    later.stamp = Spoiler()
    async with desk.open(), later.replica():
        fields = {"webhooks": [{"name": FALLBACK, "reinvocationPolicy": again}]}
        await desk.api.patch(KINDS[0], desk.wish.name, fields, patch_type=PatchType.STRATEGIC)

        async def refused() -> str:
            try:
                await desk.create("late", spec=gpu(), dry_run=True)
            except ApiError as error:
                return str(error) if refuses in str(error) else ""
            return ""

        said = await until_async(refused, "both configurations to be in force")
    await later.leave()

    assert f'admission webhook "{refuses}" denied the request: the annotation gpu.mps.io/bad is bad' in said


async def test_a_foreign_hand_in_our_configuration_is_undone_only_where_it_is_wrong(desk):
    async with desk.open() as certificate:
        changed = {
            "metadata": {"labels": {"team": "gpu"}},
            "webhooks": [
                {
                    "name": FALLBACK,
                    "clientConfig": {"caBundle": b64encode(b"nonsense").decode()},
                    "objectSelector": {"matchLabels": {"kept": "yes"}},
                },
                foreign(),
            ],
        }
        await desk.api.patch(KINDS[0], desk.wish.name, changed, patch_type=PatchType.STRATEGIC)

        async def repaired() -> bool:
            return bool(await bundle(desk) == certificate._ring.bundle)

        await until_async(repaired, "the bundle to be put right")
        raw = await desk.api.get(KINDS[0].raw, desk.wish.name)

    ours = next(one for one in raw["webhooks"] if one["name"] == FALLBACK)
    assert raw["metadata"]["labels"] == {"team": "gpu"}
    assert ours["objectSelector"] == {"matchLabels": {"kept": "yes"}}
    theirs = next(one for one in raw["webhooks"] if one["name"] == foreign()["name"])
    assert "caBundle" not in theirs["clientConfig"]


async def test_a_deleted_configuration_comes_back(desk):
    async with desk.open():
        for kind in KINDS:
            await desk.api.delete(kind, desk.wish.name)
        await desk.asked()

    assert [len((await desk.api.get(kind, desk.wish.name)).webhooks) for kind in KINDS] == [2, 2]


async def test_many_replicas_repair_it_together(desk):
    async with desk.open(), desk.replica(port=0), desk.replica(port=0):
        wrong = {"webhooks": [{"name": FALLBACK, "clientConfig": {"caBundle": b64encode(b"x").decode()}}]}
        for _ in range(3):
            await desk.api.patch(KINDS[0], desk.wish.name, wrong, patch_type=PatchType.STRATEGIC)
            await asyncio.sleep(0)
            await desk.asked()


def foreign() -> dict[str, object]:
    return {
        "name": "other.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/never"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }


async def bundle(desk) -> bytes:
    found = await desk.api.get(KINDS[0], desk.wish.name)
    return b64decode(next(one for one in found.webhooks if one.name == FALLBACK).client_config.ca_bundle)


REGISTERED = {
    webhook["name"]: webhook
    for kind in configurations.documents(Wish(Service("gpu")))
    for webhook in kind["webhooks"]
}
POLICIES = {ACCESS: "Fail", FALLBACK: "Ignore", ACCESS_REQUEST: "Fail", REQUEST: "Ignore"}


@pytest.mark.parametrize(("name", "failure"), POLICIES.items(), ids=POLICIES)
def test_the_configurations_keep_to_the_rules(name, failure):
    assert list(REGISTERED) == list(POLICIES)
    webhook = REGISTERED[name]

    assert webhook["timeoutSeconds"] == 5
    assert webhook["failurePolicy"] == failure
    assert webhook["sideEffects"] == "NoneOnDryRun"
    assert webhook["admissionReviewVersions"] == ["v1"]
    excluded = webhook["namespaceSelector"]["matchExpressions"][0]
    assert excluded["operator"] == "NotIn"
    assert set(excluded["values"]) == {"kube-system", "d8-gpu-operator"}
    assert webhook["clientConfig"]["service"]["name"] == "croupier-webhook"
    assert "caBundle" not in webhook["clientConfig"]


def test_whoever_keeps_the_bundle_is_told_by_an_annotation():
    wish = Wish(Url("https://127.0.0.1:1/", "127.0.0.1"), inject_from="gpu/cert", failure_policy="Fail")
    mutating = configurations.mutating(wish)

    assert mutating["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "gpu/cert"}
    access, fallback = mutating["webhooks"]
    assert access["clientConfig"] == {"url": "https://127.0.0.1:1/access"}
    assert fallback["clientConfig"] == {"url": "https://127.0.0.1:1/mutate"}
    assert fallback["failurePolicy"] == "Fail"


def test_a_right_bundle_needs_no_repair():
    bundles = {FALLBACK: b"right", "other.example.com": b"theirs"}
    webhooks = tuple(
        Webhook(name=name, client_config=WebhookClientConfig(ca_bundle=b64encode(pem).decode()))
        for name, pem in bundles.items()
    )
    found = WebhookConfiguration(metadata=ObjectMeta(resource_version="7"), webhooks=webhooks)

    assert configurations.repair(found, b"right") == {}
    assert configurations.repair(found, b"new") == {
        "metadata": {"resourceVersion": "7"},
        "webhooks": [{"name": FALLBACK, "clientConfig": {"caBundle": b64encode(b"new").decode()}}],
    }
