"""A server in a thread, on a free port, and clients for it."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from babyai.web.access import Access, make_access
from babyai.web.server import Folders, make_server

RESULTS = Path(__file__).parents[2] / "results" / "studies"


@dataclass(frozen=True)
class Running:
    """A server."""

    port: int
    access: Access
    folder: Path

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def connect(self, page: str = "play", **options: Any) -> ClientConnection:
        """A new session."""
        return connect(f"ws://127.0.0.1:{self.port}/{page}", open_timeout=30, **options)


@contextmanager
def running(
    folder: Path,
    host: str = "127.0.0.1",
    agents: Path | None = None,
    results: Path = RESULTS,
    **limits: Any,
) -> Iterator[Running]:
    """A server that runs within."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    access = make_access(host, port)
    server = make_server(access, Folders(folder, agents or folder, results), **limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield Running(port, access, folder)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


@contextmanager
def own_process(*words: str) -> Iterator[str]:
    """The address of a server in a process of its own, as it is for its users; without the scheme."""
    command = [sys.executable, "-m", "babyai.cli", *words, "--no-browser", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            yield re.findall(r"http://([\d.:]+)/", server.stdout.readline())[0]
        finally:
            server.terminate()


def ask(client: ClientConnection, **message: Any) -> dict[str, Any]:
    """The answer to a message."""
    client.send(json.dumps(message))
    return json.loads(client.recv(timeout=60))
