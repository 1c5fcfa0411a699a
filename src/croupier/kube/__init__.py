"""SPEAK. Any Kubernetes, knowing no GPU: client, watch, store, work queue, lease, events, clock."""
