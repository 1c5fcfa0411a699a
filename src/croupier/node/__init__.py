"""SERVE. What runs on every node: the CPU market's agent, and the adapters to what a node alone can show."""
