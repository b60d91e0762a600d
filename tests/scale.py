"""Scales test sizes: full size with the compiler, a fraction of it without."""

import os

COMPILER_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
# Without the compiler a world is hundreds of times slower, but much of a test's time is spent elsewhere.
SCALE = 1 / 20 if COMPILER_OFF else 1


def scaled(count: int, least: int = 1) -> int:
    """Returns `count` with the compiler, and a fraction of it, but at least `least`, without."""
    return max(least, int(count * SCALE))
