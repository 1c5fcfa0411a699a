"""Client configuration from a kubeconfig or the pod's service account: server, TLS and credentials.

Everything here is a value. Credentials that change at run time (token files, exec
plugins) are read by `credentials.py`; this module only names their source.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from croupier.kube.client import kubeconfig as files
from croupier.kube.client.errors import ConfigError

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Anonymous:
    """No token; a client certificate may still authenticate the client."""


@dataclass(frozen=True, slots=True)
class Token:
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token file that is renewed in place, as the kubelet does for pods."""

    path: Path


@dataclass(frozen=True, slots=True)
class Basic:
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Exec:
    """An exec credential plugin."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    cluster: Mapping[str, object] | None = None
    """Cluster information for the plugin, if the kubeconfig sets provideClusterInfo."""
    install_hint: str = ""
    interactive: str = "IfAvailable"


AuthMethod = Anonymous | Token | TokenFile | Basic | Exec


@dataclass(frozen=True, slots=True)
class Config:
    server: str
    namespace: str = "default"
    """The namespace to use when none is given."""
    auth: AuthMethod = Anonymous()
    ca: bytes | None = None
    """CA bundle in PEM; None means the system's trust store."""
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    impersonate: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Impersonation headers."""
    source: str = "given in code"
    """The origin of this configuration, for error messages."""
    context: str = ""
    """The context of the kubeconfig."""


def load(kubeconfig: Path | None = None, context: str | None = None) -> Config:
    """Load `kubeconfig`, else $KUBECONFIG, else ~/.kube/config, else the pod's service account."""
    if kubeconfig is not None:
        return from_kubeconfig([kubeconfig], context)
    if named := [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return from_kubeconfig(named, context, missing_ok=len(named) > 1)
    home = Path.home() / ".kube" / "config"
    if home.is_file():
        return from_kubeconfig([home], context)
    if (SERVICE_ACCOUNT_DIR / "token").exists() and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster()
    raise ConfigError(
        f"no cluster configured: {home} does not exist and this is not a pod; "
        "set KUBECONFIG or pass a kubeconfig file"
    )


def from_kubeconfig(paths: list[Path], context: str | None = None, *, missing_ok: bool = False) -> Config:
    """One or several kubeconfigs, merged as kubectl does: the first file that names an entry wins."""
    merged = files.merge([files.read(path) for path in paths if path.exists() or not missing_ok])
    if not merged.sources:
        raise ConfigError(f"none of {', '.join(map(str, paths))} exists; check $KUBECONFIG")
    chosen = files.select_context(merged, context)
    cluster, user = chosen.cluster, chosen.user
    return Config(
        server=_server(cluster),
        namespace=chosen.namespace or "default",
        auth=_auth(user, cluster),
        ca=cluster.bytes_of("certificate-authority"),
        certificate=user.bytes_of("client-certificate"),
        key=user.bytes_of("client-key"),
        verify=not cluster.flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name"),
        proxy=_proxy(cluster),
        impersonate=_impersonation(user),
        source=f"context {chosen.context!r} of {chosen.source}",
        context=chosen.context,
    )


def in_cluster(account: Path = SERVICE_ACCOUNT_DIR, environ: Mapping[str, str] | None = None) -> Config:
    """The pod's service account; its token is renewed in place and read again."""
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: this is not a pod; pass a kubeconfig file")
    if not (account / "token").exists():
        raise ConfigError(
            f"{account / 'token'} does not exist; "
            "set automountServiceAccountToken: true on the pod or its service account"
        )
    ca, namespace = account / "ca.crt", account / "namespace"
    return Config(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        auth=TokenFile(account / "token"),
        ca=ca.read_bytes() if ca.exists() else None,
        source=f"the service account in {account}",
    )


def _server(cluster: files.KubeconfigEntry) -> str:
    server = cluster.text("server")
    if not server:
        raise ConfigError(f"{cluster.where} has no server; add `server: https://…`")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"{cluster.where} has server {server!r}; it must start with https:// or http://")
    return server.rstrip("/")


def _proxy(cluster: files.KubeconfigEntry) -> str | None:
    proxy = cluster.text("proxy-url")
    if proxy is None:
        return _proxy_of_environment(_server(cluster))
    if not proxy.startswith(("http://", "https://")):
        raise ConfigError(
            f"{cluster.where} has proxy-url {proxy!r}; only http:// and https:// proxies are supported"
        )
    return proxy


def _proxy_of_environment(server: str) -> str | None:
    """The proxy of $HTTPS_PROXY or $HTTP_PROXY, never for localhost (as Go programs do)."""
    url = urlsplit(server)
    host = url.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)


def _auth(user: files.KubeconfigEntry, cluster: files.KubeconfigEntry) -> AuthMethod:
    if plugin := user.entry("exec"):
        return _exec(plugin, cluster)
    if (path := user.file("tokenFile")) is not None:
        return TokenFile(path)
    if token := user.text("token"):
        return Token(token)
    if username := user.text("username"):
        return Basic(username, user.text("password") or "")
    if user.entry("auth-provider"):
        raise ConfigError(
            f"{user.where} uses auth-provider, which Kubernetes removed in 1.26; use an exec plugin"
        )
    return Anonymous()


def _exec(plugin: files.KubeconfigEntry, cluster: files.KubeconfigEntry) -> Exec:
    command, version = plugin.text("command"), plugin.text("apiVersion")
    if not command:
        raise ConfigError(f"{plugin.where} has no command; set it to the program that prints the credential")
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise ConfigError(f"{plugin.where} has apiVersion {version!r}; use client.authentication.k8s.io/v1")
    if os.sep in command:
        command = str(plugin.folder / command)
    return Exec(
        command=command,
        args=tuple(str(arg) for arg in plugin.items("args")),
        env={str(item["name"]): str(item["value"]) for item in plugin.items("env")},
        api_version=version,
        cluster=_cluster_info(cluster) if plugin.flag("provideClusterInfo") else None,
        install_hint=plugin.text("installHint") or "",
        interactive=plugin.text("interactiveMode") or "IfAvailable",
    )


def _cluster_info(cluster: files.KubeconfigEntry) -> dict[str, object]:
    info: dict[str, object] = {"server": cluster.text("server")}
    for name in ("tls-server-name", "proxy-url"):
        if text := cluster.text(name):
            info[name] = text
    if cluster.flag("insecure-skip-tls-verify"):
        info["insecure-skip-tls-verify"] = True
    if authority := cluster.base64_of("certificate-authority"):
        info["certificate-authority-data"] = authority
    for extension in cluster.items("extensions"):
        if extension.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = extension.get("extension")
    return info


def _impersonation(user: files.KubeconfigEntry) -> dict[str, tuple[str, ...]]:
    headers: dict[str, tuple[str, ...]] = {}
    if name := user.text("as"):
        headers["Impersonate-User"] = (name,)
    if uid := user.text("as-uid"):
        headers["Impersonate-Uid"] = (uid,)
    if groups := user.items("as-groups"):
        headers["Impersonate-Group"] = tuple(str(group) for group in groups)
    if extra := user.entry("as-user-extra"):
        for key in extra.fields:
            name = quote(key, safe="!#$&'*+-.^_`|~")  # a header name must not contain the slash of most keys
            headers[f"Impersonate-Extra-{name}"] = tuple(str(value) for value in extra.items(key))
    return headers
