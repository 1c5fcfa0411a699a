"""Which cards of which node a pod gets, and why it gets none."""
