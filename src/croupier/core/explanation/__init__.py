"""Answers to users: why a pod waits, what would fit, what would happen."""
