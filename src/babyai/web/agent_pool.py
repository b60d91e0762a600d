"""The processes in which agents decide, and the queue in front of them.

All sessions share them, for two reasons. Those that wait for the same agent are decided in one forward pass, which
takes much less time than one each. And torch does not compete with the sessions for Python's global interpreter lock,
so that whoever only plays is answered as fast as if nobody watched.
"""

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from babyai.web.decisions import Checkpoint, Decision, Situation, decide, find_agent, import_torch

MAX_PROCESSES = 2
# How many games one forward pass decides at most. More at once would be faster in total, but a key that is pressed
# while it runs has to wait for its end.
MAX_BATCH = 8
ENDED = "the process in which agents decide has ended unexpectedly; try again"


@dataclass
class Request:
    """A session that waits."""

    agent: Checkpoint | Path
    """Who decides; a path if the agent is to be loaded."""
    situation: Situation | None = None
    urgent: bool = True
    answer: "Future[Any]" = field(default_factory=Future)


class AgentPool:
    """The processes; they start when they are first needed."""

    def __init__(self) -> None:
        self._waiting: list[Request] = []
        self._changed = threading.Condition()
        self.processes: list[AgentProcess] = []

    def start(self) -> None:
        """Starts the processes, without waiting for them: importing torch takes seconds."""
        with self._changed:
            while len(self.processes) < min(MAX_PROCESSES, os.cpu_count() or 1):
                self.processes.append(AgentProcess())
                atexit.register(self.processes[-1].end)
                threading.Thread(target=self._work, args=self.processes[-1:], name="agents", daemon=True).start()

    def find_agent(self, path: Path) -> Checkpoint:
        """Waits until the agent of a checkpoint or a run is loaded.

        Raises:
            ValueError: It cannot be loaded.
        """
        return self._ask(Request(path))

    def decide(self, checkpoint: Checkpoint, situation: Situation, *, urgent: bool = True) -> Decision:
        """Waits for an agent's decision.

        Args:
            checkpoint: Which agent.
            situation: What it decides on.
            urgent: Whether somebody has pressed a key, so that those who only watch let it pass.

        Raises:
            ValueError: The agent can no longer be loaded, or the process has ended.
        """
        return self._ask(Request(checkpoint, situation, urgent))

    def _ask(self, request: Request) -> Any:
        self.start()
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()
        return request.answer.result()

    def _work(self, process: "AgentProcess") -> None:
        """Lets one process answer requests, as long as the program runs."""
        # Nobody is given to a process that is still starting.
        with suppress(Exception):
            process.call(import_torch)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                batch = take_batch(self._waiting)
            try:
                answers = _answer_batch(process, batch)
            except Exception as problem:
                for request in batch:
                    request.answer.set_exception(problem)
            else:
                for request, answer in zip(batch, answers, strict=True):
                    request.answer.set_result(answer)


def take_batch(waiting: list[Request]) -> list[Request]:
    """Removes the request that has waited longest and, for the same agent, urgent ones, or if there are none, any."""
    oldest, *others = waiting
    similar = [request for request in others if request.agent == oldest.agent]
    urgent = [request for request in similar if request.urgent]
    # A batch takes the longer, the more requests it has.
    batch = [oldest, *(urgent or similar)[: MAX_BATCH - 1]]
    taken = set(map(id, batch))
    waiting[:] = [request for request in waiting if id(request) not in taken]
    return batch


def _answer_batch(process: "AgentProcess", batch: list[Request]) -> list[Any]:
    agent = batch[0].agent
    if isinstance(agent, Path):
        return [process.call(find_agent, agent)] * len(batch)
    return process.call(decide, agent, [request.situation for request in batch])


@cache
def agent_pool() -> AgentPool:
    """The one that all sessions share."""
    return AgentPool()


# ------------------------------------------------------------ one process


class AgentProcess:
    """A process that calls functions; one that has crashed is replaced at the next call.

    Attributes:
        popen: The process; None before the first call, and after a crash.
    """

    def __init__(self) -> None:
        self.popen: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call in the process.

        Raises:
            ValueError: What went wrong, in words.
        """
        try:
            problem, result = self._exchange((function, arguments))
        except (EOFError, OSError, pickle.UnpicklingError):
            self.end()
            raise ValueError(ENDED) from None
        if problem is not None:
            raise ValueError(problem)
        return result

    def _exchange(self, message: Any) -> Any:
        if self.popen is None:
            self.popen = _start_process()
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self.popen.stdin.write(pickle.dumps(message))
        self.popen.stdin.flush()
        return pickle.load(self.popen.stdout)

    def end(self) -> None:
        """Ends the process, or what is left of it."""
        if self.popen is not None:
            self.popen.kill()
            # Also closes the pipes.
            with suppress(OSError, ValueError):
                self.popen.communicate()
        self.popen = None


def _start_process() -> "subprocess.Popen[bytes]":
    # It imports from where this program does.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "babyai.web.agent_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        # Ctrl-C, which the terminal sends to all processes of a session, is not for this one.
        start_new_session=True,
    )
