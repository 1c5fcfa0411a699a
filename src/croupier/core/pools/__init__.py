"""Which cards a pool has, who may use them, and how it changes."""
