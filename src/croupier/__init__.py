"""Croupier allocates GPU cards and CPU limits to pods from one ledger."""
