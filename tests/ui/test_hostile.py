"""Requests that the page itself never sends are refused with one sentence, and nothing is written."""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from croupier.ui import guards
from croupier.ui.guards import MAX_BODY
from tests.polling import until
from tests.ui.hostile_env import HostileLab, ServedPage
from tests.ui.hostile_world import FREE
from tests.wiring import first_lines

SECONDS = 40

pytestmark = pytest.mark.usefixtures("nothing_written")

Request = Mapping[str, Any]
ACT = "/api/v1/act"


def act(body: Mapping[str, Any], **headers: str | None) -> Request:
    """A write that would be carried out, except for what is changed here."""
    return {"json": dict(body), "headers": {name.replace("_", "-"): value for name, value in headers.items()}}


def sent(content: bytes, **headers: str | None) -> Request:
    return {"data": content, "headers": {name.replace("_", "-"): value for name, value in headers.items()}}


def drain(version: str) -> dict[str, Any]:
    return {"action": "drain", "cards": [FREE], "reason": "hostile", "versions": {FREE: version}}


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Request], int, str]] = {
    "no session": (lambda body: act(body, Authorization=None), 401, "no bearer token"),
    "an invalid token": (
        lambda body: act(body, Authorization="Bearer nonsense"),
        401,
        "does not accept the token",
    ),
    "a token with a line break": (
        lambda body: act(body, Authorization="Bearer a b"),
        401,
        "not a bearer token",
    ),
    "another origin": (lambda body: act(body, Origin="https://evil.example"), 403, "another site"),
    "an opaque origin": (lambda body: act(body, Origin="null"), 403, "another site"),
    "no origin": (lambda body: act(body, Origin=None), 403, "another site"),
    "another port of this host": (lambda body: act(body, Origin="http://127.0.0.1:1"), 403, "another site"),
    "another site, said by the browser": (
        lambda body: act(body, Sec_Fetch_Site="cross-site"),
        403,
        "another site",
    ),
    "another host of the domain": (
        lambda body: act(body, Sec_Fetch_Site="same-site"),
        403,
        "another site",
    ),
    "opened by hand": (lambda body: act(body, Sec_Fetch_Site="none"), 403, "another site"),
    "no X-Croupier": (lambda body: act(body, X_Croupier=None), 403, "X-Croupier: 1"),
    "another X-Croupier": (lambda body: act(body, X_Croupier="2"), 403, "X-Croupier: 1"),
    "a form": (
        lambda body: sent(b"action=drain", Content_Type="application/x-www-form-urlencoded"),
        415,
        "content type application/json",
    ),
    "plain text": (lambda body: sent(b"{}", Content_Type="text/plain"), 415, "content type application/json"),
    "a body that is too large": (lambda body: sent(b" " * (MAX_BODY + 1)), 413, "larger than 256 KiB"),
    "not JSON": (lambda body: sent(b"{action: drain}"), 400, "not valid JSON"),
    "deeply nested": (lambda body: sent(b"[" * 100_000), 400, "not valid JSON"),
    "empty": (lambda body: sent(b""), 400, "not JSON"),
    "a list": (lambda body: sent(b"[]"), 400, "cannot be used"),
    "an unknown action": (lambda body: act({**body, "action": "delete"}), 400, "there is no action delete"),
    "an unknown field": (lambda body: act({**body, "force": True}), 400, "unknown field"),
    "a field of another action": (lambda body: act({**body, "pool": "shared"}), 400, "does not use pool"),
    "a card twice": (lambda body: act({**body, "cards": [FREE, FREE]}), 400, "named twice"),
    "no cards": (lambda body: act({**body, "cards": []}), 400, "needs cards"),
    "too many cards": (
        lambda body: act({**body, "cards": [str(number) for number in range(513)]}),
        400,
        "at most 512",
    ),
    "an unknown card": (lambda body: act({**body, "cards": ["../nodes/x"]}), 400, "there is no card"),
    "a long reason": (lambda body: act({**body, "reason": "x" * 257}), 400, "at most 256"),
}


@pytest.mark.parametrize(("change", "status", "word"), REFUSED.values(), ids=REFUSED)
async def test_a_hostile_write_is_refused(change, status, word, hostile: HostileLab, bearer_page: ServedPage):
    request = change(drain(await hostile.version(FREE)))
    answer = await bearer_page.patiently("POST", ACT, **request)
    assert (answer.status, word in answer.sentence) == (status, True), answer.text
    assert len(answer.sentence) < 400


UNFIT_VERSIONS = {
    "no preview": ({}, "was not previewed"),
    "the version of another card": ({"other": "1"}, "was not previewed"),
    "a stale version": ({FREE: "1"}, "changed since the preview"),
    "an invalid version": ({FREE: "x"}, ""),
}


@pytest.mark.parametrize(("versions", "word"), UNFIT_VERSIONS.values(), ids=UNFIT_VERSIONS)
async def test_a_write_needs_the_previewed_version(versions, word, bearer_page: ServedPage):
    answer = await bearer_page.patiently("POST", ACT, **act({**drain(""), "versions": versions}))
    (result,) = answer.data["results"]
    assert (result["ok"], word in result["message"]) == (False, True), answer.text


async def test_the_log_begins_with_what_the_process_is_and_says_when_it_is_ready(bearer_page: ServedPage):
    await until(lambda: "is ready after" in bearer_page.log.read_text(), "the log to say so")

    first_lines.check(bearer_page.log.read_text(), "ui")


async def test_get_and_other_methods_do_not_write(bearer_page: ServedPage):
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = await bearer_page.send(method, f"{ACT}?action=drain&cards={FREE}")
        assert answer.status in (404, 405), method
        assert method == "HEAD" or answer.sentence


async def test_other_sites_cannot_read(bearer_page: ServedPage):
    for site in ("cross-site", "same-site"):
        answer = await bearer_page.get("/api/v1/snapshot", **{"Sec-Fetch-Site": site})
        assert (answer.status, "another site" in answer.sentence) == (403, True)
    shared = await bearer_page.get("/api/v1/snapshot", Origin="https://evil.example")
    assert not [name for name in shared.headers if name.lower().startswith("access-control-")]


async def test_too_many_writes_are_refused(bearer_page: ServedPage):
    body = act({"action": "none"})
    answers = await asyncio.gather(*(bearer_page.send("POST", ACT, **body) for _ in range(100)))
    late = [answer for answer in answers if answer.status == 429]
    assert late
    assert "too many actions: at most 10 per second" in late[0].sentence
    assert {answer.status for answer in answers} == {400, 429}


DATA_PATHS = (
    "/api/v1/me",
    "/api/v1/snapshot",
    "/api/v1/snapshot?part=names",
    "/api/v1/stream",
    f"/api/v1/cards/{FREE}",
    "/api/v1/pools/shared",
    "/api/v1/explain/pods/apple/mine",
    "/api/v1/market/gpu-1",
    "/api/v1/audit",
    "/api/v1/history",
    "/api/v1/history/at?at=1",
    f"/api/v1/history/lines?card={FREE}",
    "/api/v1/history.csv?from=0&to=1",
    "/api/v1/unknown",
    "/api/",
)


@pytest.mark.parametrize("path", DATA_PATHS)
async def test_there_is_no_data_without_a_session(path, local_page, token_page, bearer_page, headers_page):
    forged = {"X-Forwarded-User": "admin-person", "X-Forwarded-Groups": "system:masters"}
    unnamed = {"Authorization": None, "X-Forwarded-User": None}
    for page, headers in (
        (local_page, {}),
        (local_page, forged),
        (local_page, {"Cookie": f"croupier-{local_page.port}=guessed"}),
        (token_page, forged),
        (token_page, {"Cookie": "__Host-croupier=1.guessed"}),
        (token_page, {"Authorization": f"Bearer {bearer_page.headers['Authorization']}"}),
        (bearer_page, {**unnamed, **forged}),
        (headers_page, unnamed),
    ):
        answer = await page.send("GET", path, headers=headers)
        assert (answer.status, bool(answer.sentence)) == (401, True)


async def test_a_name_that_was_made_to_point_here_is_refused(local_page: ServedPage):
    """DNS rebinding: the browser believes that evil.example is this machine."""
    for host in (
        f"evil.example:{local_page.port}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"localhost.:{local_page.port}",
    ):
        for path in ("/", "/api/v1/me", "/open/guessed"):
            answer = await local_page.get(path, Host=host)
            assert (answer.status, "not served under this name" in answer.sentence) == (421, True), host
    assert (await local_page.get("/", Host=f"localhost:{local_page.port}")).status == 200


async def test_a_link_works_once(local_page: ServedPage):
    link = re.findall(r"http://\S+(/open/[\w-]+)", local_page.printed())[-1]
    for attempt in ("/open/guessed", f"{link}x"):
        assert (await local_page.get(attempt)).status == 403
    opened = await local_page.get(link)
    assert (opened.status, opened.headers["Location"]) == (303, "/")
    cookie = opened.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    used = await local_page.get(link)
    assert (used.status, "was used before" in used.text, "Set-Cookie" in used.headers) == (403, True, False)
    me = await local_page.get("/api/v1/me", Cookie=cookie.partition(";")[0])
    assert me.data["actions"] == ["cards", "pools", "reservations"]
    other = cookie.partition(";")[0].replace(str(local_page.port), "1")
    assert (await local_page.get("/api/v1/me", Cookie=other)).status == 401


async def test_every_response_has_the_policy(local_page, token_page, bearer_page, headers_page):
    for page in (local_page, token_page, bearer_page, headers_page):
        for path in ("/", "/cards", "/no-such-file.js", "/open/x", "/login", *DATA_PATHS):
            if path == "/api/v1/stream":
                continue
            answer = await page.get(path)
            policy = answer.headers["Content-Security-Policy"]
            assert "unsafe-" not in policy
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert guards.SECURITY_HEADERS.items() <= answer.headers.items()
            if path.startswith("/api/"):
                assert answer.headers["Cache-Control"] == "no-store"


async def test_an_action_that_is_switched_off_is_refused(hostile: HostileLab, token_page: ServedPage):
    """Off by default in a cluster, also for a user who may do everything."""
    token = hostile.tokens["admin"]
    signed_in = await token_page.post("/login", {"token": token})
    cookie = "; ".join(line.partition(";")[0] for line in signed_in.headers["Set-Cookie"].split("\n"))
    body = drain(await hostile.version(FREE))
    refused = await token_page.post(ACT, body, Cookie=cookie)
    assert (refused.status, "does not change cards" in refused.sentence) == (403, True)
    del body["versions"]
    shown = await token_page.post("/api/v1/preview", body, Cookie=cookie)
    (card,) = shown.data["objects"]
    assert (card["dryRun"]["ok"], "ui.actions" in card["dryRun"]["message"]) == (False, True)
