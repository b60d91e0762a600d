"""`benchmarks.map_circle`: the circle of a failed mission is found and drawn."""

from pathlib import Path

import pytest
from PIL import Image

from babyai.agents import Agent
from babyai.seeds import VALIDATION_SEED
from benchmarks.map_circle import draw_circle, find_circle


def test_the_circle_of_an_untrained_agent_is_drawn(tmp_path: Path) -> None:
    agent = Agent.create("map", size="small", seed=0, without="history")
    circle = find_circle(agent.model, "GoToLocal", VALIDATION_SEED)
    states = [moment.state for moment in circle]
    assert 1 <= len(set(states)) == len(states)
    assert all(sum(moment.probs) == pytest.approx(1) and 0 <= moment.advice < 7 for moment in circle)
    draw_circle(circle, tmp_path / "circle.png")
    with Image.open(tmp_path / "circle.png") as picture:
        assert picture.format == "PNG" and picture.width >= 400 * len(circle)


def test_a_solved_mission_has_no_circle() -> None:
    with pytest.raises(ValueError, match=r"GoToObj, seed 1000000000: solved"):
        find_circle(Agent.load("map", device="cpu").model, "GoToObj", VALIDATION_SEED)


def test_an_agent_without_a_map_is_refused() -> None:
    with pytest.raises(ValueError, match="only an agent with a map"):
        find_circle(Agent.create(seed=0).model, "GoToObj", VALIDATION_SEED)
