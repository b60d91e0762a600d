"""The single Gymnasium environment, with the observations, rewards and episode ends of Minigrid."""

import copy
import html
from collections.abc import Callable
from operator import index
from typing import Any, get_args

import gymnasium as gym
import numpy as np

from babyai.engine import Engine
from babyai.engine_kernels import OK, step_batch
from babyai.envs.arguments import check_choice, check_options, find_limited_level
from babyai.envs.generator import GeneratorLoan
from babyai.envs.minigrid_names import MinigridNames
from babyai.envs.spaces import TILE_PIXELS, Observation, action_space, one_hot_views, single_space
from babyai.levels.catalog import Level, Rules
from babyai.levels.layout import parse_layout
from babyai.render.blit import rgb_views
from babyai.render.frame import full_view
from babyai.render.text import draw_text
from babyai.text.effect import describe_effect
from babyai.text.view import Wording, check_wording, describe_view
from babyai.world.language import Mission, detokenize

RENDER_MODES = ("rgb_array", "ansi")
OPTIONS = ("mission", "layout")


class BabyAIEnv(GeneratorLoan, MinigridNames, gym.Env[dict[str, Any], int | np.int64]):
    """An environment with one world. Create it with `gymnasium.make("babyai/GoToLocal-v0", ...)`.

    Args:
        level: A level or its name.
        rules: Rule set: "paper" (the world of the paper) or "minigrid" (identical to Minigrid 3.2.0).
        render_mode: None, "rgb_array" (an image of the whole world) or "ansi" (text with color codes).
        observation: Kind of `image`: "symbolic", the agent's view as (type, color, state), (7, 7, 3) uint8; "rgb", the
            agent's view in pixels, (56, 56, 3) uint8; "one_hot", the agent's view as bits, (7, 7, 20) uint8; "full",
            the whole grid including the agent, (W, H, 3) uint8; "full_rgb", the same in pixels, (8H, 8W, 3) uint8.
            "text" is "symbolic" plus an English description of the view under the key `text`, one sentence per line;
            infos then have `effect`, a sentence that says what the last action did (empty at the start).
        wording: Wording of this description: "plain", or "babyai_text", that of BabyAI-Text (Carta et al. 2023).
        view_size: Side length of the agent's view: odd, 3 to 15.
        agent_view_size: Alias of `view_size`, as in Minigrid.
        max_steps: Time limit of every episode (default: depends on level and mission).
        done_actions: Whether an instruction only counts as fulfilled if the next action is `done`.
        tile_size: Side length of a cell in rendered images, in pixels.
        highlight: Whether rendered images highlight the cells in the agent's view.
        agent_pov: Whether rendered images show only the agent's view.
        screen_size: Accepted as in Minigrid; the window of Gymnasium's "human" mode has the size of the images.
        minigrid_arguments: Arguments of Minigrid's constructor of the level, such as `room_size` and `num_dists`.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        level: str | Level,
        *,
        rules: Rules = "paper",
        render_mode: str | None = None,
        observation: Observation = "symbolic",
        wording: Wording = "plain",
        view_size: int = 7,
        agent_view_size: int | None = None,
        max_steps: int | None = None,
        done_actions: bool = False,
        tile_size: int = 32,
        highlight: bool = True,
        agent_pov: bool = False,
        screen_size: int | None = None,
        **minigrid_arguments: Any,
    ) -> None:
        check_choice("render_mode", render_mode, (None, *RENDER_MODES))
        check_choice("observation", observation, get_args(Observation))
        check_wording(wording)
        view_size = view_size if agent_view_size is None else agent_view_size
        limited = find_limited_level(level, rules, max_steps, minigrid_arguments)
        self.engine = Engine(limited, rules=rules, view_size=view_size, done_actions=done_actions)
        self.render_mode = render_mode
        self.tile_size = tile_size
        self.highlight = highlight
        self.agent_pov = agent_pov
        self.screen_size = screen_size
        self.action_space = action_space()
        self.observation_space = single_space(observation, view_size, (limited.width, limited.height))
        self.mission = ""
        """The mission of the current episode, in English."""
        self._observation = observation
        self._wording: Wording = wording
        self._max_steps = max_steps
        self._prepare_steps()

    def _prepare_steps(self) -> None:
        """Builds the arguments of the step kernel once; building them at each step would take as long as the step."""
        engine = self.engine
        self._tracked = None
        self._action = np.zeros(1, dtype=np.int64)
        self._step_arguments = (
            *(engine.kernel_worlds, self._action, engine.done, False, engine.view_size, engine._view_buffer),
            *(engine.directions, engine.rewards, engine.terminated, engine.truncated, 0, 1),
        )
        view = engine.images[0]
        makers: dict[str, Callable[[], np.ndarray]] = {
            "symbolic": view.copy,
            "text": view.copy,
            "rgb": lambda: rgb_views(engine.images, TILE_PIXELS)[0],
            "one_hot": lambda: one_hot_views(view),
            "full": lambda: full_view(engine.worlds[0]),
            "full_rgb": lambda: self.get_frame(self.highlight, TILE_PIXELS),
        }
        self._make_image = makers[self._observation]

    # ------------------------------------------------------------ reset and step

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts a new episode.

        Args:
            seed: Random seed of the episode (default: the generator continues; the first seed is random).
            options: May have `mission`, a sentence that replaces the level's mission, and `layout`, a world drawn as
                text (see `babyai.levels.layout`), which requires a mission.

        Returns:
            The observation, and an info dict in which `success` is False.
        """
        mission, layout = self._check_options(options)
        self._forget_objects()
        if seed is None:
            self._take_back_generator()
            self.engine.reset()
            self._renew_loan()
        else:
            self.engine.reset([seed])
            self._np_random_seed = int(seed)
            self._lent = None
        if layout is not None:
            self.engine.lay_out(0, layout, mission)
            if self._max_steps is not None:
                self.engine.worlds[0].max_steps = self._max_steps
        elif mission is not None:
            self.engine.instruct(0, mission)
        if self._observation == "rgb":
            # In Minigrid's Carrying levels the first symbolic view does not show the carried object; the pixels do.
            self.engine.observe(0)
        self.mission = detokenize(self.engine.missions[0])
        info: dict[str, Any] = {"success": False}
        if self._observation == "text":
            info["effect"] = ""
        return self._observe(), info

    def step(self, action: int | np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Takes one action; returns observation, reward, terminated, truncated and info.

        Info has `success`: whether this step has fulfilled the mission.
        """
        try:
            self._action[0] = index(action)
        except (TypeError, OverflowError):
            self._action[0] = _single_action(action)
        engine = self.engine
        before = engine.worlds[0].copy() if self._observation == "text" else None
        if step_batch(*self._step_arguments) != OK:
            # The kernel has changed nothing, so the engine's own step raises the error that explains the problem.
            engine.step(self._action)
        if self._tracked is not None:
            self._tracked.follow()
        reward = engine.rewards.item()
        terminated = engine.terminated.item()
        truncated = engine.truncated.item()
        # As in `_observe`, without the cost of the call.
        observation = {"image": self._make_image(), "direction": engine.directions.item(), "mission": self.mission}
        info: dict[str, Any] = {"success": reward > 0}
        if before is not None:
            observation["text"] = "\n".join(describe_view(observation["image"], self._wording))
            info["effect"] = describe_effect(before, int(self._action[0]), engine.worlds[0])
        return observation, reward, terminated, truncated, info

    def gen_obs(self) -> dict[str, Any]:
        """The observation of the current state."""
        if self._not_reset:
            raise RuntimeError("call reset() before gen_obs()")
        self.engine.observe(0)
        return self._observe()

    def _observe(self) -> dict[str, Any]:
        observation = {
            "image": self._make_image(),
            "direction": self.engine.directions.item(),
            "mission": self.mission,
        }
        if self._observation == "text":
            observation["text"] = "\n".join(describe_view(observation["image"], self._wording))
        return observation

    def _check_options(self, options: dict[str, Any] | None) -> tuple[Any, str | None]:
        given = check_options(options, OPTIONS)
        mission = given.get("mission")
        layout = given.get("layout")
        if mission is not None and not isinstance(mission, str | Mission):
            raise TypeError(f"the option 'mission' must be a string or a Mission, not {mission!r}")
        if layout is None:
            return mission, None
        if not isinstance(layout, str):
            raise TypeError(f"the option 'layout' must be a string, not {layout!r}")
        if mission is None:
            raise ValueError("the option 'layout' needs the option 'mission' too")
        drawn = parse_layout(layout)
        size = (self.level.width, self.level.height)
        if self._observation.startswith("full") and (drawn.width, drawn.height) != size:
            raise ValueError(
                f"the layout has {drawn.width} x {drawn.height} cells, but full observations of this level have "
                f"{size[0]} x {size[1]}; choose another observation, or a level of that size"
            )
        return mission, layout

    # ------------------------------------------------------------ snapshots and copies

    def snapshot(self) -> bytes:
        """The complete state of the world, including its random generator, for `restore`."""
        self._take_back_generator()
        return self.engine.snapshot(0)

    def restore(self, snapshot: bytes) -> dict[str, Any]:
        """Restores the world from a snapshot; returns the observation."""
        self.engine.restore(0, snapshot)
        self._forget_objects()
        self._renew_loan()
        self.mission = detokenize(self.engine.missions[0])
        return self._observe()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what `_prepare_steps` builds and what is only lent."""
        self._take_back_generator()
        rebuilt = ("_action", "_step_arguments", "_make_image", "_lent", "_tracked")
        return {name: value for name, value in vars(self).items() if name not in rebuilt}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare_steps()

    def __copy__(self) -> "BabyAIEnv":
        """A full copy: it continues from the same state and shares nothing with the original."""
        return copy.deepcopy(self)

    def close(self) -> None:
        """Stops the engine's threads, if any."""
        self.engine.close()

    # ------------------------------------------------------------ rendering

    def render(self) -> np.ndarray | str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The world as an image or as text, depending on `render_mode`."""
        if self.render_mode == "rgb_array":
            return self.get_frame(self.highlight, self.tile_size, self.agent_pov)
        if self.render_mode == "ansi":
            return self._draw(color=True)
        gym.logger.warn("render() was called without a render_mode: pass render_mode='rgb_array' to gymnasium.make()")
        return None

    def _draw(self, color: bool) -> str:
        return f"{draw_text(self.engine.worlds[0], color)}\n{self.mission}"

    def __str__(self) -> str:
        return super().__str__() if self._not_reset else self._draw(color=False)

    def __repr__(self) -> str:
        return super().__str__()

    def __format__(self, spec: str) -> str:
        """As `repr`, so that the `str` of Gymnasium's wrappers, which formats the environment, is one line."""
        return format(repr(self), spec)

    def _repr_html_(self) -> str:
        """The world and the mission as HTML, for notebooks."""
        from babyai.render.notebook import html_scene
        from babyai.render.scene import take_scene

        return html.escape(repr(self)) if self._not_reset else html_scene(take_scene(self.engine))


def _single_action(action: Any) -> int:
    """The action in an array of one integer, as policies return it."""
    if isinstance(action, np.ndarray) and action.size == 1 and action.dtype.kind in "iu":
        return action.item()
    raise TypeError(f"an action must be an integer 0..6 (see babyai.Action), not {action!r}")
