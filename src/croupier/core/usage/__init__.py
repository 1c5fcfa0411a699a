"""How much of the cards each namespace held, and for how long."""
