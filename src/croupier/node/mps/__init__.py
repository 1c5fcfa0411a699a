"""The MPS control daemons of a node's cards: their supervisor, and the agent's side of it."""
