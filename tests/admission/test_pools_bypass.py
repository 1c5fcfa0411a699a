"""Pool access cannot be bypassed, neither while the webhook is down nor by a later webhook."""

from typing import Any

from croupier.admission.configurations import ACCESS, ACCESS_REQUEST, FALLBACK
from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.core.jsonpatch import Operation
from croupier.core.pods.request_parser import MIG, POOL
from tests.admission import cluster_env as envs
from tests.admission.test_pools import refusal
from tests.admission.webhook_env import WebhookEnv, gpu
from tests.polling import until_async

TEAM = f"{POOL}team-a"
WITHIN = 60.0

Raw = dict[str, Any]


class AddPoolRequest:
    """A later webhook that adds a request for a pool."""

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        path = "/spec/containers/0/resources"
        return AdmissionVerdict(
            operations=(Operation("add", path, {"limits": {TEAM: "1"}, "requests": {TEAM: "1"}}),)
        )


class DenyAll:
    """Refuses every pod."""

    def mutate(self, _request: AdmissionRequest) -> AdmissionVerdict:
        return AdmissionVerdict(allowed=False, sentence="AccessDenied: always")


async def test_a_pool_request_added_by_a_later_webhook_is_checked(env: WebhookEnv):
    """The mutating webhook was not called, because the pod did not name a pool then."""
    env.stamp, env.guard = AddPoolRequest(), DenyAll()
    async with env.replica():

        async def refused() -> str:
            said = await refusal(env.api, _pod_for_later_webhook(), env.namespace)
            return said if ACCESS_REQUEST in said else ""

        said = await until_async(refused, "the last look", WITHIN)

    assert f'admission webhook "{ACCESS_REQUEST}" denied the request: AccessDenied: always' in said


def _pod_for_later_webhook() -> Raw:
    """Requests no pool, but a resource that is sent to the other webhook."""
    return {"metadata": {"name": "innocent"}, "spec": gpu(f"{MIG}1g.10gb")}


async def test_no_pod_is_admitted_to_a_pool_while_the_webhook_is_down(env: WebhookEnv):
    async with env.open():
        pass
    here = env.namespace

    refused = await refusal(env.api, {"metadata": {"name": "p"}, "spec": gpu(TEAM)}, here)
    passed = await refusal(env.api, {"metadata": {"name": "p"}, "spec": gpu()}, here)
    plain = await refusal(env.api, envs.pod("p", {"cpu": "1"}), here)

    assert f'failed calling webhook "{ACCESS}"' in refused
    assert FALLBACK not in refused
    assert (passed, plain) == ("", "")
