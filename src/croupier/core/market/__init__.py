"""The CPU market of a node: pure functions from an observation to the CPU limits of pods."""
