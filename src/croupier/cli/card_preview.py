"""`--dry-run` of the commands that change a card: what would happen, and what the API server answers."""

from typing import TYPE_CHECKING, Any

import typer

from croupier.cli import cluster, rendering, tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from croupier.api.gpu import GPUDevice
    from croupier.core.explanation.card_outcomes import CardsAction
    from croupier.kube.client.api_client import Client

UNBOUND = "spec.nodeName=,status.phase=Pending"


async def show(api: "Client", action: "CardsAction", device: "GPUDevice", output: str) -> bool:
    """Print the preview; whether the change would be carried out now or later."""
    from croupier.api import kinds, planned_write
    from croupier.capacity import action_preview, snapshot
    from croupier.capacity.action_preview import PreviewInputs
    from croupier.kube.client.api_client import Selection
    from croupier.kube.client.errors import ApiError

    seen = await snapshot.take(api, cluster.now())
    inventories = {item.metadata.name: item for item in (await api.list(kinds.GPU_NODE_INVENTORIES)).items}
    waiting = (await api.list(kinds.PODS, Selection(fields=UNBOUND))).items
    found = action_preview.of_cards(action, [device], PreviewInputs(seen, inventories.get, waiting))
    data = action_preview.as_data(found)
    try:
        await planned_write.send(api, found.objects[0].write, dry_run=True)
        answer = {"ok": True, "message": ""}
    except ApiError as error:
        answer = {"ok": False, "message": error.message or str(error)}
    data["objects"][0]["dryRun"] = answer
    if output == "json":
        typer.echo(rendering.json(data))
    else:
        for line in _lines(data):
            typer.echo(line)
    return bool(answer["ok"]) and found.objects[0].outcome != "declined"


def _lines(data: dict[str, Any]) -> "Iterator[str]":
    card = data["objects"][0]
    yield f"card {card['name']} ({card['outcome']}): {card['sentence']}"
    for holder in card["holders"]:
        yield f"  held by {holder['pod']}: {holder['share']}"
    for pool in data["pools"]:
        yield f"pool {pool['pool']}, in {pool['unit']}:"
        rows = [_row(when, pool[when]) for when in ("before", "after", "later") if when in pool]
        yield from (f"  {line}" for line in tables.lines(("", "total", "used", "booked", "available"), rows))
    for start in data["starts"]:
        yield f"pod {start['pod']} would start on {start['node']}: {start['cards']}"
    yield from data["notes"]
    if not card["dryRun"]["ok"]:
        yield f"The API server refuses the change: {card['dryRun']['message']}"
    yield "Nothing was written (--dry-run)."


def _row(when: str, amounts: dict[str, int]) -> tuple[str, ...]:
    return (when, *(str(amounts[name]) for name in ("total", "used", "booked", "available")))
