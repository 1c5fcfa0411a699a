"""Every form of kubeconfig and service account, and a clear message for each mistake."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.kube.client import config
from croupier.kube.client.config import Anonymous, Basic, Exec, Token, TokenFile
from croupier.kube.client.errors import ConfigError


def kubeconfig(
    folder: Path,
    name: str = "config",
    *,
    cluster: Any = None,
    user: Any = None,
    context: Any = None,
    **more: Any,
) -> Path:
    """A kubeconfig with one cluster, user and context, all named `lab`."""
    content = {
        "clusters": [{"name": "lab", "cluster": {"server": "https://lab:6443", **(cluster or {})}}],
        "users": [{"name": "lab", "user": user or {}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", **(context or {})}}],
        "current-context": "lab",
        **more,
    }
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


USERS = {
    "token": ({"token": "abc"}, Token("abc")),
    "a token file beats a token": ({"token": "old", "tokenFile": "/t"}, TokenFile(Path("/t"))),
    "name and password": ({"username": "a", "password": "b"}, Basic("a", "b")),
    "anonymous": ({}, Anonymous()),
}


@pytest.mark.parametrize(("user", "expected"), USERS.values(), ids=USERS)
def test_credentials_of_a_user(tmp_path, user, expected):
    assert config.load(kubeconfig(tmp_path, user=user)).auth == expected


def test_tls_and_proxy(tmp_path):
    cluster = {"tls-server-name": "api", "insecure-skip-tls-verify": True, "proxy-url": "http://proxy:1"}

    loaded = config.load(kubeconfig(tmp_path, cluster=cluster))

    assert (loaded.tls_server_name, loaded.verify, loaded.proxy) == ("api", False, "http://proxy:1")


def test_inline_data_wins_over_the_file(tmp_path):
    (tmp_path / "ca.crt").write_bytes(b"from file")
    data = base64.b64encode(b"from data").decode()
    cluster = {"certificate-authority": "ca.crt", "certificate-authority-data": data}

    assert config.load(kubeconfig(tmp_path, cluster=cluster)).ca == b"from data"


def test_paths_are_relative_to_the_kubeconfig(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    path = kubeconfig(tmp_path / "deep", user={"client-certificate": "me.crt", "client-key": "me.key"})
    (tmp_path / "deep/me.crt").write_bytes(b"certificate")
    (tmp_path / "deep/me.key").write_bytes(b"key")

    loaded = config.load(path)

    assert (loaded.certificate, loaded.key) == (b"certificate", b"key")


def test_several_files_merge_and_the_first_wins(tmp_path, monkeypatch):
    first = kubeconfig(tmp_path, "first", cluster={"server": "https://first"}, context={"namespace": "shop"})
    second = kubeconfig(tmp_path, "second", cluster={"server": "https://second"}, users=[{"name": "x"}])
    extra = [{"name": "other", "context": {"cluster": "lab", "user": "lab"}}]
    third = kubeconfig(tmp_path, "third", contexts=extra, **{"current-context": "other"})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{first}:{second}:{third}")

    assert (config.load().server, config.load().namespace) == ("https://first", "shop")
    assert config.load(context="other").namespace == "default"


def test_impersonation_becomes_headers(tmp_path):
    extra = {"reason": ["test"], "example.com/node": ["n1"]}
    user = {"as": "jane", "as-groups": ["dev", "ops"], "as-uid": "7", "as-user-extra": extra}

    assert config.load(kubeconfig(tmp_path, user=user)).impersonate == {
        "Impersonate-User": ("jane",),
        "Impersonate-Group": ("dev", "ops"),
        "Impersonate-Uid": ("7",),
        "Impersonate-Extra-reason": ("test",),
        "Impersonate-Extra-example.com%2Fnode": ("n1",),
    }


def test_an_exec_plugin_in_the_folder_of_the_kubeconfig(tmp_path):
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./login.sh",
        "args": ["--for", "lab"],
        "env": [{"name": "REGION", "value": "here"}],
        "provideClusterInfo": True,
        "installHint": "ask Jane",
    }

    auth = config.load(kubeconfig(tmp_path, user={"exec": plugin})).auth

    assert isinstance(auth, Exec)
    assert Path(auth.command) == tmp_path / "login.sh"
    assert (auth.args, auth.env, auth.install_hint) == (("--for", "lab"), {"REGION": "here"}, "ask Jane")
    assert auth.cluster == {"server": "https://lab:6443"}


def test_secrets_do_not_leak_into_logs(tmp_path):
    assert "hunter2" not in repr(config.load(kubeconfig(tmp_path, user={"token": "hunter2"})))
    assert "hunter2" not in repr(
        config.load(kubeconfig(tmp_path, user={"username": "a", "password": "hunter2"}))
    )


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no such context": ({"current-context": "prod"}, "no context 'prod'; it has: lab"),
    "no current context": ({"current-context": ""}, "no current-context"),
    "a cluster that is not there": ({"clusters": []}, "names cluster 'lab', which"),
    "a user that is not there": ({"users": []}, "names user 'lab', which"),
    "no server": ({"cluster": {"server": ""}}, "has no server"),
    "a server without scheme": ({"cluster": {"server": "lab:6443"}}, "must start with https://"),
    "CA data that is not base64": ({"cluster": {"certificate-authority-data": "%"}}, "is not base64"),
    "a CA file that is not there": ({"cluster": {"certificate-authority": "no.crt"}}, "no.crt: No such file"),
    "a flag that is a text": ({"cluster": {"insecure-skip-tls-verify": "yes"}}, "must be true or false"),
    "a proxy we cannot use": (
        {"cluster": {"proxy-url": "socks5://x:1"}},
        "only http:// and https:// proxies",
    ),
    "a token that is a number": ({"user": {"token": 123}}, "put it in quotes"),
    "a removed auth provider": ({"user": {"auth-provider": {"name": "gcp"}}}, "use an exec plugin"),
    "an exec plugin without command": ({"user": {"exec": {"apiVersion": "x"}}}, "has no command"),
    "an exec plugin of an old version": (
        {"user": {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}},
        "use client.authentication.k8s.io/v1",
    ),
    "an entry without name": ({"users": [{"user": {}}]}, "without a name under users"),
}


@pytest.mark.parametrize(("wrong", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_names_the_file_and_the_remedy(tmp_path, wrong, sentence):
    path = kubeconfig(tmp_path, **wrong)

    with pytest.raises(ConfigError) as caught:
        config.load(path)

    assert sentence in str(caught.value)
    assert str(path.parent) in str(caught.value)
    assert "\n" not in str(caught.value)


BROKEN = {
    "not there": (None, "No such file"),
    "not YAML": ("{", "is not YAML"),
    "not a mapping": ("- a", "is not a mapping"),
    "empty": ("", "no current-context"),
}


@pytest.mark.parametrize(("content", "sentence"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file(tmp_path, content, sentence):
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigError, match=sentence) as caught:
        config.load(path)

    assert str(path) in str(caught.value)


def test_a_missing_configuration_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        config.load()


def test_the_service_account_of_a_pod(tmp_path):
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(b"ca")
    (tmp_path / "namespace").write_text("shop\n")

    loaded = config.in_cluster(
        tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    )

    assert loaded.server == "https://[fd00::1]:443"
    assert (loaded.auth, loaded.ca, loaded.namespace) == (TokenFile(tmp_path / "token"), b"ca", "shop")


def test_a_pod_without_service_account_token_names_the_remedy(tmp_path):
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        config.in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    with pytest.raises(ConfigError, match="this is not a pod"):
        config.in_cluster(tmp_path, {})


PROXIES = {
    "taken from the environment": ("https://lab:6443", "", "http://proxy:1"),
    "not for excepted hosts": ("https://lab:6443", "lab", None),
    "never for this machine": ("https://127.0.0.1:6443", "", None),
}


@pytest.mark.parametrize(("server", "excepted", "expected"), PROXIES.values(), ids=PROXIES)
def test_a_proxy_of_the_environment(tmp_path, monkeypatch, server, excepted, expected):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    monkeypatch.setenv("no_proxy", excepted)

    assert config.load(kubeconfig(tmp_path, cluster={"server": server})).proxy == expected
