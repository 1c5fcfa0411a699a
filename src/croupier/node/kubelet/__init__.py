"""The kubelet: device plugins, and its account of who has which device."""
