"""The policies of docs/policies.md: short, correct, and trainable."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai.agents.actor import Actor
from babyai.agents.custom import check_contract, load_class
from babyai.engine import Engine
from babyai.training.imitation import train
from babyai.training.options import ImitationOptions

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
SETTINGS = {"FrameTransformer": ("width=16", "context=3", "layers=1"), "MapPolicy": ("width=16", "radius=3")}
MAX_LINES = 100


def example(name: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if f"class {name}(" in block)


@pytest.fixture(params=SETTINGS)
def policy_file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    path = tmp_path / "policies.py"
    path.write_text(example(request.param))
    return request.param, path


def make_policy(name: str, path: Path, **settings: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    return load_class(f"{path}:{name}")(**settings)


def test_an_example_is_short_and_satisfies_the_contract(policy_file: tuple[str, Path]) -> None:
    name, path = policy_file
    assert len(example(name).splitlines()) < MAX_LINES
    check_contract(make_policy(name, path))


def test_an_example_trains_with_settings_from_the_command_line(policy_file: tuple[str, Path], tmp_path: Path) -> None:
    name, path = policy_file
    options = ImitationOptions(
        levels="GoToObjS4",
        architecture=f"{path}:{name}",
        settings=SETTINGS[name],
        demos=60,
        batch_size=8,
        epoch_length=160,
        epochs=4,
        learning_rate=3e-3,
        validation_episodes=8,
        device="cpu",
        quiet=True,
        out=str(tmp_path / "run"),
    )
    session = train(options)
    rows = session.run.rows()
    assert rows[-1]["cross_entropy"] < 0.8 * rows[0]["cross_entropy"]
    assert session.agent_config.settings == {key: int(value) for key, value in map(split_setting, SETTINGS[name])}


def split_setting(pair: str) -> tuple[str, str]:
    name, _, value = pair.partition("=")
    return name, value


def test_the_transformer_forgets_what_is_older_than_its_context(tmp_path: Path) -> None:
    path = tmp_path / "policies.py"
    path.write_text(example("FrameTransformer"))
    policy = make_policy("FrameTransformer", path, width=16, context=2).eval()
    generator = torch.Generator().manual_seed(0)

    def observe(seed: int) -> dict[str, torch.Tensor]:
        image = torch.randint(0, 6, (1, 7, 7, 3), generator=generator.manual_seed(seed), dtype=torch.uint8)
        return {"image": image, "mission": torch.ones(1, 4, dtype=torch.uint8)}

    def last_logits(seeds: list[int]) -> torch.Tensor:
        state = policy.initial_state(1)
        for seed in seeds:
            logits, _, state = policy(observe(seed), state)
        return logits

    assert torch.equal(last_logits([1, 2, 3, 4]), last_logits([9, 2, 3, 4]))
    assert not torch.equal(last_logits([1, 2, 3, 4]), last_logits([1, 9, 3, 4]))


def test_the_map_policy_knows_its_pose_and_draws_the_walls(tmp_path: Path) -> None:
    """Random play in mazes: pose and walls in the frame of the start pose are those of the world."""
    path = tmp_path / "policies.py"
    path.write_text(example("MapPolicy"))
    policy = make_policy("MapPolicy", path).eval()
    count = 24
    engine = Engine(["GoToObjMaze", "PutNext", "BossLevel"], count)
    engine.reset(0)
    actor = Actor(policy, count, sample=True)
    starts = np.ones(count, dtype=bool)
    start_dirs = engine.directions.copy()
    start_cells = engine.worlds["agent"].astype(np.int64)
    stride = 24
    for _ in range(40):
        actions = actor.act(engine.images, engine.missions, engine.directions, starts)
        cells = engine.worlds["agent"].astype(np.int64)
        moved = np.stack([cells % stride - start_cells % stride, cells // stride - start_cells // stride], 1)
        expected = np.array([rotate(delta, -turns) for delta, turns in zip(moved, start_dirs, strict=True)])
        place = actor.state["place"].numpy() - 12
        np.testing.assert_array_equal(place, expected)
        np.testing.assert_array_equal(actor.state["heading"].numpy(), (engine.directions - start_dirs) % 4)
        engine.step(actions)
        starts = engine.reset_done()
        assert not starts.any(), "choose levels and steps such that no episode ends"
    assert (actor.state["cells"] == 2).sum() > 100
    # A wall that was drawn is never where the agent has been.
    assert (actor.state["cells"][:, 12, 12] != 2).all()


def rotate(delta: np.ndarray, quarter_turns: int) -> np.ndarray:
    """Turns a vector clockwise, y pointing down."""
    x, y = delta
    for _ in range(quarter_turns % 4):
        x, y = -y, x
    return np.array([x, y])
