"""Text agents as players: functions, functions of lists, classes; what they are told, and what they may get wrong."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate, evaluate_levels
from babyai.evaluation.text_player import BATCH, TextAgentError, TextPlayer
from babyai.evaluation.watch import play_scenes
from babyai.text.actions import ACTION_NAMES
from babyai.text.prompt import TextObservation
from babyai.text.world import describe_world
from babyai.world.codes import Action

LEVEL = "GoToObjS4"


def seek(prompt: str) -> str:
    """Goes on until something is in the way, then turns."""
    return "turn left" if "wall 1 step forward" in prompt else "go forward"


def seek_all(prompts: list[str]) -> list[str]:
    return [seek(prompt) for prompt in prompts]


class Remembering:
    """Answers by the number of prompts that it has been asked in this episode."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        assert f"Step {len(self.prompts)} of " in prompt
        return ["go forward", "turn left"][len(self.prompts) % 2]


# ------------------------------------------------------------ kinds of agents


def test_functions_functions_of_lists_and_numbers_of_worlds_agree() -> None:
    one = evaluate(TextPlayer(seek), LEVEL, missions=40)
    assert one.successes > 20 and one.std_length > 1 and one.unreadable_answers == 0
    for player, worlds in ((TextPlayer(seek), 7), (TextPlayer(seek_all), None), (TextPlayer(seek_all), 3)):
        assert evaluate(player, LEVEL, missions=40, worlds=worlds) == one


def test_actions_are_those_of_the_answers() -> None:
    """A text agent plays as a loop over an environment that asks the same function."""
    result = evaluate(TextPlayer(seek), LEVEL, missions=20, first_seed=3)
    env = gym.make(f"babyai/{LEVEL}-v0", observation="text")
    for k in range(20):
        obs, _ = env.reset(seed=3 + k)
        steps = 0
        reward = 0.0
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(0 if "wall 1 step forward" in obs["text"] else 2)
            over = terminated or truncated
            steps += 1
        assert (steps, reward) == (result.lengths[k], result.rewards[k])


def test_lists_are_recognized_by_the_annotation_or_by_request() -> None:
    def unannotated(prompts):
        return seek_all(prompts)

    def sequence(prompts: Sequence[str]) -> list[int]:
        return [2] * len(prompts)

    assert TextPlayer(seek_all).batch and TextPlayer(sequence).batch
    assert TextPlayer(seek_all).best_worlds == BATCH and TextPlayer(seek).best_worlds == 1
    assert not TextPlayer(seek).batch and not TextPlayer(unannotated).batch and not TextPlayer(len).batch
    assert evaluate(TextPlayer(unannotated, batch=True), LEVEL, missions=10).unreadable_answers == 0


@pytest.mark.parametrize("worlds", [1, 4])
def test_a_class_remembers_one_episode(worlds: int) -> None:
    result = evaluate(TextPlayer(Remembering), "GoToLocal", missions=9, worlds=worlds)
    assert result == evaluate(TextPlayer(Remembering), "GoToLocal", missions=9)


# ------------------------------------------------------------ what they are told


def told(level: str = "GoToLocal", answers: Sequence[Any] = ("turn left",), **settings: Any) -> list[str]:
    """The prompts of one episode in which these answers are given."""
    prompts: list[str] = []

    def agent(prompt: str) -> Any:
        prompts.append(prompt)
        return answers[len(prompts) - 1]

    scenes = play_scenes(TextPlayer(agent, **settings), level, seed=0)
    for _ in range(len(answers) + 1):
        next(scenes)
    return prompts


def test_prompts_have_mission_view_and_outcome() -> None:
    env = gym.make("babyai/GoToLocal-v0", observation="text")
    obs, _ = env.reset(seed=0)
    expected = [f"Your mission: {obs['mission']}\nStep 1 of 64.\n{obs['text']}"]
    for step, action in enumerate((0, 2, 2), start=2):
        obs, *_, info = env.step(action)
        expected.append(f"Your mission: {obs['mission']}\nStep {step} of 64. {info['effect']}\n{obs['text']}")
    prompts = told(answers=["turn left", "go forward", 2, "toggle"])
    assert [prompt.rpartition("\n")[0] for prompt in prompts] == expected
    assert all(prompt.endswith("turn left, turn right, go forward, pick up, drop, toggle") for prompt in prompts)


def test_unreadable_answers_are_reported_and_counted() -> None:
    prompts = told(answers=["fly", "turn left", "turn left or turn right", "drop"])
    facts = ["Step 1 of 64.", "must name exactly one action", "You turned left.", "must name exactly one action"]
    assert all(fact in prompt.split("\n")[1] for fact, prompt in zip(facts, prompts, strict=True))

    def mumble(prompt: str) -> str:
        return "hm" if "Step 2 of" in prompt or "Step 3 of" in prompt else seek(prompt)

    results = evaluate_levels(TextPlayer(mumble), [LEVEL, "GoToObj"], missions=15, worlds=4)
    for result in results.values():
        expected = np.clip(result.lengths - 1, 0, 2).sum()
        assert result.unreadable_answers == result.to_dict()["unreadable_answers"] == expected > 15


def test_unreadable_answers_do_nothing() -> None:
    result = evaluate(TextPlayer(lambda prompt: "?"), LEVEL, missions=3)
    assert result.successes == 0 and result.unreadable_answers == result.lengths.sum()


def test_the_prompt_of_babyai_text_has_the_last_two_actions() -> None:
    first, *_, last = told(answers=["left", "fly", "go forward", 0], wording="babyai_text")
    assert first.startswith("Possible action of the agent: turn left") and first.endswith("\n Action 0: ")
    assert "\n Action 0: fly \n Observation 1: " in last and "\n Action 1: go forward \n Observation 2: " in last
    assert last.endswith("\n Action 2: ") and last.count("You see a wall") >= 1


def test_the_whole_world_can_be_described() -> None:
    [prompt] = told("UnlockPickup", full=True)
    env = gym.make("babyai/UnlockPickup-v0")
    env.reset(seed=0)
    assert "\n".join(describe_world(env)) in prompt


def test_prompts_of_ones_own() -> None:
    def prompt(observation: TextObservation) -> str:
        names = ", ".join(name for _, name in observation.past)
        return f"{observation.mission}|{observation.step}|{names}|{observation.effect}"

    mission = "go to the green ball"
    assert told(answers=["left", "right"], prompt=prompt) == [
        f"{mission}|0||",
        f"{mission}|1|{ACTION_NAMES[Action.left]}|You turned left.",
    ]


# ------------------------------------------------------------ bad agents


@pytest.mark.parametrize("answer", [None, 2.5, ["turn left"]])
def test_what_is_no_answer_is_explained(answer: object) -> None:
    def silent(prompt: str) -> Any:
        return answer

    with pytest.raises(TextAgentError, match=r"silent gave no answer: .*'go forward'.*not "):
        evaluate(TextPlayer(silent), LEVEL, missions=1)


def test_errors_in_an_agent_say_where_they_happened() -> None:
    def broken(prompt: str) -> str:
        return {"a": "b"}[prompt]

    with pytest.raises(TextAgentError, match=r"broken failed: KeyError: .*test_text_player\.py, line \d+") as raised:
        evaluate(TextPlayer(broken), LEVEL, missions=1)
    assert isinstance(raised.value.__cause__, KeyError)

    class Unborn:
        def __init__(self, model: str) -> None:
            self.model = model

    with pytest.raises(TextAgentError, match=r"Unborn failed: TypeError.*model"):
        evaluate(TextPlayer(Unborn), LEVEL, missions=1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("answers", ["turn left", None, [], ["turn left"] * 3])
def test_lists_must_have_one_answer_per_prompt(answers: Any) -> None:
    def agent(prompts: list[str]) -> Any:
        return answers

    with pytest.raises(TextAgentError, match="one answer per prompt, 2"):
        evaluate(TextPlayer(agent), LEVEL, missions=2)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ValueError, match="function or a class, not 'turn left'"):
        TextPlayer("turn left")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"'long'.*'plain'"):
        TextPlayer(seek, wording="long")  # pyright: ignore[reportArgumentType]

    async def later(prompt: str) -> str:
        return seek(prompt)

    with pytest.raises(ValueError, match=r"later is async.*asyncio\.run"):
        TextPlayer(later)
    with pytest.raises(ValueError, match="Remembering is a class"):
        TextPlayer(Remembering, batch=True)
    with pytest.raises(TextAgentError, match="__call__"):
        evaluate(TextPlayer(object), LEVEL, missions=1)  # pyright: ignore[reportArgumentType]


def test_acting_before_begin_is_an_error() -> None:
    engine = Engine(LEVEL)
    engine.reset(0)
    with pytest.raises(RuntimeError, match="begin"):
        TextPlayer(seek).act(engine, np.array([True]))
