"""KEEP: the book of who holds what, in the API server or in memory, behind one protocol."""
