"""Credentials that change at run time: token files and exec plugins are refreshed at the right time."""

import asyncio
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import psutil
import pytest

from croupier.kube.client import exec_plugin
from croupier.kube.client.config import Anonymous, Basic, Exec, Token, TokenFile
from croupier.kube.client.credentials import Credentials
from croupier.kube.client.errors import ConfigError

V1 = "client.authentication.k8s.io/v1"


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        self.passed += seconds
        await asyncio.sleep(0)


def script(folder: Path, body: str) -> Exec:
    """An exec plugin that counts its runs in the file `runs`."""
    path = folder / "login"
    path.write_text(f"#!/bin/sh\ncd {folder}\necho run >> runs\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Exec(str(path))


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().split())


def printed(*, version: str = V1, **status: str) -> str:
    body = {"kind": "ExecCredential", "apiVersion": version, "status": status}
    return f"cat <<'END'\n{msgspec.json.encode(body).decode()}\nEND"


async def test_a_token_file_is_read_again_after_its_ttl(tmp_path):
    clock, path = ManualClock(), tmp_path / "token"
    path.write_text("first\n")
    credentials = Credentials(TokenFile(path), clock)
    assert (await credentials.current()).authorization == "Bearer first"

    path.write_text("second")
    assert (await credentials.current()).authorization == "Bearer first"
    clock.passed += 11
    assert (await credentials.current()).authorization == "Bearer second"


async def test_a_refused_token_file_is_read_again_immediately(tmp_path):
    path = tmp_path / "token"
    path.write_text("old")
    credentials = Credentials(TokenFile(path), ManualClock())
    used = await credentials.current()
    path.write_text("new")

    assert credentials.refused(used)
    assert (await credentials.current()).authorization == "Bearer new"


async def test_a_late_refusal_keeps_the_renewed_token(tmp_path):
    plugin = script(tmp_path, printed(token="t$(wc -l < runs)").replace("<<'END'", "<<END"))
    credentials = Credentials(plugin, ManualClock())
    old = await credentials.current()
    credentials.refused(old)
    await credentials.current()
    credentials.refused(old)
    await credentials.current()

    assert runs(tmp_path) == 2


FIXED = {
    "token": (Token("t"), "Bearer t"),
    "basic": (Basic("a", "b"), "Basic YTpi"),
    "anonymous": (Anonymous(), None),
}


@pytest.mark.parametrize(("auth", "header"), FIXED.values(), ids=FIXED)
async def test_static_credentials_are_not_renewed(auth, header):
    credentials = Credentials(auth, ManualClock())
    used = await credentials.current()

    assert used.authorization == header
    assert not credentials.refused(used)


async def test_a_plugin_runs_once_until_its_credential_expires(tmp_path):
    clock = ManualClock()
    credentials = Credentials(
        script(tmp_path, printed(token="t", expirationTimestamp="2026-01-01T01:00:00Z")), clock
    )

    await asyncio.gather(*(credentials.current() for _ in range(5)))
    assert runs(tmp_path) == 1
    clock.passed += 3601
    await credentials.current()
    assert runs(tmp_path) == 2


async def test_a_plugin_may_print_a_certificate(tmp_path):
    plugin = script(tmp_path, printed(clientCertificateData="CERT", clientKeyData="KEY"))

    credential = await Credentials(plugin, ManualClock()).current()

    assert (credential.authorization, credential.certificate, credential.key) == (None, b"CERT", b"KEY")


async def test_a_plugin_gets_the_cluster_info_and_its_environment(tmp_path):
    plugin = script(
        tmp_path, 'echo "$KUBERNETES_EXEC_INFO" > info; echo "$REGION" > region\n' + printed(token="t")
    )
    plugin = Exec(plugin.command, env={"REGION": "here"}, cluster={"server": "https://lab"})

    await exec_plugin.run(plugin)

    info = msgspec.json.decode((tmp_path / "info").read_bytes())
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://lab"}}
    assert (tmp_path / "region").read_text() == "here\n"


WRONG = {
    "fails": ("echo no network >&2; exit 3", "failed with 3: no network"),
    "prints nonsense": ("echo hello", "printed no ExecCredential"),
    "prints nothing useful": (printed(), "neither a token nor a certificate"),
    "speaks another version": (
        printed(version="client.authentication.k8s.io/v1beta1", token="t"),
        "v1beta1, but the kubeconfig has client.authentication.k8s.io/v1",
    ),
    "prints a certificate without key": (printed(clientCertificateData="C"), "without its key"),
}


@pytest.mark.parametrize(("body", "sentence"), WRONG.values(), ids=WRONG)
async def test_a_failing_plugin_is_named(tmp_path, body, sentence):
    plugin = script(tmp_path, body)

    with pytest.raises(ConfigError) as caught:
        await Credentials(plugin, ManualClock()).current()

    assert sentence in str(caught.value)
    assert plugin.command in str(caught.value)


async def test_a_missing_plugin_shows_its_install_hint():
    with pytest.raises(ConfigError, match=r"'no-such-login'.*No such file.*ask Jane"):
        await exec_plugin.run(Exec("no-such-login", install_hint="ask Jane"))


async def test_a_plugin_that_hangs_is_killed(tmp_path):
    plugin = script(tmp_path, "echo $$ > pid; exec sleep 3600")

    with pytest.raises(ConfigError, match=r"did not finish within 1 s"):
        await exec_plugin.run(plugin, timeout=1)

    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_an_interactive_plugin_is_refused():
    with pytest.raises(ConfigError, match="there is no terminal"):
        await exec_plugin.run(Exec("x", interactive="Always"))


BAD_FILES = {"absent": (None, "No such file"), "empty": ("\n", "is empty")}


@pytest.mark.parametrize(("content", "sentence"), BAD_FILES.values(), ids=BAD_FILES)
async def test_an_unusable_token_file_is_refused(tmp_path, content, sentence):
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigError, match=sentence):
        await Credentials(TokenFile(path), ManualClock()).current()
