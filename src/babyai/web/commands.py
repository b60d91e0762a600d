"""The commands `babyai play` and `babyai runs`: one server, opened at different pages."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import tyro

if TYPE_CHECKING:
    from babyai.web.server import Folders

DEMOS = Path("demos")
RUNS = Path("runs")
RESULTS = Path("results/studies")


def play(
    *,
    level: str = "GoToLocal",
    seed: int = 0,
    host: str = "127.0.0.1",
    port: int = 8421,
    browser: bool = True,
    demos: Path = DEMOS,
    agents: Path = RUNS,
) -> None:
    """Play missions yourself, in a page that opens in the browser. Ctrl-C stops it.

    Args:
        level: Level to start with; `babyai levels` lists them. Or a level of your own, `file.py:Level`.
        seed: Random seed of the first episode.
        host: Address to listen on. Any but this machine's own is protected by a token.
        port: Port to listen on; 0 chooses a free one.
        browser: Open the page in the browser.
        demos: Folder for the demonstrations that you choose to record.
        agents: Folder of the agents and runs to watch.
    """
    from babyai.envs.custom_levels import load_level
    from babyai.web.game import Game
    from babyai.web.server import Folders

    # Says what is wrong with level or seed before anything is opened, and compiles the world if need be.
    level = load_level(level).name
    Game(level, seed)
    _serve(Folders(demos, agents, RESULTS), "", {"level": level, "seed": str(seed)}, host, port, browser)


def runs(
    folder: tyro.conf.Positional[Path] = RUNS,
    *,
    results: Path = RESULTS,
    host: str = "127.0.0.1",
    port: int = 8421,
    browser: bool = True,
) -> None:
    """Show the learning curves of runs while they train, and the results of studies, in the browser. Ctrl-C stops it.

    Args:
        folder: Folder of runs, at any depth, or one run.
        results: Folder of the results of studies.
        host: Address to listen on. Any but this machine's own is protected by a token.
        port: Port to listen on; 0 chooses a free one.
        browser: Open the page in the browser.
    """
    from babyai.web.server import Folders

    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; `babyai train` writes to {RUNS}, or pass another folder")
    _serve(Folders(DEMOS, folder, results), "runs", {}, host, port, browser)


def _serve(folders: "Folders", page: str, query: dict[str, str], host: str, port: int, browser: bool) -> None:
    """Serves until Ctrl-C."""
    import socket
    import threading
    import webbrowser

    from babyai.console import console
    from babyai.web.access import make_access
    from babyai.web.agent_pool import agent_pool
    from babyai.web.mind import list_agents
    from babyai.web.server import make_server

    listener = _listen(socket, host, port)
    port = listener.getsockname()[1]
    access = make_access(host, port)
    name = f"[{host}]" if ":" in host else host
    if access.token is not None:
        query = {**query, "token": access.token}
    address = f"http://{name}:{port}/{page}{'?' if query else ''}{urlencode(query)}"
    console().print(f"{'showing runs' if page else 'playing'} at {address}\nCtrl-C stops it")
    if browser:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    if not page and list_agents(folders.runs):
        agent_pool().start()
    try:
        make_server(access, folders).run(sockets=[listener])
    except KeyboardInterrupt:
        sys.exit(0)


def _listen(socket: Any, host: str, port: int) -> Any:
    """A listening socket; the error names the port if it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From here on, browsers wait instead of being refused.
        listener.listen()
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from None
    return listener
