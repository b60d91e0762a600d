"""Who may use the server: only pages that it served itself, and on an open network only those who have the token.

A web page from elsewhere can make a browser send requests to this server. Such requests carry a foreign `Origin`, or,
when a name was made to point to this machine (DNS rebinding), a foreign `Host`. Both are refused.
"""

import hmac
import ipaddress
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "babyai_token"
HTTP_PORT = 80
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
# What the page may load: its own files, nothing from elsewhere, no inline scripts.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """Who may use the server."""

    hosts: tuple[str, ...]
    """Values of the Host header that are accepted; empty if any is, because a token is needed."""
    token: str | None = None
    """What a request must know, in a cookie or as `?token=...`; None if it need not."""

    def problem(self, headers: Headers, query: str) -> str | None:
        """Why a request is refused; None if it is not."""
        host = headers.get("host", "")
        if self.hosts and host not in self.hosts:
            return f"this server is {self.hosts[0]}, not {host[:100]!r}"
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) != host:
            return "requests from other sites are refused"
        if self.token is not None and not self._has_token(headers, query):
            return "open the address that `babyai play` printed: it holds a token"
        return None

    def _has_token(self, headers: Headers, query: str) -> bool:
        given = [*parse_qs(query).get("token", [])]
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is not None:
            given.append(cookie.value)
        return any(hmac.compare_digest(each.encode(), (self.token or "").encode()) for each in given)


def make_access(host: str, port: int) -> Access:
    """Without a token on the loopback interface, where only this machine's users are; with a new one elsewhere."""
    if is_loopback(host):
        named = f"[{host}]" if ":" in host else host
        names = tuple(dict.fromkeys((named, *LOOPBACK_NAMES)))
        # Browsers leave out the port that is HTTP's own.
        plain = names if port == HTTP_PORT else ()
        return Access((*(f"{name}:{port}" for name in names), *plain))
    return Access((), secrets.token_urlsafe(16))


def _host_of(origin: str) -> str | None:
    """The host and port of an origin; None if it has none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AccessMiddleware:
    """Refuses requests and websockets that `Access` does not accept, and adds security headers to all responses."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        query = scope.get("query_string", b"").decode("latin-1")
        problem = self._access.problem(Headers(scope=scope), query)
        if problem is not None:
            await self._refuse(problem, scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = dict(SECURITY_HEADERS)
                if self._access.token is not None:
                    added["Set-Cookie"] = f"{COOKIE}={self._access.token}; HttpOnly; SameSite=Strict; Path=/"
                pairs = [(name.lower().encode(), value.encode()) for name, value in added.items()]
                message = {**message, "headers": [*message.get("headers", []), *pairs]}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    async def _refuse(self, problem: str, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # Closing before accepting refuses the handshake with status 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": problem})
        else:
            await PlainTextResponse(f"{problem}\n", 403)(scope, receive, send)
