"""Small JSON state files that survive a restart."""

import json
from collections.abc import Mapping
from pathlib import Path


def replace(path: Path, data: Mapping[str, object]) -> None:
    """Write JSON atomically: a reader sees the old file or the new one, even if the writer is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(json.dumps(data, indent=1))
    draft.replace(path)
