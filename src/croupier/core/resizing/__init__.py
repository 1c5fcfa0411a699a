"""Decisions about a PodAllocation: the in-place resize of a pod's CPU limit."""
