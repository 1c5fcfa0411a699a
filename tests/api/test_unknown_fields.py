"""Unknown fields of a newer version survive a write."""

import json

from msgspec.structs import replace

from croupier.api import crds, kinds
from croupier.api.mps import ledger
from croupier.kube.client import api_client, config, merge
from croupier.kube.client.resource import Raw
from tests.api.scenario_tables import EXAMPLES, KIND

NOTE = {"type": "string"}


def newer() -> Raw:
    """The CRD of a hypothetical next version, with notes on the ledger, its cards and its slots."""
    made = crds.definition(KIND["NodeReservation"])
    spec = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    card = spec["properties"]["cards"]["items"]
    slot = card["properties"]["slots"]["items"]
    for place in (spec, card, slot):
        place["properties"]["note"] = NOTE
    return made


async def test_fields_of_a_newer_version_survive_a_write(private_lab):
    lab = await private_lab()
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(newer()))
    lab.kubectl("wait", "--for=condition=Established", "crd/nodereservations.mps.nvidia.com")
    body = json.loads(json.dumps(EXAMPLES["nodereservation-mig"]))
    body["spec"]["note"] = "kept"
    body["spec"]["cards"][0]["note"] = "kept too"
    body["spec"]["cards"][0]["slots"][2]["note"] = "even here"

    async with api_client.connect(config.load(lab.kubeconfig)) as api:
        raw = await api.create(kinds.NODE_RESERVATIONS.raw, body)
        typed = await api.get(kinds.NODE_RESERVATIONS, "gpu-worker")
        await api.update(
            kinds.NODE_RESERVATIONS, merge.typed(raw, take(typed, slot=2), keys=ledger.IDENTITY_FIELDS)
        )
        stored = await api.get(kinds.NODE_RESERVATIONS.raw, "gpu-worker")

    (card,) = stored["spec"]["cards"]
    assert (stored["spec"]["note"], card["note"], card["slots"][2]["note"]) == (
        "kept",
        "kept too",
        "even here",
    )
    assert card["slots"][2]["holder"] == "ml/next-0/uid-next"


def take(node: ledger.NodeReservation, *, slot: int) -> ledger.NodeReservation:
    """The ledger after a pod took a free slot."""
    (card,) = node.spec.cards
    slots = list(card.slots or ())
    slots[slot] = replace(slots[slot], holder="ml/next-0/uid-next")
    return replace(node, spec=replace(node.spec, cards=(replace(card, slots=tuple(slots)),)))
