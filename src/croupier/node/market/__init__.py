"""The CPU market's agent, and the control groups it reads."""
