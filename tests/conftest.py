"""What all tests share."""

import signal

from hypothesis import settings

# Machines are shared and noisy: how long one example takes says nothing about the code.
settings.register_profile("croupier", deadline=None)
settings.load_profile("croupier")

# A run that a shell put into the background ignores Ctrl-C, and so would every program a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
