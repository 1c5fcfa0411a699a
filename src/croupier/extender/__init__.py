"""PLACE. What kube-scheduler asks us about pods that want cards: where, and the binding itself."""
