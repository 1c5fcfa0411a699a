"""The cards of a node: one protocol with two implementations, NVML and simulated."""
