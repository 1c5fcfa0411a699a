"""Rewrites what a pod asks for where no node offers it.

Only MIG profiles that exist nowhere are replaced, and only by what exists. All profiles a pod
lacks are replaced, or none: a pod that has to wait anyway is not made smaller. Since everything
asked for afterwards exists, deciding again changes nothing.
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
    """One profile of one container."""

    path: str
    """Of the container: `/spec/containers/0`."""
    container: str
    source: str
    """Resources by their full names."""
    target: str
    asked: int
    given: int

    @property
    def pair(self) -> tuple[str, str]:
        """`("2g.20gb", "1g.10gb")`, `("2g.20gb", "gpu")`."""
        return words.short(self.source), words.short(self.target)


@dataclass(frozen=True, slots=True)
class Note:
    """An Event worth recording on the pod."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """What is changed. Without rewrites only missing limits are added, and there is no annotation."""

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
        """From what to what, each once."""
        return tuple(dict.fromkeys(one.pair for one in self.rewrites))


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The pod is admitted as it is; a warning says if it has to wait."""

    warnings: tuple[str, ...] = ()

    @property
    def events(self) -> tuple[Note, ...]:
        return tuple(Note("GPUNothingFits", sentence) for sentence in self.warnings)


@dataclass(frozen=True, slots=True)
class Denied:
    sentence: str


@dataclass(frozen=True, slots=True)
class _Swap:
    """What takes the place of one profile wherever the pod asks for it."""

    source: str
    choice: Choice
    rewrites: tuple[Rewrite, ...]


Decision: TypeAlias = Fallback | Unchanged | Denied


def decide(spec: PodSpec, offer: Offer, default: Policy) -> Decision:
    """By the cluster's policy, and by what the pod's annotations say to it."""
    policy = fallback_policy.policy_of(spec.annotations, default)
    trouble = str(policy) if isinstance(policy, Refused) else _trouble(spec)
    if isinstance(policy, Refused) or trouble:
        return Denied(trouble)
    missing = _missing(spec, offer)
    swaps = _swaps(spec, missing, offer, policy)
    stuck = [resource for resource in missing if all(one.source != resource for one in swaps)]
    if not stuck:
        return _rewrite(spec, swaps, policy) if swaps else _mend(spec)
    sentences = tuple(words.stuck(one, _askers(spec, one), offer, policy) for one in stuck)
    if policy.when_nothing_fits == "Deny":
        return Denied("; ".join(sentences))
    return _mend(spec, tuple(f"{sentence}; {words.WAITS}" for sentence in sentences))


def _trouble(spec: PodSpec) -> str:
    """What cannot be meant, and the API server would refuse too: told before anything is made of it."""
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
    """MIG profiles that the pod asks for and no node offers."""
    asked = (resource for view in spec.containers for resource, amount in view.asks.items() if amount)
    return tuple(
        resource
        for resource in dict.fromkeys(asked)
        if resource.startswith(request.MIG) and not offer.exists(resource)
    )


def _askers(spec: PodSpec, resource: str) -> list[str]:
    return [view.name for view in spec.containers if view.asks.get(resource)]


def _swaps(spec: PodSpec, missing: Iterable[str], offer: Offer, policy: Policy) -> tuple[_Swap, ...]:
    """What takes the place of each, in all containers alike; left out are those nothing can replace."""
    swaps: tuple[_Swap, ...] = ()
    for resource in missing:
        asked = profile.read(resource)
        if asked is None:
            continue
        chain = fallback_chain.candidates(asked, offer, policy)
        tried = {one.resource: _rewrites(spec, asked, one, policy) for one in chain}
        before = tuple(one for swap in swaps for one in swap.rewrites)
        choice = fallback_chain.choose(chain, offer, policy, partial(_needed, spec, before, tried))
        if choice is not None:
            swaps = (*swaps, _Swap(resource, choice, tried[choice.candidate.resource]))
    return swaps


def _rewrites(spec: PodSpec, asked: Profile, candidate: Candidate, policy: Policy) -> tuple[Rewrite, ...]:
    """The candidate in place of what was asked for, in every container that did."""
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
    """How many of the candidate the pod as a whole would ask for."""
    rewrites = (*before, *tried[candidate.resource])
    return podspec.total(spec, [_after(view, rewrites) for view in spec.containers])[candidate.resource]


def _after(view: ContainerView, rewrites: Iterable[Rewrite]) -> dict[str, Quantity]:
    """What the container asks for then; what it gets is added to what it asked for of the same."""
    asks = view.asks
    for one in rewrites:
        if one.path == view.path:
            del asks[one.source]
            asks[one.target] = asks.get(one.target, ZERO) + Quantity(one.given * NANO)
    return asks


def _mend(spec: PodSpec, warnings: tuple[str, ...] = ()) -> Fallback | Unchanged:
    """A request without a limit would be refused by the API server: it gets one, and nothing else changes."""
    operations = tuple(
        one
        for view in spec.containers
        for one in podspec.set_resources(view, requests=view.requests, limits=view.asks)
    )
    return Fallback(operations, warnings=warnings) if operations else Unchanged(warnings)


def _rewrite(spec: PodSpec, swaps: tuple[_Swap, ...], policy: Policy) -> Fallback:
    rewrites = tuple(
        one for view in spec.containers for swap in swaps for one in swap.rewrites if one.path == view.path
    )
    annotation = words.annotation([(one.container, one.pair) for one in rewrites])
    return Fallback(
        operations=(
            *(one for view in spec.containers for one in _operations(view, rewrites)),
            *podspec.set_annotation(spec, ANNOTATION, annotation),
        ),
        rewrites=rewrites,
        annotation=annotation,
        warnings=tuple(
            words.rewritten(swap.source, swap.choice, [_told(one) for one in swap.rewrites], policy)
            for swap in swaps
        ),
    )


def _told(rewrite: Rewrite) -> str:
    """The container, and how many it gets if these are not as many as it asked for."""
    same = rewrite.given == rewrite.asked
    return rewrite.container if same else f"{rewrite.container} ({rewrite.given} for {rewrite.asked})"


def _operations(view: ContainerView, rewrites: tuple[Rewrite, ...]) -> tuple[Operation, ...]:
    """Limits are all it asks for; a request that was left to the API server is left to it still."""
    own = [one for one in rewrites if one.path == view.path]
    requested = {*view.requests, *(one.target for one in own if one.source in view.requests)}
    asks = _after(view, own)
    requests = {name: amount for name, amount in asks.items() if name in requested}
    return podspec.set_resources(view, requests=requests, limits=asks)
