"""The command `babyai play`."""

import sys
from pathlib import Path
from typing import Any


def play(
    *,
    level: str = "GoToLocal",
    seed: int = 0,
    host: str = "127.0.0.1",
    port: int = 8421,
    browser: bool = True,
    demos: Path = Path("demos"),
    agents: Path = Path("runs"),
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
    import socket
    import threading
    import webbrowser

    from babyai.console import console
    from babyai.envs.custom_levels import load_level
    from babyai.web.access import make_access
    from babyai.web.game import Game
    from babyai.web.server import make_server

    # Says what is wrong with level or seed before anything is opened, and compiles the world if need be.
    level = load_level(level).name
    Game(level, seed)
    listener = _listen(socket, host, port)
    port = listener.getsockname()[1]
    access = make_access(host, port)
    name = f"[{host}]" if ":" in host else host
    token = "" if access.token is None else f"&token={access.token}"
    address = f"http://{name}:{port}/?level={level}&seed={seed}{token}"
    console().print(f"playing at {address}\nCtrl-C stops it")
    if browser:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    try:
        make_server(access, demos, agents).run(sockets=[listener])
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
