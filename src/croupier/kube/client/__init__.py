"""Requests to a Kubernetes API server: configuration, transport, typed verbs, the watch protocol."""
