"""Folders of the user: the state of labs, and the cache.

The cache (built binaries) can be deleted at any time. The state (records, certificates, logs, etcd data)
belongs to running processes.
"""

import os
from collections.abc import Mapping
from pathlib import Path

DEFAULT_NAME = "default"


def home(env: Mapping[str, str] = os.environ) -> Path:
    """State folder."""
    if named := env.get("CROUPIER_HOME"):
        return Path(named).absolute()
    if state := env.get("XDG_STATE_HOME"):
        return Path(state).absolute() / "croupier"
    return Path.home() / ".local" / "state" / "croupier"


def cache(env: Mapping[str, str] = os.environ) -> Path:
    """Cache folder; can be deleted at any time."""
    if named := env.get("CROUPIER_CACHE"):
        return Path(named).absolute()
    if cached := env.get("XDG_CACHE_HOME"):
        return Path(cached).absolute() / "croupier"
    return Path.home() / ".cache" / "croupier"


def labs(env: Mapping[str, str] = os.environ) -> Path:
    """One folder per named lab."""
    return home(env) / "labs"


def runs(env: Mapping[str, str] = os.environ) -> Path:
    """Links to the labs of test runs, which are in temporary folders."""
    return home(env) / "runs"
