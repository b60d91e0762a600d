"""How the suite behaves with and without the compiler, and how hard Hypothesis tries."""

import os

import pytest
from hypothesis import settings

# The usual profile is small and always picks the same examples, so that a red suite stays red until someone mends it.
# The long one looks for new examples each time, and prints what it takes to see a failure again. The first call of a
# compiled function takes as long as compiling it, hence no deadlines.
settings.register_profile("short", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=500, deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))

# Workers share the cores, and threads of torch that wait by spinning would take them from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

COMPILER_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs the compiler when NUMBA_DISABLE_JIT=1."""
    if not COMPILER_OFF:
        return
    for item in items:
        if item.get_closest_marker("compiled"):
            item.add_marker(pytest.mark.skip(reason="needs the compiler, and NUMBA_DISABLE_JIT is set"))
