"""Rewrites requests of a pod that no node offers.

Only MIG profiles that no node offers are replaced, and only by existing resources. Either all
missing profiles of a pod are replaced or none: a pod that stays pending anyway is not made
smaller. Since every request exists afterwards, a second pass changes nothing.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from croupier.core.cards import profile_size
from croupier.core.cards.profile_size import ProfileSize
from croupier.core.fallbacks import chain as fallback_chain
from croupier.core.fallbacks import messages
from croupier.core.fallbacks import policy as fallback_policy
from croupier.core.fallbacks.chain import FallbackCandidate, FallbackChoice, ResourceOffer
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.jsonpatch import Operation
from croupier.core.model.refusal import Refusal
from croupier.core.pods import podspec_view, request_parser
from croupier.core.pods.podspec_view import ContainerView, PodSpecView
from croupier.core.quantity import NANO, ZERO, Quantity

ANNOTATION: Final = "gpu-webhook.k8s.io/fallback"
"""Records the rewrites. Only the webhook writes it: one that a new pod brings is removed first."""

_DEVICES: Final = (request_parser.GPU, request_parser.MIG)


@dataclass(frozen=True, slots=True)
class RequestRewrite:
    """The replacement of one profile in one container."""

    path: str
    """JSON pointer of the container: `/spec/containers/0`."""
    container: str
    source: str
    """Full resource name, as is `target`."""
    target: str
    asked: int
    given: int

    @property
    def pair(self) -> tuple[str, str]:
        """`("2g.20gb", "1g.10gb")`, `("2g.20gb", "gpu")`."""
        return messages.short(self.source), messages.short(self.target)


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An Event to record on the pod."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class FallbackChanges:
    """The changes. Without rewrites only missing limits are added, and there is no annotation."""

    operations: tuple[Operation, ...]
    rewrites: tuple[RequestRewrite, ...] = ()
    annotation: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def events(self) -> tuple[PodEvent, ...]:
        reason = "GPUFallback" if self.rewrites else "GPUNothingFits"
        return tuple(PodEvent(reason, sentence) for sentence in self.warnings)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Source and target of the rewrites, without duplicates."""
        return tuple(dict.fromkeys(rewrite.pair for rewrite in self.rewrites))


@dataclass(frozen=True, slots=True)
class FallbackUnchanged:
    """The pod is admitted unchanged; the warnings say why it stays pending, if it does."""

    warnings: tuple[str, ...] = ()

    @property
    def events(self) -> tuple[PodEvent, ...]:
        return tuple(PodEvent("GPUNothingFits", sentence) for sentence in self.warnings)


@dataclass(frozen=True, slots=True)
class FallbackDenied:
    sentence: str


@dataclass(frozen=True, slots=True)
class _Replacement:
    """The replacement of one profile in all containers of the pod."""

    source: str
    choice: FallbackChoice
    rewrites: tuple[RequestRewrite, ...]


FallbackDecision: TypeAlias = FallbackChanges | FallbackUnchanged | FallbackDenied


def decide(spec: PodSpecView, offer: ResourceOffer, default: FallbackPolicy) -> FallbackDecision:
    """Apply the cluster's policy, as overridden by the pod's annotations."""
    policy = fallback_policy.policy_of(spec.annotations, default)
    trouble = str(policy) if isinstance(policy, Refusal) else _invalid_request(spec)
    if isinstance(policy, Refusal) or trouble:
        return FallbackDenied(trouble)
    missing = _missing(spec, offer)
    swaps = _replacements(spec, missing, offer, policy)
    stuck = [resource for resource in missing if all(swap.source != resource for swap in swaps)]
    if not stuck:
        return _rewrite(spec, swaps, policy) if swaps else _add_missing_limits(spec)
    sentences = tuple(
        messages.no_replacement(resource, _requesting_containers(spec, resource), offer, policy)
        for resource in stuck
    )
    if policy.when_nothing_fits == "Deny":
        return FallbackDenied("; ".join(sentences))
    return _add_missing_limits(spec, tuple(f"{sentence}; {messages.STAYS_PENDING}" for sentence in sentences))


def _invalid_request(spec: PodSpecView) -> str:
    """An invalid request, which the API server would refuse as well; empty if the request is valid."""
    for view in spec.containers:
        asks = view.asks
        read = request_parser.read({name: asks[name] for name in asks if name.startswith(_DEVICES)}, {})
        if isinstance(read, Refusal):
            return str(read)
        for resource, limit in view.limits.items():
            if asks[resource] != limit:
                return messages.requests_differ_from_limits(view.name, resource, asks[resource], limit)
    return ""


def _missing(spec: PodSpecView, offer: ResourceOffer) -> tuple[str, ...]:
    """Requested MIG profiles that no node offers."""
    asked = (resource for view in spec.containers for resource, amount in view.asks.items() if amount)
    return tuple(
        resource
        for resource in dict.fromkeys(asked)
        if resource.startswith(request_parser.MIG) and not offer.exists(resource)
    )


def _requesting_containers(spec: PodSpecView, resource: str) -> list[str]:
    return [view.name for view in spec.containers if view.asks.get(resource)]


def _replacements(
    spec: PodSpecView, missing: Iterable[str], offer: ResourceOffer, policy: FallbackPolicy
) -> tuple[_Replacement, ...]:
    """The same replacement in all containers; profiles without a replacement are left out."""
    swaps: tuple[_Replacement, ...] = ()
    for resource in missing:
        asked = profile_size.parse(resource)
        if asked is None:
            continue
        chain = fallback_chain.candidates(asked, offer, policy)
        tried = {candidate.resource: _rewrites(spec, asked, candidate, policy) for candidate in chain}
        before = tuple(rewrite for swap in swaps for rewrite in swap.rewrites)
        choice = fallback_chain.choose(chain, offer, policy, partial(_needed, spec, before, tried))
        if choice is not None:
            swaps = (*swaps, _Replacement(resource, choice, tried[choice.candidate.resource]))
    return swaps


def _rewrites(
    spec: PodSpecView, asked: ProfileSize, candidate: FallbackCandidate, policy: FallbackPolicy
) -> tuple[RequestRewrite, ...]:
    """The candidate in place of the profile, in every container that requests it."""
    return tuple(
        RequestRewrite(
            path=view.path,
            container=view.name,
            source=asked.resource,
            target=candidate.resource,
            asked=amount.whole,
            given=fallback_chain.count(asked, amount.whole, candidate, policy),
        )
        for view in spec.containers
        if (amount := view.asks.get(asked.resource))
    )


def _needed(
    spec: PodSpecView,
    before: tuple[RequestRewrite, ...],
    tried: Mapping[str, tuple[RequestRewrite, ...]],
    candidate: FallbackCandidate,
) -> Quantity:
    """How many of the candidate the whole pod would request."""
    of_container = _by_container((*before, *tried[candidate.resource]))
    asks = [_after(view, of_container[view.path]) for view in spec.containers]
    return podspec_view.total(spec, asks)[candidate.resource]


def _by_container(rewrites: Iterable[RequestRewrite]) -> dict[str, list[RequestRewrite]]:
    """The rewrites of each container, by its path."""
    of_container: dict[str, list[RequestRewrite]] = defaultdict(list)
    for rewrite in rewrites:
        of_container[rewrite.path].append(rewrite)
    return of_container


def _after(view: ContainerView, own: Iterable[RequestRewrite]) -> dict[str, Quantity]:
    """The container's requests after its rewrites; amounts of the same resource are added."""
    asks = view.asks
    for rewrite in own:
        del asks[rewrite.source]
        asks[rewrite.target] = asks.get(rewrite.target, ZERO) + Quantity(rewrite.given * NANO)
    return asks


def _add_missing_limits(
    spec: PodSpecView, warnings: tuple[str, ...] = ()
) -> FallbackChanges | FallbackUnchanged:
    """Add only the missing limits: the API server refuses a request of a device without a limit."""
    operations = tuple(
        operation
        for view in spec.containers
        for operation in podspec_view.set_resources(view, requests=view.requests, limits=view.asks)
    )
    return FallbackChanges(operations, warnings=warnings) if operations else FallbackUnchanged(warnings)


def _rewrite(spec: PodSpecView, swaps: tuple[_Replacement, ...], policy: FallbackPolicy) -> FallbackChanges:
    of_container = _by_container(rewrite for swap in swaps for rewrite in swap.rewrites)
    rewrites = tuple(rewrite for view in spec.containers for rewrite in of_container[view.path])
    annotation = messages.annotation([(rewrite.container, rewrite.pair) for rewrite in rewrites])
    return FallbackChanges(
        operations=(
            *(
                operation
                for view in spec.containers
                for operation in _operations(view, of_container[view.path])
            ),
            *podspec_view.set_annotation(spec, ANNOTATION, annotation),
        ),
        rewrites=rewrites,
        annotation=annotation,
        warnings=tuple(
            messages.rewritten(
                swap.source, swap.choice, [_container_text(rewrite) for rewrite in swap.rewrites], policy
            )
            for swap in swaps
        ),
    )


def _container_text(rewrite: RequestRewrite) -> str:
    """The container, and the amounts if they differ: `main (2 for 1)`."""
    same = rewrite.given == rewrite.asked
    return rewrite.container if same else f"{rewrite.container} ({rewrite.given} for {rewrite.asked})"


def _operations(view: ContainerView, own: Collection[RequestRewrite]) -> tuple[Operation, ...]:
    """Set all limits, and requests only where the pod has them: the API server defaults the others."""
    requested = {*view.requests, *(rewrite.target for rewrite in own if rewrite.source in view.requests)}
    asks = _after(view, own)
    requests = {name: amount for name, amount in asks.items() if name in requested}
    return podspec_view.set_resources(view, requests=requests, limits=asks)
