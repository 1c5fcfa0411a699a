"""Self-contained kubeconfig files."""

import base64
from pathlib import Path

import yaml

from croupier_lab.certificates import KeyPair


def write(path: Path, *, server: str, name: str, authority: Path, pair: KeyPair) -> Path:
    """Write a kubeconfig with the client certificate `pair`."""
    user = pair.certificate.stem
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": _inline(authority)}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _inline(pair.certificate),
                    "client-key-data": _inline(pair.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def with_token(path: Path, known: Path, *, user: str, token: str) -> Path:
    """Write a kubeconfig for the cluster of the kubeconfig `known`, with a token."""
    content = yaml.safe_load(known.read_text())
    content["users"] = [{"name": user, "user": {"token": token}}]
    content["contexts"][0]["context"]["user"] = user
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
