"""Controllers of CPU limits: in-place resizes, and the restore of original limits."""
