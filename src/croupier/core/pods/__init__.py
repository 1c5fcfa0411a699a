"""What a pod asks for: read, counted as Kubernetes counts it, and marked."""
