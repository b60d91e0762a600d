"""Pictures of a map agent's memory."""

import numpy as np

from babyai.agents.map import codes
from babyai.agents.map.picture import UNKNOWN_SHADE, cell_of_content, draw_map
from babyai.render.frame import draw_world
from babyai.world.codes import TRIPLES
from tests.agents.map.test_memory import Follower


def test_cells_look_like_their_contents() -> None:
    for content in range(codes.FREE, codes.NUM_CONTENTS):
        assert codes.CONTENTS[tuple(TRIPLES[cell_of_content(content)])] == content


def test_a_map_is_the_picture_of_what_was_seen_of_the_world() -> None:
    """In episodes in which the agent faces up at the start, the map is a part of the world's picture."""
    follower = Follower(["BossLevel"], 40, 11)
    for _ in range(30):
        follower.observe()
        follower.step()
    follower.observe()
    compared = []
    for lane in np.flatnonzero(follower.start[:, 2] == 3):
        ahead, right, behind, left = follower.memory.extent[lane].tolist()
        x, y, _ = follower.start[lane]
        world = draw_world(follower.engine.worlds[lane], 8)
        part = world[8 * (y - ahead) : 8 * (y + behind + 1), 8 * (x - left) : 8 * (x + right + 1)]
        drawn = draw_map(follower.memory, lane, 8)
        unknown = (drawn == UNKNOWN_SHADE).all(-1)
        np.testing.assert_array_equal(drawn[~unknown], part[~unknown])
        compared.append(unknown.mean())
    assert 0 < max(compared) < 1
