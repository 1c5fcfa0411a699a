"""The lifecycle of cards."""
