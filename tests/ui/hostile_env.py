"""A lab with two tenants, and `croupier ui` as a process in each mode, with the account of the chart."""

import contextlib
import json
import random
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from bench import card_objects, page_process
from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.resource import Resource
from croupier_lab import certificates, kubeconfig, ports
from croupier_lab.certificates import CertificateSubject
from croupier_lab.lab import Lab
from tests import forks
from tests.install import rendering
from tests.polling import until_async
from tests.ui import hostile_world
from tests.ui.hostile_world import ACCOUNTS, SECRET, TENANT
from tests.ui.untainted import untaint_nodes
from tools.chart import NAMESPACE

ACTIONS: Final = "cards,pools,reservations"
ALL_ACTIONS: Final = "--set=ui.actions={cards,pools,reservations}"
CHART: Final = ("--set=ui.enabled=true", "--set=ui.mode=headers", "--set=ui.tlsSecret=tls")
PROXY_CA: Final = "--set=ui.clientCASecret=proxy-ca"
WATCHED: Final[tuple[Resource[Any], ...]] = (kinds.GPU_DEVICES, kinds.GPU_POOLS, kinds.RESERVATIONS)
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class PageAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def sentence(self) -> str:
        """The body of a refusal: one sentence and nothing else."""
        assert self.data.keys() - {"mode"} == {"error"}, self.text
        return str(self.data["error"])


@dataclass
class ServedPage:
    """One process of `croupier ui`, and a client for it."""

    kubeconfig: Path
    log: Path
    options: Sequence[str]
    client: ssl.SSLContext | bool = True
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    port: int = 0
    scheme: str = "http"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator["ServedPage"]:
        self.port, health = ports.free(2, chance=random.Random())  # noqa: S311  # a port is no secret
        words = (
            *("ui", "--no-open", "--log-level=debug"),
            f"--kubeconfig={self.kubeconfig}",
            f"--listen=127.0.0.1:{self.port}",
            f"--health=127.0.0.1:{health}",
            *self.options,
        )
        state = {"XDG_STATE_HOME": str(self.log.parent)}
        env = {**state, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "400"}
        process = forks.croupier(words, self.log, env)
        try:
            yield self
        finally:
            page_process.end(process)

    async def ready(self) -> None:
        async def listens() -> bool:
            try:
                return (await self.send("GET", "/")).status == 200
            except aiohttp.ClientConnectionError:
                return False

        await until_async(listens, f"the page to listen; its log is {self.log}", every=0.05)

    async def send(self, method: str, path: str, **options: Any) -> PageAnswer:
        """One request as a browser of this page sends it; `headers` replace or (None) remove headers."""
        given = {"Origin": self.origin, "X-Croupier": "1", **self.headers, **options.pop("headers", {})}
        if "json" not in options and method == "POST":
            given = {"Content-Type": JSON, **given}
        kept = {name: value for name, value in given.items() if value is not None}
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as web,
            web.request(
                method,
                f"{self.origin}{path}",
                headers=kept,
                ssl=self.client,
                allow_redirects=False,
                **options,
            ) as answer,
        ):
            return PageAnswer(answer.status, _headers(answer), await answer.read())

    async def get(self, path: str, **headers: str | None) -> PageAnswer:
        return await self.send("GET", path, headers=headers)

    async def post(self, path: str, body: Any, **headers: str | None) -> PageAnswer:
        return await self.patiently("POST", path, json=body, headers=headers)

    async def patiently(self, method: str, path: str, **options: Any) -> PageAnswer:
        """Sent again after a moment if the requests of earlier tests were too many."""

        async def send() -> PageAnswer | None:
            answer = await self.send(method, path, **options)
            return answer if answer.status != 429 else None

        answer = await until_async(send, "the rate limit to admit the request", every=0.2)
        assert answer is not None
        return answer

    def printed(self) -> str:
        return self.log.read_text()


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    cookies = "\n".join(answer.headers.getall("Set-Cookie", []))
    return {**answer.headers, **({"Set-Cookie": cookies} if cookies else {})}


@dataclass(frozen=True, slots=True)
class HostileLab:
    lab: Lab
    folder: Path
    tokens: Mapping[str, str] = field(repr=False)

    @contextlib.asynccontextmanager
    async def api(self, account: str = "") -> AsyncIterator[Client]:
        """A client of the API server: as the administrator, or as an account."""
        path = self.kubeconfig(account) if account else self.lab.kubeconfig
        async with api_client.connect(config.load(path), field_manager="test") as connected:
            yield connected

    def kubeconfig(self, account: str) -> Path:
        path = self.folder / f"{account}.kubeconfig"
        return kubeconfig.with_token(path, self.lab.kubeconfig, user=account, token=self.tokens[account])

    async def versions(self) -> dict[str, str]:
        """The version of every object that an action could write."""
        async with self.api() as api:
            listed = [item for kind in WATCHED for item in (await api.list(kind)).items]
        return {f"{item.metadata.key} {item.metadata.uid}": item.metadata.resource_version for item in listed}

    async def version(self, card: str) -> str:
        async with self.api() as api:
            return str((await api.get(kinds.GPU_DEVICES, card)).metadata.resource_version)

    @contextlib.contextmanager
    def page(self, mode: str, *options: str) -> Iterator[ServedPage]:
        """A page in the mode, with the account of the chart; in mode local as the administrator."""
        as_user = self.lab.kubeconfig if mode == "local" else self.kubeconfig("croupier-ui")
        page = ServedPage(
            as_user, self.lab.logs / f"ui-{mode}-{len(options)}.log", (f"--mode={mode}", *options)
        )
        tls = ("--tls-cert", self.folder / "page.crt", "--tls-key", self.folder / "page.key")
        if mode in ("token", "headers"):
            page.options = (*page.options, *map(str, tls))
            page.client, page.scheme = self.trusting("proxy" if mode == "headers" else ""), "https"
        if mode == "headers":
            page.options = (*page.options, "--client-ca", str(self.folder / "ca.crt"))
        with page.running():
            yield page

    def trusting(self, certificate: str = "") -> ssl.SSLContext:
        """A client that trusts the page, with this client certificate."""
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        if certificate:
            context.load_cert_chain(self.folder / f"{certificate}.crt", self.folder / f"{certificate}.key")
        return context


async def installed(lab: Lab, folder: Path) -> HostileLab:
    """The accounts, the certificates and the world."""
    now = datetime.now(UTC)
    certificates.create(folder, now=now)
    certificates.issue(folder, CertificateSubject("page", "page", hosts=("127.0.0.1",)), now=now)
    certificates.issue(folder, CertificateSubject("proxy", "proxy"), now=now)
    certificates.issue(folder, CertificateSubject("foreign", "proxy"), now=now, authority=certificates.ETCD)
    async with api_client.connect(config.load(lab.kubeconfig), field_manager="test") as api:
        await card_objects.write_namespaces(api, (TENANT, SECRET, NAMESPACE))
        await hostile_world.write(api)
        await untaint_nodes(api)
    objects = rendering.objects(*CHART, PROXY_CA, ALL_ACTIONS)
    own = [item for item in objects if item["metadata"]["name"].startswith("croupier-ui")]
    account = [item for item in own if "Role" in item["kind"] or item["kind"] == "ServiceAccount"]
    lab.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([*account, *hostile_world.accounts()]))
    named = dict.fromkeys(ACCOUNTS, TENANT) | {"croupier-ui": NAMESPACE}
    tokens = {
        name: lab.kubectl("create", "token", name, "-n", namespace).stdout.strip()
        for name, namespace in named.items()
    }
    return HostileLab(lab, folder, tokens)
