"""Pools: capacity, bookings, node labels and changes of the allocation."""
