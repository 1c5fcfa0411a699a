"""Benchmarks of Croupier and its alternatives in the same run: `python -m bench`."""
