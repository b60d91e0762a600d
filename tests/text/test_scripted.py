"""The scripted text agent: it solves the levels of one room that its page says it solves."""

import pytest

from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.text_player import TextPlayer
from babyai.text.scripted import ScriptedAgent
from tests.scale import scaled


@pytest.mark.compiled
@pytest.mark.parametrize("level", ["GoToRedBall", "GoToLocal", "OpenDoor"])
def test_it_solves_missions_in_one_room(level: str) -> None:
    result = evaluate(TextPlayer(ScriptedAgent), level, missions=scaled(100))
    # 512 of 512 with the seeds of the test set, see docs/text-agents.md.
    assert result.success_rate >= 0.98 and result.mean_length < 9 and result.unreadable_answers == 0


def test_the_map_follows_what_the_prompts_say() -> None:
    agent = ScriptedAgent()
    see = "Your mission: pick up the red ball\nStep 1 of 64.{}\nYou see a wall 1 step left\n{}"
    assert agent(see.format("", "You see a red ball 3 steps right")) == "turn right"
    assert agent.objects == {(3, 0): "red ball"}
    assert agent(see.format(" You turned right.", "")) == "go forward"
    assert agent(see.format(" Nothing happened: a wall is ahead.", "")) != "go forward"
    assert agent.blocked == {(1, 0)} and agent.pose == ((0, 0), 1)
    assert agent("Your mission: pick up the red ball\nYou see a red ball 1 step forward") == "pick up"


def test_missions_that_it_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="put the red ball next to the box"):
        ScriptedAgent()("Your mission: put the red ball next to the box\n")
