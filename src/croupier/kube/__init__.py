"""A Kubernetes client and controller runtime, without any knowledge of GPUs.

Four layers, lowest first: `client` (configuration, requests, typed objects), `cache` (stores fed by list and
watch), `controller` (work queue, reconcile, leader election, Events) and `serving` (HTTP server, health,
metrics, logs, process life cycle).
"""
