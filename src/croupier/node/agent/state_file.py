"""Small files that outlive the process that wrote them."""

import json
from collections.abc import Mapping
from pathlib import Path


def replace(path: Path, data: Mapping[str, object]) -> None:
    """Writes JSON so that a reader finds the old file or the new one, whenever the writer is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(json.dumps(data, indent=1))
    draft.replace(path)
