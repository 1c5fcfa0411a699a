"""Authentication at a real API server: certificates, replaced tokens, exec plugins, and clear errors."""

import asyncio
import datetime as dt
import ssl
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from croupier.kube.client import api_client, config, transport
from croupier.kube.client.api_client import Client
from croupier.kube.client.config import Anonymous, AuthMethod, Config, Exec, Token, TokenFile
from croupier.kube.client.credentials import Credential
from croupier.kube.client.errors import ConfigError, Forbidden, Unauthorized
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.client.retry import RetryOptions
from tests.polling import until_async

SECONDS = 20

ACCOUNTS: Resource[Raw] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)
REVIEWS: Resource[Raw] = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, dict
)


@pytest.fixture
def admin_config(cluster: Any) -> Config:
    return config.load(cluster.kubeconfig)


@pytest_asyncio.fixture
async def admin(admin_config: Config) -> AsyncIterator[Client]:
    async with api_client.connect(admin_config) as api:
        yield api


def with_auth(admin_config: Config, auth: AuthMethod) -> Config:
    """The same cluster, authenticated only by `auth`."""
    return replace(admin_config, auth=auth, certificate=None, key=None)


async def whoami(api: Client) -> str:
    review = await api.create(REVIEWS, {})
    return str(review["status"]["userInfo"]["username"])


async def robot_token(admin: Client, namespace: str) -> str:
    body = {"spec": {"expirationSeconds": 600}}
    answer = await admin.create(ACCOUNTS, body, namespace=namespace, name="robot", subresource="token")
    return str(answer["status"]["token"])


async def hire_robot(admin: Client, namespace: str) -> str:
    await admin.apply(ACCOUNTS, {"metadata": {"name": "robot", "namespace": namespace}})
    return await robot_token(admin, namespace)


async def replace_robot(admin: Client, admin_config: Config, namespace: str, old: str) -> str:
    """Recreate the service account and wait until its old token is refused; return a new token."""
    await admin.delete(ACCOUNTS, "robot", namespace=namespace)
    new = await hire_robot(admin, namespace)

    async def worthless() -> bool:
        async with api_client.connect(with_auth(admin_config, Token(old))) as api:
            try:
                await whoami(api)
            except Unauthorized:
                return True
            return False

    await until_async(worthless, "the old token to be refused")
    return new


class FrozenClock:
    """A clock that does not advance: nothing expires."""

    def now(self) -> dt.datetime:
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"unexpected sleep of {seconds} s")


def token_file(path: Path) -> AuthMethod:
    return TokenFile(path)


def plugin_that_prints(path: Path) -> AuthMethod:
    script = path.parent / "login"
    script.write_text(
        "#!/bin/sh\n"
        'printf \'{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
        f'"status":{{"token":"%s"}}}}\' "$(cat {path})"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return Exec(str(script))


@pytest.mark.parametrize("auth", [token_file, plugin_that_prints])
async def test_a_replaced_token_is_picked_up_on_the_first_refusal(
    admin, admin_config, namespace, tmp_path, auth
):
    path = tmp_path / "token"
    old = await hire_robot(admin, namespace)
    path.write_text(old)
    async with api_client.connect(with_auth(admin_config, auth(path)), clock=FrozenClock()) as api:
        assert await whoami(api) == f"system:serviceaccount:{namespace}:robot"

        path.write_text(await replace_robot(admin, admin_config, namespace, old))

        assert await whoami(api) == f"system:serviceaccount:{namespace}:robot"


async def test_a_refused_static_token_raises_unauthorized(admin_config):
    async with api_client.connect(with_auth(admin_config, Token("nonsense"))) as api:
        with pytest.raises(Unauthorized):
            await whoami(api)


async def test_impersonation(admin_config):
    jane = replace(admin_config, impersonate={"Impersonate-User": ("jane",), "Impersonate-Group": ("a", "b")})
    async with api_client.connect(jane) as api:
        with pytest.raises(Forbidden, match='User "jane" cannot'):
            await api.get(ACCOUNTS, "default", namespace="kube-system")


def strangers_authority() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a stranger")])
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start + dt.timedelta(days=9))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


async def test_an_untrusted_server_certificate_is_refused(admin_config):
    suspicious = replace(admin_config, ca=strangers_authority(), verify=True)
    async with api_client.connect(suspicious, retry=RetryOptions(tries=1)) as api:
        with pytest.raises(ConfigError, match=r"has a certificate that context .* does not trust"):
            await whoami(api)


async def test_the_host_name_of_the_certificate_is_checked(admin_config):
    if not admin_config.verify:
        pytest.skip("this cluster's kubeconfig does not check certificates")
    wrong = replace(admin_config, tls_server_name="not.in.the.certificate")
    async with api_client.connect(wrong, retry=RetryOptions(tries=1)) as api:
        with pytest.raises(ConfigError, match="does not trust"):
            await whoami(api)


async def test_certificates_are_not_checked_with_insecure_skip_tls_verify(admin_config):
    careless = replace(admin_config, ca=strangers_authority(), verify=False)
    async with api_client.connect(careless) as api:
        assert await whoami(api)


BAD_PEM: dict[str, tuple[dict[str, Any], str]] = {
    "authority": ({"ca": b"not PEM"}, "certificate authority of .* is not valid PEM"),
    "certificate without key": ({"certificate": b"x", "key": None}, "without its key; add client-key"),
    "certificate": ({"certificate": b"x", "key": b"y"}, "client certificate of .* cannot be used"),
}


@pytest.mark.parametrize(("wrong", "sentence"), BAD_PEM.values(), ids=BAD_PEM)
async def test_an_invalid_pem_is_named(wrong, sentence):
    broken = replace(Config("https://127.0.0.1:1", auth=Anonymous(), source="config x"), **wrong)
    async with api_client.connect(broken) as api:
        with pytest.raises(ConfigError, match=sentence):
            await whoami(api)


async def test_a_client_certificate_authenticates(lab):
    mine = config.load(lab.kubeconfig)
    assert mine.certificate, "the lab's own kubeconfig uses a client certificate"
    async with api_client.connect(mine) as api:
        assert await whoami(api) != "system:anonymous"


async def test_authorities_that_go_programs_accept_are_accepted():
    trusting = transport.tls(Config("https://x", ca=strangers_authority()), Credential())

    assert not trusting.verify_flags & ssl.VERIFY_X509_STRICT


async def test_through_a_proxy(admin_config):
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
        host, port = asked[-1].decode().rsplit(":", 1)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with api_client.connect(replace(admin_config, proxy=f"http://127.0.0.1:{port}")) as api:
            assert await whoami(api)

    assert asked == [urlsplit(admin_config.server).netloc.encode()]


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()
