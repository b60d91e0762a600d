"""The server over the network: who may use it, what it refuses, and how much."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
import tyro
from starlette.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus

from babyai.web import access as accesses
from babyai.web import commands
from babyai.web.server import STATIC
from babyai.web.session import BURST, MAX_MESSAGE, RATE
from tests.web.running import Running, ask, own_process, running
from tests.web.test_runs_session import write_run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("web")) as server:
        yield server


def get(server: Running, path: str = "/", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and content; `Host` can be given as a header."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, content


def start(server: Running) -> None:
    with server.connect() as client:
        assert ask(client, do="start", level="GoToObj", seed=0)["type"] == "state"


def test_the_page_and_its_files_are_served(server: Running) -> None:
    for path in ("/", *(f"/{name}" for name in STATIC if name)):
        status, headers, content = get(server, path)
        assert status == 200 and content and "default-src 'self'" in headers["content-security-policy"]
    page = get(server)[2].decode()
    # Nothing is loaded from elsewhere.
    assert "http:" not in page and "https:" not in page and "//" not in page.replace("</", "")
    levels = json.loads(get(server, "/levels.json")[2])
    assert levels[0] == {"name": "GoToObj", "task": "go to the only object in a single room", "paper": True}


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/static/index.html", "/..%2f..%2fetc/passwd", "/main.py", "/%00"]
)
def test_other_files_are_not_served(server: Running, path: str) -> None:
    assert get(server, path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""])
def test_a_foreign_host_is_refused(server: Running, host: str) -> None:
    name = host.format(port=server.port)
    assert get(server, Host=name)[0] in (400, 403)
    if name:
        with pytest.raises(InvalidStatus) as refused, server.connect(additional_headers={"Host": name}):
            pass
        assert refused.value.response.status_code in (400, 403)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost", "http://[", ""]
)
def test_a_foreign_origin_is_refused(server: Running, origin: str) -> None:
    assert get(server, Origin=origin)[0] == 403
    with pytest.raises(InvalidStatus) as refused, server.connect(origin=origin):
        pass
    assert refused.value.response.status_code == 403


def test_its_own_page_is_accepted(server: Running) -> None:
    with server.connect(origin=f"http://127.0.0.1:{server.port}") as client:
        assert ask(client, do="start", level="GoToObj", seed=1)["seed"] == 1
    assert get(server, Host=f"localhost:{server.port}", Origin=f"http://localhost:{server.port}")[0] == 200


def test_on_an_open_network_a_token_is_needed(tmp_path: Path) -> None:
    with running(tmp_path, host="0.0.0.0") as server:
        token = server.access.token
        assert token and len(token) >= 20
        for query in ("", "?token=", "?token=wrong", f"?token={token}x"):
            status, _, content = get(server, f"/{query}")
            assert status == 403 and token.encode() not in content
        with pytest.raises(InvalidStatus), server.connect():
            pass
        status, headers, _ = get(server, f"/?token={token}")
        assert status == 200 and "httponly" in headers["set-cookie"].lower()
        cookie = headers["set-cookie"].split(";")[0]
        assert get(server, "/main.js", Cookie=cookie)[0] == 200
        assert get(server, "/main.js", Cookie='babyai_token="')[0] == 403
        with server.connect(additional_headers={"Cookie": cookie}) as client:
            assert ask(client, do="start", level="GoToObj", seed=0)["type"] == "state"
        with pytest.raises(InvalidStatus):
            server.connect(additional_headers={"Cookie": cookie}, origin="http://evil.example")


def test_only_loopback_needs_no_token() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        assert accesses.make_access(host, 80).token is None
    tokens = {accesses.make_access(host, 80).token for host in ("0.0.0.0", "192.168.0.2", "::", "example.org")}
    assert len(tokens) == 4 and None not in tokens


def test_browsers_leave_out_the_port_of_http() -> None:
    for port, accepted in ((80, True), (8421, False)):
        access = accesses.make_access("127.0.0.1", port)
        for name in ("127.0.0.1", "localhost"):
            headers = Headers({"host": name, "origin": f"http://{name}"})
            assert (access.problem(headers, "") is None) is accepted
        assert access.problem(Headers({"host": "evil.example"}), "") is not None


# ---------------------------------------------------------------- limits


def test_an_oversized_message_ends_the_session_only(server: Running) -> None:
    with server.connect() as client, pytest.raises(ConnectionClosed) as closed:
        ask(client, do="complete", text="x" * MAX_MESSAGE)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    start(server)


def test_binary_messages_are_refused(server: Running) -> None:
    with server.connect() as client:
        client.send(b"\x00\x01")
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=30)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1003
    start(server)


def test_too_frequent_messages_are_refused(server: Running) -> None:
    with server.connect() as client:
        started = time.monotonic()
        with contextlib.suppress(ConnectionClosed):
            for _ in range(10 * BURST):
                client.send("{}")
        answers = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                answers.append(json.loads(client.recv(timeout=30)))
        allowed = BURST + RATE * (time.monotonic() - started)
    assert client.close_code in (1006, 1008) and len(answers) <= allowed + 1
    start(server)


def test_malformed_messages_do_not_end_the_session(server: Running) -> None:
    with server.connect() as client:
        for text in ("", "{", "[]", '{"do": "fly"}'):
            client.send(text)
            assert json.loads(client.recv(timeout=30))["type"] == "error"
        assert ask(client, do="start", level="GoToObj", seed=0)["type"] == "state"


def test_the_number_of_sessions_is_limited(tmp_path: Path) -> None:
    with running(tmp_path, max_sessions=2) as server:
        with server.connect() as first, server.connect() as second:
            for client in (first, second):
                assert ask(client, do="start", level="GoToObj", seed=0)["type"] == "state"
            with server.connect() as third, pytest.raises(ConnectionClosed) as closed:
                third.recv(timeout=30)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
            assert ask(first, do="act", action=0)["step"] == 1
        time.sleep(0.2)
        start(server)


def test_idle_sessions_end(tmp_path: Path) -> None:
    with running(tmp_path, max_idle=0.3) as server, server.connect() as client:
        assert ask(client, do="start", level="GoToObj", seed=0)["type"] == "state"
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=30)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001 and "reload" in closed.value.rcvd.reason


def test_old_sessions_end_even_if_they_are_busy(tmp_path: Path) -> None:
    with running(tmp_path, max_age=1.0) as server, server.connect() as client:
        started = time.monotonic()
        with contextlib.suppress(ConnectionClosed):
            while time.monotonic() < started + 30:
                ask(client, do="undo")
                time.sleep(0.05)
        assert client.close_code == 1001 and 0.9 < time.monotonic() - started < 30


def test_sessions_do_not_see_each_other(server: Running) -> None:
    with server.connect() as first, server.connect() as second:
        ask(first, do="start", level="GoToObj", seed=0)
        ask(second, do="start", level="GoToLocal", seed=5)
        ask(first, do="act", action="left")
        assert ask(second, do="act", action="right")["step"] == 1
        assert ask(first, do="act", action="left")["step"] == 2


# ---------------------------------------------------------------- the command


def test_mistakes_are_explained() -> None:
    with pytest.raises(ValueError, match="'GoToLocal'"):
        tyro.cli(commands.play, args=["--level", "GoToLocl", "--no-browser"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"{port}.*--port"):
            tyro.cli(commands.play, args=["--port", str(port), "--no-browser"])


def test_the_command_for_runs_opens_their_page(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "mine", 3)
    with own_process("runs", str(tmp_path / "runs")) as address:
        port = int(address.rpartition(":")[2])
        running_there = Running(port, accesses.make_access("127.0.0.1", port), tmp_path)
        assert b"runs.js" in get(running_there, "/runs")[2]
        with running_there.connect("runs") as client:
            assert [run["name"] for run in ask(client, do="runs")["runs"]] == ["mine"]
            assert ask(client, do="metrics", run="mine", names=["loss"])["rows"] == 3
    with pytest.raises(ValueError, match="nothing"):
        tyro.cli(commands.runs, args=[str(tmp_path / "nothing"), "--no-browser"])
