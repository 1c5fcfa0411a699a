"""Environment variables by which a container would choose cards or limits itself.

The kubelet adds the variables of the device plugin first and those of the pod after them, so a variable that
a pod sets replaces the one that came with its cards. NVIDIA_VISIBLE_DEVICES would show other cards of the
node, and the variables of MPS and HAMi-core would raise the limits of a share.

NVIDIA_VISIBLE_DEVICES is overruled, because many manifests set it to `all` next to a card request and mean
the requested cards. The variables of limits are refused: their authors want something that the request must
say. CUDA_VISIBLE_DEVICES is kept in pods that hold cards: it only selects among the visible cards.
"""

from dataclasses import dataclass
from typing import Final

from croupier.core.jsonpatch import Operation
from croupier.core.model.refusal import Refusal
from croupier.core.pods import ledger_resource
from croupier.core.pods.podspec_view import ContainerView, EnvVariable, PodSpecView

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
CUDA_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
VOID: Final = "void"
"""The value of NVIDIA_VISIBLE_DEVICES with which the NVIDIA runtime changes nothing."""
HARMLESS: Final = {VISIBLE: ("", VOID, "none"), CUDA_VISIBLE: ("", VOID, "none", "-1")}
"""The values that make no card visible."""
LIMIT_PREFIXES: Final = ("CUDA_MPS_", "CUDA_DEVICE_MEMORY_", "CUDA_DEVICE_SM_LIMIT")
LIMITS: Final = (
    "CUDA_DISABLE_CONTROL",
    "CUDA_OVERSUBSCRIBE",
    "CUDA_TASK_PRIORITY",
    "GPU_CORE_UTILIZATION_POLICY",
    "NVIDIA_MIG_CONFIG_DEVICES",
)
"""With the prefixes: the variables of MPS, HAMi-core and NVIDIA's toolkit that replace limits of a grant."""

RUNTIME_LABEL: Final = "gpu.deckhouse.io/runtime.default"
"""The label of nodes with cards: `nvidia` if NVIDIA's container runtime is the default, else `other`."""
ACCEPTS_LABEL: Final = "gpu.deckhouse.io/runtime.visible-devices"
"""The label with the containers whose NVIDIA_VISIBLE_DEVICES the runtime accepts: `all` or `privileged`."""

OVERRIDES: Final = (
    "{item}, which would override the limits of the cards that the pod requests: "
    "remove the variable and request the share that the pod needs"
)
"""The refusal of a limit. `{item}` is the offence: container and variable."""


@dataclass(frozen=True, slots=True)
class VariableChanges:
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()


def is_limit(variable: str) -> bool:
    return variable in LIMITS or variable.startswith(LIMIT_PREFIXES)


def offence(container: str, variable: str) -> str:
    return f"container {container} sets {variable}"


def overrule(spec: PodSpecView) -> VariableChanges | Refusal:
    """The changes to a pod that holds cards, none to another one. Idempotent."""
    if not any(map(ledger_resource.asks_for_cards, spec.containers)):
        return VariableChanges()
    for view in spec.containers:
        for variable in view.env:
            if is_limit(variable.name):
                return Refusal(OVERRIDES.format(item=offence(view.name, variable.name)))
    changes = [change for view in spec.containers for change in _visible(view)]
    warnings = dict.fromkeys(warning for _, warning in changes if warning)
    return VariableChanges(tuple(operation for operation, _ in changes), tuple(warnings))


def _visible(view: ContainerView) -> list[tuple[Operation, str]]:
    """Last variable first, because a removal moves the later ones."""
    holds = ledger_resource.asks_for_cards(view)
    named = [(index, variable) for index, variable in enumerate(view.env) if variable.name == VISIBLE]
    return [
        _removed(view, index, variable) if holds else _voided(view, index)
        for index, variable in reversed(named)
        if holds or shows_cards(variable)
    ]


def shows_cards(variable: EnvVariable) -> bool:
    """Whether the variable may make cards visible. A value from another object is unknown, so it may."""
    harmless = HARMLESS.get(variable.name)
    return harmless is not None and variable.value not in harmless


def _removed(view: ContainerView, index: int, variable: EnvVariable) -> tuple[Operation, str]:
    """Without a warning if nothing was asked for: a policy may have added `void` before."""
    why = "removed, because its card request decides which cards it sees"
    warning = f"{offence(view.name, VISIBLE)}: {why}" if shows_cards(variable) else ""
    return Operation("remove", f"{view.path}/env/{index}"), warning


def _voided(view: ContainerView, index: int) -> tuple[Operation, str]:
    warning = f'{offence(view.name, VISIBLE)}: changed to "{VOID}", because the container requests no cards'
    return Operation("replace", f"{view.path}/env/{index}", {"name": VISIBLE, "value": VOID}), warning
