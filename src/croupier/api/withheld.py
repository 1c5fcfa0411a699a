"""The wire form of the reason why a card takes no new pods; GPUDevice and NodeReservation have the same."""

from typing import Annotated

from msgspec import Meta

from croupier.api.wire import Wire, example
from croupier.core.model.withheld import Withheld, WithheldState


class WithheldCard(Wire, frozen=True, kw_only=True):
    """Why the card takes no new pods. Pods that hold a part of it keep it."""

    state: Annotated[WithheldState, example("Drained")]
    """Drained or Retired by a person, Changing (by the agent of its node or its pool), or Unhealthy."""
    reason: Annotated[str, Meta(max_length=256), example("the fan is loud")] = ""
    """The reason, such as the text that a person gave."""


def encode(value: Withheld | None) -> WithheldCard | None:
    return WithheldCard(state=value.state, reason=value.reason[:256]) if value is not None else None


def decode(wire: WithheldCard | None) -> Withheld | None:
    return Withheld(wire.state, wire.reason) if wire is not None else None
