"""The installed guard of visible devices and the nodes that need it, for `croupier doctor`."""

from croupier.admission import guard_policy
from croupier.api import kinds
from croupier.core.installation import diagnosis_guard
from croupier.core.installation.diagnosis import InstallationProblems
from croupier.core.installation.diagnosis_guard import GuardFacts
from croupier.core.pods.device_variables import ACCEPTS_LABEL, RUNTIME_LABEL
from croupier.ops.installation import Installation


async def check(cluster: Installation) -> InstallationProblems:
    """The mode is that of the policy in the cluster, not that of the settings."""
    bound = {
        binding["metadata"]["name"]: (binding["spec"].get("validationActions") or ["Void"])[0]
        for kind in (kinds.ADMISSION_POLICY_BINDINGS, kinds.MUTATING_POLICY_BINDINGS)
        for binding in await cluster.all(kind)
    }
    labels = {node.metadata.name: node.metadata.labels for node in await cluster.all(kinds.NODES)}
    accepting = {name for name, node in labels.items() if node.get(ACCEPTS_LABEL) == "all"}
    default = {name for name in accepting if labels[name].get(RUNTIME_LABEL) == "nvidia"}
    return diagnosis_guard.guard(
        GuardFacts(
            mode=bound.get(guard_policy.GUARD, "Off"),
            images=guard_policy.GUARD_IMAGES in bound,
            default=default,
            by_class=accepting - default,
        )
    )
