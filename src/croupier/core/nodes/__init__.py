"""What the agent of a node does with its cards, and hands to pods."""
