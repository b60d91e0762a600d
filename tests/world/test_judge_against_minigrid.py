"""Random missions in random worlds, judged by Minigrid's verifier and by ours."""

import contextlib
import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import Ball, Box, Door, Key, Wall
from minigrid.envs.babyai.core import verifier
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel

from babyai import Engine
from babyai.levels.layout import CELL_TEXTS, Layout, cell_text
from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANY_NOUN,
    BALL,
    BEFORE,
    BEHIND,
    BOX,
    COLORS,
    DOOR,
    EMPTY,
    GO_TO,
    GREY,
    IN_FRONT,
    KEY,
    KIND_MASK,
    LOCKED_DOOR,
    NOUNS,
    ON_LEFT,
    ON_RIGHT,
    OPAQUE,
    OPEN,
    PICK_UP,
    TRIPLES,
    WALL,
    WALL_CELL,
)
from babyai.world.language import Clause, Descriptor, Mission, random_mission
from babyai.world.state import position_of
from tests.reference import encode_grid
from tests.scale import scaled
from tests.twin import ACTION_PROBS

PLACES = {ON_LEFT: "left", ON_RIGHT: "right", IN_FRONT: "front", BEHIND: "behind"}
WALLS_AND_THINGS = sorted(set(CELL_TEXTS.values()))


# ---------------------------------------------------------------- conversion to Minigrid


def to_world_object(cell: int):
    """Returns Minigrid's object for one of our cells."""
    kind = cell & KIND_MASK
    color = COLORS[cell >> 4 & 7] if cell != EMPTY else ""
    if kind in (DOOR, LOCKED_DOOR):
        return Door(color, is_open=not cell & OPAQUE, is_locked=kind == LOCKED_DOOR)
    return {EMPTY: lambda _: None, WALL: Wall, KEY: Key, BALL: Ball, BOX: Box}[kind](color)


def to_obj_desc(descriptor: Descriptor) -> verifier.ObjDesc:
    noun = None if descriptor.noun == ANY_NOUN else NOUNS[descriptor.noun]
    color = None if descriptor.color == ANY_COLOR else COLORS[descriptor.color]
    return verifier.ObjDesc(noun, color, PLACES.get(descriptor.place))


def to_action_instr(clause: Clause, strict: bool):
    thing = to_obj_desc(clause.object)
    if clause.verb == GO_TO:
        return verifier.GoToInstr(thing)
    if clause.verb == OPEN:
        return verifier.OpenInstr(thing, strict=strict)
    if clause.verb == PICK_UP:
        return verifier.PickupInstr(thing, strict=strict)
    return verifier.PutNextInstr(thing, to_obj_desc(clause.target))


def to_instr(mission: Mission, strict: int):
    def side(clauses: tuple[Clause, ...], first: int):
        parts = [to_action_instr(clause, bool(strict >> first + k & 1)) for k, clause in enumerate(clauses)]
        return parts[0] if len(parts) == 1 else verifier.AndInstr(*parts)

    if mission.order not in (BEFORE, AFTER):
        return side(mission.first, 0)
    join = verifier.BeforeInstr if mission.order == BEFORE else verifier.AfterInstr
    return join(side(mission.first, 0), side(mission.second, 2))


class DrawnLevel(RoomGridLevel):
    """A Minigrid level with one room, drawn as a layout, and a given instruction."""

    def __init__(self, layout: Layout, mission: Mission, strict: int) -> None:
        self.layout = layout
        self.instrs = to_instr(mission, strict)
        super().__init__(room_size=layout.width, num_rows=1, num_cols=1)

    def _gen_grid(self, width: int, height: int) -> None:
        RoomGrid._gen_grid(self, width, height)
        for x in range(1, width - 1):
            for y in range(1, height - 1):
                thing = to_world_object(int(self.layout.cells[y, x]))
                if thing is not None:
                    self.put_obj(thing, x, y)
        self.agent_pos = self.layout.agent
        self.agent_dir = self.layout.agent_dir
        self.mission = self.instrs.surface(self)
        self.validate_instrs(self.instrs)


# ---------------------------------------------------------------- random worlds and the comparison


def random_layout(rng: np.random.Generator) -> Layout:
    """Returns a square room with few kinds and colors, so that random missions often match something."""
    size = int(rng.integers(4, 10))
    cells = np.full((size, size), WALL_CELL, dtype=np.uint8)
    pool = rng.choice(WALLS_AND_THINGS, size=8).tolist()
    inside = rng.choice(pool, size=(size - 2, size - 2))
    cells[1:-1, 1:-1] = np.where(rng.random(inside.shape) < rng.choice([0.15, 0.3]), inside, EMPTY)
    x, y = rng.integers(1, size - 1, size=2).tolist()
    cells[y, x] = EMPTY
    return Layout(cells, (x, y), int(rng.integers(4)))


def draw_layout(layout: Layout) -> str:
    rows = [
        [cell_text(cell, layout.agent_dir if (x, y) == layout.agent else None) for x, cell in enumerate(row)]
        for y, row in enumerate(layout.cells.tolist())
    ]
    return "\n".join("".join(row) for row in rows)


def names_walls(mission: Mission) -> bool:
    """Returns whether Minigrid would match walls: its "object" and "grey object" include them, and ours do not."""
    descriptors = [d for clause in mission.first + mission.second for d in (clause.object, clause.target) if d]
    return any(d.noun == ANY_NOUN and d.color in (ANY_COLOR, GREY) for d in descriptors)


def reset_both(layout: Layout, mission: Mission, strict: int, done: bool) -> tuple[DrawnLevel, Engine] | None:
    """Resets both to the layout and mission; returns None if the mission is invalid, on which both must agree."""
    env = DrawnLevel(layout, mission, strict)
    rejected = False
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            env.reset(seed=0)
    except (RejectSampling, AssertionError):
        rejected = True
    engine = Engine("GoToObj", rules="minigrid", done_actions=done)
    if rejected:
        with pytest.raises(ValueError, match=re.escape(repr(str(mission)))):
            engine.lay_out(0, draw_layout(layout), mission)
        return None
    engine.lay_out(0, draw_layout(layout), mission)
    engine.worlds[0].strict = strict
    return env, engine


def compare(env: DrawnLevel, engine: Engine, actions: list[int]) -> tuple[int, bool]:
    """Plays the actions in both; returns how many were played and whether the mission was won."""
    world = engine.worlds[0]
    assert env.max_steps == world.max_steps
    for count, action in enumerate(actions, start=1):
        observation, reward, terminated, truncated, _ = env.step(action)
        engine.step([action])
        theirs = reward, terminated, truncated, tuple(map(int, env.agent_pos)), env.agent_dir
        ours = engine.rewards[0], engine.terminated[0], engine.truncated[0], position_of(world.agent), world.agent_dir
        assert theirs == ours, f"after {actions[:count]}"
        np.testing.assert_array_equal(observation["image"], engine.images[0])
        carried = None if env.carrying is None else env.carrying.encode()
        assert carried == (tuple(TRIPLES[world.carrying].tolist()) if world.carrying else None)
        if terminated or truncated:
            break
    np.testing.assert_array_equal(env.grid.encode(), encode_grid(world))
    return count, reward > 0


def play_both(seed: int, done: bool) -> tuple[int, bool] | None:
    rng = np.random.default_rng(seed)
    layout = random_layout(rng)
    while True:
        mission = random_mission(rng)
        if names_walls(mission):
            continue
        strict = int(rng.integers(16)) if rng.random() < 0.3 else 0
        both = reset_both(layout, mission, strict, done)
        if both is not None:
            break
        if rng.random() < 0.1:
            layout = random_layout(rng)
    probs = ACTION_PROBS["done" if done else rng.choice(["hands", "golden", "anything"])]
    return compare(*both, rng.choice(7, size=150, p=probs).tolist())


@settings(max_examples=scaled(60, least=3))
@given(st.integers(0, 2**40))
def test_any_mission_is_judged_as_minigrid_does(seed: int) -> None:
    play_both(seed, done=False)


@settings(max_examples=scaled(30, least=3))
@given(st.integers(0, 2**40))
def test_any_mission_with_done_actions_is_judged_as_minigrid_does(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifier, "use_done_actions", "1")
        play_both(seed, done=True)


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize("part", range(4))
def test_thousands_of_missions_are_judged_as_minigrid_does(part: int) -> None:
    played = [play_both(10_000 * part + seed, done=False) for seed in range(1500)]
    assert sum(steps for steps, _ in played) > 50_000
    assert sum(won for _, won in played) > 200
