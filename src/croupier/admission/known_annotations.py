"""The annotations and labels of Croupier, with what they mean.

The keys are the constants of the code that reads or writes them. The policy that warns about unknown
annotations (`annotation_policy`) and docs/reference/annotations.md are generated from these tables.
"""

from dataclasses import dataclass
from typing import Final

from croupier.admission import guard_policy
from croupier.api import market_report
from croupier.api.gpu import agent_report, convert_pool, device, pool, pool_config
from croupier.api.mps import allocation, reservation
from croupier.api.settings import ManagedNodesSettings
from croupier.core.cards import features
from croupier.core.fallbacks import fallback, policy
from croupier.core.market import terms
from croupier.core.nodes import bootstrap
from croupier.core.pods import device_variables, ledger_resource, request_parser
from croupier.core.pools import assignment, hints

PREFIXES: Final = ("gpu.mps.io/", "gpu-webhook.k8s.io/", "gpu.deckhouse.io/", "mbcas.io/")
"""The prefixes under which every annotation is one of `ANNOTATIONS`."""
RESOURCES: Final = (request_parser.PERCENT, request_parser.LEDGER)
"""Names of resources with these prefixes, which are easily taken for annotations."""


@dataclass(frozen=True, slots=True)
class DocumentedKey:
    """An annotation or label: the kind that carries it, what it means, and a value."""

    key: str
    kind: str
    description: str
    example: str
    by_users: bool = False
    """Whether users set it. All others are set by Croupier."""


def _users(key: str, kind: str, description: str, example: str) -> DocumentedKey:
    return DocumentedKey(key, kind, description, example, by_users=True)


_OF_CARD_REQUESTS: Final = (
    _users(request_parser.CARDS, "Pod", "The number of cards that the pod shares.", "2"),
    _users(request_parser.RATIO, "Pod", "The share of each card in percent.", "50"),
    _users(
        ledger_resource.CONTAINER_ANNOTATION,
        "Pod",
        "The container that gets the cards. The default is the first one.",
        "trainer",
    ),
    _users(
        policy.DIRECTION,
        "Pod",
        "Which MIG profiles may replace one that no node offers: nearest, down, up or off.",
        "nearest",
    ),
    _users(policy.MIN_MEMORY, "Pod", "The smallest memory of a replacement profile.", "10Gi"),
    DocumentedKey(fallback.ANNOTATION, "Pod", "The MIG profiles that were replaced.", "2g.20gb->1g.10gb"),
    DocumentedKey(
        allocation.ALLOCATION,
        "Pod",
        "The cards of the pod, set with its Binding.",
        '[{"card":"node-1-0000-65-00-0","index":0,"percent":50}]',
    ),
    DocumentedKey(
        allocation.HOLD_EXPIRED,
        "Pod",
        "The time at which the hold of the pod expired. A Binding prepared for it fails.",
        "2030-01-31T12:00:00.000000+00:00",
    ),
    DocumentedKey(
        allocation.RETRY,
        "Pod",
        "The time at which the scheduler was asked to try the pod again.",
        "2030-01-31T12:00:00+00:00",
    ),
    DocumentedKey(
        hints.REQUEST_ID, "Pod", "The request with which the pod was admitted to a pool.", "3f1c2a9e"
    ),
)
_OF_THE_MARKET: Final = (
    _users(terms.CLASS, "Pod", "How the CPU limit is computed: latency or elastic.", "latency"),
    _users(
        terms.WEIGHT, "Pod", "The factor for the CPU request when CPU is scarce: above 0, up to 1000.", "2"
    ),
    _users(terms.MIN_CPU, "Pod", "The smallest CPU limit. The default is the request.", "500m"),
    _users(terms.MAX_CPU, "Pod", "The largest CPU limit. The default is the node.", "4"),
    _users(terms.THROTTLE_TARGET, "Pod", "The share of periods that may be throttled.", "5%"),
    _users(terms.PAUSED, "Pod", "Keeps the CPU limit as it is if true.", "true"),
    _users(terms.ALLOW_GUARANTEED, "Pod", "Allows changes of a Guaranteed pod if true.", "true"),
    _users(terms.ALLOW_RESTART, "Pod", "Allows changes that restart containers if true.", "true"),
    DocumentedKey(market_report.REPORT_ANNOTATION, "Lease", "The report of a market agent, as JSON.", "{}"),
    DocumentedKey(market_report.NODE_ANNOTATION, "Lease", "The node of a market agent.", "node-1"),
)
_OF_CARDS: Final = (
    _users(assignment.ASSIGNMENT, "GPUDevice", "The pool that the card joins.", "training"),
    _users(
        device.DRAIN,
        "GPUDevice",
        "Keeps new holders off the card. The value is the reason.",
        "fan replacement",
    ),
    _users(
        device.RETIRED,
        "GPUDevice",
        "Why the card was retired, with the label gpu.deckhouse.io/ignore=true.",
        "worn out",
    ),
    _users(
        pool.CONFIRMED,
        "GPUPool",
        "Confirms the repair of a Misconfigured pool. The value is its metadata.generation.",
        "3",
    ),
    DocumentedKey(
        convert_pool.CARD_ALLOCATION,
        "GPUDevice",
        "How the card is shared while its pool changes.",
        '{"mode":"MPS"}',
    ),
    DocumentedKey(
        device.IDLE_MARK,
        "GPUDevice",
        "What was done about the idle card, and since when it is idle.",
        "Notify 2030-01-31T12:00:00Z",
    ),
    DocumentedKey(
        hints.TAINTS, "Node", "The taints that Croupier added to the node.", "dedicated:NoSchedule"
    ),
    DocumentedKey(
        bootstrap.IMAGE, "Pod", "The configured image of a service pod.", "nvcr.io/nvidia/k8s/dcgm"
    ),
    DocumentedKey(agent_report.REPORT_ANNOTATION, "Lease", "The report of a GPU agent, as JSON.", "{}"),
    DocumentedKey(agent_report.NODE_ANNOTATION, "Lease", "The node of a GPU agent.", "node-1"),
)
ANNOTATIONS: Final = (*_OF_CARD_REQUESTS, *_OF_CARDS, *_OF_THE_MARKET)

LABELS: Final = (
    _users(
        ManagedNodesSettings().label_key,
        "Node",
        "Includes or excludes the node. The setting managedNodes.labelKey changes the key.",
        "false",
    ),
    _users(device.IGNORE, "GPUDevice", "Retires the card: Croupier ignores it.", "true"),
    _users(
        guard_policy.EXEMPT, "Namespace", "Exempts the namespace from the guard of visible devices.", "off"
    ),
    _users(terms.MANAGED, "Pod", "Lets the CPU market change the limits of the pod.", "true"),
    DocumentedKey(device.NODE_LABEL, "GPUDevice", "The node of the card.", "node-1"),
    DocumentedKey(device.INDEX_LABEL, "GPUDevice", "The index of the card on its node.", "0"),
    DocumentedKey(hints.POD_LABEL, "Pod", "The pool that the pod was admitted to.", "training"),
    DocumentedKey(
        pool_config.POOL_LABEL, "ConfigMap", "The pool whose cards the ConfigMap lists.", "training"
    ),
    DocumentedKey(
        f"{hints.NODE_LABEL}<pool>", "Node", "The node has cards of this pool. The value is empty.", ""
    ),
    DocumentedKey(
        device_variables.RUNTIME_LABEL, "Node", "The default container runtime: nvidia or other.", "nvidia"
    ),
    DocumentedKey(
        device_variables.ACCEPTS_LABEL,
        "Node",
        "The containers whose NVIDIA_VISIBLE_DEVICES the runtime accepts: all or privileged.",
        "privileged",
    ),
    DocumentedKey(f"{features.DEVICE}<NN>.<name>", "Node", "A property of a card, set by NFD.", "10de"),
    DocumentedKey(f"{features.DRIVER}<name>", "Node", "A property of the driver, set by NFD.", "570"),
    DocumentedKey(bootstrap.SERVICE, "Pod", "The kind of a service pod.", bootstrap.DCGM),
    DocumentedKey(agent_report.AGENT_LABEL, "Lease", "The Lease of a GPU agent.", "node"),
    DocumentedKey(market_report.AGENT_LABEL, "Lease", "The Lease of a market agent.", market_report.ACTIVE),
    DocumentedKey(reservation.MIRROR, "Reservation", "The Reservation only shows what a pod holds.", "true"),
)
"""Those with `<...>` are families of keys."""


def annotation_keys() -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.key for item in ANNOTATIONS))


def other_uses() -> dict[str, str]:
    """Keys with our prefixes that are no annotations, and what they are."""
    labels = {item.key: "a label" for item in LABELS if "<" not in item.key}
    uses = {key: use for key, use in labels.items() if key.startswith(PREFIXES)}
    resources = dict.fromkeys(RESOURCES, "a resource that containers request")
    return {key: use for key, use in (uses | resources).items() if key not in annotation_keys()}
