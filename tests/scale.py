"""How much a test tries: all of it on compiled worlds, a small part of it where plain Python plays them."""

import os

COMPILER_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
# Without the compiler a world is hundreds of times slower, but much of a test's time goes elsewhere.
SCALE = 1 / 20 if COMPILER_OFF else 1


def scaled(count: int, least: int = 1) -> int:
    """`count`, or the small part of it that is bearable without the compiler."""
    return max(least, int(count * SCALE))
