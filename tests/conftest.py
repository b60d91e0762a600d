"""Hypothesis profiles, skipping of tests that need the compiler, and custom levels that are forgotten after a test."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The default profile is small and always picks the same examples, so a failure is reproducible. The long profile tries
# new examples each time and prints a blob that reproduces a failure. No deadlines, because the first call of a compiled
# function includes its compilation.
settings.register_profile("short", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=500, deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))

# Test workers share the cores; torch threads that wait by spinning would take CPU time from the other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# So that a failed comparison shows the difference.
pytest.register_assert_rewrite("tests.training.same")

COMPILER_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that need the compiler as skipped if NUMBA_DISABLE_JIT=1."""
    if not COMPILER_OFF:
        return
    for item in items:
        if item.get_closest_marker("compiled"):
            item.add_marker(pytest.mark.skip(reason="needs the compiler, but NUMBA_DISABLE_JIT is set"))


@pytest.fixture
def forget_levels() -> Iterator[None]:
    """Levels that a test registers are forgotten afterwards."""
    import gymnasium

    from babyai.levels.catalog import LEVELS

    known = set(LEVELS)
    yield
    for name in set(LEVELS) - known:
        gymnasium.registry.pop(LEVELS.pop(name).id, None)
