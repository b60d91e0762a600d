"""Fifty sessions at once on two cores: nobody is kept waiting.

A session sends a message, waits for the answer, and sends the next one 100 ms later. A stutter is an answer that takes
longer than 200 ms. A machine that other programs keep busy can only make that worse, so one good attempt out
of a few is enough.
"""

import asyncio
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import websockets.asyncio.client

from tests.web.running import own_process
from tests.web.test_runs_session import write_run

pytestmark = [pytest.mark.long, pytest.mark.compiled]

ATTEMPTS = 5
STUTTER = 0.2
# The first steps load the expert or the agent.
WARM_UP = 10
MAP_AGENT = Path(__file__).parents[2] / "models" / "map"


class Page(NamedTuple):
    """What a session does: its first messages, and the one whose answers are timed."""

    path: str
    first: list[dict[str, Any]]
    message: dict[str, Any]


START = {"do": "start", "level": "BossLevel"}
CHOOSE = {"do": "choose", "agent": "agent"}
PLAYING = Page("play", [START], {"do": "expert"})
COMPARING = Page("compare", [START | {"players": ["expert", "expert"]}], {"do": "step"})
RUNS = Page("runs", [{"do": "runs"}], {"do": "metrics", "run": "large", "names": ["loss", "success"]})
WATCHING = Page("play", [START, CHOOSE], {"do": "agent"})
PRESSING_KEYS = Page("play", [START], {"do": "act", "action": "left"})
PRESSING_KEYS_BEFORE_AN_AGENT = Page("play", [START, CHOOSE], {"do": "act", "action": "left"})
KEYS = [PRESSING_KEYS, PRESSING_KEYS_BEFORE_AN_AGENT]


class Times(NamedTuple):
    """What one session has seen."""

    answers: list[float]
    """Seconds from each message to its answer."""
    pace: float
    """The median time from frame to frame, in seconds."""
    late: float
    """By how many seconds the latest frame missed that pace."""


@pytest.mark.parametrize(
    "pages",
    [[PLAYING] * 50, [PLAYING] * 30 + [COMPARING] * 10 + [RUNS] * 10],
    ids=["all play", "all pages, and a large log"],
)
def test_fifty_sessions_that_play_or_show_runs(tmp_path: Path, pages: list[Page]) -> None:
    path = write_run(tmp_path / "large", 2000) / "metrics.jsonl"
    if RUNS in pages:
        path.write_bytes(path.read_bytes() * 2000)
    assert any(worst_answer(measure(tmp_path, pages)) < STUTTER for _ in range(ATTEMPTS))


def test_fifty_sessions_that_watch_an_agent(tmp_path: Path) -> None:
    """One of the paper's architecture: all answers come in time."""
    from babyai.agents.agent import Agent

    Agent.create("bow_endpool_res", seed=0).save(tmp_path / "agent")
    assert any(worst_answer(measure(tmp_path, [WATCHING] * 50 + KEYS)) < STUTTER for _ in range(ATTEMPTS))


def test_fifty_sessions_that_watch_the_map_agent(tmp_path: Path) -> None:
    """All that two cores can compute: the pace drops, but for all alike, and keys are answered first.

    The limits leave room for other programs that use the cores. Measured among such: frames at most 161 ms late, and
    keys answered within 145 ms.
    """
    shutil.copytree(MAP_AGENT, tmp_path / "agent")

    def is_even() -> bool:
        times = measure(tmp_path, [WATCHING] * 50 + KEYS, 40)
        paces = [each.pace for each in times[: -len(KEYS)]]
        is_fair = max(paces) < 1.5 * min(paces)
        return is_fair and max(each.late for each in times) < 0.5 and worst_answer(times[-len(KEYS) :]) < 0.3

    assert any(is_even() for _ in range(ATTEMPTS))


def worst_answer(times: list[Times]) -> float:
    return max(max(each.answers) for each in times)


def measure(folder: Path, pages: list[Page], steps: int = 50) -> list[Times]:
    """What each session sees of a server in a process of its own."""
    with own_process("play", "--demos", str(folder / "demos"), "--agents", str(folder)) as address:
        times = asyncio.run(use_together(f"ws://{address}", pages, steps))
    answers = sorted(answer for each in times for answer in each.answers)
    paces = [1e3 * each.pace for each in times]
    print(
        f"{len(answers)} answers: median {1e3 * statistics.median(answers):.1f} ms, worst {1e3 * answers[-1]:.1f} ms, "
        f"keys {1e3 * worst_answer(times[-len(KEYS) :]):.1f} ms; "
        f"{min(paces):.0f} to {max(paces):.0f} ms from frame to frame, "
        f"the latest {1e3 * max(each.late for each in times):.1f} ms late"
    )
    return times


async def use_together(address: str, pages: list[Page], steps: int) -> list[Times]:
    """Lets all sessions send messages at the same time."""

    async def use(number: int) -> Times:
        page = pages[number]
        version: dict[str, Any] = {}
        answers = []
        gaps = []
        async with websockets.asyncio.client.connect(
            f"{address}/{page.path}", open_timeout=60, max_size=2**24
        ) as client:

            async def ask(message: dict[str, Any]) -> dict[str, Any]:
                await client.send(json.dumps(message))
                answer = json.loads(await client.recv())
                assert answer["type"] != "error", answer
                return answer

            for first in page.first:
                await ask(first | ({"seed": number} if first["do"] == "start" else {}))
            last = None
            await together.wait()
            # Not all at the same moment.
            await asyncio.sleep(0.1 * number / len(pages))
            for _ in range(steps):
                await asyncio.sleep(0.1)
                started = time.perf_counter()
                answer = await ask(page.message | version)
                now = time.perf_counter()
                answers.append(now - started)
                gaps += [] if last is None else [now - last]
                last = now
                # Goes on with another mission.
                if page.path == "play" and answer["outcome"] != "playing":
                    await ask(START | {"seed": answer["seed"] + len(pages)})
                    last = None
                # As the page of runs, which asks for what is new.
                version = {"since": answer["version"]} if "version" in answer else version
        pace = statistics.median(gaps[WARM_UP:])
        return Times(answers[WARM_UP:], pace, max(gaps[WARM_UP:]) - pace)

    together = asyncio.Barrier(len(pages))
    return await asyncio.gather(*map(use, range(len(pages))))
