"""The agent of a node with cards: inspects them, serves devices, reports, repartitions."""
