"""The subjects of the benchmarks. Each runs in its own process, to measure its CPU and memory."""
