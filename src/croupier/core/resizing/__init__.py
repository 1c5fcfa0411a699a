"""What becomes of a PodAllocation: a pod's CPU limit moved in place."""
