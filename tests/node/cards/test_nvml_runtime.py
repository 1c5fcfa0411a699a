"""The default runtime and the toolkit's options are read from the files of the node."""

from pathlib import Path

import pytest

from croupier.node.cards import nvml_runtime

MAIN = "etc/containerd/config.toml"
K3S = "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
CRIO = "etc/crio/crio.conf"
DROP_IN = "etc/containerd/conf.d/99-nvidia.toml"
TOOLKIT = "etc/nvidia-container-runtime/config.toml"
OPERATOR = "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"


def containerd(name: str, plugin: str = "io.containerd.cri.v1.runtime", **options: str) -> str:
    section = f'[plugins."{plugin}".containerd'
    lines = [f'{section}.runtimes.{name}.options]\n{key} = "{value}"\n' for key, value in options.items()]
    return f'{section}]\ndefault_runtime_name = "{name}"\n' + "".join(lines)


IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'

DEFAULTS: dict[str, tuple[dict[str, str], bool | None]] = {
    "no files": ({}, None),
    "containerd 2": ({MAIN: containerd("nvidia")}, True),
    "containerd 1": ({MAIN: containerd("nvidia", "io.containerd.grpc.v1.cri")}, True),
    "runc": ({MAIN: containerd("runc")}, False),
    "NVIDIA's runtime under another name": (
        {MAIN: containerd("runc", BinaryName="/usr/bin/nvidia-container-runtime")},
        True,
    ),
    "an imported file overrides": ({MAIN: IMPORTS + containerd("runc"), DROP_IN: containerd("nvidia")}, True),
    "a file that is not imported": ({MAIN: containerd("runc"), DROP_IN: containerd("nvidia")}, False),
    "k3s": ({K3S: containerd("nvidia")}, True),
    "CRI-O": ({CRIO: '[crio.runtime]\ndefault_runtime = "nvidia"\n'}, True),
    "a later file of CRI-O": (
        {
            CRIO: '[crio.runtime]\ndefault_runtime = "nvidia"\n',
            "etc/crio/crio.conf.d/10-crun.conf": '[crio.runtime]\ndefault_runtime = "crun"\n',
        },
        False,
    ),
    "no default": ({MAIN: "version = 3\n"}, None),
    "invalid TOML": ({MAIN: "= ["}, None),
    "an unexpected type": ({MAIN: "plugins = 3\n"}, None),
}


@pytest.mark.parametrize(("files", "expected"), DEFAULTS.values(), ids=DEFAULTS)
def test_the_default_runtime(files, expected, tmp_path: Path):
    write(tmp_path, files)

    assert nvml_runtime.nvidia_is_default(tmp_path) is expected


ACCEPTS: dict[str, tuple[dict[str, str], bool | None]] = {
    "no toolkit": ({}, None),
    "the toolkit's default": ({TOOLKIT: "disable-require = false\n"}, True),
    "set to true": ({TOOLKIT: "accept-nvidia-visible-devices-envvar-when-unprivileged = true\n"}, True),
    "set to false": ({TOOLKIT: "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"}, False),
    "the GPU operator's file counts": (
        {TOOLKIT: "", OPERATOR: "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"},
        False,
    ),
}


@pytest.mark.parametrize(("files", "expected"), ACCEPTS.values(), ids=ACCEPTS)
def test_whether_the_variable_is_accepted(files, expected, tmp_path: Path):
    write(tmp_path, files)

    assert nvml_runtime.accepts_variable(tmp_path) is expected


def write(host: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = host / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
