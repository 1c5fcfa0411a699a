"""Who the user of a request is, in each mode of the page, and the routes for signing in and out.

local: the user of the kubeconfig, after opening a link that only the terminal shows. bearer: a proxy adds the
user's token. token: the user pastes a token, which is kept encrypted in cookies. headers: a proxy with a
client certificate names the user.
"""

import hmac
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from croupier.api import kinds
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import ApiError, ConfigError, KubeError
from croupier.kube.serving import http_server
from croupier.kube.serving.http_server import TLS, ListenOptions
from croupier.ui import session_cookie
from croupier.ui.session_cookie import CookieSeal, SealedSession
from croupier.ui.token_review import TokenReviewer
from croupier.ui.viewer import Authenticator, Mode, Unauthenticated, Viewer

MAX_SESSION: Final = 8 * 3600.0
"""Seconds after which a user of mode token signs in again."""
LOCAL_SESSION: Final = 24 * 3600.0
"""Seconds after which a user of mode local opens a new link."""
KUBECONFIG_USER: Final = "the user of the kubeconfig"
"""The name of a local user whom the API server does not name."""
AUTHENTICATED: Final = "system:authenticated"
_RESERVED: Final = "system:"
_MAX_NAME: Final = 256
_MAX_GROUPS: Final = 256
USED_LINK: Final = (
    "This link was used before, or it belongs to another process. "
    "Open the newest link that `croupier ui` has printed in its terminal."
)


def check_listen(mode: Mode, listen: ListenOptions) -> None:
    """Refuse addresses on which the mode is not safe."""
    if mode == "local" and not http_server.is_loopback(listen.address.host):
        raise ConfigError(
            f"mode local acts with your kubeconfig and must listen on loopback, such as "
            f"127.0.0.1:{listen.address.port}, not on {listen.address}; choose another mode for other users"
        )
    tls = listen.tls
    if mode == "headers" and not (isinstance(tls, TLS) and tls.client_authority is not None):
        raise ConfigError(
            "mode headers needs --tls-cert, --tls-key and --client-ca: the page believes the headers of a "
            "proxy only if a client certificate proves that it is the proxy"
        )


class LocalAuthenticator:
    """A link with a one-time code starts a session. After its use the process announces a new link.

    The session is sealed for one API server with a key of the user, so that it survives a restart of the
    process.
    """

    mode: Mode = "local"

    def __init__(self, api: Client, key: bytes, clock: Clock | None = None) -> None:
        self._api = api
        self._seal = CookieSeal(key)
        self._clock = clock or SystemClock()
        self.announce: Callable[[str], None] = lambda path: None
        """Gets the path of each further link."""
        self._code = secrets.token_urlsafe(24)
        self._user: Viewer | None = None

    @property
    def open_path(self) -> str:
        """The path of the link that starts the next session."""
        return f"/open/{self._code}"

    async def viewer(self, request: Request) -> Viewer:
        session = self._seal.unseal(request.cookies.get(_local_cookie(request), ""))
        now = self._clock.now().timestamp()
        if session is None or session.token != self._api.config.server or session.expires <= now:
            raise Unauthenticated("this browser has no session; open the link that `croupier ui` has printed")
        if self._user is None:
            self._user = await self._own_user()
        return self._user

    async def open(self, request: Request) -> Response:
        code = request.path_params["code"]
        if request.method != "GET" or not hmac.compare_digest(code.encode(), self._code.encode()):
            return PlainTextResponse(USED_LINK, status_code=403)
        self._code = secrets.token_urlsafe(24)
        expires = self._clock.now().timestamp() + LOCAL_SESSION
        session = self._seal.seal(SealedSession(self._api.config.server, expires))
        self.announce(self.open_path)
        response = RedirectResponse("/", status_code=303)
        _set_cookie(response, _local_cookie(request), session, secure=request.url.scheme == "https")
        return response

    async def _own_user(self) -> Viewer:
        try:
            review = await self._api.create(kinds.SELF_SUBJECT_REVIEWS, {})
        except ApiError:  # not served, or not allowed; what the user may do is asked separately
            return Viewer(KUBECONFIG_USER)
        info = (review.get("status") or {}).get("userInfo") or {}
        return Viewer(str(info.get("username") or KUBECONFIG_USER), tuple(info.get("groups") or ()))


def _local_cookie(request: Request) -> str:
    """Cookies do not distinguish ports, so each process on this machine needs its own name."""
    return f"croupier-{(request.scope.get('server') or ('', 0))[1]}"


def _set_cookie(
    response: Response, name: str, value: str, *, secure: bool, max_age: int | None = None
) -> None:
    response.set_cookie(name, value, max_age=max_age, secure=secure, httponly=True, samesite="strict")


class BearerAuthenticator:
    """A proxy signs the user in and adds the user's token to each request."""

    mode: Mode = "bearer"

    def __init__(self, reviewer: TokenReviewer) -> None:
        self._reviewer = reviewer

    async def viewer(self, request: Request) -> Viewer:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated(
                "the request has no bearer token; open the page through the proxy that signs users in"
            )
        return await self._reviewer.viewer(token.strip(), self.mode)


class TokenAuthenticator:
    """The user pastes a token once; it is kept encrypted in cookies of the browser."""

    mode: Mode = "token"

    def __init__(self, reviewer: TokenReviewer, key: bytes, clock: Clock | None = None) -> None:
        self._reviewer = reviewer
        self._seal = CookieSeal(key)
        self._clock = clock or SystemClock()

    async def viewer(self, request: Request) -> Viewer:
        text = session_cookie.joined(_token_cookie(request), request.cookies)
        session = self._seal.unseal(text) if text is not None else None
        if session is None:
            raise Unauthenticated("you are not signed in; sign in with a token of the cluster")
        return await self._reviewer.viewer(session.token, self.mode, session.expires)

    async def login(self, request: Request) -> Response:
        try:
            token = str(msgspec.json.decode(await request.body(), type=dict[str, Any])["token"]).strip()
        except (msgspec.MsgspecError, KeyError):
            return _error('the body must be {"token": "..."}', 400)
        now = self._clock.now().timestamp()
        try:
            viewer = await self._reviewer.viewer(token, self.mode, now + MAX_SESSION)
        except Unauthenticated as refused:
            return _error(str(refused), 401)
        except KubeError as error:
            return _error(f"the API server does not answer: {error}", 502)
        expires = viewer.expires if viewer.expires is not None else now + MAX_SESSION
        name = _token_cookie(request)
        cookies = session_cookie.parts(name, self._seal.seal(SealedSession(token, expires)))
        if cookies is None:
            return _error("the token is too long for the cookies of a browser; use a shorter one", 400)
        response = JSONResponse({"user": viewer.user, "expires": expires})
        self._replace_cookies(response, request, cookies, int(expires - now))
        return response

    async def logout(self, request: Request) -> Response:
        response = JSONResponse({})
        self._replace_cookies(response, request, {}, 0)
        return response

    def _replace_cookies(
        self, response: Response, request: Request, cookies: dict[str, str], max_age: int
    ) -> None:
        """Also deletes the remaining parts of an earlier, longer session."""
        name = _token_cookie(request)
        secure = name == session_cookie.SECURE_NAME
        for part in session_cookie.names(name):
            if part in cookies:
                _set_cookie(response, part, cookies[part], secure=secure, max_age=max_age)
            elif part in request.cookies:
                _set_cookie(response, part, "", secure=secure, max_age=0)


def _token_cookie(request: Request) -> str:
    """Browsers refuse the secure name over plain HTTP, which only loopback may use."""
    is_plain = request.url.scheme == "http" and http_server.is_loopback(request.url.hostname or "")
    return session_cookie.PLAIN_NAME if is_plain else session_cookie.SECURE_NAME


class HeaderAuthenticator:
    """A proxy names the user in X-Forwarded-User and X-Forwarded-Groups.

    The server believes it only because every connection needs a client certificate of the authority that
    signs the proxy's.
    """

    mode: Mode = "headers"

    def __init__(self, listen: ListenOptions) -> None:
        check_listen(self.mode, listen)

    async def viewer(self, request: Request) -> Viewer:
        if request.url.scheme != "https":
            raise Unauthenticated("headers that name the user are believed only over mutual TLS")
        named = [name.strip() for name in request.headers.getlist("x-forwarded-user")]
        if len(named) != 1 or not _is_name(named[0]):
            raise Unauthenticated(
                "the request does not name its user once in X-Forwarded-User; check the settings of the proxy"
            )
        listed = ",".join(request.headers.getlist("x-forwarded-groups")).split(",")
        groups = tuple(dict.fromkeys(group.strip() for group in listed if group.strip()))
        if len(groups) > _MAX_GROUPS or not all(map(_is_name, groups)):
            raise Unauthenticated(
                "X-Forwarded-Groups is too long or has an invalid group; check the settings of the proxy"
            )
        for name in (named[0], *groups):
            if name.startswith(_RESERVED):
                raise Unauthenticated(
                    f"a proxy cannot name {name}: names that start with {_RESERVED} belong to Kubernetes"
                )
        return Viewer(named[0], (*groups, AUTHENTICATED), self.mode)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME and text.isprintable()


def login_routes(authenticator: Authenticator) -> list[BaseRoute]:
    """The routes that the mode has. GET never changes anything except for the one-time link of mode local."""
    if isinstance(authenticator, LocalAuthenticator):
        return [Route("/open/{code}", authenticator.open)]
    if isinstance(authenticator, TokenAuthenticator):
        return [
            Route("/login", authenticator.login, methods=["POST"]),
            Route("/logout", authenticator.logout, methods=["POST"]),
        ]
    return []


def _error(sentence: str, status: int) -> Response:
    return JSONResponse({"error": sentence}, status_code=status)
