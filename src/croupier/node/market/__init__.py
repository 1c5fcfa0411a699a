"""The agent of the CPU market, and the cgroups it reads."""
