"""The HTTP server of the page: snapshots, the stream, questions and actions. See docs/ui-api.md."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import ApiError, KubeError
from croupier.ui import questions, snapshots, stream
from croupier.ui.action_body import BadActionRequest
from croupier.ui.actions import Actions
from croupier.ui.audits import Audits
from croupier.ui.files import PageFiles
from croupier.ui.history_answers import HistoryAnswers, NoHistory
from croupier.ui.questions import NoSuchObject
from croupier.ui.rights import Rights
from croupier.ui.snapshots import Snapshots
from croupier.ui.stream import StreamClient, StreamHub, TooManyStreams
from croupier.ui.tables import PARTS
from croupier.ui.user_clients import UserClients
from croupier.ui.viewer import Authenticator, Unauthenticated, Viewer
from croupier.ui.world import World

RIGHTS_INTERVAL: Final = 60.0
"""Seconds between two checks of the rights of an open stream."""
NO_STORE: Final = {"Cache-Control": "no-store"}
PASSED_ON: Final = (400, 401, 403, 404, 409, 413, 422, 429)
"""Statuses of the API server that mean the same to the browser."""

log = structlog.get_logger(__name__)

Answer: TypeAlias = Callable[[Request, "RequestScope"], Awaitable[Any]]


class BadPageRequest(Exception):
    """The request cannot be understood; the text is the sentence. Becomes 400."""


@dataclass(frozen=True, slots=True)
class PageParts:
    """Everything that the routes use."""

    world: World
    hub: StreamHub
    snapshots: Snapshots
    history: HistoryAnswers
    audits: Audits
    files: PageFiles
    authenticator: Authenticator
    rights: Callable[[Viewer], Awaitable[Rights]]
    users: UserClients
    actions: Actions
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True)
class RequestScope:
    viewer: Viewer
    rights: Rights


class PageServer:
    def __init__(self, parts: PageParts, routes: list[BaseRoute] | None = None) -> None:
        """`routes` are further routes, such as those of signing in."""
        self._parts = parts
        self._more = routes or []

    def app(self) -> Starlette:
        get: dict[str, Answer] = {
            "/api/v1/me": self._me,
            "/api/v1/snapshot": self._snapshot,
            "/api/v1/stream": self._stream,
            "/api/v1/cards/{card}": self._card,
            "/api/v1/pools/{pool}": self._pool,
            "/api/v1/explain/pods/{namespace}/{pod}": self._explain,
            "/api/v1/market/{node}": self._market,
            "/api/v1/audit": self._audit,
            "/api/v1/history": self._history,
            "/api/v1/history/at": self._history_at,
            "/api/v1/history/lines": self._history_lines,
            "/api/v1/history.csv": self._history_csv,
        }
        post: dict[str, Answer] = {
            "/api/v1/what-if": self._what_if,
            "/api/v1/preview": self._preview,
            "/api/v1/act": self._act,
            "/api/v1/progress": self._progress,
        }
        routes: list[BaseRoute] = [Route(path, self._endpoint(answer)) for path, answer in get.items()]
        routes += [Route(path, self._endpoint(answer), methods=["POST"]) for path, answer in post.items()]
        routes += self._more
        routes.append(Route("/{path:path}", self._file))
        return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})

    def _endpoint(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                found = await answer(request, await self._scope(request))
            except Exception as error:
                return self._failure(error, request)
            return found if isinstance(found, Response) else _json(found)

        return respond

    async def _scope(self, request: Request) -> RequestScope:
        viewer = await self._parts.authenticator.viewer(request)
        return RequestScope(viewer, await self._parts.rights(viewer))

    def _failure(self, error: Exception, request: Request) -> Response:
        status, sentence = 500, "the server failed to answer; its log has the reason"
        match error:
            case Unauthenticated():
                status, sentence = 401, str(error)
            case NoSuchObject() | NoHistory():
                status, sentence = 404, str(error)
            case BadPageRequest():
                status, sentence = 400, str(error)
            case BadActionRequest():
                status, sentence = error.status, str(error)
            case TooManyStreams():
                status, sentence = 503, str(error)
            case ApiError():
                status, sentence = error.status if error.status in PASSED_ON else 502, str(error)
            case KubeError():
                status, sentence = 502, f"the API server does not answer: {error}"
            case _:
                log.error(
                    f"the page failed to answer {request.url.path}", path=request.url.path, exc_info=error
                )
        return _json({"error": sentence}, status)

    # --- rows

    async def _me(self, _: Request, scope: RequestScope) -> Any:
        viewer, rights = scope.viewer, scope.rights
        return {
            "user": viewer.user,
            "groups": viewer.groups,
            "mode": viewer.mode,
            "actions": self._parts.actions.enabled,
            "sees": {
                "everything": rights.everything,
                "cards": rights.cards,
                "namespaces": sorted(rights.namespaces) if rights.namespaces is not None else None,
            },
            "expires": viewer.expires,
        }

    async def _snapshot(self, request: Request, scope: RequestScope) -> Response:
        part = request.query_params.get("part", "cards")
        if part not in PARTS:
            raise BadPageRequest(f"there is no part {part[:64]}; ask for {' or '.join(PARTS)}")
        return compressed(await self._parts.snapshots.get(scope.rights, part), request)

    async def _stream(self, request: Request, scope: RequestScope) -> Response:
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        client = self._parts.hub.open(scope.rights, after)
        headers = {**NO_STORE, "X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._events(client, request, scope), media_type="text/event-stream", headers=headers
        )

    async def _events(
        self, client: StreamClient, request: Request, scope: RequestScope
    ) -> AsyncIterator[bytes]:
        clock = self._parts.clock
        checked = clock.monotonic()
        try:
            while chunk := await client.read():
                yield chunk
                if clock.monotonic() - checked >= RIGHTS_INTERVAL or self._expired(scope):
                    checked = clock.monotonic()
                    if ending := await self._ending(request, scope):
                        yield stream.reset(ending)
                        return
        finally:
            self._parts.hub.drop(client)

    def _expired(self, scope: RequestScope) -> bool:
        expires = scope.viewer.expires
        return expires is not None and self._parts.clock.now().timestamp() >= expires

    async def _ending(self, request: Request, scope: RequestScope) -> str:
        """Why the stream must end: the viewer's session or rights changed."""
        if self._expired(scope):
            return "your session has ended; sign in again"
        try:
            now = await self._scope(request)
        except Unauthenticated as ended:
            return str(ended)
        except KubeError:
            return ""  # the API server does not answer: there is no news to hide either
        same = now.rights == scope.rights and now.viewer.user == scope.viewer.user
        return "" if same else "what you may see has changed; the page's data is loaded again"

    # --- questions

    async def _card(self, request: Request, scope: RequestScope) -> Any:
        return questions.card(self._parts.world, request.path_params["card"], scope.rights)

    async def _pool(self, request: Request, scope: RequestScope) -> Any:
        return questions.pool(self._parts.world, request.path_params["pool"], scope.rights)

    async def _explain(self, request: Request, scope: RequestScope) -> Any:
        key = request.path_params["namespace"], request.path_params["pod"]
        api = await self._parts.users.client(scope.viewer)
        return await questions.pod(self._parts.world, key, scope.rights, api)

    async def _market(self, request: Request, scope: RequestScope) -> Any:
        return questions.market(self._parts.world, request.path_params["node"], scope.rights)

    async def _audit(self, _: Request, scope: RequestScope) -> Any:
        return await self._parts.audits.of(scope.viewer)

    async def _history(self, _: Request, __: RequestScope) -> Any:
        return self._parts.history.overview()

    async def _history_at(self, request: Request, scope: RequestScope) -> Response:
        at = _time(request, "at")
        return compressed(await self._parts.history.at(at, scope.rights), request)

    async def _history_lines(self, request: Request, scope: RequestScope) -> Any:
        card, pod = (request.query_params.get(name, "") for name in ("card", "pod"))
        if not card and not pod:
            raise BadPageRequest("ask for ?card=CARD or ?pod=NAMESPACE/POD")
        return await self._parts.history.lines(scope.rights, card=card, pod=pod)

    async def _history_csv(self, request: Request, scope: RequestScope) -> Response:
        text = await self._parts.history.csv(scope.rights, _time(request, "from"), _time(request, "to"))
        headers = {**NO_STORE, "Content-Disposition": 'attachment; filename="croupier-history.csv"'}
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

    # --- what-if and actions

    async def _what_if(self, request: Request, scope: RequestScope) -> Any:
        return await asyncio.to_thread(self._parts.actions.what_if, await request.body(), scope.rights)

    async def _preview(self, request: Request, scope: RequestScope) -> Any:
        api = await self._parts.users.client(scope.viewer)
        return await self._parts.actions.preview(await request.body(), api, scope.rights)

    async def _act(self, request: Request, scope: RequestScope) -> Any:
        api = await self._parts.users.client(scope.viewer)
        return await self._parts.actions.act(await request.body(), api, scope.rights)

    async def _progress(self, request: Request, scope: RequestScope) -> Any:
        return await self._parts.actions.progress(await request.body(), scope.rights)

    # --- files

    async def _file(self, request: Request) -> Response:
        if request.url.path.startswith("/api/"):
            return _json(
                {"error": f"there is no {request.url.path[:128]}; docs/ui-api.md lists all paths"}, 404
            )
        found = self._parts.files.respond(request)
        return found if found is not None else Response("there is no such file\n", 404)


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = f"{request.method} is not possible for {request.url.path[:128]}"
    return _json({"error": sentence if status == 405 else str(getattr(error, "detail", error))}, status)


def _time(request: Request, name: str) -> float:
    try:
        return float(request.query_params[name])
    except (KeyError, ValueError) as bad:
        raise BadPageRequest(f"?{name}= must be a time in seconds since 1970") from bad


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json", headers=NO_STORE)


def compressed(content: bytes, request: Request) -> Response:
    """A response with gzipped JSON, unpacked for the rare client that does not accept it."""
    headers = {**NO_STORE, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        content = snapshots.decompress(content)
    return Response(content, media_type="application/json", headers=headers)
