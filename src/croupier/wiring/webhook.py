"""`croupier webhook`: the admission webhook for pods."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from croupier.admission import certificates_shared, notices
from croupier.admission.authority import RULES as ROTATION
from croupier.admission.authority import Rules as Rotation
from croupier.admission.certificates_files import MountedCertificate
from croupier.admission.certificates_shared import SharedCertificate
from croupier.admission.configurations import Wish
from croupier.admission.metrics import AdmissionMetrics
from croupier.admission.mutate import Mutator
from croupier.admission.notices import Notices
from croupier.admission.pools import Defaults, Guard
from croupier.admission.registration import KINDS as REGISTRATIONS
from croupier.admission.registration import Registration
from croupier.admission.review import AdmissionRequest, Verdict
from croupier.admission.server import DRAIN, Webhook
from croupier.admission.server import Mutator as Decider
from croupier.api import kinds
from croupier.api.occupancy import LEAN_NODES, LEAN_PODS
from croupier.api.sighting import SIGHTINGS
from croupier.book import availability
from croupier.core.availability import Availability
from croupier.core.fallbacks import policy as fallback_policy
from croupier.core.fallbacks.policy import Policy
from croupier.kube import run
from croupier.kube.client import Selection
from croupier.kube.events import Recorder
from croupier.kube.run import Part
from croupier.kube.serving import GRACE, Address, Listen, Rotating
from croupier.kube.store import Store
from croupier.kube.together import first
from croupier.wiring.settings import Orders
from croupier.wiring.surface import (
    BOUND_PODS,
    FAREWELL,
    Caches,
    Settings,
    Surface,
    surfaced,
    until_stopped,
)

OFF: Final = Verdict(
    allowed=False,
    sentence="GPU pools are disabled (spec.enabled of ModuleConfig gpu-operator is false), so access to a "
    "pool cannot be checked; try again when they are enabled",
)
"""Pods must not bypass the access check: such a pod would wait, and start when the pools are enabled."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The options of the webhook."""

    listen: Address
    wish: Wish
    policy: Policy | None = None
    """The fallback policy for a profile that no node offers; None means the current settings."""
    installs: bool = True
    """Whether the process writes its own webhook configurations."""
    mounted: Path | None = None
    """A folder with an externally managed certificate; without it the process creates its own."""
    rotation: Rotation = ROTATION
    drain: float = DRAIN
    scheduler: str = ""
    """The scheduler of pods that request cards; empty means the default scheduler."""


async def work(settings: Settings, admission: Admission) -> int:
    """Serve admission reviews from caches; starts after all caches have synced."""
    async with surfaced(settings) as surface:
        caches, served = Caches(surface.api, surface.metrics), Rotating()
        metrics = AdmissionMetrics(surface.metrics.registry)
        recorder = Recorder(surface.api, notices.REPORTER, gauge=surface.metrics, naming=notices.naming)
        pending_events = Notices(recorder)
        caches.follow(SIGHTINGS, name="created pods").store.subscribe(pending_events.seen)
        policy = _policy(surface, admission)
        decider = Mutator(_offer(caches, policy()), policy, admission.scheduler)
        mutator = Switched(decider, surface.orders)
        certificate = _certificate(surface, caches, admission, (served, metrics))
        access = Guard(caches.follow(kinds.GPU_POOLS).store.named, lambda: _spreading(surface))
        guard = Switched(access, surface.orders, OFF)
        listen = Listen(admission.listen, served)
        hook = Webhook(mutator, listen, guard, gauge=metrics, notices=pending_events, drain=admission.drain)

        async def serve(stop: asyncio.Event) -> None:
            await first(stop, _both(caches.synced(), certificate.loaded.wait()))
            if not stop.is_set():
                await hook.run(stop, listening=certificate.answer)

        ready = surface.checks.ready
        ready |= {"caches": caches.behind, "certificate": certificate.missing, "webhook": hook.silent}
        parts = [*caches.parts(), Part("events", recorder.run), run.endless("certificate", certificate.run)]
        return await until_stopped(
            surface, [*parts, Part("webhook", serve, grace=admission.drain + GRACE + FAREWELL)]
        )


@dataclass(frozen=True, slots=True)
class Switched:
    """Forwards requests to `decider`; while the settings disable it, `off` is the response."""

    decider: Decider
    orders: Orders
    off: Verdict = field(default_factory=Verdict)

    def mutate(self, request: AdmissionRequest) -> Verdict:
        return self.off if self.orders.off else self.decider.mutate(request)


def _policy(surface: Surface, admission: Admission) -> Callable[[], Policy]:
    """The current policy. `preferAvailable` is fixed at start; other changes apply to the next pod."""
    chosen = admission.policy
    if chosen is not None:
        return lambda: chosen
    prefer_available = surface.settings.configuration.fallback.prefer_available

    def current() -> Policy:
        fallback = surface.orders.configuration.fallback
        return Policy(
            fallback.direction,
            fallback_policy.memory(fallback.min_memory) if fallback.min_memory else None,
            prefer_available=prefer_available,
            when_nothing_fits=fallback.when_nothing_fits,
        )

    return current


def _spreading(surface: Surface) -> Defaults:
    key = surface.orders.configuration.scheduling.topology_key
    return Defaults(surface.settings.strategy, key)


def _offer(caches: Caches, policy: Policy) -> Availability:
    """Bound pods are cached only if the policy prefers available profiles."""
    nodes = caches.follow(LEAN_NODES).store
    bound = caches.follow(LEAN_PODS, BOUND_PODS).store if policy.prefer_available else Store(LEAN_PODS)
    return availability.follow(nodes, bound)


def _certificate(
    surface: Surface, caches: Caches, admission: Admission, served: tuple[Rotating, AdmissionMetrics]
) -> SharedCertificate | MountedCertificate:
    tls, metrics = served
    api = surface.api.acting_as(notices.REPORTER)
    registration = Registration(api, admission.wish, installs=admission.installs)
    if admission.mounted is not None:
        installer = registration if admission.installs else None
        return MountedCertificate(admission.mounted, installer, tls, gauge=metrics)
    namespace = surface.settings.namespace
    chosen = certificates_shared.Settings(
        namespace, hosts=admission.wish.target.hosts, rules=admission.rotation
    )
    shared = SharedCertificate(api, registration, tls, chosen, gauge=metrics)
    secret = Selection(namespace=namespace, fields=f"metadata.name={chosen.name}")
    caches.follow(kinds.SECRETS, secret).store.subscribe(shared.wake)
    for kind in REGISTRATIONS:
        ours = Selection(fields=f"metadata.name={admission.wish.name}")
        caches.follow(kind, ours).store.subscribe(shared.wake)
    return shared


async def _both(*waits: Coroutine[Any, Any, Any]) -> None:
    await asyncio.gather(*waits)
