"""The map agent's memory against the world and the judge."""

import numpy as np
import pytest
import torch

from babyai.agents.map import codes
from babyai.agents.map.events import LOG_SIZE, EventLog, new_log, record, unpack_keys
from babyai.agents.map.memory import Memory, make_tables, new_memory, update_memory
from babyai.agents.policy import reset_state
from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import LEVELS
from babyai.world.codes import KIND_MASK, LOCKED_DOOR, TRIPLES
from babyai.world.state import ORIGIN, STRIDE
from tests.agents.map.oracle import matches_table, rebuild_progress, rebuild_tracks
from tests.scale import scaled

PAPER_LEVELS = [
    *("GoToObj", "GoToRedBallGrey", "GoToRedBall", "GoToLocal", "PutNextLocal", "PickupLoc", "GoToObjMaze", "GoTo"),
    *("Pickup", "UnblockPickup", "Open", "Unlock", "PutNext", "Synth", "SynthLoc", "GoToSeq", "SynthSeq"),
    *("GoToImpUnlock", "BossLevel"),
]
VECTORS = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])


class Follower:
    """Plays an engine with the teacher and random actions, and keeps the memory of what is seen."""

    def __init__(self, levels: list[str], worlds: int, seed: int, rules: str = "paper", noise: float = 0.2) -> None:
        self.engine = Engine(levels, worlds, rules=rules)
        self.engine.reset(seed)
        self.expert = ExpertBatch(self.engine, "teacher")
        self.rng = np.random.default_rng(seed)
        self.noise = noise
        self.tables = make_tables()
        self.memory = new_memory(worlds)
        self.initial = new_memory(worlds)
        self.actions = np.full(worlds, -1)
        self.start = np.zeros((worlds, 3), dtype=np.int64)
        self.starts = np.ones(worlds, dtype=bool)
        # Where an episode's first image shows something that is not there.
        self.misled = np.zeros(worlds, dtype=bool)

    def observe(self) -> None:
        """Brings the memory up to date."""
        worlds = self.engine.worlds
        y, x = np.divmod(worlds.agent.astype(np.int64) - ORIGIN, STRIDE)
        here = np.stack([x, y, worlds.agent_dir.astype(np.int64)], 1)
        self.start[self.starts] = here[self.starts]
        if self.engine.rules == "minigrid":
            self._find_misleading_images()
        self.actions[self.starts] = -1
        self.memory = reset_state(self.memory, self.initial, torch.from_numpy(self.starts))
        images = torch.from_numpy(self.engine.images)
        self.memory = update_memory(self.memory, images, torch.from_numpy(self.actions), self.tables)
        self.labels = self.expert.advise()

    def _find_misleading_images(self) -> None:
        """In some of Minigrid's levels the first image is made before the level is finished."""
        for lane in np.flatnonzero(self.starts):
            first = self.engine.images[lane].copy()
            self.engine.observe(lane)
            self.misled[lane] = (first != self.engine.images[lane]).any()
            self.engine.images[lane] = first

    def step(self, actions: np.ndarray | None = None) -> None:
        """One action in each world, given or chosen; ended and lost worlds start again."""
        random = self.rng.integers(0, 7, len(self.actions))
        lost = self.labels < 0
        chosen = np.where((self.rng.random(len(random)) < self.noise) | lost, random, self.labels)
        self.actions = chosen if actions is None else actions
        self.engine.step(self.actions)
        if lost.any():
            self.engine.done |= lost
        self.starts = self.engine.reset_done()
        self.expert.reset(self.starts)

    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """(N, 576) flat indices of the worlds' cells, and (N, 576, 2) the same relative to the start."""
        y, x = np.divmod(np.arange(STRIDE * STRIDE), STRIDE)
        offset = np.stack([x, y], 1)[None] - self.start[:, None, :2]
        ahead = VECTORS[self.start[:, 2]]
        right = VECTORS[(self.start[:, 2] + 1) % 4]
        index = np.stack([(offset * ahead[:, None]).sum(2), (offset * right[:, None]).sum(2)], 2)
        return ORIGIN + y * STRIDE + x, index


def expected_contents(worlds: np.ndarray, flat: np.ndarray) -> np.ndarray:
    return codes.CONTENTS[tuple(TRIPLES[worlds.cells[:, flat]].transpose(2, 0, 1))]


def check_against_world(follower: Follower) -> None:
    memory = follower.memory
    worlds = follower.engine.worlds
    lanes = np.arange(len(worlds))
    y, x = np.divmod(worlds.agent.astype(np.int64) - ORIGIN, STRIDE)
    moved = np.stack([x, y], 1) - follower.start[:, :2]
    ahead = (moved * VECTORS[follower.start[:, 2]]).sum(1)
    right = (moved * VECTORS[(follower.start[:, 2] + 1) % 4]).sum(1)
    np.testing.assert_array_equal(memory.position.numpy(), np.stack([ahead, right], 1))
    np.testing.assert_array_equal(memory.heading.numpy(), (worlds.agent_dir - follower.start[:, 2]) % 4)
    flat, index = follower.cells()
    seen = (follower.expert.experts.seen[:, flat] != 0) & ~follower.misled[:, None]
    at = (lanes[:, None], index[..., 0] % 24, index[..., 1] % 24)
    drawn = memory.contents.numpy()[at]
    inside = (np.arange(576) % STRIDE < worlds.width[:, None]) & (np.arange(576) // STRIDE < worlds.height[:, None])
    np.testing.assert_array_equal(drawn[seen & inside], expected_contents(worlds, flat)[seen & inside])
    assert (drawn[~seen & inside & ~follower.misled[:, None]] == codes.UNKNOWN).all()


def find_mismatches(follower: Follower) -> np.ndarray:
    """(N,) bool, the worlds whose judge the memory does not explain."""
    worlds = follower.engine.worlds
    table = matches_table(worlds)
    flat, index = follower.cells()
    seen = follower.expert.experts.seen[:, flat] != 0
    relevant = seen & ((worlds.tracks != 0) | (worlds.cells[:, flat] & KIND_MASK >= LOCKED_DOOR))
    lane, cell = np.nonzero(relevant)
    chosen = Memory(*(part[lane] if torch.is_tensor(part) else part for part in follower.memory))
    bits, _ = rebuild_tracks(chosen, table[lane], index[lane, cell][:, None])
    wrong = np.zeros(len(worlds), dtype=bool)
    np.logical_or.at(wrong, lane, bits[:, 0] != worlds.tracks[lane, cell])
    _, carried = rebuild_tracks(follower.memory, table, index[:, :1])
    first_side_done, clauses_done = rebuild_progress(follower.memory, worlds, table)
    return (
        wrong
        | (carried != worlds.carried_tracks)
        | (first_side_done != (worlds.first_side_done != 0))
        | (clauses_done != worlds.clauses_done)
    )


def follow(levels: list[str], worlds: int, steps: int, seed: int = 0, rules: str = "paper") -> int:
    """Plays and checks; returns the number of steps in which the memory does not explain the judge."""
    follower = Follower(levels, worlds, seed, rules)
    mismatches = 0
    for _ in range(steps):
        follower.observe()
        check_against_world(follower)
        mismatches += int(np.count_nonzero(find_mismatches(follower)))
        follower.step()
    return mismatches


def test_memory_explains_the_judge() -> None:
    """Tracks and progress are functions of memory and mission, with 20 % random actions, on all nineteen levels."""
    assert follow(PAPER_LEVELS, scaled(190, 19), scaled(60, 12)) == 0


@pytest.mark.long
def test_memory_explains_the_judge_for_a_million_steps() -> None:
    assert follow(PAPER_LEVELS, 1900, 530, seed=1_000_000) == 0


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
def test_every_level_can_be_mapped(rules: str) -> None:
    """Pose and map are right on all levels, under both rule sets."""
    names = [level.name for level in LEVELS.values()]
    follower = Follower(names, len(names), 7, rules)
    for _ in range(scaled(40, 8)):
        follower.observe()
        check_against_world(follower)
        follower.step()


def test_a_wrong_memory_does_not_explain_the_judge() -> None:
    """The oracle notices what is missing: without the log, progress is unknown."""
    follower = Follower(["GoToSeq"], scaled(100, 20), 3)
    mismatches = 0
    for _ in range(scaled(60, 30)):
        follower.observe()
        log = follower.memory.log
        whole = follower.memory
        follower.memory = whole._replace(log=log._replace(last=torch.full_like(log.last, -1)))
        mismatches += int(np.count_nonzero(find_mismatches(follower)))
        follower.memory = whole
        follower.step()
    assert mismatches > 0


def test_a_full_log_forgets_what_was_only_faced() -> None:
    log = new_log(1)
    nobody = torch.zeros((1, 4), dtype=torch.long)

    def happen(log: EventLog, time: int, kind: int, thing: int) -> EventLog:
        return record(log, torch.tensor([time]), torch.tensor([kind]), torch.tensor([thing]), nobody)

    log = happen(log, 0, codes.PICKED_UP, 300)
    for time in range(1, 2 * LOG_SIZE):
        log = happen(log, time, codes.FACED, 30 + time)
    kinds, things, _ = unpack_keys(log.keys[0])
    assert (kinds == codes.PICKED_UP).sum() == 1 and (things == 300).sum() == 1
    # Of what was faced, the newest is there and the oldest is gone.
    assert (things == 30 + 2 * LOG_SIZE - 1).any() and not (things == 31).any()
