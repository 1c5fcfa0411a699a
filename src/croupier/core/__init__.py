"""DECIDE. Pure functions of values: no I/O, no clock, no randomness, no logging."""
