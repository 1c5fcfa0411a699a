"""Whether nodes are fit to serve their cards, and what is started there to make them so."""
