"""BUILD. The one place where processes are put together: which kinds they follow, which book they keep.

Everything else gets what it needs handed in. One file a process, each with its `work`: `manager` runs the
controllers of the ledger and of CPU limits under elections; `extender` answers kube-scheduler; `webhook`
answers the API server about new pods; `market` trades the CPU of one node. With the book in memory the
extender is the one process that may change it, so the ledger's controllers run in there
(docs/decisions/0006-who-keeps-the-book.md)."""
