"""Simulates a node in memory on a virtual clock: replays a trace under several limit policies."""
