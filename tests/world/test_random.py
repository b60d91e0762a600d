"""The random number generator of a world equals NumPy's PCG64, draw by draw."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from babyai import Engine, _jit
from babyai.world.codes import ALPHABETICAL_COLORS
from babyai.world.random import draw, draw_color, flip, seed_generator, uniform
from babyai.world.state import make_worlds
from tests.reference import generator_state
from tests.scale import scaled

seeds = st.integers(0, 2**63 - 1)
# What to draw: an integer in [low, high), or a float for None.
spans = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 30), st.integers(1, 30)).map(lambda pair: (pair[0], sum(pair))),
    # Large spans make Lemire's method reject draws, which small ones almost never do.
    st.integers(2**31 - 2**28, 2**31).map(lambda high: (0, high)),
)


@_jit.njit
def draw_spans(worlds, low, high, drawn):
    """Draws one number per span; a span from 0 to 0 means a float."""
    for k in range(len(low)):
        drawn[k] = uniform(worlds[0]) if high[k] == 0 else draw(worlds[0], low[k], high[k])


@_jit.njit
def seed_world(worlds, seed):
    seed_generator(worlds[0], seed)


@_jit.njit
def draw_choices(worlds, flips, colors):
    for k in range(len(flips)):
        flips[k] = flip(worlds[0])
        colors[k] = draw_color(worlds[0])


def blank_worlds() -> np.ndarray:
    worlds = make_worlds(1)
    return worlds.view(np.ndarray) if _jit.COMPILED else worlds


def seeded(seed: int) -> np.ndarray:
    worlds = blank_worlds()
    # Kernels read seeds from int64 arrays.
    seed_world(worlds, np.array([seed])[0])
    return worlds


@settings(max_examples=scaled(500, least=10))
@example(0)
@example(2**32 - 1)
@example(2**32)
@example(2**63 - 1)
@given(seeds)
def test_seeding_matches_numpy(seed: int) -> None:
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).bit_generator.state
    assert generator_state(seeded(seed)[0]) == expected


@settings(max_examples=scaled(300, least=5))
@given(seeds, st.lists(spans, min_size=1, max_size=scaled(200, least=20)))
def test_draws_match_numpy(seed: int, wanted: list[tuple[int, int] | None]) -> None:
    worlds = seeded(seed)
    rng = np.random.default_rng(seed)
    low, high = np.array([span or (0, 0) for span in wanted], dtype=np.int64).T.copy()
    drawn = np.zeros(len(wanted))
    draw_spans(worlds, low, high, drawn)
    expected = [rng.uniform(0, 1) if span is None else float(rng.integers(*span)) for span in wanted]
    assert drawn.tolist() == expected
    assert generator_state(worlds[0]) == rng.bit_generator.state


@pytest.mark.parametrize("seed", range(3))
def test_long_streams_match_numpy(seed: int) -> None:
    worlds = seeded(seed)
    rng = np.random.default_rng(seed)
    count = scaled(50_000, least=500)
    plan = np.random.default_rng(99 + seed)
    high = plan.choice([0, 1, 2, 3, 4, 6, 7, 8, 22, 10**6, 3 * 2**29], size=count)
    drawn = np.zeros(count)
    draw_spans(worlds, np.zeros(count, dtype=np.int64), high, drawn)
    expected = [rng.uniform(0, 1) if top == 0 else float(rng.integers(0, top)) for top in high.tolist()]
    assert drawn.tolist() == expected
    assert generator_state(worlds[0]) == rng.bit_generator.state


def test_flips_and_colors_match_minigrid() -> None:
    worlds = seeded(5)
    rng = np.random.default_rng(5)
    count = scaled(1000)
    flips = np.zeros(count, dtype=bool)
    colors = np.zeros(count, dtype=np.int64)
    draw_choices(worlds, flips, colors)
    for k in range(count):
        assert flips[k] == (rng.integers(0, 2) == 0)
        assert colors[k] == ALPHABETICAL_COLORS[rng.integers(0, 6)]


def test_a_range_of_one_value_consumes_no_random_bits() -> None:
    worlds = seeded(1)
    before = worlds[0].tobytes()
    drawn = np.zeros(3)
    draw_spans(worlds, np.array([0, 4, 21]), np.array([1, 5, 22]), drawn)
    assert drawn.tolist() == [0, 4, 21]
    assert worlds[0].tobytes() == before


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 7, 2**63 - 1])
def test_a_world_stores_its_seed(seed: int) -> None:
    engine = Engine("GoToObj")
    engine.reset([seed])
    assert engine.worlds[0].seed == seed
