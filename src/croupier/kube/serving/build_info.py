"""Which program runs: its version, and the commit from which it was built, if that is known."""

import json
import os
from importlib import metadata
from typing import Final

PACKAGE: Final = "croupier"
REVISION: Final = "CROUPIER_REVISION"
"""The environment variable in which an image names its commit."""


def version() -> str:
    return metadata.version(PACKAGE)


def revision() -> str:
    """The commit; empty if the program was not built or installed from a commit."""
    return os.environ.get(REVISION, "") or _installed_commit(
        metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}"
    )


def _installed_commit(direct_url: str) -> str:
    """From what pip records of an installation from a repository (PEP 610)."""
    return str(json.loads(direct_url).get("vcs_info", {}).get("commit_id", ""))
