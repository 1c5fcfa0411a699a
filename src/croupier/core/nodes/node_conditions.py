"""Node conditions and labels about MIG layouts and served resources."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from croupier.core.model.condition import DesiredCondition
from croupier.core.nodes.layout_plan import LayoutStep

MIG_APPLIED: Final = "MIGLayoutApplied"
SERVED: Final = "GPUResourcesServed"
_MAX_MESSAGE: Final = 1000
"""The largest length of a message."""
_WORST_FIRST: Final = ("Failed", "Drifted", "Changing", "Waiting")


@dataclass(frozen=True, slots=True)
class DevicePluginState:
    """The state of the node's device plugins."""

    serves: Mapping[str, int]
    others: tuple[str, ...] = ()
    """Resources that another device plugin serves."""
    waiting: tuple[str, ...] = ()
    """Resources that are not registered with the kubelet yet."""
    troubles: tuple[str, ...] = ()


def mig_state(steps: Iterable[LayoutStep], *, asked: bool, refused: str) -> str:
    """The value of nvidia.com/mig.config.state; empty if the node has no annotation run.ai/mig.config.

    `steps` are those of the cards that the annotation names.
    """
    if not asked:
        return ""
    states = {step.state for step in steps}
    if refused or "Failed" in states:
        return "failed"
    return "success" if states <= {"Applied"} else "pending"


def layout_condition(
    steps: Sequence[LayoutStep], indexes: Mapping[str, int], refused: str
) -> DesiredCondition:
    """Whether every card has its desired layout."""
    if refused:
        return DesiredCondition(MIG_APPLIED, "False", "Refused", _short(refused))
    for state in _WORST_FIRST:
        if matching := [step for step in steps if step.state == state]:
            return DesiredCondition(MIG_APPLIED, "False", state, _describe(matching, indexes))
    asked = [step for step in steps if step.target]
    if not asked:
        return DesiredCondition(MIG_APPLIED, "True", "NothingAsked", "no layout is requested for any card")
    cards = "1 card has its" if len(asked) == 1 else f"{len(asked)} cards have their"
    return DesiredCondition(MIG_APPLIED, "True", "Applied", f"{cards} requested layout")


def plugin_condition(plugins: DevicePluginState) -> DesiredCondition:
    """Whether the kubelet offers the cards to pods."""
    if plugins.troubles:
        return DesiredCondition(SERVED, "False", "Trouble", _short("; ".join(plugins.troubles)))
    if plugins.waiting:
        return DesiredCondition(
            SERVED, "False", "NotRegistered", f"not registered with the kubelet: {_names(plugins.waiting)}"
        )
    served = (
        f"served: {_names(sorted(plugins.serves))}"
        if plugins.serves
        else "the node has no resources to serve"
    )
    if plugins.others:
        left = f"another device plugin serves {_names(plugins.others)}"
        return DesiredCondition(SERVED, "True", "ServedByOthers", _short(f"{left}; {served}"))
    return DesiredCondition(SERVED, "True", "Served" if plugins.serves else "NothingToServe", _short(served))


def _describe(steps: Sequence[LayoutStep], indexes: Mapping[str, int]) -> str:
    """`cards 0, 2: why`: cards with the same reason are grouped."""
    groups: dict[str, list[str]] = {}
    for step in steps:
        groups.setdefault(step.message, []).append(str(indexes.get(step.card, step.card)))
    texts = (
        f"{'card' if len(cards) == 1 else 'cards'} {', '.join(cards)}: {why}" for why, cards in groups.items()
    )
    return _short("; ".join(texts))


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 1]}…"
