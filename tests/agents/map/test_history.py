"""The map agent's history, and the repetition penalty."""

from collections import Counter

import numpy as np
import pytest
import torch

from babyai.agents.map.history import HISTORY_SIZE, extend_history, new_history, penalize_repetition
from babyai.agents.map.model import MapPolicy
from babyai.agents.map.tokens import CARRIED, HEADING, POSITION, Frames, find_revisits, frames_of
from babyai.world.codes import LEFT, NUM_ACTIONS, RIGHT
from tests.agents.map.test_memory import Follower


def describe_state(frame: Frames) -> bytes:
    """What makes the state of a single frame: the map, the pose, what is carried, and the log but for its times."""
    pose = frame.pose[0]
    parts = (frame.cells[0, 0], pose[POSITION], pose[HEADING], pose[CARRIED], frame.keys[0])
    return b"".join(part.numpy().tobytes() for part in parts)


def test_actions_are_counted_by_state() -> None:
    worlds = 8
    follower = Follower(["BossLevel", "PutNextLocal"], worlds, 5)
    rng = np.random.default_rng(0)
    taken: list[Counter] = [Counter() for _ in range(worlds)]
    most = 0
    for _ in range(200):
        follower.observe()
        frames = frames_of(follower.memory, torch.from_numpy(follower.engine.missions))
        actions = rng.choice([LEFT, RIGHT, 2, 3, 4, 5], worlds)
        for world in range(worlds):
            if follower.starts[world]:
                taken[world].clear()
            state = describe_state(Frames(*(part[world : world + 1] for part in frames)))
            expected = [taken[world][state, action] for action in range(NUM_ACTIONS)]
            assert follower.memory.history.counts[world].tolist() == expected
            assert find_revisits(frames)[world] == any(expected)
            most = max(most, *expected)
            taken[world][state, int(actions[world])] += 1
        follower.step(actions)
    assert most > 3


def test_old_steps_are_forgotten() -> None:
    history = new_history(1)
    for time in range(HISTORY_SIZE + 10):
        action = torch.tensor([LEFT if time else -1])
        history = extend_history(history, torch.tensor([time]), action, torch.tensor([7]))
        assert history.counts[0, LEFT] == min(time, 127)
    for time in range(HISTORY_SIZE + 10, 2 * HISTORY_SIZE + 11):
        history = extend_history(history, torch.tensor([time]), torch.tensor([RIGHT]), torch.tensor([time]))
    again = extend_history(history, torch.tensor([0]), torch.tensor([RIGHT]), torch.tensor([7]))
    assert not again.counts.any()


@pytest.mark.parametrize("margin", [0.5, 9.0])
def test_a_circle_ends(margin: float) -> None:
    """However sure an agent is of two turns that cancel out, it will at last do something else."""
    history = new_history(1)
    action = torch.tensor([-1])
    for time in range(100):
        state = time % 2
        history = extend_history(history, torch.tensor([time]), action, torch.tensor([state]))
        logits = torch.zeros(1, NUM_ACTIONS)
        logits[0, RIGHT if state else LEFT] = margin
        action = penalize_repetition(logits, history.counts).argmax(1)
        if action != (RIGHT if state else LEFT):
            break
    assert 1 < time < 12


def test_a_policy_reduces_the_logits_of_what_it_did() -> None:
    torch.manual_seed(0)
    follower = Follower(["GoToObj"], 4, 0)
    for _ in range(9):
        # Four turns to the left, and the agent is where it was.
        follower.observe()
        follower.step(np.full(4, LEFT))
    follower.observe()
    frames = frames_of(follower.memory, torch.from_numpy(follower.engine.missions))
    assert find_revisits(frames).all()
    policy = MapPolicy(dim=32, layers=2, heads=4)
    decisions = policy.decide(frames)
    difference = decisions.logits - decisions.policy_logits
    assert (difference[:, LEFT] > 1).all()
    assert not difference[:, RIGHT:].any()
    policy.without = ("history",)
    assert torch.equal(policy.decide(frames).policy_logits, decisions.logits)
