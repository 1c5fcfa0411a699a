"""The agent of a node with cards: looks, decides, serves, tells, cuts."""
