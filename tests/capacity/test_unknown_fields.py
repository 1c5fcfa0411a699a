"""Unknown fields of a ledger survive claims and releases."""

import json

from croupier.core.model.card_request import MigDevices
from tests.api.test_unknown_fields import newer
from tests.capacity.env import NODE, capacity_env, claim, mig, node, percent, pod


async def test_unknown_fields_survive_claims_and_releases(private_lab):
    lab = await private_lab()
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(newer()))
    lab.kubectl("wait", "--for=condition=Established", "crd/nodereservations.mps.nvidia.com")
    async with capacity_env(lab.kubeconfig) as env:
        await env.manager.open(NODE, node(mig(0), percent(1)))
        resource = env.store.resource.raw
        raw = await env.api.get(resource, NODE)
        raw["spec"]["note"] = "kept"
        raw["spec"]["cards"][1]["note"] = "kept too"
        raw["spec"]["cards"][0]["slots"][1]["note"] = "even here"
        await env.api.update(resource, raw)

        await env.manager.claim(NODE, claim(pod(0), MigDevices("1g.10gb", 2)))
        await env.manager.claim(NODE, claim(pod(1)))
        await env.manager.release(pod(0), NODE)

        spec = (await env.api.get(resource, NODE))["spec"]
        notes = (spec["note"], spec["cards"][1]["note"], spec["cards"][0]["slots"][1]["note"])
        assert notes == ("kept", "kept too", "even here")
        assert spec["cards"][1]["holders"] == {pod(1): 50}
