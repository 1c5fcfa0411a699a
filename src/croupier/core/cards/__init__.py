"""Cards: identity, MIG layouts, health and lifecycle."""
