"""What the page shows of a card that takes no new pods: a person's drain is not a change of its pool."""

import msgspec
import pytest

from croupier.api.gpu import GPUDevice
from croupier.ui import action_body, rows
from croupier.ui.rows import NodeObjects
from croupier.ui.tables import FLAGS, REASON

RETIRED = {"gpu.deckhouse.io/ignore": "true"}
CHANGE = "pool a changes how it is shared"


def device(labels: dict[str, str], **annotations: str) -> GPUDevice:
    named = {f"gpu.deckhouse.io/{key}": value for key, value in annotations.items()}
    meta = {"name": "card-0", "labels": labels, "annotations": named}
    return msgspec.convert({"metadata": meta, "status": {"nodeName": "node-1"}}, GPUDevice)


SHOWN = {
    "a usable card": (device({}), 0, ""),
    "drained": (device({}, drain="swap the fan"), rows.DRAINED, "swap the fan"),
    "retired": (device(RETIRED, retired="worn out"), rows.RETIRED, "worn out"),
    "retired and drained": (
        device(RETIRED, retired="worn out", drain="swap the fan"),
        rows.RETIRED | rows.DRAINED,
        "worn out",
    ),
    "changed by its pool": (device({}, drain=CHANGE), rows.REPARTITIONING, CHANGE),
}


@pytest.mark.parametrize(("card", "flags", "reason"), SHOWN.values(), ids=SHOWN)
def test_the_row_says_what_a_person_did_and_why(card, flags, reason):
    row = rows.cards(NodeObjects("node-1", devices=(card,)), lambda holder: 0)["card-0"]

    assert (row[FLAGS], row[REASON]) == (flags, reason)


def test_a_retirement_may_have_a_reason():
    body = action_body.action(b'{"action": "retire", "cards": ["card-0"], "reason": "worn out"}')

    assert body.cards_action.reason == "worn out"
