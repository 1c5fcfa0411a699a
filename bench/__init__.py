"""What Croupier costs, measured next to the alternatives in the same run: `python -m bench`."""
