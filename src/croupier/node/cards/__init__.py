"""The cards of a node: one protocol, real ones through the driver and simulated ones."""
