"""Croupier deals GPU cards and CPU to pods from one ledger."""
