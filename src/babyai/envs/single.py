"""One world as a Gymnasium environment that observes, pays and ends as Minigrid's do."""

import base64
import html
from collections.abc import Callable
from operator import index
from typing import Any, get_args

import gymnasium as gym
import numpy as np

from babyai import engine_kernels
from babyai.engine import Engine
from babyai.envs.arguments import check_choice, check_options, find_limited_level
from babyai.envs.minigrid_names import MinigridNames
from babyai.envs.spaces import TILE_PIXELS, Observation, action_space, single_space
from babyai.levels.catalog import Level, Rules
from babyai.levels.layout import parse_layout
from babyai.render.blit import rgb_views
from babyai.render.frame import full_view
from babyai.render.text import describe_view, draw_text
from babyai.world.language import Mission, words_of

RENDER_MODES = ("rgb_array", "ansi")
OPTIONS = ("mission", "layout")


class BabyAIEnv(MinigridNames, gym.Env[dict[str, Any], int | np.int64]):
    """One world. Made with `gymnasium.make("babyai/GoToLocal-v0", ...)`.

    Args:
        level: A level or its name.
        rules: "paper" (the world of the paper) or "minigrid" (Minigrid 3.2.0 to the bit).
        render_mode: None, "rgb_array" (a picture of the whole world) or "ansi" (a drawing in text).
        observation: What `image` holds: "symbolic", the agent's view as (type, color, state), (7, 7, 3) uint8; "rgb",
            the same in pixels, (56, 56, 3); "full", the whole grid with the agent in it, (W, H, 3). "text" adds to the
            symbolic view the same in sentences, under the key `text`.
        view_size: The side of the agent's view, odd, 3 to 15.
        agent_view_size: Minigrid's name for `view_size`.
        max_steps: The time limit of every episode; None leaves it to level and mission.
        done_actions: An instruction counts only once the agent plays `done` on the step after fulfilling it.
        tile_size: Pixels a side of one cell in pictures.
        highlight: Whether pictures show which cells the agent sees.
        agent_pov: Whether pictures show only the agent's view.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        level: str | Level,
        *,
        rules: Rules = "paper",
        render_mode: str | None = None,
        observation: Observation = "symbolic",
        view_size: int = 7,
        agent_view_size: int | None = None,
        max_steps: int | None = None,
        done_actions: bool = False,
        tile_size: int = 32,
        highlight: bool = True,
        agent_pov: bool = False,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name != "self"}
        check_choice("render_mode", render_mode, (None, *RENDER_MODES))
        check_choice("observation", observation, get_args(Observation))
        view_size = view_size if agent_view_size is None else agent_view_size
        limited = find_limited_level(level, rules, max_steps)
        self.engine = Engine(limited, rules=rules, view_size=view_size, done_actions=done_actions)
        self.render_mode, self.tile_size = render_mode, tile_size
        self.highlight, self.agent_pov = highlight, agent_pov
        self.action_space = action_space()
        self.observation_space = single_space(observation, view_size, (limited.width, limited.height))
        self.mission = ""
        """The sentence that the agent is to follow."""
        self._observation, self._max_steps = observation, max_steps
        self._prepare_steps()

    def _prepare_steps(self) -> None:
        """Looks up once what every step needs, since looking it up each time would take as long as the step."""
        engine = self.engine
        self._action = np.zeros(1, dtype=np.int64)
        self._step_arguments = (
            *(engine.kernel_worlds, self._action, engine.done, False, engine.view_size, engine._view_buffer),
            *(engine.directions, engine.rewards, engine.terminated, engine.truncated, 0, 1),
        )
        view = engine.images[0]
        pictures: dict[str, Callable[[], np.ndarray]] = {
            "symbolic": view.copy,
            "text": view.copy,
            "rgb": lambda: rgb_views(engine.images, TILE_PIXELS)[0],
            "full": lambda: full_view(engine.worlds[0]),
        }
        self._picture = pictures[self._observation]

    # ------------------------------------------------------------ the two verbs

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins a new episode.

        Args:
            seed: Names the episode; without one the world's generator goes on, from OS entropy at first.
            options: `mission`, a sentence to follow instead of the level's own, and `layout`, a drawing (see
                `babyai.levels.layout`) to be the world, which needs a mission.

        Returns:
            The observation and an empty dict.
        """
        mission, layout = self._check_options(options)
        self.engine.reset(None if seed is None else [seed])
        super().reset(seed=None if seed is None else int(seed))
        if layout is not None:
            self.engine.lay_out(0, layout, mission)
            if self._max_steps is not None:
                self.engine.worlds[0].max_steps = self._max_steps
        elif mission is not None:
            self.engine.instruct(0, mission)
        if self._observation == "rgb":
            # Where Minigrid hands an object over late, its pixels, unlike its symbols, show it at once.
            self.engine.observe(0)
        self.mission = words_of(self.engine.missions[0])
        return self._observe(), {}

    def step(self, action: int | np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Plays one action; returns observation, reward, terminated, truncated, and at the end `success` as info."""
        try:
            self._action[0] = index(action)
        except (TypeError, OverflowError):
            raise TypeError(f"an action must be an integer 0..6 (see babyai.Action), not {action!r}") from None
        engine = self.engine
        if engine_kernels.step_batch(*self._step_arguments) != engine_kernels.FINE:
            # Nothing has been changed, so the engine finds the same fault, and says what it is.
            engine.step(self._action)
        reward, terminated, truncated = engine.rewards.item(), engine.terminated.item(), engine.truncated.item()
        info = {"success": reward > 0} if terminated or truncated else {}
        return self._observe(), reward, terminated, truncated, info

    def gen_obs(self) -> dict[str, Any]:
        """The observation of the world as it stands."""
        if self._is_unborn:
            raise RuntimeError("there is nothing to observe yet: call reset() first")
        self.engine.observe(0)
        return self._observe()

    def _observe(self) -> dict[str, Any]:
        seen = {"image": self._picture(), "direction": self.engine.directions.item(), "mission": self.mission}
        if self._observation == "text":
            seen["text"] = "\n".join(describe_view(seen["image"]))
        return seen

    def _check_options(self, options: dict[str, Any] | None) -> tuple[Any, str | None]:
        given = check_options(options, OPTIONS)
        mission, layout = given.get("mission"), given.get("layout")
        if mission is not None and not isinstance(mission, str | Mission):
            raise TypeError(f"the option 'mission' must be a sentence, not {mission!r}")
        if layout is None:
            return mission, None
        if not isinstance(layout, str):
            raise TypeError(f"the option 'layout' must be a drawing in text, not {layout!r}")
        if mission is None:
            raise ValueError("a layout needs an instruction: give the option 'mission' too")
        drawn, size = parse_layout(layout), (self.level.width, self.level.height)
        if self._observation == "full" and (drawn.width, drawn.height) != size:
            raise ValueError(
                f"the layout has {drawn.width} x {drawn.height} cells, but images of the full grid have {size[0]} x "
                f"{size[1]} here; choose another observation, or a level of that size"
            )
        return mission, layout

    # ------------------------------------------------------------ to and fro

    def snapshot(self) -> bytes:
        """The world, whole, its generator included: a value to keep, compare, or give to `restore`."""
        return self.engine.snapshot(0)

    def restore(self, snapshot: bytes) -> dict[str, Any]:
        """Puts the world back where a snapshot was taken; returns what is observed there."""
        self.engine.restore(0, snapshot)
        self.mission = words_of(self.engine.missions[0])
        return self._observe()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or pickled environment goes on from the same state; it shares nothing with this one."""
        kept = ("_np_random", "_np_random_seed", "spec", "action_space", "observation_space")
        state = {name: getattr(self, name) for name in kept}
        return _revive, (type(self), self._arguments, None if self._is_unborn else self.snapshot()), state

    def close(self) -> None:
        """Lets go of the engine's threads, if any."""
        self.engine.close()

    # ------------------------------------------------------------ pictures

    def render(self) -> np.ndarray | str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The world as `render_mode` says."""
        if self.render_mode == "rgb_array":
            return self.get_frame(self.highlight, self.tile_size, self.agent_pov)
        if self.render_mode == "ansi":
            return self._draw(color=True)
        gym.logger.warn("render() was called, but no render_mode was chosen: give make() render_mode='rgb_array'")
        return None

    def _draw(self, color: bool) -> str:
        return f"{draw_text(self.engine.worlds[0], color)}\n{self.mission}"

    def __str__(self) -> str:
        return super().__str__() if self._is_unborn else self._draw(color=False)

    def __repr__(self) -> str:
        return super().__str__()

    def _repr_html_(self) -> str:
        """The picture and the mission, for notebooks."""
        from babyai.render.picture import png_bytes

        if self._is_unborn:
            return html.escape(repr(self))
        picture = base64.b64encode(png_bytes(self.get_frame(tile_size=self.tile_size))).decode()
        caption = html.escape(self.mission)
        return (
            f'<figure><img src="data:image/png;base64,{picture}" alt="{caption}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )


def _revive(kind: type[BabyAIEnv], arguments: dict[str, Any], snapshot: bytes | None) -> BabyAIEnv:
    """An environment made anew, put where a snapshot was taken."""
    env = kind(**arguments)
    if snapshot is not None:
        env.restore(snapshot)
    return env
