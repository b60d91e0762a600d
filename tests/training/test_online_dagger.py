"""Large-scale DAgger: the buffer, the roll-ins, and learning."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai.agents import Agent
from babyai.agents.map.model import MapPolicy
from babyai.agents.map.padding import Capacities, Sizes
from babyai.agents.map.tokens import Frames, find_revisits
from babyai.training.frame_buffer import NO_LABEL, FrameBuffer, LabeledFrames, Labels
from babyai.training.guided_rollouts import GuidedRollouts
from babyai.training.online_dagger import FrameLearner, train
from babyai.training.options import OnlineDaggerOptions
from babyai.training.run import read_rows
from babyai.tree import tree_map
from tests.agents.map.test_history import describe_state


def make_options(**settings: Any) -> OnlineDaggerOptions:
    tiny = {
        "levels": "GoToObj,GoToRedBallGrey",
        "size": "small",
        "settings": ("dim=32", "layers=1", "heads=2"),
        "worlds": 16,
        "batch_size": 16,
        "buffer_size": 400,
        "min_buffer": 32,
        "frames": 3200,
        "validate_every": 0,
        "threads": 1,
        "quiet": True,
    }
    return OnlineDaggerOptions(**tiny | settings)


def numbered_frames(numbers: list[int]) -> LabeledFrames:
    column = torch.tensor(numbers)
    zeros = [torch.zeros(len(numbers), 1) for _ in range(5)]
    return LabeledFrames(Frames(*zeros), Labels(column, column, column))


def test_the_buffer_keeps_the_newest_frames() -> None:
    buffer = FrameBuffer(5)
    with pytest.raises(RuntimeError, match="empty"):
        buffer.sample(1)
    buffer.add(numbered_frames([1, 2, 3]))
    assert buffer.size == 3
    assert set(buffer.sample(200).labels.actions.tolist()) == {1, 2, 3}
    buffer.add(numbered_frames([4, 5, 6]))
    assert buffer.size == 5
    assert set(buffer.sample(300).labels.actions.tolist()) == {2, 3, 4, 5, 6}
    buffer.add(numbered_frames(list(range(10, 20))))
    assert set(buffer.sample(300).labels.actions.tolist()) == {15, 16, 17, 18, 19}


def make_rollouts(**settings: Any) -> GuidedRollouts:
    torch.manual_seed(0)
    return GuidedRollouts(MapPolicy(32, 1, 2), ["GoToObj", "GoToLocal"], 32, **settings)


def play(rollouts: GuidedRollouts, steps: int) -> None:
    for _ in range(steps):
        rollouts.step(rollouts.choose(rollouts.observe().frames))


def test_the_expert_plays_alone_at_first() -> None:
    rollouts = make_rollouts()
    play(rollouts, 20)
    assert rollouts.metrics()["agent_frames"] == 0
    assert (rollouts.failures == 1).all()


def test_the_agent_takes_turns_and_its_failures_count() -> None:
    rollouts = make_rollouts(solo=0.5, take_over=0.2, hand_back=0.2)
    rollouts.agent_plays = True
    play(rollouts, 60)
    metrics = rollouts.metrics()
    assert 0 < metrics["agent_frames"] < 60 * 32
    assert set(metrics["solo_success"]) == {"GoToObj", "GoToLocal"}
    # An untrained agent seldom succeeds.
    assert max(metrics["solo_success"].values()) < 0.9


def test_a_restart_goes_on_with_new_episodes() -> None:
    rollouts = make_rollouts(solo=0.5)
    rollouts.restart(1000, True, [0.5, 0.25])
    np.testing.assert_array_equal(np.sort(rollouts.engine.worlds.seed), 1000 + np.arange(32))
    assert 0 < np.count_nonzero(rollouts._is_solo) < 32
    play(rollouts, 2)
    assert rollouts.num_started >= 1032


def test_solo_episodes_without_advice_are_failures() -> None:
    rollouts = make_rollouts(solo=1.0)
    rollouts.restart(0, True, [0.0, 0.0])
    rollouts._finish_solo_episodes(np.arange(32) < 8)
    assert sum(rollouts._solo_episodes[0]) == 8 and sum(rollouts._solo_episodes[1]) == 0
    assert rollouts.failures.max() > 0


@pytest.mark.parametrize("limit", [1, 6])
def test_solo_episodes_end_after_disagreements(limit: int) -> None:
    rollouts = make_rollouts(solo=1.0, max_disagreements=limit)
    rollouts.restart(0, True, [1.0, 1.0])
    most = 0
    for _ in range(60):
        rollouts.start_playing().result()
        most = max(most, rollouts._disagreements[rollouts._is_solo].max(initial=0))
    rollouts.close()
    assert most == limit - 1


def test_revisits_are_told_apart() -> None:
    rollouts = make_rollouts(solo=1.0)
    rollouts.restart(0, True, [1.0, 1.0])
    poses: list[dict[bytes, int]] = [{} for _ in range(rollouts.num_worlds)]
    expected = found = 0
    for _ in range(30):
        starts = rollouts._starts.copy()
        played = rollouts.start_playing().result()
        frames = played.all.frames
        found += len(played.revisits.labels.actions)
        for world in range(rollouts.num_worlds):
            state = describe_state(Frames(*(part[world : world + 1] for part in frames)))
            if starts[world]:
                poses[world].clear()
            expected += state in poses[world]
            poses[world][state] = 1
        assert find_revisits(played.revisits.frames).all()
    rollouts.close()
    assert found == expected > 20


def test_batches_have_their_share_of_revisits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []

    def learn(self: FrameLearner, batch: LabeledFrames) -> None:
        shares.append(find_revisits(batch.frames).float().mean().item())
        self.num_steps += 1

    monkeypatch.setattr(FrameLearner, "learn", learn)
    options = make_options(out=str(tmp_path / "run"), expert_until=0.0, revisit_fraction=0.5)
    session = train(options)
    assert read_rows(session.folder)[-1]["revisits"] > 3
    assert min(shares[-50:]) >= 0.5


def test_the_agent_chooses_as_it_would_alone() -> None:
    rollouts = make_rollouts(solo=0.5)
    rollouts.restart(0, True, [1.0, 1.0])
    drives = rollouts._agent_drives
    assert 0 < drives.sum() < rollouts.num_worlds
    rollouts._is_greedy[:] = True
    frames = rollouts.observe().frames
    chosen = rollouts.choose(frames)
    assert chosen is not None
    expected = rollouts.policy.decide(frames).policy_logits.argmax(1)
    np.testing.assert_array_equal(chosen.numpy()[drives], expected.numpy()[drives])
    labels = rollouts._labels.copy()
    rollouts.step(chosen)
    np.testing.assert_array_equal(rollouts._actions, np.where(drives, expected, labels))


@pytest.mark.parametrize(("expert_frames", "playing"), [(None, []), (1600, [3200]), (1601, [])])
def test_the_expert_plays_alone_for_a_limited_time(
    expert_frames: int | None, playing: list[int], tmp_path: Path
) -> None:
    options = make_options(out=str(tmp_path / "run"), expert_until=1.0, expert_frames=expert_frames)
    rows = read_rows(train(options).folder)
    # A row counts the frames that the agent acted on before it.
    assert [row["frames"] for row in rows if row["agent_frames"]] == playing


def test_labels_are_the_teachers_advice() -> None:
    rollouts = make_rollouts()
    labeled = rollouts.observe()
    advice = rollouts.expert.advice
    np.testing.assert_array_equal(labeled.labels.actions.numpy(), np.where(advice < 0, NO_LABEL, advice))


def test_frames_without_advice_do_not_count() -> None:
    """The loss is the same whatever a frame without a label holds."""
    rollouts = make_rollouts()
    labeled = rollouts.observe()
    learner = FrameLearner(MapPolicy(32, 1, 2), make_options(progress_coef=0.0), "float32")
    labels = labeled.labels._replace(actions=labeled.labels.actions.clone())
    labels.actions[:5] = NO_LABEL
    decisions = learner.policy.decide(labeled.frames)
    changed = decisions._replace(logits=torch.cat([torch.randn(5, 7), decisions.logits[5:]]))
    one, _ = learner._loss(decisions, labels)
    other, _ = learner._loss(changed, labels)
    assert one == other


def test_a_run_resumes_with_its_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babyai.training.online_dagger.ROW_UPDATES", 25)
    options = make_options(out=str(tmp_path / "run"), frames=400, expert_until=0.0)
    train(options)
    rows = read_rows(tmp_path / "run")
    assert [row["frames"] for row in rows] == [400]
    session = train(make_options(out=str(tmp_path / "run"), frames=800, expert_until=0.0), resume=True)
    rows = read_rows(tmp_path / "run")
    assert [row["frames"] for row in rows] == [400, 800]
    # The expert-only phase is not repeated, and the seeds go on.
    assert rows[-1]["agent_frames"] > 0
    assert rows[-1]["episodes"] > rows[0]["episodes"]
    # What is saved is the average, even without a validation.
    saved = Agent.load(tmp_path / "run", device="cpu").model.state_dict()
    for name, tensor in session.evaluated.state_dict().items():
        torch.testing.assert_close(saved[name], tensor.bfloat16().float(), rtol=0, atol=0)
    assert not torch.equal(saved["actor.weight"], session.policy.state_dict()["actor.weight"])


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    options = make_options(out=str(tmp_path / "run"), architecture="bow_endpool_res", settings=())
    with pytest.raises(ValueError, match="'map'"):
        train(options)
    # Before anything is written.
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_it_learns(tmp_path: Path) -> None:
    options = make_options(
        out=str(tmp_path / "run"),
        levels="GoToObj,GoToRedBallGrey",
        settings=("dim=64", "layers=2", "heads=2"),
        worlds=64,
        batch_size=128,
        buffer_size=20_000,
        min_buffer=2000,
        frames=120_000,
        expert_until=0.8,
        validate_every=3,
        validation_episodes=64,
    )
    session = train(options)
    assert session.best_success > 0.6


def test_impossible_options_are_refused() -> None:
    for settings, name in (
        ({"buffer_size": 8}, "buffer_size"),
        ({"solo": 2.0}, "solo"),
        ({"weight_decay": -1}, "weight"),
    ):
        with pytest.raises(ValueError, match=name):
            make_options(**settings)


def test_loss_and_gradient_can_be_captured() -> None:
    """They never ask the device for the number of something, which CUDA graphs do not allow.

    Tensors of the meta device have shapes but no values, so that this shows without a GPU.
    """
    rollouts = make_rollouts()
    play(rollouts, 20)
    labeled = rollouts.observe()
    room = Capacities().fit(Sizes(*rollouts.policy.count(labeled.frames).tolist()))
    learner = FrameLearner(MapPolicy(32, 2, 2).to("meta"), make_options(), "float32")
    frames, labels = tree_map(lambda tensor: tensor.to("meta"), labeled)
    tokens = learner.policy.tokenize(frames, room)
    loss, _ = learner._loss(learner.policy.decide_tokens(tokens), labels)
    loss.backward()
    assert all(parameter.grad is not None for parameter in learner.policy.path.parameters())
    with pytest.raises(NotImplementedError):
        labels.actions[labels.actions > 0]


def test_the_learning_rate_warms_up_and_decays() -> None:
    options = make_options(batch_size=10, frames=1000, learning_rate=1.0, warm_up=4, decay_frames=200)
    learner = FrameLearner(MapPolicy(32, 1, 2), options, "float32")
    rates = []
    for learner.num_steps in (0, 3, 50, 80, 90, 99, 200):
        rates.append(learner._learning_rate())
    assert rates == pytest.approx([0.25, 1.0, 1.0, 1.0, 0.5, 0.05, 0.0])
