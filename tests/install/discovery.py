"""The kinds of Node Feature Discovery, from its own module: ours must fit what it really installs."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

MODULE = "sigs.k8s.io/node-feature-discovery"
VERSION = "v0.17.3"
SUM = "h1:CArk8De9LBP5bj3Z6Bz/mpnC8kDNfBhDAu0xJp4u/A8="
FILE = "deployment/base/nfd-crds/nfd-api-crds.yaml"


@cache
def kinds() -> list[dict[str, Any]]:
    """From Go's module cache, or fetched into it once; none where there is neither Go nor a network."""
    if (go := shutil.which("go")) is None:
        return []
    command = [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd="/")
    except subprocess.TimeoutExpired:
        return []
    if done.returncode != 0:
        return []
    found = json.loads(done.stdout)
    assert found["Sum"] == SUM, f"{MODULE}@{VERSION} is not what it was"
    return [one for one in yaml.safe_load_all((Path(found["Dir"]) / FILE).read_text()) if one]
