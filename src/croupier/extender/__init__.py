"""The kube-scheduler extender, which filters nodes for pods that request cards and binds the pods."""
