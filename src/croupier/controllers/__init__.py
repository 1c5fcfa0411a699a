"""RECONCILE: one file per object; each observes, decides with `core`, and acts."""
