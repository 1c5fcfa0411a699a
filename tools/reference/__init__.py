"""Generator of docs/reference: kinds, metrics and commands, from the source code."""
