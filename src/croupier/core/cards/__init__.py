"""What a card is, how it can be cut, how it fares, and the life it leads."""
