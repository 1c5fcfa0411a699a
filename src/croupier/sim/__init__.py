"""REHEARSE. A node in memory on a virtual clock: replay a trace, compare policies. No API server."""
