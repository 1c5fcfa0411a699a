"""Nodes: bootstrap, device allocation and MIG layouts."""
