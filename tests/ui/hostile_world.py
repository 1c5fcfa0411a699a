"""Two tenants on one node, and accounts with different rights.

Everything that belongs to the other tenant contains the word SECRET, so a leak is a substring.
"""

from typing import Any, Final

from bench import card_objects
from bench.card_objects import WrittenCard, condition, percent
from croupier.api import kinds
from croupier.kube.client.api_client import Client
from croupier_lab import nodes
from croupier_lab.nodes import SimulatedNode

SECRET: Final = "pomegranate"
"""The other tenant: its namespace, and a part of the names of everything that it has."""
TENANT: Final = "apple"
NODE: Final = "gpu-1"
CARDS: Final = tuple(card_objects.name(NODE, index) for index in range(4))
HOLDING, SHARED, HIDDEN_CARD, FREE = CARDS
"""Held by the other tenant only; by both; in the pool of the other tenant; in no pool."""
ACCOUNTS: Final = ("admin", "reader", "tenant", "cards")
"""Service accounts of the tenant's namespace: may do everything; may read everything; may list the pods of
its own namespace; may list cards too.
"""


def accounts() -> list[dict[str, Any]]:
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    reads = ["get", "list", "watch"]
    cards = {"apiGroups": ["gpu.deckhouse.io"], "resources": ["gpudevices", "gpupools"], "verbs": reads}
    rules = {
        "admin": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        "reader": [{"apiGroups": ["*"], "resources": ["*"], "verbs": reads}],
        "cards": [cards],
    }
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": reads}
    people = [{"kind": "User", "name": "bob", **group}]
    made = [_object("ServiceAccount", name, namespace=TENANT) for name in ACCOUNTS]
    made.append(_object("Role", "pods", namespace=TENANT, rules=[pods]))
    tenants = [{"kind": "ServiceAccount", "name": name, "namespace": TENANT} for name in ("tenant", "cards")]
    role = {"kind": "Role", "name": "pods", **group}
    made.append(_object("RoleBinding", "pods", namespace=TENANT, roleRef=role, subjects=tenants))
    for name, listed in rules.items():
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": TENANT}]
        subjects += people if name == "reader" else [{"kind": "User", "name": f"{name}-person", **group}]
        made.append(_object("ClusterRole", name, rules=listed))
        role = {"kind": "ClusterRole", "name": name, **group}
        made.append(_object("ClusterRoleBinding", name, roleRef=role, subjects=subjects))
    return made


def _object(kind: str, name: str, *, namespace: str = "", **fields: Any) -> dict[str, Any]:
    version = "v1" if kind == "ServiceAccount" else "rbac.authorization.k8s.io/v1"
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}


async def write(api: Client) -> None:
    await card_objects.write_node(api, SimulatedNode(NODE, "zone-a", nodes.parse_cards("H100:4")))
    own = await card_objects.write_pod(api, card_objects.pod(TENANT, "mine", node=NODE))
    other = await card_objects.write_pod(api, card_objects.pod(SECRET, f"{SECRET}-job", node=NODE))
    for namespace, name in ((TENANT, "waits"), (SECRET, f"{SECRET}-waits")):
        await card_objects.write_pod(api, card_objects.pod(namespace, name, asks={"cards": 9}))
    reserved = f"{SECRET}/{SECRET}-next"
    drained = {"gpu.deckhouse.io/drain": f"{SECRET} asked for it"}
    cards = [
        WrittenCard(NODE, 0, percent({other: 60, reserved: 20}), "shared", annotations=drained),
        WrittenCard(NODE, 1, percent({own: 25, other: 50}), "shared"),
        WrittenCard(NODE, 2, percent({other: 100}), f"{SECRET}-pool"),
        WrittenCard(NODE, 3, percent()),
    ]
    for card in cards:
        await card_objects.write_device(api, card)
    await card_objects.write_inventory(api, NODE, cards)
    leak = {"class": "Leak", "message": f"{SECRET} leaks", "card": HOLDING, "holder": other}
    await card_objects.write_ledger(
        api,
        NODE,
        cards,
        status={"cards": 4, "findings": [{**leak, "since": card_objects.SINCE}]},
        held={reserved: "never"},
        reservations={reserved: f"{SECRET}-hold"},
    )
    maintenance = condition("Maintenance", "True", "Draining", f"waits for {SECRET}-job")
    for name, access in {"shared": {}, f"{SECRET}-pool": {"namespaces": [SECRET]}}.items():
        amounts = {"total": 200, "used": 135, "booked": 20, "available": 45, "unit": "Percent"}
        spec = {"allocation": {"mode": "MPS"}, "access": access}
        status = {"allocation": {"mode": "MPS"}, "capacity": amounts, "conditions": [maintenance]}
        await card_objects.write_pool(api, {"metadata": {"name": name}, "spec": spec}, status)
    spec = {"podKey": reserved, "nodeName": NODE, "numCards": 1, "percentPerCard": 20, "owner": SECRET}
    body = {"metadata": {"name": f"{SECRET}-hold", "namespace": SECRET}, "spec": spec}
    await api.create(kinds.RESERVATIONS.raw, body)
    status = {"phase": "Reserved", "cards": [{"id": HOLDING, "percent": 20}]}
    await card_objects.write_status(api, kinds.RESERVATIONS, f"{SECRET}-hold", status, namespace=SECRET)
