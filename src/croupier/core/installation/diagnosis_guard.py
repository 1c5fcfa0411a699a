"""Whether containers without cards can see the cards of a node, by an environment variable."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from croupier.core.installation.diagnosis import InstallationProblem, InstallationProblems, Severity

GuardMode: TypeAlias = Literal["Off", "Warn", "Void", "Deny"]


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """What protects the cards of nodes from containers that choose cards by an environment variable."""

    mode: GuardMode = "Off"
    """As installed: the policy croupier-guard and its binding."""
    images: bool = False
    """Whether the policy croupier-guard-images is installed, too."""
    default: Collection[str] = ()
    """Nodes whose default runtime is NVIDIA's and accepts the variable from unprivileged containers."""
    by_class: Collection[str] = ()
    """Nodes where only pods that choose NVIDIA's runtime by their RuntimeClass are concerned."""


_TOOLKIT: Final = (
    "set accept-nvidia-visible-devices-envvar-when-unprivileged = false in "
    "/etc/nvidia-container-runtime/config.toml and use CDI, or {guard} (docs/guard.md)"
)
_GUARD_GAPS: Final[Mapping[tuple[GuardMode, bool], tuple[str, str]]] = {
    ("Off", False): ("no guard is installed", "set settings.guard.mode to Void or Deny"),
    ("Warn", False): ("the guard only warns", "set settings.guard.mode to Void or Deny"),
    ("Deny", False): (
        "the guard refuses pods that set it, but not images that do",
        "set settings.guard.mode to Void",
    ),
    ("Void", False): (
        "the guard hides cards from pods that set it, but not from images that do",
        "apply the chart again: it adds the policy croupier-guard-images",
    ),
}


def guard(seen: GuardFacts) -> InstallationProblems:
    """Nodes on which a container without cards can see all cards."""
    gap = _GUARD_GAPS.get((seen.mode, seen.images and seen.mode == "Void"))
    if gap is None:
        return ()
    lack, remedy = gap
    severity: Severity = "note" if seen.mode == "Deny" else "warning"
    what = f"a container without cards that sets NVIDIA_VISIBLE_DEVICES sees every card of the node: {lack}"
    chosen = f"pods with NVIDIA's RuntimeClass that set NVIDIA_VISIBLE_DEVICES see every card: {lack}"
    remedy = _TOOLKIT.format(guard=remedy)
    return (
        *(InstallationProblem(severity, what, f"node {node}", remedy) for node in sorted(seen.default)),
        *(InstallationProblem("note", chosen, f"node {node}", remedy) for node in sorted(seen.by_class)),
    )
