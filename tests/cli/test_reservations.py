"""`croupier reservations` lists Reservations and other holders."""

from croupier.api import kinds
from tests.cli import env
from tests.cli.env import croupier


async def test_lists_reservations_and_other_holders(api, crds, clean_cluster, cluster, namespace):
    await env.node(api, "node-1")
    body = env.pod(namespace, "running", ratio="30") | {}
    body["spec"]["nodeName"] = "node-1"
    made = await api.create(kinds.PODS, body)
    running, reserved = f"{namespace}/running/{made.metadata.uid}", f"{namespace}/later"
    await env.ledger(api, "node-1", {running: 30, reserved: 50}, {reserved: 50}, held={reserved: "never"})
    await api.patch(kinds.NODE_RESERVATIONS, "node-1", {"spec": {"reservations": {reserved: "mine"}}})
    spec = {
        "podKey": reserved,
        "nodeName": "node-1",
        "numCards": 2,
        "percentPerCard": 50,
        "owner": "vision",
        "priority": 7,
    }
    for name, phase, message in (("mine", "Reserved", ""), ("failed", "Failed", "not enough capacity")):
        where = {"name": name, "namespace": namespace}
        await api.create(kinds.RESERVATIONS.raw, {"metadata": where, "spec": spec})
        status = {"status": {"phase": phase, "message": message}}
        await api.patch(kinds.RESERVATIONS, name, status, namespace=namespace, subresource="status")

    def ask(*args: str) -> env.CommandResult:
        return croupier("reservations", *args, kubeconfig=cluster.kubeconfig)

    rows = ask("-n", namespace, "-o", "json").data
    by_name = {row["reservation"]: row for row in rows}
    assert by_name["mine"]["state"] == "Held"
    assert [card["index"] for card in by_name["mine"]["cards"]] == [0, 1]
    assert (by_name["mine"]["owner"], by_name["mine"]["priority"]) == ("vision", 7)
    assert (by_name["failed"]["state"], by_name["failed"]["message"]) == ("Failed", "not enough capacity")
    assert (by_name[None]["pod"], by_name[None]["share"], by_name[None]["state"]) == (
        "running",
        "30 %",
        "Bound",
    )
    assert len(rows) == 3

    text = ask("-A").out
    assert "2 × 50 %" in text
    assert "not enough capacity" in text
    assert f"No reservations in namespace {namespace}-other." in ask("-n", f"{namespace}-other").out
    assert ask("-A", "-n", namespace).code == 2
