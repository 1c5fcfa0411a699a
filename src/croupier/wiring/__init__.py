"""Assembles the processes: the kinds they cache, their controllers, and their capacity manager.

All other packages get their dependencies injected. There is one file per process, each with its `work`:
`manager` runs the controllers with leader election; `extender` answers kube-scheduler; `webhook` answers the
API server about new pods; `node` is the node agent; `market` trades the CPU of one node. With the InMemory
capacity manager only the extender may change the ledgers, so the ledger's controllers run in its process
(docs/decisions/0006-capacity-managers.md).
"""
