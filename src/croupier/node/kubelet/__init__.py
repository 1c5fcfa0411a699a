"""Device plugins, and the kubelet's device assignments."""
