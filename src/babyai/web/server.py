"""The web server: the page, its files, and a websocket per player. Who may use it is in `access.py`."""

import asyncio
import json
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from babyai.levels.catalog import LEVELS, PAPER_LEVELS
from babyai.web.access import Access, AccessMiddleware
from babyai.web.session import MAX_MESSAGE, RateLimit, Session, error

MAX_SESSIONS = 64
# Seconds without a message, and seconds in all, after which a session ends.
MAX_IDLE = 30 * 60.0
MAX_AGE = 12 * 3600.0
# Close codes of websockets (RFC 6455 and its registry).
GOING_AWAY, UNSUPPORTED, POLICY, TOO_BIG, TRY_LATER = 1001, 1003, 1008, 1009, 1013

STATIC = {
    "": ("index.html", "text/html; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "main.js": ("main.js", "text/javascript; charset=utf-8"),
    "tiles.js": ("tiles.js", "text/javascript; charset=utf-8"),
    "connection.js": ("connection.js", "text/javascript; charset=utf-8"),
    "mission.js": ("mission.js", "text/javascript; charset=utf-8"),
    "mind.js": ("mind.js", "text/javascript; charset=utf-8"),
    "demos.js": ("demos.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


def make_app(
    access: Access, folder: Path, agents: Path, *, max_sessions: int = MAX_SESSIONS, max_idle: float = MAX_IDLE
) -> Any:
    """The application.

    Args:
        access: Who may use it.
        folder: Folder of the demonstrations that players record.
        agents: Folder of the agents and runs that they can watch.
        max_sessions: How many players at once.
        max_idle: Seconds without a message after which a session ends.
    """
    open_sessions: set[Session] = set()

    async def play(socket: WebSocket) -> None:
        await socket.accept()
        if len(open_sessions) >= max_sessions:
            await socket.close(TRY_LATER, f"there are {max_sessions} players already")
            return
        session = Session(folder, agents)
        open_sessions.add(session)
        try:
            await _serve(socket, session, max_idle)
        finally:
            open_sessions.discard(session)

    routes = [Route("/levels.json", _list_levels)]
    routes += [Route(f"/{name}", _serve_file) for name in STATIC]
    app = Starlette(routes=[*routes, WebSocketRoute("/play", play)])
    return AccessMiddleware(app, access)


def make_server(access: Access, folder: Path, agents: Path, **limits: Any) -> uvicorn.Server:
    """A server of the application; `limits` are those of `make_app`."""
    config = uvicorn.Config(
        make_app(access, folder, agents, **limits),
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


async def _serve(socket: WebSocket, session: Session, max_idle: float) -> None:
    """Answers messages until the player leaves or breaks a limit."""
    limit = RateLimit()
    ends = time.monotonic() + MAX_AGE
    while time.monotonic() < ends:
        try:
            received = await asyncio.wait_for(socket.receive(), max_idle)
        except TimeoutError:
            break
        if received["type"] == "websocket.disconnect":
            return
        text = received.get("text")
        if text is None:
            return await socket.close(UNSUPPORTED, "messages must be text")
        if len(text) > MAX_MESSAGE:
            return await socket.close(TOO_BIG, f"a message has at most {MAX_MESSAGE} characters")
        if not limit.allows():
            await socket.send_text(json.dumps(error("too many messages")))
            return await socket.close(POLICY, "too many messages")
        # In a thread, because the first use of a level may compile it, and saving waits for the disk.
        answer = await run_in_threadpool(session.answer, text)
        await socket.send_text(json.dumps(answer))
    await socket.close(GOING_AWAY, "the session has ended; reload the page")


async def _serve_file(request: Request) -> Response:
    name, media_type = STATIC[request.url.path.lstrip("/")]
    content = files("babyai.web").joinpath("static", name).read_bytes()
    return Response(content, media_type=media_type)


async def _list_levels(_: Request) -> Response:
    """Names and tasks of the built-in levels; the paper's come first."""
    names = [*PAPER_LEVELS, *sorted(LEVELS.keys() - set(PAPER_LEVELS))]
    return JSONResponse([{"name": name, "task": LEVELS[name].task, "paper": name in PAPER_LEVELS} for name in names])
