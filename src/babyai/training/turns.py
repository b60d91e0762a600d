"""Taking turns: a run is a generator that gives way whenever it would have to wait for the GPU.

Several runs in one thread then keep a GPU busy together, each with a stream of its own. Threads would spend their time
waiting for Python's lock.
"""

from collections.abc import Generator
from typing import TypeVar

import torch

Result = TypeVar("Result")
Turns = Generator[None, None, Result]


def finish(turns: Turns[Result]) -> Result:
    """What the generator returns, when nobody else wants a turn."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return end.value


def waiting(device: torch.device) -> Turns[None]:
    """Gives way until the device has done all that was started."""
    if device.type != "cuda":
        return
    done = torch.cuda.Event()
    done.record()
    while not done.query():
        yield
