"""People without a right, foreign proxies and the page's own account write nothing.

The API server refuses them, and the viewer reads its sentence.
"""

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import aiohttp
import pytest

from croupier.api import kinds
from croupier.kube.client.api_client import DeleteOptions
from croupier.kube.client.errors import Forbidden
from croupier.kube.client.resource import Resource
from tests.polling import until_async
from tests.ui.hostile_env import HostileLab, PageAnswer, ServedPage
from tests.ui.hostile_world import FREE, HOLDING, NODE, SECRET, TENANT

SECONDS = 30

DRAIN: dict[str, Any] = {"action": "drain", "cards": [FREE], "reason": "tried"}
UNDRAIN: dict[str, Any] = {"action": "undrain", "cards": [FREE]}
ANYBODY: dict[str, Any] = {"X-Forwarded-User": "bob", "X-Forwarded-Groups": ""}


async def written(page: ServedPage, hostile: HostileLab, body: dict[str, Any], **headers: str) -> PageAnswer:
    """The action with the version that the card has now."""
    versions = {FREE: await hostile.version(FREE)}
    return await page.post("/api/v1/act", {**body, "versions": versions}, **headers)


async def test_the_unchanged_request_would_be_written(hostile, bearer_page, headers_page):
    """Otherwise the refusals of the other tests would prove nothing."""
    for page in (bearer_page, headers_page):
        for body in (DRAIN, UNDRAIN):
            answer = await written(page, hostile, body)
            assert answer.data["results"][0]["ok"], answer.text
            async with hostile.api() as api:
                device = await api.get(kinds.GPU_DEVICES.raw, FREE)
            managers = {entry["manager"] for entry in device["metadata"]["managedFields"]}
            assert ("croupier-ui" in managers) == (body is DRAIN)
            known = device["metadata"]["resourceVersion"]
            await until_async(partial(previewed, page, known), "the page to see it")


async def previewed(page: ServedPage, version: str) -> bool:
    answer = await page.post("/api/v1/preview", DRAIN)
    return bool(answer.data["objects"][0]["resourceVersion"] == version)


@pytest.mark.usefixtures("nothing_written")
class TestRefused:
    async def test_the_sentence_of_the_api_server_is_shown(self, hostile, bearer_page, headers_page):
        reader = {"Authorization": f"Bearer {hostile.tokens['reader']}"}
        account = f"system:serviceaccount:{TENANT}:reader"
        for page, headers, user in ((bearer_page, reader, account), (headers_page, ANYBODY, "bob")):
            sentence = f'User "{user}" cannot patch resource "gpudevices"'
            shown = await page.post("/api/v1/preview", DRAIN, **headers)
            tried = shown.data["objects"][0]["dryRun"]
            assert (tried["ok"], sentence in tried["message"]) == (False, True), shown.text
            (result,) = (await written(page, hostile, DRAIN, **headers)).data["results"]
            assert (result["ok"], sentence in result["message"]) == (False, True), result

    async def test_who_may_not_list_cards_cannot_change_them(self, hostile, bearer_page):
        tenant = {"Authorization": f"Bearer {hostile.tokens['tenant']}"}
        for path in ("preview", "act", "progress"):
            answer = await bearer_page.post(f"/api/v1/{path}", DRAIN, **tenant)
            assert (answer.status, "may not list gpudevices" in answer.sentence) == (403, True)

    async def test_other_reservations_and_pools_do_not_exist_for_a_tenant(self, hostile, bearer_page):
        tenant = {"Authorization": f"Bearer {hostile.tokens['tenant']}"}
        release = {"action": "release", "namespace": SECRET, "name": f"{SECRET}-hold"}
        for body in (release, {"action": "confirm", "pool": f"{SECRET}-pool"}):
            for path in ("preview", "act"):
                answer = await bearer_page.post(f"/api/v1/{path}", body, **tenant)
                assert (answer.status, answer.sentence.startswith("there is no")) == (400, True)

    async def test_a_forged_user_is_ignored_where_no_proxy_is_trusted(self, hostile, token_page, bearer_page):
        forged = {"X-Forwarded-User": "admin-person", "X-Forwarded-Groups": "system:masters"}
        tenant = hostile.tokens["tenant"]
        impersonated = {"Impersonate-User": "admin-person", **forged}
        cookie = await signed_in(token_page, tenant)
        for page, session in ((token_page, {"Cookie": cookie}), (bearer_page, bearer(tenant))):
            me = await page.get("/api/v1/me", **session, **impersonated)
            assert me.data["user"] == f"system:serviceaccount:{TENANT}:tenant"
            assert me.data["sees"] == {"everything": False, "cards": False, "namespaces": [TENANT]}

    async def test_a_foreign_proxy_is_refused_by_tls(self, hostile: HostileLab, headers_page: ServedPage):
        for certificate in ("", "foreign"):
            proxy = ServedPage(headers_page.kubeconfig, headers_page.log, ())
            proxy.port, proxy.scheme, proxy.headers = headers_page.port, "https", headers_page.headers
            proxy.client = hostile.trusting(certificate)
            with pytest.raises(aiohttp.ClientError):
                await proxy.get("/api/v1/me")
        proxy.scheme = "http"
        with pytest.raises(aiohttp.ClientError):
            await proxy.get("/api/v1/me")

    @pytest.mark.parametrize(
        ("user", "groups"),
        [
            ("system:admin", ""),
            ("system:serviceaccount:kube-system:default", ""),
            ("system:node:gpu-1", ""),
            ("bob", "system:masters"),
            ("bob", "people, system:masters"),
            ("bob", "people,system:serviceaccounts"),
            ("", "people"),
            ("x" * 257, "people"),
            ("bob", "x" * 257),
        ],
    )
    async def test_a_proxy_cannot_name_parts_of_kubernetes(self, user, groups, hostile, headers_page):
        named = {"X-Forwarded-User": user, "X-Forwarded-Groups": groups}
        for answer in (
            await headers_page.get("/api/v1/me", **named),
            await written(headers_page, hostile, DRAIN, **named),
        ):
            assert (answer.status, bool(answer.sentence)) == (401, True)

    async def test_the_account_of_the_page_cannot_write(self, hostile: HostileLab):
        """An attacker who controls the page has the account, and the API server refuses it."""
        change = {"metadata": {"annotations": {"tried": "yes"}}}
        async with hostile.api("croupier-ui") as api:
            assert (await api.list(kinds.GPU_DEVICES)).items
            objects: list[tuple[Resource[Any], str, str | None]] = [
                (kinds.GPU_DEVICES, FREE, None),
                (kinds.GPU_POOLS, "shared", None),
                (kinds.NODE_RESERVATIONS, NODE, None),
                (kinds.NODES, NODE, None),
                (kinds.PODS, "mine", TENANT),
                (kinds.RESERVATIONS, f"{SECRET}-hold", SECRET),
            ]
            for kind, name, namespace in objects:
                with pytest.raises(Forbidden):
                    await api.patch(kind, name, change, namespace=namespace)
                with pytest.raises(Forbidden):
                    await api.delete(kind, name, namespace=namespace, how=DeleteOptions())

    async def test_no_token_is_told(self, hostile, token_page, bearer_page):
        """Neither in a response nor in the log, whose level is debug."""
        tokens = [hostile.tokens[name] for name in ("admin", "reader", "tenant", "cards", "croupier-ui")]
        cookie = await signed_in(token_page, hostile.tokens["admin"])
        sessions: list[tuple[ServedPage, dict[str, str]]] = [
            (token_page, {"Cookie": cookie}),
            (bearer_page, {}),
        ]
        paths = ("me", "snapshot", "snapshot?part=names", f"cards/{HOLDING}", "audit", "history", "nothing")
        for page, session in sessions:
            answers = [await page.get(f"/api/v1/{path}", **session) for path in paths]
            answers.append(await page.get("/", **session))
            answers.append(await page.post("/api/v1/preview", DRAIN, **session))
            told = "".join(f"{answer.text}{answer.headers}" for answer in answers) + page.printed()
            assert [token for token in tokens if token in told or token.split(".")[2] in told] == []
        assert hostile.tokens["admin"] not in cookie

    async def test_a_session_ends_with_signing_out(self, hostile: HostileLab, token_page: ServedPage):
        cookie = await signed_in(token_page, hostile.tokens["reader"])
        assert (await token_page.get("/api/v1/me", Cookie=cookie)).data["mode"] == "token"
        out = await token_page.post("/logout", {}, Cookie=cookie)
        assert "Max-Age=0" in out.headers["Set-Cookie"]
        assert (await token_page.post("/login", {"token": "nonsense"})).status == 401
        assert (await token_page.post("/login", {"password": "x"})).status == 400


async def test_the_201st_stream_gets_a_sentence(hostile: HostileLab, bearer_page: ServedPage):
    """Four viewers have 50 tabs each, which is below the limit of requests of one viewer."""
    names = ("admin", "reader", "tenant", "cards")
    url = f"{bearer_page.origin}/api/v1/stream"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as web,
        AsyncExitStack() as tabs,
    ):
        for number in range(200):
            headers = bearer(hostile.tokens[names[number % 4]])
            opened = await tabs.enter_async_context(web.get(url, headers=headers))
            assert opened.status == 200, await opened.text()
        refused = await bearer_page.get("/api/v1/stream")
        assert (refused.status, "already has 200 open streams" in refused.sentence) == (503, True)

    async def reopened() -> bool:
        async with (
            aiohttp.ClientSession() as web,
            web.get(url, headers=bearer(hostile.tokens["admin"])) as answer,
        ):
            return answer.status == 200

    await until_async(reopened, "the closed streams to be forgotten")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def signed_in(page: ServedPage, token: str) -> str:
    """The cookies of a new session; scripts and other sites never get them."""
    answer = await page.post("/login", {"token": token})
    assert answer.status == 200, answer.text
    lines = answer.headers["Set-Cookie"].split("\n")
    for line in lines:
        assert line.startswith("__Host-croupier")
        assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/"} <= set(line.split("; "))
    return "; ".join(line.partition(";")[0] for line in lines)
