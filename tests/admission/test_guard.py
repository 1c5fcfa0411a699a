"""The guard of visible devices, in each mode, enforced by the API server itself.

No webhook is registered for these namespaces: whatever holds here holds while Croupier is down.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args

import pytest
import pytest_asyncio

from croupier.admission import guard_policy
from croupier.admission.guard_policy import EXEMPT, GuardPolicy
from croupier.admission.policies import NAME_LABEL
from croupier.api import kinds
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.pods import device_variables
from croupier.core.pods.device_variables import CUDA_VISIBLE, OVERRIDES, VISIBLE, offence
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, MIG, PERCENT, POOL, RATIO
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.config import Config
from croupier.kube.client.errors import ApiError
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.admission import cluster_env as envs
from tests.admission.cluster_env import CreateResult
from tests.polling import until_async

SECONDS = 20

SYSTEM = "kube-system"
KINDS: Final = "validatingadmissionpolicy,mutatingadmissionpolicy"
BINDINGS: Final = "validatingadmissionpolicybinding,mutatingadmissionpolicybinding"
MODES: Final = ("Warn", "Deny", "Void", "Images", "Grant")
ALL: Final = {VISIBLE: "all"}
VOID: Final = {VISIBLE: "void"}
LIMIT: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

Raw = dict[str, Any]
Env = dict[str, str]


def container(name: str, env: Env | None = None, limits: Env | None = None, **more: Any) -> Raw:
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    return {"name": name, "image": "any", "env": variables, "resources": {"limits": limits or {}}, **more}


def pod(env: Env | None = None, limits: Env | None = None, *extra: Raw, **spec: Any) -> Raw:
    """A pod whose container `main` has this environment and these limits; `extra` are its neighbours."""
    return {
        "metadata": {"generateName": "guarded-"},
        "spec": {"schedulerName": "none", "containers": [container("main", env, limits), *extra], **spec},
    }


def early(env: Env, limits: Env | None = None) -> Raw:
    return pod(initContainers=[container("early", env, limits)])


def referring(name: str) -> Raw:
    """A pod with a variable whose value is in a ConfigMap."""
    made = pod()
    reference = {"configMapKeyRef": {"name": "cards", "key": "visible", "optional": True}}
    made["spec"]["containers"][0]["env"] = [{"name": name, "valueFrom": reference}]
    return made


def large() -> Raw:
    """40 containers with 100 variables each."""
    env = {f"VARIABLE_{number}": str(number) for number in range(100)}
    return pod({}, {}, *(container(f"c{number}", env) for number in range(40)))


def documents(mode: str, namespaces: Raw) -> list[Raw]:
    match mode:
        case "Images":
            made = guard_policy.image_documents(namespaces)
        case "Grant":
            made = guard_policy.grant_documents(namespaces)
        case _:
            made = guard_policy.guard_documents(mode, namespaces)  # type: ignore[arg-type]  # one of MODES
    for document in made:
        document["metadata"]["name"] = f"test-guard-{mode.lower()}"
        if "policyName" in document["spec"]:
            document["spec"]["policyName"] = f"test-guard-{mode.lower()}"
    return made


@dataclass
class GuardEnv:
    api: Client
    reached: Config
    namespaces: dict[str, str]
    """By mode; and one that is exempt."""

    async def create(self, mode: str, body: Raw, *, dry_run: bool = True) -> CreateResult:
        return await envs.create_pod(self.reached, self.namespaces.get(mode, mode), body, dry_run=dry_run)

    async def debug(self, mode: str, body: Raw, *added: Raw) -> Raw:
        """The pod after these ephemeral containers were added one by one, as by `kubectl debug`."""
        made = (await self.create(mode, body, dry_run=False)).pod
        assert made is not None
        name, namespace = made["metadata"]["name"], self.namespaces[mode]
        for one in added:
            new = {key: one[key] for key in ("name", "image", "env")}
            change = {"spec": {"ephemeralContainers": [*made["spec"].get("ephemeralContainers", ()), new]}}
            made = await self.api.patch(
                kinds.PODS.raw, name, change, namespace=namespace, subresource="ephemeralcontainers"
            )
        return made


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster) -> Iterator[dict[str, str]]:
    """One namespace per mode, and one that its label exempts from all modes."""
    made = {mode: shared_cluster.create_namespace(cluster, f"guard-{mode.lower()}") for mode in MODES}
    exempt = shared_cluster.create_namespace(cluster, "guard-exempt")
    cluster.kubectl("label", "namespace", exempt, f"{EXEMPT}=off")
    names = [f"test-guard-{mode.lower()}" for mode in MODES]
    try:
        for mode, name in made.items():
            also = [name, SYSTEM] + ([] if mode == "Grant" else [exempt])
            where = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": also}
            for document in documents(mode, {"matchExpressions": [where]}):
                cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        yield {**made, "exempt": exempt}
    finally:
        for kind in (BINDINGS, KINDS):
            cluster.kubectl("delete", kind, *names, "--ignore-not-found")
        for name in (*made.values(), exempt):
            shared_cluster.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def env(cluster: Cluster, namespaces: dict[str, str]) -> AsyncIterator[GuardEnv]:
    """A policy is enforced only shortly after its creation."""
    reached = config.load(cluster.kubeconfig)
    async with api_client.connect(reached) as api:
        made = GuardEnv(api, reached, namespaces)
        await until_async(lambda: _enforced(made), "the policies")
        yield made


async def _enforced(env: GuardEnv) -> bool:
    answers = {mode: await env.create(mode, pod(ALL)) for mode in MODES}
    plain = (await env.create("Images", pod())).pod
    grant = (await env.create("Grant", pod(ALL, {GPU: "1"}))).refused
    voided = answers["Void"].pod
    return bool(
        answers["Warn"].warnings
        and answers["Deny"].refused
        and voided is not None
        and variables(voided) == {"main": VOID}
        and plain is not None
        and variables(plain) == {"main": VOID}
        and grant
    )


def variables(made: Raw) -> dict[str, Env]:
    """The environment by container."""
    lists = (made["spec"].get(kind, ()) for kind in ("containers", "initContainers", "ephemeralContainers"))
    return {
        one["name"]: {each["name"]: each.get("value", "") for each in one.get("env", ())}
        for containers in lists
        for one in containers
    }


OFFENCES: Final = {
    "all cards": (pod(ALL), "main", VISIBLE),
    "a card by index": (pod({VISIBLE: "0"}), "main", VISIBLE),
    "a card by UUID": (pod({VISIBLE: "GPU-1"}), "main", VISIBLE),
    "CUDA's variable": (pod({CUDA_VISIBLE: "0,1"}), "main", CUDA_VISIBLE),
    "a value from a ConfigMap": (referring(VISIBLE), "main", VISIBLE),
    "an init container": (early(ALL), "early", VISIBLE),
    "a sidecar": (pod(initContainers=[container("side", ALL, restartPolicy="Always")]), "side", VISIBLE),
    "the second container": (pod({}, {}, container("second", ALL)), "second", VISIBLE),
    "the last of two values": (pod({"OTHER": "1", **ALL}), "main", VISIBLE),
    "a resource that is no card": (pod(ALL, {"example.com/nic": "1"}), "main", VISIBLE),
}

UNTOUCHED: Final = {
    "no variables": pod({"OTHER": "all"}),
    "void": pod(VOID),
    "none": pod({VISIBLE: "none"}),
    "an empty value": pod({VISIBLE: ""}),
    "CUDA without cards": pod({CUDA_VISIBLE: "-1"}),
    "CUDA with an empty value": pod({CUDA_VISIBLE: ""}),
    "whole cards": pod(ALL, {GPU: "1", LEDGER: "1"}),
    "MIG devices": pod(ALL, {f"{MIG}1g.10gb": "1"}),
    "percent": pod(ALL, {PERCENT: "50"}),
    "a pool": pod(ALL, {f"{POOL}a": "1"}),
    "another device plugin of NVIDIA": pod(ALL, {"nvidia.com/gpu.shared": "1"}),
    "AMD's cards": pod({CUDA_VISIBLE: "0", **ALL}, {"amd.com/gpu": "1"}),
    "Intel's cards": pod({CUDA_VISIBLE: "0"}, {"gpu.intel.com/i915": "1"}),
    "a ResourceClaim": pod(ALL, resourceClaims=[{"name": "card", "resourceClaimName": "card"}]),
    "a large pod": large(),
}


@pytest.mark.parametrize(("body", "name", "variable"), OFFENCES.values(), ids=OFFENCES)
async def test_warn_admits_and_warns(body, name, variable, env: GuardEnv):
    answer = await env.create("Warn", body)

    assert answer.pod is not None, answer.refused
    assert [one for one in answer.warnings if guard_policy.unrequested(name, variable) in one]


@pytest.mark.parametrize(("body", "name", "variable"), OFFENCES.values(), ids=OFFENCES)
async def test_deny_refuses(body, name, variable, env: GuardEnv):
    answer = await env.create("Deny", body)

    assert f"denied request: {guard_policy.unrequested(name, variable)}" in answer.refused


@pytest.mark.parametrize(("body", "name", "variable"), OFFENCES.values(), ids=OFFENCES)
async def test_void_hides_the_cards(body, name, variable, env: GuardEnv):
    answer = await env.create("Void", body)

    assert answer.pod is not None, answer.refused
    written = variables(answer.pod)[name]
    assert written[VISIBLE if variable == VISIBLE else CUDA_VISIBLE] == (
        "void" if variable == VISIBLE else "0,1"
    )
    assert written.get("OTHER") == variables(body)[name].get("OTHER")


async def test_void_overrides_what_envfrom_may_set(env: GuardEnv):
    body = pod({"OTHER": "1"})
    body["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "any", "optional": True}}]

    answer = await env.create("Void", body)

    assert answer.pod is not None, answer.refused
    assert variables(answer.pod) == {"main": {"OTHER": "1", **VOID}}


@pytest.mark.parametrize("mode", ["Warn", "Deny", "Void"])
@pytest.mark.parametrize("body", UNTOUCHED.values(), ids=UNTOUCHED)
async def test_other_pods_stay_as_they_are(body, mode, env: GuardEnv):
    answer = await env.create(mode, body)

    assert answer.pod is not None, answer.refused
    assert not [one for one in answer.warnings if VISIBLE in one]
    assert variables(answer.pod) == variables(body)


@pytest.mark.parametrize("namespace", [SYSTEM, "exempt"])
async def test_kube_system_and_exempt_namespaces_are_left_alone(namespace, env: GuardEnv):
    answer = await env.create(namespace, pod(ALL))

    assert (answer.pod is not None, answer.warnings) == (True, []), answer.refused
    assert variables(answer.pod or {}) == {"main": ALL}


IMAGES: Final[dict[str, tuple[Raw, dict[str, Env]]]] = {
    "a container without variables": (pod(), {"main": VOID}),
    "next to other variables": (pod({"OTHER": "1"}), {"main": {"OTHER": "1", **VOID}}),
    "an init container": (early({}), {"main": VOID, "early": VOID}),
    "the neighbour of a container with cards": (
        pod({}, {GPU: "1", LEDGER: "1"}, container("second")),
        {"main": {}, "second": VOID},
    ),
    "a variable that the pod sets stays for the guard": (pod(ALL), {"main": ALL}),
    "AMD's cards": (pod({}, {"amd.com/gpu": "1"}), {"main": {}}),
    "a ResourceClaim": (
        pod(resourceClaims=[{"name": "card", "resourceClaimName": "card"}]),
        {"main": {}},
    ),
}


@pytest.mark.parametrize(("body", "expected"), IMAGES.values(), ids=IMAGES)
async def test_images_cannot_choose_cards(body, expected, env: GuardEnv):
    """The image's own ENV is not in the pod: a variable of the pod replaces it."""
    answer = await env.create("Images", body)

    assert answer.pod is not None, answer.refused
    assert variables(answer.pod) == expected


async def test_ephemeral_containers_are_guarded(env: GuardEnv):
    voided = await env.debug("Void", pod(), container("first", ALL), container("second", {"OTHER": "1"}))
    filled = await env.debug("Images", pod(), container("first"), container("second"))
    with pytest.raises(ApiError, match=guard_policy.unrequested("debugger", VISIBLE)):
        await env.debug("Deny", pod(), container("debugger", ALL))
    warned = await env.debug("Warn", pod(), container("debugger", ALL))

    assert variables(voided) == {"main": {}, "first": VOID, "second": {"OTHER": "1"}}
    assert variables(filled) == {"main": VOID, "first": VOID, "second": VOID}
    assert variables(warned) == {"main": {}, "debugger": ALL}


CARD: Final = {GPU: "1", LEDGER: "1"}
OVERRIDING: Final[dict[str, tuple[Raw, str]]] = {
    "a share of compute": (pod({LIMIT: "100"}, CARD), OVERRIDES.format(item=offence("main", LIMIT))),
    "a pool": (pod({LIMIT: "100"}, {f"{POOL}a": "1"}), OVERRIDES.format(item=offence("main", LIMIT))),
    "a limit of HAMi-core": (
        pod({"CUDA_DEVICE_MEMORY_LIMIT_0": "1g"}, CARD),
        OVERRIDES.format(item=offence("main", "CUDA_DEVICE_MEMORY_LIMIT_0")),
    ),
    "a neighbour": (
        pod({}, CARD, container("second", {LIMIT: "1"})),
        OVERRIDES.format(item=offence("second", LIMIT)),
    ),
    "all cards": (pod(ALL, CARD), guard_policy.shows_others("main")),
    "all cards for a neighbour": (pod({}, CARD, container("side", ALL)), guard_policy.shows_others("side")),
}


@pytest.mark.parametrize(("body", "sentence"), OVERRIDING.values(), ids=OVERRIDING)
async def test_variables_that_override_a_grant_are_refused_without_the_webhook(body, sentence, env: GuardEnv):
    answer = await env.create("Grant", body)

    assert f"denied request: {sentence}" in answer.refused


KEPT: Final = {
    "a selection among its cards": pod({CUDA_VISIBLE: "0"}, CARD),
    "limits without cards": pod({LIMIT: "100", **ALL}),
    "no variables": pod({"OTHER": "1"}, CARD),
    "void for a neighbour": pod({}, CARD, container("side", VOID)),
}


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
async def test_other_variables_are_admitted(body, env: GuardEnv):
    answer = await env.create("Grant", body)

    assert answer.pod is not None, answer.refused
    assert variables(answer.pod) == variables(body)


async def test_ephemeral_containers_cannot_override_a_grant(env: GuardEnv):
    for bad, sentence in (
        (container("debugger", ALL), guard_policy.shows_others("debugger")),
        (container("debugger", {LIMIT: "100"}), OVERRIDES.format(item=offence("debugger", LIMIT))),
    ):
        with pytest.raises(ApiError, match=sentence):
            await env.debug("Grant", pod({}, CARD), container("harmless"), bad)
    assert variables(await env.debug("Grant", pod({}, CARD), container("harmless"))) == {
        "main": {},
        "harmless": {},
    }


OVERRULED: Final[dict[str, tuple[Raw, dict[str, Env], Callable[[str], bool]]]] = {
    "the container with the cards": (
        pod({"OTHER": "1", **ALL}, {GPU: "1"}),
        {"main": {"OTHER": "1"}},
        lambda said: said.startswith(offence("main", VISIBLE)),
    ),
    "its neighbour": (
        pod({}, {GPU: "1"}, container("second", ALL)),
        {"main": {}, "second": VOID},
        lambda said: said.startswith(offence("second", VISIBLE)),
    ),
}


@pytest.mark.parametrize(("body", "expected", "warns"), OVERRULED.values(), ids=OVERRULED)
async def test_the_webhook_overrules_visible_devices(body, expected, warns, cluster: Cluster, lab: object):
    async with envs.webhook_cluster(cluster) as webhook:
        answer = await webhook.create({**body, "metadata": {"name": "overruled"}})

        assert answer.pod is not None, answer.refused
        assert variables(answer.pod) == expected
        assert list(filter(warns, answer.warnings))


async def test_the_webhook_refuses_limits_also_of_annotated_requests(cluster: Cluster, lab: object):
    annotated = pod({LIMIT: "100"})
    annotated["metadata"] = {"name": "annotated", "annotations": {CARDS: "1", RATIO: "50"}}
    async with envs.webhook_cluster(cluster) as webhook:
        answer = await webhook.create(annotated)

        assert OVERRIDES.format(item=offence("main", LIMIT)) in answer.refused


def test_namespaces_of_gpu_services_are_excluded():
    for documents_ in (
        *(guard_policy.guard_documents(mode) for mode in get_args(GuardPolicy)),
        guard_policy.image_documents(),
    ):
        selector = documents_[0]["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        excluded = next(one["values"] for one in selector if one["key"] == NAME_LABEL)
        assert {SYSTEM, DEFAULT_NAMESPACE, "gpu-operator"} <= set(excluded)


def test_the_policy_names_every_limit():
    written = json.dumps(guard_policy.grant_documents())

    for name in (*device_variables.LIMITS, *device_variables.LIMIT_PREFIXES):
        assert f"'{name}'" in written
