"""The life of every card."""
