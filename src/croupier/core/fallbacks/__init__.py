"""Replaces MIG profiles that no node offers."""
