"""All metrics can be scraped, and series of removed objects disappear."""

import asyncio

from prometheus_client import CollectorRegistry, generate_latest

from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.serving import build_info
from croupier.kube.serving.metrics import ProcessMetrics
from tests.kube.builders import PODS, Pod, pod
from tests.polling import until


def scrape(metrics: ProcessMetrics) -> list[str]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_two_registries_are_independent():
    one, other = ProcessMetrics(CollectorRegistry()), ProcessMetrics(CollectorRegistry())
    one.request("get", "pods", 200, 0.01)

    assert 'croupier_client_requests_total{code="200",resource="pods",verb="get"} 1.0' in scrape(one)
    assert not [line for line in scrape(other) if line.startswith("croupier_client_requests_total")]


def test_every_metric_has_the_croupier_prefix_or_that_of_processes():
    metrics = ProcessMetrics(CollectorRegistry())

    assert {family.name.split("_")[0] for family in metrics.registry.collect()} == {"croupier", "process"}


def test_the_build_is_named_and_counters_have_one_series(monkeypatch):
    monkeypatch.setenv(build_info.REVISION, "abc123")
    metrics = ProcessMetrics(CollectorRegistry())
    metrics.request("get", "pods", 200, 0.01)

    lines = scrape(metrics)
    (build,) = (line for line in lines if line.startswith("croupier_build_info{"))
    assert 'version="' in build
    assert 'revision="abc123"' in build
    assert [line for line in lines if line.startswith("process_resident_memory_bytes ")]
    assert not [line for line in lines if "_created" in line]


def test_a_removed_controller_leaves_no_series():
    metrics = ProcessMetrics(CollectorRegistry())
    controller = metrics.controller("pools")
    controller.added()
    controller.watch_depth(lambda: 3)
    controller.taken(0.1)
    controller.started()
    controller.ended("done", 0.2)
    controller.retried()
    controller.missed(1)
    assert 'croupier_queue_depth{controller="pools"} 3.0' in scrape(metrics)
    assert 'croupier_reconciles_total{controller="pools",outcome="done"} 1.0' in scrape(metrics)

    controller.gone()
    assert not [line for line in scrape(metrics) if "pools" in line]
    metrics.controller("never-used").gone()


async def test_a_cache_shows_its_counters_until_it_is_removed():
    metrics = ProcessMetrics(CollectorRegistry())
    store: Store[Pod] = Store(PODS)
    reflector: Reflector[Pod] = Reflector(None, store)  # type: ignore[arg-type]  # it never runs here
    store.put(pod("a"))
    reflector.stats.lists, reflector.stats.watches, reflector.stats.skipped = 1, 3, 2
    metrics.caches.add(store, reflector)

    lines = scrape(metrics)
    assert 'croupier_store_objects{resource="pods"} 1.0' in lines
    assert 'croupier_store_watch_restarts_total{resource="pods"} 2.0' in lines
    assert 'croupier_store_relists_total{resource="pods"} 1.0' in lines
    assert 'croupier_store_skipped_objects_total{resource="pods"} 2.0' in lines
    assert 'croupier_store_staleness_seconds{resource="pods"} +Inf' in lines

    metrics.caches.remove("pods")
    assert not [line for line in scrape(metrics) if 'resource="pods"' in line]


def test_leadership_and_event_metrics():
    metrics = ProcessMetrics(CollectorRegistry())
    metrics.leader.leading("ns/lease", True)
    metrics.events.recorded("Warning")
    metrics.events.dropped("spam")

    lines = scrape(metrics)
    assert 'croupier_leader{lease="ns/lease"} 1.0' in lines
    assert 'croupier_events_recorded_total{type="Warning"} 1.0' in lines
    assert 'croupier_events_dropped_total{reason="spam"} 1.0' in lines


async def test_the_event_loop_delay_is_measured():
    metrics = ProcessMetrics(CollectorRegistry())
    measuring = asyncio.create_task(metrics.measure_loop(every=0.001))
    await until(
        lambda: (metrics.registry.get_sample_value("croupier_loop_lag_duration_seconds_count") or 0) >= 3
    )
    measuring.cancel()
