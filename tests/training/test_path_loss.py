"""The auxiliary loss: the teacher's goal and path on the agent's map."""

import numpy as np
import torch

from babyai.agents.map import codes
from babyai.agents.map.memory import make_tables
from babyai.agents.map.model import MapPolicy
from babyai.agents.map.padding import Capacities, Sizes
from babyai.agents.map.tokens import Tokens, count_tokens, tokenize_frames
from babyai.training.frame_buffer import LabeledFrames
from babyai.training.guided_rollouts import GuidedRollouts
from babyai.training.path_loss import find_cells, path_losses
from babyai.world.codes import Action

LEVELS = ["BossLevel", "GoToImpUnlock", "PutNext", "UnblockPickup"]


def play(steps: int = 60, worlds: int = 32) -> tuple[LabeledFrames, Tokens]:
    """Labeled frames of an untrained agent and the teacher, who take turns."""
    torch.manual_seed(0)
    rollouts = GuidedRollouts(MapPolicy(32, 1, 2), LEVELS, worlds)
    rollouts.agent_plays = True
    for _ in range(steps):
        rollouts.step(rollouts.choose(rollouts.observe().frames))
    labeled = rollouts.observe()
    return labeled, tokenize_frames(labeled.frames, make_tables().vectors)


def test_goal_and_path_are_cells_that_the_map_shows() -> None:
    labeled, tokens = play()
    cells = find_cells(tokens, labeled.labels.paths.long())
    assert ((cells >= 0) == (labeled.labels.paths >= 0)).all()
    assert (cells[:, 0] >= 0).float().mean() > 0.9
    contents = tokens.patches[:, 0].flatten()
    steps = cells[:, 1:]
    on_path = contents[steps[steps >= 0]]
    assert len(on_path) > 100
    assert not (on_path == codes.UNKNOWN).any() and not (on_path == codes.BLOCKED).any()


def test_the_first_step_of_the_path_is_the_advice() -> None:
    labeled, _ = play()
    first = labeled.labels.paths[:, 1].numpy()
    center = 51 * 25 + 25
    for cell, action in ((center - 1, Action.left), (center + 1, Action.right)):
        assert (labeled.labels.actions[first == cell] == action).all()
    # Ahead, it is entered, opened, picked up, and so on, but not turned away from.
    assert (labeled.labels.actions[first == center + 51] >= Action.forward).all()
    assert np.isin([center - 1, center + 1, center + 51], first).all()


def test_padding_does_not_count() -> None:
    labeled, tokens = play()
    vectors = make_tables().vectors
    room = Capacities().fit(Sizes(*count_tokens(labeled.frames, vectors).tolist()))
    padded = tokenize_frames(labeled.frames, vectors, room)
    goal, path = torch.randn(2, len(padded.patch_at), 9).unbind(0)
    losses = path_losses(goal, path, padded, labeled.labels.paths.long())
    count = len(tokens.patch_at)
    expected = path_losses(goal[:count], path[:count], tokens, labeled.labels.paths.long())
    torch.testing.assert_close(losses, expected)


def test_perfect_logits_have_no_loss() -> None:
    labeled, tokens = play()
    paths = labeled.labels.paths.long()
    cells = find_cells(tokens, paths)
    shape = tokens.patches[:, 0].shape
    goal = torch.zeros(shape)
    goal.view(-1)[cells[:, 0][cells[:, 0] >= 0]] = 50.0
    path = torch.full(shape, -50.0)
    path.view(-1)[cells[cells >= 0]] = 50.0
    assert max(float(loss) for loss in path_losses(goal, path, tokens, paths)) < 1e-6
    goal_loss, path_loss = path_losses(torch.zeros(shape), torch.zeros(shape), tokens, paths)
    counts = torch.bincount(tokens.patch_frame, minlength=len(paths)) * 9.0
    assert torch.isclose(goal_loss, counts.log()[cells[:, 0] >= 0].mean())
    assert path_loss > 1
