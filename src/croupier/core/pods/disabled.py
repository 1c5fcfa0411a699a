"""What admission answers while Croupier is disabled.

Another device plugin may serve whole cards and MIG devices, so these pods are admitted as they are. Shares
exist only in Croupier's ledger: a pod that requests them would wait without a reason, and is refused.
"""

from typing import Final

from croupier.core.model.refusal import Refusal
from croupier.core.pods.podspec_view import PodSpecView
from croupier.core.pods.request_parser import CARDS, LEDGER, PERCENT, RATIO

DISABLED: Final = "Croupier is disabled (spec.enabled of ModuleConfig gpu-operator is false)"
EFFECT: Final = (
    "its processes run and do nothing; new pods that request a pool or a share of a card are refused; "
    "pods that request nvidia.com/gpu or a MIG device are admitted without the ledger "
    "and get cards only from another device plugin"
)
"""What users notice; in the Event, in `croupier doctor` and in docs/operations.md."""


def decide(spec: PodSpecView) -> Refusal | str:
    """Refuses a pod that only Croupier can serve; otherwise the warning for its user, possibly empty."""
    named = {name for view in spec.containers for name, amount in view.asks.items() if amount} - {LEDGER}
    shares = [name for name in (CARDS, RATIO) if name in spec.annotations]
    shares += [PERCENT] if PERCENT in named else []
    if shares:
        return Refusal(
            f"{DISABLED}, and only Croupier serves {shares[0]}: create the pod again when it is enabled"
        )
    if not named:
        return ""
    return (
        f"{DISABLED}: the ledger does not record {' and '.join(sorted(named))} of this pod, "
        "and only another device plugin can serve it"
    )
