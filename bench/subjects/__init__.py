"""The contenders. Each runs in a process of its own, so that CPU and memory are its own too."""
