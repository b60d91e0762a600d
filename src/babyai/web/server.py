"""The web server: the pages, their files, and a websocket per session. Who may use it is in `access.py`."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from babyai.levels.catalog import LEVELS, PAPER_LEVELS
from babyai.web.access import Access, AccessMiddleware
from babyai.web.compare_session import CompareSession
from babyai.web.play_session import PlaySession
from babyai.web.runs_session import RunLibrary, RunsSession
from babyai.web.session import MAX_MESSAGE, RateLimit, Session, error

MAX_SESSIONS = 64
# Seconds without a message, and seconds in all, after which a session ends.
MAX_IDLE = 30 * 60.0
MAX_AGE = 12 * 3600.0
# Close codes of websockets (RFC 6455 and its registry).
GOING_AWAY, UNSUPPORTED, POLICY, TOO_BIG, TRY_LATER = 1001, 1003, 1008, 1009, 1013

SCRIPTS = (
    *(
        "main.js",
        "page.js",
        "compare.js",
        "runs.js",
        "study.js",
        "chart.js",
        "axis.js",
        "tiles.js",
        "connection.js",
        "playback.js",
    ),
    *("keyboard.js", "levels.js", "mission.js", "mind.js", "demos.js"),
)
STATIC = {
    "": ("index.html", "text/html; charset=utf-8"),
    "compare": ("compare.html", "text/html; charset=utf-8"),
    "runs": ("runs.html", "text/html; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
} | {name: (name, "text/javascript; charset=utf-8") for name in SCRIPTS}


@dataclass(frozen=True)
class Folders:
    """What the server reads and writes."""

    demos: Path
    """Demonstrations that players record."""
    runs: Path
    """Agents and runs to watch."""
    results: Path
    """Results of studies."""


def make_app(
    access: Access,
    folders: Folders,
    *,
    max_sessions: int = MAX_SESSIONS,
    max_idle: float = MAX_IDLE,
    max_age: float = MAX_AGE,
) -> Any:
    """The application.

    Args:
        access: Who may use it.
        folders: What it reads and writes.
        max_sessions: How many sessions at once.
        max_idle: Seconds without a message after which a session ends.
        max_age: Seconds after which a session ends in any case.
    """
    open_sessions: set[Session] = set()
    # One for each session, so that those who wait for an agent do not keep others from being answered.
    threads = ThreadPoolExecutor(max_sessions, "session")
    library = RunLibrary(folders.runs, folders.results)
    makers: dict[str, Callable[[], Session]] = {
        "/play": lambda: PlaySession(folders.demos, folders.runs),
        "/compare": lambda: CompareSession(folders.runs),
        "/runs": lambda: RunsSession(library),
    }

    async def serve(socket: WebSocket) -> None:
        await socket.accept()
        if len(open_sessions) >= max_sessions:
            await socket.close(TRY_LATER, f"there are {max_sessions} sessions already")
            return
        session = makers[socket.url.path]()
        ends = time.monotonic() + max_age
        loop = asyncio.get_running_loop()
        open_sessions.add(session)
        try:
            await _serve(socket, lambda text: loop.run_in_executor(threads, _answer, session, text), max_idle, ends)
        except WebSocketDisconnect:
            # The page was closed while its message was being answered.
            pass
        finally:
            open_sessions.discard(session)

    routes = [Route("/levels.json", _list_levels)]
    routes += [Route(f"/{name}", _serve_file) for name in STATIC]
    sockets = [WebSocketRoute(path, serve) for path in makers]
    return AccessMiddleware(Starlette(routes=[*routes, *sockets]), access)


def make_server(access: Access, folders: Folders, **limits: Any) -> uvicorn.Server:
    """A server of the application; `limits` are those of `make_app`."""
    config = uvicorn.Config(
        make_app(access, folders, **limits),
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


async def _serve(socket: WebSocket, answer: Callable[[str], Awaitable[str]], max_idle: float, ends: float) -> None:
    """Answers messages until the player leaves or breaks a limit.

    Args:
        socket: The connection.
        answer: Answers a message, in a thread: the first use of a level may compile it, and agents and disks are slow.
        max_idle: Seconds without a message after which the session ends.
        ends: When it ends in any case, as of `time.monotonic()`.
    """
    limit = RateLimit()
    while (left := ends - time.monotonic()) > 0:
        try:
            received = await asyncio.wait_for(socket.receive(), min(max_idle, left))
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
        await socket.send_text(await answer(text))
    await socket.close(GOING_AWAY, "the session has ended; reload the page")


def _answer(session: Session, text: str) -> str:
    return json.dumps(session.answer(text))


async def _serve_file(request: Request) -> Response:
    name, media_type = STATIC[request.url.path.lstrip("/")]
    content = files("babyai.web").joinpath("static", name).read_bytes()
    return Response(content, media_type=media_type)


async def _list_levels(_: Request) -> Response:
    """Names and tasks of the built-in levels; the paper's come first."""
    names = [*PAPER_LEVELS, *sorted(LEVELS.keys() - set(PAPER_LEVELS))]
    return JSONResponse([{"name": name, "task": LEVELS[name].task, "paper": name in PAPER_LEVELS} for name in names])
