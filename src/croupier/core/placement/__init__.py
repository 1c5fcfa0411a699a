"""Placement: which node and cards a pod gets, and why a node refuses it."""
