"""How far a node is with what is asked of its cards, in one word for programs and one sentence for people."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from croupier.core.nodes.plan import Step

MIG_APPLIED: Final = "MIGLayoutApplied"
SERVED: Final = "GPUResourcesServed"
_MOST: Final = 1000
"""Characters of a message."""
_WORST_FIRST: Final = ("Failed", "Drifted", "Changing", "Waiting")


@dataclass(frozen=True, slots=True)
class Standing:
    """One condition of the Node."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Service:
    """What of the node's resources is offered to the kubelet."""

    serves: Mapping[str, int]
    others: tuple[str, ...] = ()
    """Resources that somebody else serves,"""
    waiting: tuple[str, ...] = ()
    """and those the kubelet was not told of yet."""
    troubles: tuple[str, ...] = ()


def mig_state(steps: Iterable[Step], *, asked: bool, refused: str) -> str:
    """The word of nvidia.com/mig.config.state for what run.ai/mig.config asks; none if it asks nothing.

    `steps` are those of the cards the annotation decides on.
    """
    if not asked:
        return ""
    states = {step.state for step in steps}
    if refused or "Failed" in states:
        return "failed"
    return "success" if states <= {"Applied"} else "pending"


def layout(steps: Sequence[Step], indexes: Mapping[str, int], refused: str) -> Standing:
    """Whether every card is cut as it shall be."""
    if refused:
        return Standing(MIG_APPLIED, "False", "Refused", _short(refused))
    for state in _WORST_FIRST:
        if found := [step for step in steps if step.state == state]:
            return Standing(MIG_APPLIED, "False", state, _told(found, indexes))
    asked = [step for step in steps if step.target]
    if not asked:
        return Standing(
            MIG_APPLIED, "True", "NothingAsked", "no card is asked to be cut otherwise than it is"
        )
    cards = "1 card is" if len(asked) == 1 else f"{len(asked)} cards are"
    return Standing(MIG_APPLIED, "True", "Applied", f"{cards} cut as asked")


def service(told: Service) -> Standing:
    """Whether pods can ask the kubelet for the cards."""
    if told.troubles:
        return Standing(SERVED, "False", "Trouble", _short("; ".join(told.troubles)))
    if told.waiting:
        return Standing(SERVED, "False", "NotRegistered", f"the kubelet does not know {_names(told.waiting)}")
    served = f"served: {_names(sorted(told.serves))}" if told.serves else "there is nothing to serve"
    if told.others:
        left = f"another device plugin serves {_names(told.others)}, which is left to it"
        return Standing(SERVED, "True", "ServedByOthers", _short(f"{left}; {served}"))
    return Standing(SERVED, "True", "Served" if told.serves else "NothingToServe", _short(served))


def _told(steps: Sequence[Step], indexes: Mapping[str, int]) -> str:
    """`card 0 and 2 more: why`: cards that share a reason are told together."""
    groups: dict[str, list[str]] = {}
    for step in steps:
        groups.setdefault(step.message, []).append(str(indexes.get(step.card, step.card)))
    told = (f"card{'s' if len(cards) > 1 else ''} {', '.join(cards)}: {why}" for why, cards in groups.items())
    return _short("; ".join(told))


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
