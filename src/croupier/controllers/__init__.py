"""RECONCILE: a folder for each group that can run apart, a file for each object.

Each observes, decides with `core`, and acts.
"""
