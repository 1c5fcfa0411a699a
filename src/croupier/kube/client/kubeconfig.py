"""The kubeconfig format: reading files, merging them, choosing a context.

Separate from `config.py`, because the format has special rules (paths are relative
to the file that contains them; `…-data` wins over the file; in a merge the first
file wins) and every error must name the faulty file.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier.kube.client.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """One cluster, user or context, with the file that contains it."""

    where: str
    folder: Path
    fields: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        value = self.fields.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{self.where}: {name} must be a string, not {value!r}; put it in quotes")
        return value

    def flag(self, name: str) -> bool:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{self.where}: {name} must be true or false, not {value!r}")
        return bool(value)

    def items(self, name: str) -> Sequence[Any]:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, list):
            raise ConfigError(f"{self.where}: {name} must be a list, not {value!r}")
        return value or []

    def entry(self, name: str) -> "KubeconfigEntry | None":
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ConfigError(f"{self.where}: {name} must be a mapping, not {value!r}")
        return KubeconfigEntry(f"{self.where}, {name}", self.folder, value)

    def file(self, name: str) -> Path | None:
        """A path; relative paths start at the kubeconfig's folder."""
        text = self.text(name)
        return self.folder / text if text else None

    def bytes_of(self, name: str) -> bytes | None:
        """The content of `<name>-data`, else of the file named by `<name>`."""
        if data := self.text(f"{name}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as bad:
                raise ConfigError(f"{self.where}: {name}-data is not base64 ({bad})") from bad
        if (path := self.file(name)) is None:
            return None
        try:
            return path.read_bytes()
        except OSError as bad:
            raise ConfigError(f"{self.where}: cannot read {name} {path}: {bad.strerror}") from bad

    def base64_of(self, name: str) -> str | None:
        content = self.bytes_of(name)
        return base64.b64encode(content).decode() if content else None


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    sources: tuple[Path, ...] = ()
    current: str = ""
    clusters: Mapping[str, KubeconfigEntry] = field(default_factory=dict)
    users: Mapping[str, KubeconfigEntry] = field(default_factory=dict)
    contexts: Mapping[str, KubeconfigEntry] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return " and ".join(map(str, self.sources))


@dataclass(frozen=True, slots=True)
class SelectedContext:
    context: str
    source: str
    cluster: KubeconfigEntry
    user: KubeconfigEntry
    namespace: str | None


def read(path: Path) -> Kubeconfig:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as bad:
        raise ConfigError(
            f"cannot read kubeconfig {path}: {bad.strerror}; check the path or $KUBECONFIG"
        ) from bad
    except (yaml.YAMLError, UnicodeDecodeError) as bad:
        reason = str(bad).replace("\n", " ")
        raise ConfigError(f"kubeconfig {path} is not YAML: {reason}") from bad
    if content is None:
        return Kubeconfig((path,))
    if not isinstance(content, dict):
        raise ConfigError(f"kubeconfig {path} is not a mapping; is it a kubeconfig?")
    return Kubeconfig(
        sources=(path,),
        current=str(content.get("current-context") or ""),
        clusters=_entries(path, content, "cluster"),
        users=_entries(path, content, "user"),
        contexts=_entries(path, content, "context"),
    )


def merge(files: Sequence[Kubeconfig]) -> Kubeconfig:
    """The first file that names a cluster, user, context or current context wins."""
    merged = Kubeconfig()
    for file in files:
        merged = Kubeconfig(
            sources=merged.sources + file.sources,
            current=merged.current or file.current,
            clusters={**file.clusters, **merged.clusters},
            users={**file.users, **merged.users},
            contexts={**file.contexts, **merged.contexts},
        )
    return merged


def select_context(config: Kubeconfig, context: str | None) -> SelectedContext:
    name = context or config.current
    if not name:
        raise ConfigError(
            f"{config.source} has no current-context; run `kubectl config use-context` or pass a context"
        )
    if (chosen := config.contexts.get(name)) is None:
        known = ", ".join(sorted(config.contexts)) or "none"
        raise ConfigError(f"{config.source} has no context {name!r}; it has: {known}")
    cluster_name, user_name = chosen.text("cluster"), chosen.text("user")
    cluster = config.clusters.get(cluster_name or "")
    if cluster is None:
        raise ConfigError(
            f"{chosen.where} names cluster {cluster_name!r}, which {config.source} does not have"
        )
    user = (
        config.users.get(user_name) if user_name else KubeconfigEntry(f"{chosen.where}, no user", Path(), {})
    )
    if user is None:
        raise ConfigError(f"{chosen.where} names user {user_name!r}, which {config.source} does not have")
    return SelectedContext(name, config.source, cluster, user, chosen.text("namespace"))


def _entries(path: Path, content: Mapping[str, Any], what: str) -> dict[str, KubeconfigEntry]:
    entries: dict[str, KubeconfigEntry] = {}
    for item in content.get(f"{what}s") or []:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise ConfigError(f"kubeconfig {path} has an entry without a name under {what}s")
        where = f"{what} {item['name']!r} of {path}"
        fields = item.get(what) or {}
        if not isinstance(fields, dict):
            raise ConfigError(f"{where} is not a mapping")
        entries.setdefault(item["name"], KubeconfigEntry(where, path.parent, fields))
    return entries
