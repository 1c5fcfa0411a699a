"""Prepares nodes: checks driver, toolkit and monitoring, and starts service pods."""
