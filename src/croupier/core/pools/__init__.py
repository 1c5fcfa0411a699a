"""Pools: card assignment, admission, capacity and maintenance."""
