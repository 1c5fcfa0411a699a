"""A ledger that a newer version wrote keeps what we do not know, through claims and releases."""

import json

from croupier.core.pods.want import Slots
from tests.api.test_unknown_fields import newer
from tests.book.worlds import NODE, claim, cut, desk, node, percent, pod


async def test_what_we_do_not_know_survives_claims_and_releases(private_lab):
    lab = await private_lab()
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(newer()))
    lab.kubectl("wait", "--for=condition=Established", "crd/nodereservations.mps.nvidia.com")
    async with desk(lab.kubeconfig) as one:
        await one.book.open(NODE, node(cut(0), percent(1)))
        resource = one.store.resource.raw
        found = await one.api.get(resource, NODE)
        found["spec"]["note"] = "kept"
        found["spec"]["cards"][1]["note"] = "kept too"
        found["spec"]["cards"][0]["slots"][1]["note"] = "even here"
        await one.api.update(resource, found)

        await one.book.claim(NODE, claim(pod(0), Slots("1g.10gb", 2)))
        await one.book.claim(NODE, claim(pod(1)))
        await one.book.release(pod(0), NODE)

        spec = (await one.api.get(resource, NODE))["spec"]
        notes = (spec["note"], spec["cards"][1]["note"], spec["cards"][0]["slots"][1]["note"])
        assert notes == ("kept", "kept too", "even here")
        assert spec["cards"][1]["holders"] == {pod(1): 50}
