"""`croupier webhook`: the admission webhook for pods."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.admission import certificates_shared, mark_enforcement, mark_policy, pod_events
from croupier.admission.certificate_rotation import ROTATION_RULES as ROTATION
from croupier.admission.certificate_rotation import RotationRules as Rotation
from croupier.admission.certificates_files import MountedCertificate
from croupier.admission.certificates_shared import SharedCertificate
from croupier.admission.configurations import WebhookConfigurationOptions
from croupier.admission.mark_enforcement import MarkEnforcement
from croupier.admission.metrics import AdmissionMetrics
from croupier.admission.mutate import DisabledMutator, PodMutator
from croupier.admission.pod_events import PendingPodEvents
from croupier.admission.pools import PoolAccessGuard, PoolDefaults, PoolsDisabled
from croupier.admission.registration import KINDS as REGISTRATIONS
from croupier.admission.registration import Registration
from croupier.admission.reservations import CachedBudgets, PodQuotaGuard, ReservationGuard
from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.admission.server import DRAIN, WebhookServer
from croupier.admission.server import AdmissionDecider as Decider
from croupier.api import kinds
from croupier.api.pod_identity import POD_IDENTITIES
from croupier.api.pod_requests import LEAN_NODES, LEAN_PODS
from croupier.api.quotas import RESOURCE_QUOTAS
from croupier.capacity import availability
from croupier.core.availability import Availability
from croupier.core.fallbacks import policy as fallback_policy
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.kube.cache.store import Store
from croupier.kube.client.api_client import Selection
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.controller import events
from croupier.kube.controller.events import EventRecorder
from croupier.kube.serving import component_runner
from croupier.kube.serving.component_runner import Component
from croupier.kube.serving.http_server import SHUTDOWN_GRACE, Address, ListenOptions, RotatingCertificate
from croupier.wiring import ledger
from croupier.wiring.live_settings import LiveSettings
from croupier.wiring.process_context import (
    BOUND_PODS,
    DECIDED_RESERVATIONS,
    SHUTDOWN_TIMEOUT,
    InformerFactory,
    ProcessContext,
    ProcessOptions,
    open_context,
    run_until_stopped,
)


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """The options of the webhook."""

    listen: Address
    wish: WebhookConfigurationOptions
    policy: FallbackPolicy | None = None
    """The fallback policy for a profile that no node offers; None means the current settings."""
    installs: bool = True
    """Whether the process writes its own webhook configurations."""
    mounted: Path | None = None
    """A folder with an externally managed certificate; without it the process creates its own."""
    client_authority: Path | None = None
    """The CA of the API server's client certificate; without it every client is answered."""
    client_names: frozenset[str] = frozenset()
    """The names of accepted client certificates; empty means all of that CA."""
    rotation: Rotation = ROTATION
    drain: float = DRAIN
    scheduler: str = ""
    """The scheduler of pods that request cards; empty means the default scheduler."""


async def work(settings: ProcessOptions, admission: WebhookOptions) -> int:
    """Serve admission reviews from caches; starts after all caches have synced."""
    async with open_context(settings) as context:
        caches = InformerFactory(context.api, context.metrics)
        served = RotatingCertificate(admission.client_authority)
        metrics = AdmissionMetrics(context.metrics.registry)
        recorder = EventRecorder(
            context.api, pod_events.REPORTER, metrics=context.metrics.events, naming=events.stable_name
        )
        pending_events = PendingPodEvents(recorder.record)
        created = caches.follow(POD_IDENTITIES, name="created pods").store
        created.subscribe(pending_events.seen)
        policy, budgets = _policy(context, admission), _budgets(context, caches)
        smallest = context.settings.configuration.sharing.min_percent
        decider = PodMutator(_availability(caches, policy()), policy, admission.scheduler, smallest)
        mutator = DisabledGate(PodQuotaGuard(decider, budgets), context.live_settings, DisabledMutator())
        certificate = _certificate(context, caches, admission, (served, metrics))
        access = PoolAccessGuard(caches.follow(kinds.GPU_POOLS).store.named, lambda: _pool_defaults(context))
        guard = DisabledGate(access, context.live_settings, PoolsDisabled())
        enforcement = _enforcement(context, caches)
        listen = ListenOptions(admission.listen, served, admission.client_names)
        hook = WebhookServer(
            mutator,
            listen,
            guard,
            ReservationGuard(
                budgets, lambda namespace, pod: created.named(pod, namespace) is not None, smallest
            ),
            metrics=metrics,
            on_events=pending_events.expect,
            drain=admission.drain,
        )

        async def serve(stop: asyncio.Event) -> None:
            await wait_or_stop(stop, _wait_for_all(caches.synced(), certificate.watcher.loaded.wait()))
            if not stop.is_set():
                await hook.run(stop, listening=certificate.watcher.answer)

        ready = context.checks.ready
        ready |= {
            "caches": caches.not_synced,
            "certificate": certificate.watcher.missing,
            "webhook": hook.not_ready,
        }
        parts = [
            *caches.components(),
            Component("events", recorder.run),
            Component("mark policy", enforcement.controller.run),
            component_runner.until_cancelled("certificate", certificate.run),
        ]
        return await run_until_stopped(
            context,
            [*parts, Component("webhook", serve, grace=admission.drain + SHUTDOWN_GRACE + SHUTDOWN_TIMEOUT)],
            name="croupier webhook",
        )


@dataclass(frozen=True, slots=True)
class DisabledGate:
    """Forwards requests to `decider`, and to `off` while the settings disable it."""

    decider: Decider
    live_settings: LiveSettings
    off: Decider

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        return (self.off if self.live_settings.off else self.decider).mutate(request)


def _enforcement(context: ProcessContext, caches: InformerFactory) -> MarkEnforcement:
    ours = Selection(fields=f"metadata.name={mark_policy.NAME}")
    enforcement = MarkEnforcement(
        caches.follow(kinds.ADMISSION_POLICY_BINDINGS, ours),
        context.api,
        disabled=lambda: context.live_settings.off,
        metrics=context.metrics.controller(mark_enforcement.NAME),
    )
    context.live_settings.subscribe(enforcement.settings_changed)
    return enforcement


def _policy(context: ProcessContext, admission: WebhookOptions) -> Callable[[], FallbackPolicy]:
    """The current policy. `preferAvailable` is fixed at start; other changes apply to the next pod."""
    chosen = admission.policy
    if chosen is not None:
        return lambda: chosen
    prefer_available = context.settings.configuration.fallback.prefer_available

    def current() -> FallbackPolicy:
        fallback = context.live_settings.configuration.fallback
        return FallbackPolicy(
            fallback.direction,
            fallback_policy.memory(fallback.min_memory) if fallback.min_memory else None,
            prefer_available=prefer_available,
            when_nothing_fits=fallback.when_nothing_fits,
        )

    return current


def _pool_defaults(context: ProcessContext) -> PoolDefaults:
    key = context.live_settings.configuration.scheduling.topology_key
    return PoolDefaults(context.settings.strategy, key, context.settings.configuration.sharing.min_percent)


def _budgets(context: ProcessContext, caches: InformerFactory) -> CachedBudgets:
    reservations = caches.follow(kinds.RESERVATIONS, DECIDED_RESERVATIONS).store
    by_namespace = reservations.index(lambda item: (item.metadata.namespace,))
    quotas = caches.follow(RESOURCE_QUOTAS).store
    of_namespace = quotas.index(lambda item: (item.metadata.namespace,))
    return CachedBudgets(by_namespace.get, of_namespace.get, lambda: ledger.reservation_limits(context))


def _availability(caches: InformerFactory, policy: FallbackPolicy) -> Availability:
    """Bound pods are cached only if the policy prefers available profiles."""
    nodes = caches.follow(LEAN_NODES).store
    bound = caches.follow(LEAN_PODS, BOUND_PODS).store if policy.prefer_available else Store(LEAN_PODS)
    return availability.maintain(nodes, bound)


def _certificate(
    context: ProcessContext,
    caches: InformerFactory,
    admission: WebhookOptions,
    served: tuple[RotatingCertificate, AdmissionMetrics],
) -> SharedCertificate | MountedCertificate:
    tls, metrics = served
    api = context.api.with_field_manager(pod_events.REPORTER)
    registration = Registration(api, admission.wish, installs=admission.installs)
    if admission.mounted is not None:
        installer = registration if admission.installs else None
        return MountedCertificate(admission.mounted, installer, tls, metrics=metrics)
    namespace = context.settings.namespace
    chosen = certificates_shared.SharedCertificateOptions(
        namespace, hosts=admission.wish.target.hosts, rules=admission.rotation
    )
    shared = SharedCertificate(api, registration, tls, chosen, metrics=metrics)
    secret = Selection(namespace=namespace, fields=f"metadata.name={chosen.name}")
    caches.follow(kinds.SECRETS, secret).store.subscribe(shared.watcher.wake)
    for kind in REGISTRATIONS:
        ours = Selection(fields=f"metadata.name={admission.wish.name}")
        caches.follow(kind, ours).store.subscribe(shared.watcher.wake)
    return shared


async def _wait_for_all(*waits: Coroutine[Any, Any, Any]) -> None:
    await asyncio.gather(*waits)
