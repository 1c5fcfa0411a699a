"""Exec credential plugins (client.authentication.k8s.io/v1 and v1beta1), as cloud clusters use them.

The kubeconfig names a command, which prints an ExecCredential that is valid until
it expires.
"""

import asyncio
import os
from datetime import datetime
from typing import Any

import msgspec

from croupier.kube.client.config import Exec
from croupier.kube.client.errors import ConfigError

TIMEOUT = 60.0


class PluginCredential(msgspec.Struct, frozen=True):
    """The credential printed by the plugin."""

    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    expires: datetime | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    status: _Status | None = None


async def run(plugin: Exec, *, timeout: float = TIMEOUT) -> PluginCredential:  # noqa: ASYNC109  # the child must be killed too
    if plugin.interactive == "Always":
        raise ConfigError(
            f"exec plugin {plugin.command!r} has interactiveMode Always, but there is no terminal; "
            "use Never or IfAvailable"
        )
    env = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": exec_info(plugin)}
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        child = await asyncio.create_subprocess_exec(
            plugin.command, *plugin.args, env=env, stdin=null, stdout=pipe, stderr=pipe
        )
    except OSError as bad:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else "; install it or correct the kubeconfig"
        raise ConfigError(f"cannot run exec plugin {plugin.command!r}: {bad.strerror}{hint}") from bad
    try:
        async with asyncio.timeout(timeout):
            out, err = await child.communicate()
    except TimeoutError as late:
        raise ConfigError(f"exec plugin {plugin.command!r} did not finish within {timeout:g} s") from late
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        output = err.decode(errors="replace").strip().replace("\n", " ")[-300:] or "no error output"
        raise ConfigError(f"exec plugin {plugin.command!r} failed with {child.returncode}: {output}")
    return parse(plugin, out)


def exec_info(plugin: Exec) -> str:
    """The value of KUBERNETES_EXEC_INFO for the plugin."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = dict(plugin.cluster)
    body = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(body).decode()


def parse(plugin: Exec, output: bytes) -> PluginCredential:
    """Parse the plugin's output; raises ConfigError with an explanation if it is invalid."""
    name = f"exec plugin {plugin.command!r}"
    try:
        credential = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.MsgspecError as bad:
        raise ConfigError(f"{name} printed no ExecCredential: {bad}") from bad
    if credential.api_version != plugin.api_version:
        raise ConfigError(
            f"{name} printed apiVersion {credential.api_version}, but the kubeconfig has {plugin.api_version}"
        )
    status = credential.status or _Status()
    if not status.token and not status.client_certificate_data:
        raise ConfigError(f"{name} printed neither a token nor a certificate")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"{name} printed a certificate without its key, or a key without its certificate")
    return PluginCredential(
        token=status.token,
        certificate=_bytes(status.client_certificate_data),
        key=_bytes(status.client_key_data),
        expires=status.expiration_timestamp,
    )


def _bytes(text: str | None) -> bytes | None:
    return text.encode() if text else None
