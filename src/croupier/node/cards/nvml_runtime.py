"""What the container runtime of a node does with NVIDIA_VISIBLE_DEVICES, read from its configuration files.

If NVIDIA's runtime is the default one and its toolkit accepts the variable from unprivileged containers, each
container of the node can see every card. A file that is missing or unreadable says nothing.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_CONTAINERD: Final = tuple(
    Path(path)
    for path in (
        "etc/containerd/config.toml",
        "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    )
)
_CONTAINERD_PLUGINS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_CRIO: Final = (Path("etc/crio/crio.conf"), Path("etc/crio/crio.conf.d"))
_TOOLKIT: Final = (
    Path("usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"),
    Path("etc/nvidia-container-runtime/config.toml"),
)
"""The toolkit of the GPU operator has its own file, which counts if it exists."""
_ACCEPT: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def nvidia_is_default(host: Path) -> bool | None:
    """Whether NVIDIA's runtime is the default runtime. None if no configuration names a default."""
    answers = [*map(_containerd_default, _containerd_files(host)), *map(_crio_default, _crio_files(host))]
    return next((answer for answer in reversed(answers) if answer is not None), None)


def accepts_variable(host: Path) -> bool | None:
    """Whether the toolkit accepts the variable from unprivileged containers. None without a toolkit."""
    files = [document for path in _TOOLKIT if (document := _read(host / path)) is not None]
    return bool(files[0].get(_ACCEPT, True)) if files else None


def _containerd_files(host: Path) -> Iterator[dict[str, Any]]:
    """Each file, followed by the files that it imports, because they override it."""
    for path in _CONTAINERD:
        document = _read(host / path)
        if document is None:
            continue
        yield document
        for pattern in document.get("imports") or ():
            imported = (
                str(pattern).lstrip("/") if str(pattern).startswith("/") else str(path.parent / pattern)
            )
            yield from (found for file in sorted(host.glob(imported)) if (found := _read(file)) is not None)


def _containerd_default(document: Mapping[str, Any]) -> bool | None:
    for plugin in _CONTAINERD_PLUGINS:
        section = _section(document, "plugins", plugin, "containerd")
        if name := section.get("default_runtime_name"):
            options = _section(section, "runtimes", str(name), "options")
            return _is_nvidia(str(name), str(options.get("BinaryName", "")))
    return None


def _crio_files(host: Path) -> Iterator[dict[str, Any]]:
    main, folder = _CRIO
    paths = (host / main, *sorted((host / folder).glob("*")))
    yield from (document for path in paths if (document := _read(path)) is not None)


def _crio_default(document: Mapping[str, Any]) -> bool | None:
    section = _section(document, "crio", "runtime")
    name = section.get("default_runtime")
    if not name:
        return None
    return _is_nvidia(str(name), str(_section(section, "runtimes", str(name)).get("runtime_path", "")))


def _is_nvidia(name: str, binary: str) -> bool:
    return name.startswith("nvidia") or Path(binary).name.startswith("nvidia-container-runtime")


def _section(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        inner = document.get(name)
        document = inner if isinstance(inner, Mapping) else {}
    return document


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError):  # also TOML and Unicode errors
        return None
