"""The objects in the manifests of a deployment."""

from pathlib import Path
from typing import Any

import yaml


def documents(folder: Path, name: str = "*") -> list[dict[str, Any]]:
    """All objects of the files with this name, without the Kustomization."""
    return [
        item
        for path in sorted(folder.glob(f"{name}.yaml"))
        for item in yaml.safe_load_all(path.read_text())
        if item["kind"] != "Kustomization"
    ]
