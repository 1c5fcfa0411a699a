"""Rewrites requests of a pod that no node offers.

Only MIG profiles that no node offers are replaced, and only by existing resources. Either all
missing profiles of a pod are replaced or none: a pod that stays pending anyway is not made
smaller. Since every request exists afterwards, a second pass changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from croupier.core.cards import profile
from croupier.core.cards.profile import Profile
from croupier.core.fallbacks import chain as fallback_chain
from croupier.core.fallbacks import policy as fallback_policy
from croupier.core.fallbacks import words
from croupier.core.fallbacks.chain import Candidate, Choice, Offer
from croupier.core.fallbacks.policy import Policy
from croupier.core.jsonpatch import Operation
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import podspec, request
from croupier.core.pods.podspec import ContainerView, PodSpec
from croupier.core.quantity import NANO, ZERO, Quantity

ANNOTATION: Final = "gpu-webhook.k8s.io/fallback"

_DEVICES: Final = (request.GPU, request.MIG)


@dataclass(frozen=True, slots=True)
class Rewrite:
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
        return words.short(self.source), words.short(self.target)


@dataclass(frozen=True, slots=True)
class Note:
    """An Event to record on the pod."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """The changes. Without rewrites only missing limits are added, and there is no annotation."""

    operations: tuple[Operation, ...]
    rewrites: tuple[Rewrite, ...] = ()
    annotation: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def events(self) -> tuple[Note, ...]:
        reason = "GPUFallback" if self.rewrites else "GPUNothingFits"
        return tuple(Note(reason, sentence) for sentence in self.warnings)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Source and target of the rewrites, without duplicates."""
        return tuple(dict.fromkeys(rewrite.pair for rewrite in self.rewrites))


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The pod is admitted unchanged; the warnings say why it stays pending, if it does."""

    warnings: tuple[str, ...] = ()

    @property
    def events(self) -> tuple[Note, ...]:
        return tuple(Note("GPUNothingFits", sentence) for sentence in self.warnings)


@dataclass(frozen=True, slots=True)
class Denied:
    sentence: str


@dataclass(frozen=True, slots=True)
class _Swap:
    """The replacement of one profile in all containers of the pod."""

    source: str
    choice: Choice
    rewrites: tuple[Rewrite, ...]


Decision: TypeAlias = Fallback | Unchanged | Denied


def decide(spec: PodSpec, offer: Offer, default: Policy) -> Decision:
    """Apply the cluster's policy, as overridden by the pod's annotations."""
    policy = fallback_policy.policy_of(spec.annotations, default)
    trouble = str(policy) if isinstance(policy, Refused) else _trouble(spec)
    if isinstance(policy, Refused) or trouble:
        return Denied(trouble)
    missing = _missing(spec, offer)
    swaps = _swaps(spec, missing, offer, policy)
    stuck = [resource for resource in missing if all(swap.source != resource for swap in swaps)]
    if not stuck:
        return _rewrite(spec, swaps, policy) if swaps else _mend(spec)
    sentences = tuple(words.stuck(resource, _askers(spec, resource), offer, policy) for resource in stuck)
    if policy.when_nothing_fits == "Deny":
        return Denied("; ".join(sentences))
    return _mend(spec, tuple(f"{sentence}; {words.WAITS}" for sentence in sentences))


def _trouble(spec: PodSpec) -> str:
    """An invalid request, which the API server would refuse as well; empty if the request is valid."""
    for view in spec.containers:
        asks = view.asks
        read = request.read({name: asks[name] for name in asks if name.startswith(_DEVICES)}, {})
        if isinstance(read, Refused):
            return str(read)
        for resource, limit in view.limits.items():
            if asks[resource] != limit:
                return words.unequal(view.name, resource, asks[resource], limit)
    return ""


def _missing(spec: PodSpec, offer: Offer) -> tuple[str, ...]:
    """Requested MIG profiles that no node offers."""
    asked = (resource for view in spec.containers for resource, amount in view.asks.items() if amount)
    return tuple(
        resource
        for resource in dict.fromkeys(asked)
        if resource.startswith(request.MIG) and not offer.exists(resource)
    )


def _askers(spec: PodSpec, resource: str) -> list[str]:
    return [view.name for view in spec.containers if view.asks.get(resource)]


def _swaps(spec: PodSpec, missing: Iterable[str], offer: Offer, policy: Policy) -> tuple[_Swap, ...]:
    """The same replacement in all containers; profiles without a replacement are left out."""
    swaps: tuple[_Swap, ...] = ()
    for resource in missing:
        asked = profile.read(resource)
        if asked is None:
            continue
        chain = fallback_chain.candidates(asked, offer, policy)
        tried = {candidate.resource: _rewrites(spec, asked, candidate, policy) for candidate in chain}
        before = tuple(rewrite for swap in swaps for rewrite in swap.rewrites)
        choice = fallback_chain.choose(chain, offer, policy, partial(_needed, spec, before, tried))
        if choice is not None:
            swaps = (*swaps, _Swap(resource, choice, tried[choice.candidate.resource]))
    return swaps


def _rewrites(spec: PodSpec, asked: Profile, candidate: Candidate, policy: Policy) -> tuple[Rewrite, ...]:
    """The candidate in place of the profile, in every container that requests it."""
    return tuple(
        Rewrite(
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
    spec: PodSpec,
    before: tuple[Rewrite, ...],
    tried: Mapping[str, tuple[Rewrite, ...]],
    candidate: Candidate,
) -> Quantity:
    """How many of the candidate the whole pod would request."""
    rewrites = (*before, *tried[candidate.resource])
    return podspec.total(spec, [_after(view, rewrites) for view in spec.containers])[candidate.resource]


def _after(view: ContainerView, rewrites: Iterable[Rewrite]) -> dict[str, Quantity]:
    """The container's requests after the rewrites; amounts of the same resource are added."""
    asks = view.asks
    for rewrite in rewrites:
        if rewrite.path == view.path:
            del asks[rewrite.source]
            asks[rewrite.target] = asks.get(rewrite.target, ZERO) + Quantity(rewrite.given * NANO)
    return asks


def _mend(spec: PodSpec, warnings: tuple[str, ...] = ()) -> Fallback | Unchanged:
    """Add only the missing limits: the API server refuses a request of a device without a limit."""
    operations = tuple(
        operation
        for view in spec.containers
        for operation in podspec.set_resources(view, requests=view.requests, limits=view.asks)
    )
    return Fallback(operations, warnings=warnings) if operations else Unchanged(warnings)


def _rewrite(spec: PodSpec, swaps: tuple[_Swap, ...], policy: Policy) -> Fallback:
    rewrites = tuple(
        rewrite
        for view in spec.containers
        for swap in swaps
        for rewrite in swap.rewrites
        if rewrite.path == view.path
    )
    annotation = words.annotation([(rewrite.container, rewrite.pair) for rewrite in rewrites])
    return Fallback(
        operations=(
            *(operation for view in spec.containers for operation in _operations(view, rewrites)),
            *podspec.set_annotation(spec, ANNOTATION, annotation),
        ),
        rewrites=rewrites,
        annotation=annotation,
        warnings=tuple(
            words.rewritten(swap.source, swap.choice, [_told(rewrite) for rewrite in swap.rewrites], policy)
            for swap in swaps
        ),
    )


def _told(rewrite: Rewrite) -> str:
    """The container, and the amounts if they differ: `main (2 for 1)`."""
    same = rewrite.given == rewrite.asked
    return rewrite.container if same else f"{rewrite.container} ({rewrite.given} for {rewrite.asked})"


def _operations(view: ContainerView, rewrites: tuple[Rewrite, ...]) -> tuple[Operation, ...]:
    """Set all limits, and requests only where the pod has them: the API server defaults the others."""
    own = [rewrite for rewrite in rewrites if rewrite.path == view.path]
    requested = {*view.requests, *(rewrite.target for rewrite in own if rewrite.source in view.requests)}
    asks = _after(view, own)
    requests = {name: amount for name, amount in asks.items() if name in requested}
    return podspec.set_resources(view, requests=requests, limits=asks)
