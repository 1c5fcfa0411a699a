"""The programs that run on every node: the agent for GPU cards and the agent of the CPU market."""
