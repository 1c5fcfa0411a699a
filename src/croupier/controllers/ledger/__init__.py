"""Reservations and holders: what is held of every node, kept true."""
