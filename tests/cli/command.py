"""The `croupier` command, run by the current Python."""

import sys

CROUPIER = (sys.executable, "-c", "from croupier.cli import main; main()")
