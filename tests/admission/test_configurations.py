"""Which pods reach the webhook, and how a configuration is repaired."""

import asyncio
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Any

import pytest

from croupier.admission import configurations
from croupier.admission.configurations import (
    ACCESS,
    ACCESS_REQUEST,
    ANNOTATION,
    FALLBACK,
    REQUEST,
    RESERVATION,
    ServiceTarget,
    UrlTarget,
    WebhookConfigurationOptions,
)
from croupier.admission.registration import KINDS
from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.api import kinds
from croupier.api.core_v1 import Webhook, WebhookClientConfig, WebhookConfiguration
from croupier.api.meta import ObjectMeta
from croupier.core.fallbacks import fallback
from croupier.core.jsonpatch import Operation
from croupier.kube.client.api_client import PatchType
from croupier.kube.client.errors import ApiError
from croupier_lab import shared_cluster
from tests.admission.webhook_env import WebhookEnv, free_port, gpu, plain
from tests.polling import until_async

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
    "a device of another vendor": gpu("amd.com/gpu"),
    "a name with the same prefix": gpu("nvidia.com/gpu.shared"),
}
OUR_ANNOTATIONS = {
    "percentages": {"gpu.mps.io/cards": "1"},
    "a fallback policy": {"gpu-webhook.k8s.io/fallback-policy": "off"},
}


async def test_only_pods_with_our_resources_or_annotations_reach_the_webhook(env):
    async with env.open():
        for index, spec in enumerate(STAY.values()):
            await env.create(f"stay-{index}", spec=spec, annotations={"team": "a"}, dry_run=True)
        for index, spec in enumerate(COME.values()):
            await env.create(f"come-{index}", spec=spec, dry_run=True)
        for index, annotations in enumerate(OUR_ANNOTATIONS.values()):
            await env.create(f"note-{index}", annotations=annotations, dry_run=True)

    mutated = [f"come-{index}" for index in range(len(COME))]
    annotated = [f"note-{index}" for index in range(len(OUR_ANNOTATIONS)) for _ in ("mutate", "validate")]
    assert env.stamp.seen == [*mutated, *annotated]
    assert all(request.dry_run for request in env.stamp.requests)


async def test_excluded_namespaces_and_updates_do_not_reach_the_webhook(env, cluster, request):
    excluded = shared_cluster.create_namespace(cluster, "excluded")
    request.addfinalizer(lambda: shared_cluster.delete_namespace(cluster, excluded))
    for name in (env.namespace, excluded):
        cluster.kubectl("label", "namespace", name, f"guarded-by={env.namespace}")
    env.options = replace(env.options, namespaces={"guarded-by": env.namespace}, excluded=(excluded,))
    async with env.open():
        await env.create("elsewhere", spec=gpu(), namespace=excluded, dry_run=True)
        await env.create("here", spec=gpu())
        await env.api.patch(kinds.PODS, "here", {"metadata": {"labels": {"a": "b"}}}, namespace=env.namespace)
        await env.api.delete(kinds.PODS, "here", namespace=env.namespace)

    assert env.stamp.seen == ["here"]


class AddInvalidAnnotation:
    """Another webhook that adds an invalid annotation."""

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        annotations = (request.object or {})["metadata"].get("annotations", {})
        return AdmissionVerdict(
            operations=(Operation("add", "/metadata/annotations", {**annotations, **BAD}),)
        )


BAD = {"gpu.mps.io/bad": "1"}
LOOKS = {
    "found by reinvocation": ("IfNeeded", FALLBACK),
    "found by validation": ("Never", REQUEST),
}


@pytest.mark.parametrize(("again", "refuses"), LOOKS.values(), ids=LOOKS)
async def test_an_invalid_change_of_a_later_webhook_is_refused(env, again, refuses):
    later = WebhookEnv(
        env.api, env.namespace, replace(env.options, name=f"z-{env.options.name}"), free_port()
    )
    later.options = replace(later.options, target=UrlTarget(f"https://127.0.0.1:{later.port}", "127.0.0.1"))
    later.stamp = AddInvalidAnnotation()
    async with env.open(), later.replica():
        fields = {"webhooks": [{"name": FALLBACK, "reinvocationPolicy": again}]}
        await env.api.patch(KINDS[0], env.options.name, fields, patch_type=PatchType.STRATEGIC)

        async def refused() -> str:
            try:
                await env.create("late", spec=gpu(), dry_run=True)
            except ApiError as error:
                return str(error) if refuses in str(error) else ""
            return ""

        said = await until_async(refused, "both configurations to be in force")
    await later.leave()

    assert f'admission webhook "{refuses}" denied the request: the annotation gpu.mps.io/bad is bad' in said


class WriteFallback:
    """Writes the annotation of a fallback once, as the webhook does; a second pass rewrites nothing."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        annotations = (request.object or {})["metadata"].get("annotations", {})
        self.seen.append(annotations.get(fallback.ANNOTATION))
        if fallback.ANNOTATION in annotations:
            return AdmissionVerdict()
        value = {**annotations, fallback.ANNOTATION: "2g.20gb->1g.10gb"}
        return AdmissionVerdict(operations=(Operation("add", "/metadata/annotations", value),))


async def test_the_annotation_survives_a_reinvocation(env):
    later = WebhookEnv(
        env.api, env.namespace, replace(env.options, name=f"z-{env.options.name}"), free_port()
    )
    later.options = replace(later.options, target=UrlTarget(f"https://127.0.0.1:{later.port}", "127.0.0.1"))
    env.stamp = WriteFallback()
    async with env.replica(), later.open():
        only_stamps = {"webhooks": [{"name": ANNOTATION, "$patch": "delete"}]}
        await env.api.patch(KINDS[0], later.options.name, only_stamps, patch_type=PatchType.STRATEGIC)

        async def reinvoked() -> Any:
            env.stamp.seen.clear()
            twice = ["2g.20gb->1g.10gb"] * 2  # the reinvocation, and the validation
            brought = {fallback.ANNOTATION: "7g.80gb->gpu"}
            pod = await env.create("copied", spec=gpu(), annotations=brought, dry_run=True)
            annotations = pod.metadata.annotations
            return annotations if env.stamp.seen == [None, *twice] else None

        annotations = await until_async(reinvoked, "both configurations to be in force")
    await later.leave()

    assert annotations == {fallback.ANNOTATION: "2g.20gb->1g.10gb", "stamp": "here"}


async def test_only_wrong_bundles_of_an_edited_configuration_are_repaired(env):
    async with env.open() as certificate:
        changed = {
            "metadata": {"labels": {"team": "gpu"}},
            "webhooks": [
                {
                    "name": FALLBACK,
                    "clientConfig": {"caBundle": b64encode(b"nonsense").decode()},
                    "objectSelector": {"matchLabels": {"kept": "yes"}},
                },
                other_webhook(),
            ],
        }
        await env.api.patch(KINDS[0], env.options.name, changed, patch_type=PatchType.STRATEGIC)

        async def repaired() -> bool:
            return bool(await bundle(env) == certificate._ring.bundle)

        await until_async(repaired, "the bundle to be put right")
        raw = await env.api.get(KINDS[0].raw, env.options.name)

    ours = next(one for one in raw["webhooks"] if one["name"] == FALLBACK)
    assert raw["metadata"]["labels"] == {"team": "gpu"}
    assert ours["objectSelector"] == {"matchLabels": {"kept": "yes"}}
    theirs = next(one for one in raw["webhooks"] if one["name"] == other_webhook()["name"])
    assert "caBundle" not in theirs["clientConfig"]


async def test_a_deleted_configuration_is_created_again(env):
    async with env.open():
        for kind in KINDS:
            await env.api.delete(kind, env.options.name)
        await env.asked()

    assert [len((await env.api.get(kind, env.options.name)).webhooks) for kind in KINDS] == [3, 3]


async def test_many_replicas_repair_a_configuration_concurrently(env):
    async with env.open(), env.replica(port=0), env.replica(port=0):
        wrong = {"webhooks": [{"name": FALLBACK, "clientConfig": {"caBundle": b64encode(b"x").decode()}}]}
        for _ in range(3):
            await env.api.patch(KINDS[0], env.options.name, wrong, patch_type=PatchType.STRATEGIC)
            await asyncio.sleep(0)
            await env.asked()


def other_webhook() -> dict[str, object]:
    return {
        "name": "other.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/never"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }


async def bundle(env) -> bytes:
    found = await env.api.get(KINDS[0], env.options.name)
    return b64decode(
        next(webhook for webhook in found.webhooks if webhook.name == FALLBACK).client_config.ca_bundle
    )


REGISTERED = {
    webhook["name"]: webhook
    for kind in configurations.documents(WebhookConfigurationOptions(ServiceTarget("gpu")))
    for webhook in kind["webhooks"]
}
POLICIES = {
    ANNOTATION: "Fail",
    ACCESS: "Fail",
    FALLBACK: "Ignore",
    ACCESS_REQUEST: "Fail",
    REQUEST: "Ignore",
    RESERVATION: "Ignore",
}


@pytest.mark.parametrize(("name", "failure"), POLICIES.items(), ids=POLICIES)
def test_the_configurations_have_the_expected_fields(name, failure):
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


def test_the_ca_injector_is_named_in_an_annotation():
    options = WebhookConfigurationOptions(
        UrlTarget("https://127.0.0.1:1/", "127.0.0.1"), inject_from="gpu/cert", failure_policy="Fail"
    )
    mutating = configurations.mutating(options)

    assert mutating["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "gpu/cert"}
    annotation, access, fallback = mutating["webhooks"]
    assert annotation["clientConfig"] == {"url": "https://127.0.0.1:1/annotation"}
    assert access["clientConfig"] == {"url": "https://127.0.0.1:1/access"}
    assert fallback["clientConfig"] == {"url": "https://127.0.0.1:1/mutate"}
    assert fallback["failurePolicy"] == "Fail"


def test_a_correct_bundle_needs_no_repair():
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
