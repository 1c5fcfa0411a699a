"""The command as this very Python would run it."""

import sys

CROUPIER = (sys.executable, "-c", "from croupier.cli import main; main()")
