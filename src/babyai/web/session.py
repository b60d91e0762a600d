"""A session: one connection of a page, its messages and its limits.

A message is a JSON object whose field `do` names one of the methods `do_...`; the other fields are its arguments. The
answer is a JSON object with a field `type`. A message that is wrong is answered with an error and changes nothing.
"""

import inspect
import json
import time
from collections.abc import Callable
from typing import Any

from babyai.expert.expert import UnsolvableError

# Limits of one session: bytes of a message, messages per second and how many may come at once.
MAX_MESSAGE = 4096
RATE = 150.0
BURST = 300
MAX_TEXT = 600

Message = dict[str, Any]


class RateLimit:
    """A token bucket: up to `burst` messages at once, and `rate` per second in the long run."""

    def __init__(self, rate: float = RATE, burst: int = BURST, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = float(burst)
        self._last = clock()

    def allows(self) -> bool:
        """Counts one message; False if there were too many."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._last) * self._rate)
        self._last = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Session:
    """What all sessions share: finding the method that answers a message, and answering wrong messages."""

    def answer(self, text: str) -> Message:
        """The answer to a message; an error if there is anything wrong with it."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return error("the message is not JSON")
        if not isinstance(message, dict):
            return error(f"a message must be a JSON object, not {type(message).__name__}")
        name = message.pop("do", None)
        method = getattr(self, f"do_{name}", None) if isinstance(name, str) and name.isidentifier() else None
        if method is None:
            return error(f"unknown message {str(name)[:40]!r}")
        accepted = inspect.signature(method).parameters
        required = {each for each, value in accepted.items() if value.default is inspect.Parameter.empty}
        if not required <= set(message) <= set(accepted):
            given = ", ".join(message)[:80]
            return error(f"{name!r} takes {', '.join(accepted) or 'nothing'}, not {given or 'nothing'}")
        try:
            return method(**message)
        except (ValueError, TypeError, UnsolvableError, OSError) as problem:
            return error(str(problem))


def error(message: str) -> Message:
    """An answer that says what was wrong."""
    return {"type": "error", "message": message}


def check(value: Any, kind: type, name: str) -> Any:
    """The value, if it has this type and is not too long."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} must be {'text' if kind is str else 'a whole number'}, not {str(value)[:40]!r}")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ValueError(f"{name} has {len(value)} characters; at most {MAX_TEXT} are possible")
    return value
