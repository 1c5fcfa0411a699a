"""What all tests share."""

from hypothesis import settings

# Machines are shared and noisy: how long one example takes says nothing about the code.
settings.register_profile("croupier", deadline=None)
settings.load_profile("croupier")
