"""Where a lab keeps things on this machine.

State (records, certificates, logs, etcd's data) is worth keeping apart from the
cache (built programs): one may be thrown away at any time, the other names
processes that run.
"""

import os
from collections.abc import Mapping
from pathlib import Path

DEFAULT_NAME = "default"


def home(env: Mapping[str, str] = os.environ) -> Path:
    """Everything we remember about labs."""
    if named := env.get("CROUPIER_HOME"):
        return Path(named).absolute()
    if state := env.get("XDG_STATE_HOME"):
        return Path(state).absolute() / "croupier"
    return Path.home() / ".local" / "state" / "croupier"


def cache(env: Mapping[str, str] = os.environ) -> Path:
    """Programs we built; can be deleted at the price of building them again."""
    if named := env.get("CROUPIER_CACHE"):
        return Path(named).absolute()
    if cached := env.get("XDG_CACHE_HOME"):
        return Path(cached).absolute() / "croupier"
    return Path.home() / ".cache" / "croupier"


def labs(env: Mapping[str, str] = os.environ) -> Path:
    """One folder per named lab."""
    return home(env) / "labs"


def runs(env: Mapping[str, str] = os.environ) -> Path:
    """Links to labs that live elsewhere because a test run owns them."""
    return home(env) / "runs"
