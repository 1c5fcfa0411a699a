"""The CPU market of a node: pure functions from what was seen to the limits pods should have."""
