"""Compile Python modules once, also where PYTHONDONTWRITEBYTECODE is set.

The tests start hundreds of processes, and a process without bytecode needs three times the CPU to start.
The bytecode goes to build/pycache, so that none is written next to the sources. pytest imports this package
before conftest.py, and xdist workers and child processes inherit the environment.
"""

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / "build" / "pycache")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
