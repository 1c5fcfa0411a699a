"""What is held of the cards of a node, and every way that may change."""
