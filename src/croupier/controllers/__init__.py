"""Controllers: one subpackage for each group that can run in its own process.

A reconcile reads informers, decides with pure functions of `core`, and writes.
"""
