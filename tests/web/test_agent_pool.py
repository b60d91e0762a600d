"""Decisions for several sessions at once: as alone, in a fair order, and again after a crash."""

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from babyai.agents.agent import Agent
from babyai.engine import Engine
from babyai.tree import tree_leaves
from babyai.web.agent_pool import MAX_BATCH, AgentPool, Request, _answer_batch, agent_pool, take_batch
from babyai.web.decisions import Checkpoint, Decision, Situation, decide, find_agent
from babyai.web.play_session import PlaySession
from babyai.world.codes import NUM_ACTIONS

# Missions of different lengths, and episodes at different steps.
GAMES = [
    ("GoToObj", 0, 0),
    ("BossLevel", 3, 5),
    ("GoToLocal", 7, 1),
    ("BossLevel", 0, 0),
    ("PickupLoc", 12, 9),
    ("SynthSeq", 1, 3),
]
SETTINGS = {
    "small": ("bow_endpool_res", {"memory_dim": 32}),
    "big": ("bow_endpool_res", {"size": "big", "memory_dim": 32}),
    "pixels": ("pixels_endpool_res", {"memory_dim": 32}),
    "map": ("map", {"layers": 2}),
}


def situation_of(engine: Engine, last_action: int, memory: Any) -> Situation:
    return Situation(engine.images[0].copy(), engine.missions[0].copy(), int(engine.directions[0]), last_action, memory)


def play(checkpoint: Checkpoint, level: str, seed: int, steps: int) -> Situation:
    """A situation after some random steps."""
    engine = Engine(level)
    engine.reset([seed])
    generator = np.random.default_rng(seed)
    situation = situation_of(engine, -1, None)
    for _ in range(steps):
        memory = decide(checkpoint, [situation])[0].memory
        action = int(generator.integers(3))
        engine.step([action], skip_done=True)
        situation = situation_of(engine, action, memory)
    return situation


@pytest.mark.parametrize("name", SETTINGS)
def test_a_decision_for_many_is_the_decision_for_each_alone(tmp_path: Path, name: str) -> None:
    architecture, settings = SETTINGS[name]
    Agent.create(architecture, seed=1, **settings).save(tmp_path / name)
    checkpoint = find_agent(tmp_path / name)
    situations = [play(checkpoint, *game) for game in GAMES]
    assert len({np.count_nonzero(each.mission) for each in situations}) > 3
    alone = [decide(checkpoint, [each])[0] for each in situations]
    for together in (decide(checkpoint, situations), decide(checkpoint, situations[::-1])[::-1]):
        for one, other in zip(together, alone, strict=True):
            check_same(one, other)
    # They do differ from game to game, and each kind of agent shows what only it has.
    assert len({tuple(each.probs) for each in alone}) == len(GAMES)
    assert all(bool(each.attention) is (name == "big") and bool(each.map) is (name == "map") for each in alone)


def check_same(one: Decision, other: Decision) -> None:
    assert len(one.probs) == NUM_ACTIONS and np.allclose(one.probs, other.probs, atol=1e-5)
    assert np.argmax(one.probs) == np.argmax(other.probs) and abs(one.value - other.value) < 1e-4
    assert [word for word, _ in one.attention] == [word for word, _ in other.attention]
    weights = [[weight for _, weight in each.attention] for each in (one, other)]
    assert np.allclose(*weights, atol=2e-4) and one.map == other.map
    for leaf, same in zip(*(tree_leaves(pickle.loads(each.memory)) for each in (one, other)), strict=True):
        assert leaf.shape == same.shape and np.allclose(leaf, same, atol=1e-4)


# ---------------------------------------------------------------- the order


def make_request(agent: str, urgent: bool = False) -> Request:
    return Request(Checkpoint(Path(agent), 0), urgent=urgent)


def test_whoever_has_waited_longest_comes_first() -> None:
    waiting = [make_request("a"), *(make_request("b") for _ in range(2 * MAX_BATCH)), make_request("a")]
    first, *rest = waiting
    assert take_batch(waiting) == [first, rest[-1]]
    assert take_batch(waiting) == rest[:MAX_BATCH] and take_batch(waiting) == rest[MAX_BATCH:-1] and not waiting


def test_keys_pass_those_who_watch_but_do_not_stop_them() -> None:
    watching = [make_request("a") for _ in range(3 * MAX_BATCH)]
    keys = [make_request("a", urgent=True) for _ in range(3 * MAX_BATCH)]
    waiting = [*watching, *keys]
    for k in range(3):
        assert take_batch(waiting) == [watching[k], *keys[k * (MAX_BATCH - 1) : (k + 1) * (MAX_BATCH - 1)]]


def test_sessions_that_wait_are_decided_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Agent.create("bow_endpool_res", seed=1, memory_dim=16).save(tmp_path / "small")
    pool = agent_pool()
    checkpoint = pool.find_agent(tmp_path / "small")
    sizes: list[int] = []
    monkeypatch.setattr("babyai.web.agent_pool.take_batch", lambda waiting: note_size(sizes, take_batch(waiting)))
    # Nobody is answered before everybody has asked: a quick machine would answer one after the other.
    all_wait = threading.Event()

    def answer_later(process: Any, batch: list[Request]) -> list[Any]:
        assert all_wait.wait(60)
        return _answer_batch(process, batch)

    monkeypatch.setattr("babyai.web.agent_pool._answer_batch", answer_later)
    situations = [play(checkpoint, "GoToLocal", seed, 0) for seed in range(40)]
    answers: list[Decision | None] = [None] * len(situations)

    def ask(number: int) -> None:
        answers[number] = pool.decide(checkpoint, situations[number], urgent=False)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(situations))]
    for thread in threads:
        thread.start()
    while sum(sizes) + len(pool._waiting) < 40:
        time.sleep(0.001)
    all_wait.set()
    for thread in threads:
        thread.join()
    assert sum(sizes) == 40 and len(sizes) < 20 and max(sizes) <= MAX_BATCH
    for answer, alone in zip(answers, decide(checkpoint, situations), strict=True):
        assert answer is not None
        check_same(answer, alone)


def note_size(sizes: list[int], batch: list[Request]) -> list[Request]:
    sizes.append(len(batch))
    return batch


# ---------------------------------------------------------------- processes that end


@pytest.mark.long
def test_a_crash_is_reported_and_the_game_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = AgentPool()
    monkeypatch.setattr("babyai.web.agent_pool.MAX_PROCESSES", 1)
    monkeypatch.setattr("babyai.web.mind.agent_pool", lambda: pool)
    Agent.create("bow_endpool_res", seed=3, memory_dim=16).save(tmp_path / "small")
    session = PlaySession(tmp_path, tmp_path)

    def tell(**message: Any) -> dict[str, Any]:
        return session.answer(json.dumps(message))

    tell(do="start", level="GoToLocal", seed=4)
    expected = tell(do="choose", agent="small")["mind"]["probs"]
    (process,) = pool.processes
    assert process.popen is not None
    process.popen.kill()
    state = tell(do="act", action=0)
    assert "ended unexpectedly" in state["note"] and state["mind"] is None and state["step"] == 1
    state = tell(do="act", action=1)
    assert state["step"] == 2 and len(state["mind"]["values"]) == 3
    tell(do="undo")
    state = tell(do="undo")
    assert state["step"] == 0 and state["mind"]["probs"] == pytest.approx(expected, abs=1e-3)


@pytest.mark.long
def test_processes_end_with_the_program() -> None:
    """Even if it is killed."""
    script = (
        "import time; from babyai.web.agent_pool import agent_pool\n"
        "agent_pool().start()\n"
        "while any(each.popen is None for each in agent_pool().processes): time.sleep(0.05)\n"
        "print(*(each.popen.pid for each in agent_pool().processes), flush=True); time.sleep(120)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as program:
        assert program.stdout is not None
        pids = [int(each) for each in program.stdout.readline().split()]
        program.kill()
    deadline = time.monotonic() + 30
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert pids and not any(map(is_running, pids))


def is_running(pid: int) -> bool:
    try:
        # The state follows the name, which is in parentheses; Z has ended, but nobody has asked how.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
