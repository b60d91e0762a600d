"""Recording human demonstrations: the recorder and the terminal interface."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from babyai.demos import record
from babyai.demos.record import KEYS, Recorder, next_seed, play_in_terminal, terminal_keys
from babyai.demos.store import DemoFile
from babyai.demos.verify import verify
from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import find_level
from babyai.world.codes import Action

LEVEL = "GoToRedBallGrey"
NAMES = {action: key for key, action in reversed(KEYS.items())}
BYTES = {"left": b"\x1b[D", "right": b"\x1b[C", "up": b"\x1bOA"}


def solution(seed: int) -> list[str]:
    """The keys that solve the mission."""
    engine = Engine(LEVEL)
    engine.reset([seed])
    actions, lengths, _ = ExpertBatch(engine).demonstrate()
    return [NAMES[Action(action)] for action in actions[0, : lengths[0]].tolist()]


def test_actions_can_be_undone() -> None:
    recorder = Recorder("BossLevel", 5)
    before = recorder.engine.snapshot(0)
    assert not recorder.undo()
    snapshots = []
    for action in np.random.default_rng(0).integers(0, 7, 50).tolist():
        snapshots.append(recorder.engine.snapshot(0))
        recorder.act(action)
    for snapshot in reversed(snapshots):
        assert recorder.undo() and recorder.engine.snapshot(0) == snapshot
    assert recorder.engine.snapshot(0) == before and recorder.actions == []
    with pytest.raises(ValueError, match="action 9"):
        recorder.act(9)
    assert recorder.actions == [] and not recorder.done
    with pytest.raises(RuntimeError, match="not over yet"):
        recorder.demo()


def test_successful_episodes_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    screens = []
    assert next_seed(path, find_level(LEVEL)) == 0
    # Undone actions are not recorded; after a success, only n and Enter continue; the third mission is skipped.
    keys = [
        "left",
        "u",
        "u",
        "x",
        *solution(0),
        "up",
        "u",
        "n",
        *solution(1),
        "\r",
        "up",
        "n",
        *solution(3),
        "q",
        "left",
    ]
    assert play_in_terminal(Recorder(LEVEL, 0), path, iter(keys), screens.append, "Ada") == 3
    with DemoFile(path) as file:
        assert [demo.seed for demo in file] == [0, 1, 3]
        assert [NAMES[Action(action)] for action in file[0].actions.tolist()] == solution(0)
        assert len(file.header.sources) == 1
        assert (file.header.sources[0].origin, file.header.sources[0].style) == ("human", "Ada")
    assert verify(path) is None and next_seed(path, find_level(LEVEL)) == 4 and next_seed(path, find_level("Open")) == 0
    assert any("nothing to undo" in screen for screen in screens)
    plain = [" ".join(re.sub(r"\x1b\[[0-9;]*[A-Za-z]|##.*##", " ", screen).split()) for screen in screens]
    successes = [screen for screen in plain if "success, reward 0." in screen]
    # The screen with the verdict stays while other keys are pressed.
    assert len(successes) == 5 and "press n or Enter" in successes[1] and "now has 3" in successes[-1]
    # Another person adds an episode of another level.
    recorder = Recorder("GoToObj", 0)
    for action in [0, 1] * 500:
        if not recorder.done:
            recorder.act(action)
    assert not recorder.success and recorder.save(path, "Bob") == 4
    with DemoFile(path) as file:
        assert file.levels == (LEVEL, "GoToObj") and [source.style for source in file.header.sources] == ["Ada", "Bob"]
        assert file[3].reward == 0
    assert verify(path) is None


def test_failure_can_be_undone(tmp_path: Path) -> None:
    screens: list[str] = []
    recorder = Recorder(LEVEL, 0)
    recorder.engine.worlds.max_steps = 2
    play_in_terminal(recorder, tmp_path / "x.parquet", iter(["left", "left", "left"]), screens.append)
    assert "the mission has failed" in screens[-1] and "u to undo" in screens[-1] and len(recorder.actions) == 2
    play_in_terminal(recorder, tmp_path / "x.parquet", iter(["u"]), screens.append)
    assert not recorder.done and len(recorder.actions) == 1 and not (tmp_path / "x.parquet").exists()


# ---------------------------------------------------------------- terminals

posix = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")


@posix
def test_terminal_keys_are_decoded() -> None:
    master, slave = os.openpty()
    with terminal_keys(slave) as keys:
        os.write(master, b"\x1b[A\x1bOD\x1bx\x1b[Cp \r\x1b[Z\xffq\x03more")
        assert list(keys) == ["up", "left", "x", "right", "p", " ", "\r", "", "\ufffd", "q"]
    os.close(master)
    os.close(slave)


@posix
@pytest.mark.compiled
def test_record_command_in_a_pseudo_terminal(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    script = "import sys; from babyai.demos.commands import make_app; make_app().cli(args=sys.argv[1:])"
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script, "record", LEVEL, "--out", str(path), "--seed", "1"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm"},
    )
    os.close(slave)
    output = bytearray()
    ready = threading.Event()

    def read() -> None:
        try:
            while piece := os.read(master, 4096):
                output.extend(piece)
                if b"mission:" in output:
                    ready.set()
        except OSError:
            # The other end is closed.
            pass

    reader = threading.Thread(target=read)
    reader.start()
    # Keys pressed before the terminal is in raw mode would be lost.
    try:
        assert ready.wait(120), bytes(output)
        for key in [*solution(1), "q"]:
            os.write(master, BYTES.get(key, key.encode()))
        assert process.wait(60) == 0, bytes(output)
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        os.close(master)
    assert b"1 added to" in output
    with DemoFile(path) as file:
        assert len(file) == 1 and file[0].seed == 1 and file[0].reward > 0
        assert file.header.sources[0].origin == "human"


@pytest.mark.skipif(os.name != "posix", reason="Windows has keys of its own")
@pytest.mark.parametrize(
    ("sent", "keys"),
    [(b"\x1bq", ["q"]), (b"\x1b\x1b[Ap", ["up", "p"]), (b"\x1b", []), (b"\x1bOD\x03x", ["left"])],
)
def test_escape_does_not_swallow_the_next_key(sent: bytes, keys: list[str]) -> None:
    reader, writer = os.pipe()
    os.write(writer, sent)
    os.close(writer)
    assert list(record._iter_keys(reader)) == keys
    os.close(reader)
