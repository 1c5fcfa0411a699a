"""Controllers: work queue, reconcile loop, leader election, Events."""
