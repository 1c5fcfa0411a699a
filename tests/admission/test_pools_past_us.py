"""Nobody gets into a pool past us: neither while we are away, nor with a request that comes in behind us."""

from typing import Any

from croupier.admission.configurations import ACCESS, ACCESS_REQUEST, FALLBACK
from croupier.admission.review import AdmissionRequest, Verdict
from croupier.core.jsonpatch import Operation
from croupier.core.pods.request import MIG, POOL
from tests.admission import gate as gates
from tests.admission.desk import Desk, gpu
from tests.admission.test_pools import refusal
from tests.kube.waiting import until_async

TEAM = f"{POOL}team-a"
WITHIN = 60.0

Raw = dict[str, Any]


class Smuggler:
    """A webhook of somebody else, behind ours, that has pods ask for a pool."""

    def mutate(self, request: AdmissionRequest) -> Verdict:
        path = "/spec/containers/0/resources"
        return Verdict(operations=(Operation("add", path, {"limits": {TEAM: "1"}, "requests": {TEAM: "1"}}),))


class Never:
    """Lets nobody in."""

    def mutate(self, _request: AdmissionRequest) -> Verdict:
        return Verdict(allowed=False, sentence="AccessDenied: nobody")


async def test_what_somebody_smuggles_in_behind_us_is_seen_all_the_same(desk: Desk):
    """Our webhooks were not asked while the pod could be changed: it named no pool then."""
    desk.stamp, desk.guard = Smuggler(), Never()
    async with desk.replica():

        async def refused() -> str:
            said = await refusal(desk.api, _smuggling(), desk.namespace)
            return said if ACCESS_REQUEST in said else ""

        said = await until_async(refused, "the last look", WITHIN)

    assert f'admission webhook "{ACCESS_REQUEST}" denied the request: AccessDenied: nobody' in said


def _smuggling() -> Raw:
    """Asks for no pool, but for something that brings it before the other webhook."""
    return {"metadata": {"name": "innocent"}, "spec": gpu(f"{MIG}1g.10gb")}


async def test_nobody_gets_into_a_pool_while_we_are_away(desk: Desk):
    async with desk.open():
        pass
    here = desk.namespace

    refused = await refusal(desk.api, {"metadata": {"name": "p"}, "spec": gpu(TEAM)}, here)
    passed = await refusal(desk.api, {"metadata": {"name": "p"}, "spec": gpu()}, here)
    plain = await refusal(desk.api, gates.pod("p", {"cpu": "1"}), here)

    assert f'failed calling webhook "{ACCESS}"' in refused
    assert FALLBACK not in refused
    assert (passed, plain) == ("", "")
