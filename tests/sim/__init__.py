"""Rehearsals on a virtual clock."""
