"""The native Gymnasium vector environment, with all three autoreset modes."""

import copy
import html
import time
from collections.abc import Sequence
from typing import Any, get_args

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from babyai.engine import Engine, Episodes, check_seed
from babyai.envs.arguments import check_choice, check_options, check_step_limit, find_limited_level
from babyai.envs.spaces import (
    TILE_PIXELS,
    Missions,
    Observation,
    action_space,
    full_rgb_views,
    full_views,
    image_space,
    one_hot_views,
    world_space,
)
from babyai.envs.world_view import WorldView
from babyai.levels.catalog import Level, Rules
from babyai.render.blit import blit_views, rgb_views, view_tiles
from babyai.render.frame import draw_world
from babyai.render.text import draw_text
from babyai.text.effect import describe_effect
from babyai.text.view import Wording, check_wording, describe_view
from babyai.world.language import detokenize
from babyai.world.state import ENDED, NOT_RESET, ORIGIN, STRIDE

RENDER_MODES = ("rgb_array", "ansi")
OPTIONS = ("reset_mask",)

# Arrays, except for texts, which are tuples.
Arrays = dict[str, Any]


class BabyAIVectorEnv(VectorEnv[Arrays, np.ndarray, np.ndarray]):
    """An environment with N worlds. Create it with `gymnasium.make_vec("babyai/GoTo-v0", num_envs=N, ...)`.

    Observations are a dict of arrays: `image`, (N, 7, 7, 3) uint8 (other kinds as in `BabyAIEnv`), `direction`, (N,)
    int64, and `mission`, (N, 72) uint8 token ids, which `mission_text` translates into English.

    `infos` always has `success`, (N,) bool: whether this step has fulfilled the mission. When episodes end, it has
    `episode` with the arrays `r`, `l` and `t` (return, length and seconds) and the mask `_episode`, as from Gymnasium's
    RecordEpisodeStatistics. (That wrapper raises an error if these keys already exist; use it with `statistics=False`.)
    In SAME_STEP mode, `final_obs` and `final_info` have the observations and the `success` of the episodes that have
    ended, as dicts of arrays that are valid where `_final_obs` is true.

    Args:
        num_envs: Number of worlds, N.
        level: A level or its name.
        levels: Several levels instead of one; world i plays `levels[i % len(levels)]`.
        rules: Rule set: "paper" (the world of the paper) or "minigrid" (identical to Minigrid 3.2.0).
        render_mode: None, "rgb_array" or "ansi".
        observation: "symbolic", "rgb", "one_hot", "full", "full_rgb" or "text"; see `BabyAIEnv`. With "text", `text` is
            a tuple of N descriptions, and infos have `effect`, an array of N sentences.
        wording: Wording of these descriptions: "plain" or "babyai_text"; see `BabyAIEnv`.
        missions: "tokens", (N, 72) uint8, or "text", a tuple of N sentences.
        view_size: Side length of the agent's view: odd, 3 to 15.
        agent_view_size: Alias of `view_size`, as in Minigrid.
        autoreset_mode: A member of `gymnasium.vector.AutoresetMode`, or its value. Gymnasium's vector wrappers need the
            default, NEXT_STEP.
        episodes: Seeding of episodes that are reset without a seed. "stream": the world's generator continues.
            "next_seed": the world's last seed plus `num_envs`, so every episode can be reproduced by its seed.
        copy: Whether each call returns new arrays. If False, the arrays are read-only views of the engine's, which the
            next call overwrites.
        statistics: Whether `infos` has episode statistics.
        threads: Number of threads. Results do not depend on it.
        max_steps: Time limit of every episode (default: depends on level and mission).
        done_actions: Whether an instruction only counts as fulfilled if the next action is `done`.
        max_episode_steps: Number of steps after which episodes are truncated. Unlike `max_steps`, it does not change
            rewards, like Gymnasium's TimeLimit.
        tile_size: Side length of a cell in rendered images, in pixels.
        minigrid_arguments: Arguments of Minigrid's constructor of the level, such as `room_size` and `num_dists`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        level: str | Level | None = None,
        *,
        levels: Sequence[str | Level] | None = None,
        rules: Rules = "paper",
        render_mode: str | None = None,
        observation: Observation = "symbolic",
        wording: Wording = "plain",
        missions: Missions = "tokens",
        view_size: int = 7,
        agent_view_size: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        episodes: Episodes = "stream",
        copy: bool = True,
        statistics: bool = True,
        threads: int = 1,
        max_steps: int | None = None,
        max_episode_steps: int | None = None,
        done_actions: bool = False,
        tile_size: int = 32,
        **minigrid_arguments: Any,
    ) -> None:
        check_choice("render_mode", render_mode, (None, *RENDER_MODES))
        check_choice("missions", missions, get_args(Missions))
        check_step_limit("max_episode_steps", max_episode_steps)
        check_choice("observation", observation, get_args(Observation))
        check_wording(wording)
        view_size = view_size if agent_view_size is None else agent_view_size
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.tile_size = tile_size
        self.copy = copy
        self.statistics = statistics
        self.max_episode_steps = max_episode_steps
        self.set_autoreset_mode(autoreset_mode)
        played = [
            find_limited_level(each, rules, max_steps, minigrid_arguments) for each in _choose_levels(level, levels)
        ]
        self.engine = Engine(
            played,
            num_envs,
            rules=rules,
            episodes=episodes,
            view_size=view_size,
            done_actions=done_actions,
            threads=threads,
        )
        self.observation_kind: Observation = observation
        self.wording: Wording = wording
        self.missions_kind = missions
        self._size = _common_size(played, observation)
        self.single_action_space = action_space()
        self.single_observation_space = world_space(observation, view_size, self._size, missions)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        # In Minigrid's Carrying levels the first symbolic view does not show the carried object; the pixels do.
        self._shown_late = observation == "rgb" and rules == "minigrid" and any(each.carrying for each in played)
        self._image_shape = (num_envs, *image_space(observation, view_size, self._size).shape)
        self._started = np.zeros(num_envs)
        self.was_reset = False
        self._prepare_buffers()

    def _prepare_buffers(self) -> None:
        """Builds what refers to the engine's arrays, or only saves time."""
        self._frames: np.ndarray | None = None
        self._step_counts = self.engine.worlds.view(np.ndarray)["step_count"]
        self._everywhere = np.ones(self.num_envs, dtype=bool)
        self._everywhere.flags.writeable = False
        self._views: dict[int, WorldView] = {}

    def set_autoreset_mode(self, mode: AutoresetMode | str) -> None:
        """Sets `autoreset_mode` and the environment's metadata; only before the first reset."""
        if getattr(self, "was_reset", False):
            raise RuntimeError("the autoreset mode can only be set before the first reset()")
        self.autoreset_mode = _find_mode(mode)
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": 10,
            "autoreset_mode": self.autoreset_mode,
        }

    # ------------------------------------------------------------ reset and step

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *,
        seed: int | Sequence[int | None] | np.ndarray | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Arrays, dict[str, Any]]:
        """Starts a new episode in every world, or in those where the option `reset_mask`, (N,) bool, is true.

        Args:
            seed: An int s gives world i the seed s + i; a sequence has one seed per world, or None for a world that is
                reset without a seed (see `episodes`).
            options: May have `reset_mask`.

        Returns:
            The observations of all worlds, and infos in which `success` is false.
        """
        given = check_options(options, OPTIONS)
        mask = self._check_mask(given["reset_mask"]) if "reset_mask" in given else np.ones(self.num_envs, dtype=bool)
        if seed is not None and not isinstance(seed, Sequence | np.ndarray):
            seed = check_seed(seed)
            self._np_random_seed = seed
        self.engine.reset(seed, mask)
        self._start_episodes(mask)
        self.was_reset = True
        infos: dict[str, Any] = {"success": np.zeros(self.num_envs, dtype=bool), "_success": mask}
        if self.observation_kind == "text":
            effects = np.full(self.num_envs, None, dtype=object)
            effects[mask] = ""
            infos |= {"effect": effects, "_effect": mask}
        return self._observe(), infos

    def step(self, actions: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes one action in each world.

        In NEXT_STEP mode, worlds whose episode ended in the previous step are reset, and their action is ignored.

        Args:
            actions: (N,) integers 0..6; see `babyai.Action`.

        Returns:
            Observations, rewards (N,) float64, terminations (N,) bool, truncations (N,) bool, and infos.
        """
        engine = self.engine
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        to_reset = engine.done.copy() if next_step and self.was_reset else None
        before = engine.worlds.copy() if self.observation_kind == "text" else None
        engine.step(actions, skip_done=to_reset is not None)
        if self._views:
            self._follow_objects(to_reset)
        if self.max_episode_steps is not None:
            self._truncate(self.max_episode_steps, to_reset)
        if to_reset is not None and to_reset.any():
            engine.reset(chosen=to_reset)
            self._start_episodes(to_reset)
        rewards = engine.rewards.copy() if self.copy else engine.rewards
        terminated = engine.terminated.copy() if self.copy else engine.terminated
        truncated = engine.truncated.copy() if self.copy else engine.truncated
        ended = terminated | truncated
        which = ended.nonzero()[0]
        infos: dict[str, Any] = {"success": engine.rewards > 0, "_success": self._everywhere}
        if before is not None:
            infos |= {"effect": self._describe_effects(before, actions, to_reset), "_effect": self._everywhere}
        if which.size:
            self._end_episodes(infos, ended, which)
        return self._observe(), rewards, terminated, truncated, infos

    def _truncate(self, limit: int, skipped: np.ndarray | None) -> None:
        """Truncates episodes that have taken this many steps, except in worlds that did not take this one."""
        engine = self.engine
        late = self._step_counts >= limit
        if skipped is not None:
            late &= ~skipped
        if late.any():
            engine.truncated |= late
            engine.done |= late
            engine.worlds.status[late] = ENDED

    def _start_episodes(self, started: np.ndarray) -> None:
        """Records the start time of episodes in these worlds, (N,) bool."""
        self._started[started] = time.perf_counter()
        for i, view in self._views.items():
            if started[i]:
                view._forget_objects()
        if self._shown_late:
            for i in np.flatnonzero(started):
                self.engine.observe(int(i))

    def _end_episodes(self, infos: dict[str, Any], ended: np.ndarray, which: np.ndarray) -> None:
        """Adds to the infos what belongs to episodes that have just ended; in SAME_STEP mode, starts the next ones.

        Args:
            infos: The infos of this step, with `success`.
            ended: (N,) bool, the worlds whose episode ended.
            which: (K,) int64, the indices of these worlds.
        """
        if self.statistics:
            infos |= {"episode": self._statistics(which), "_episode": ended}
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return
        infos |= {"final_obs": self._final_observations(which), "_final_obs": ended}
        infos |= {"final_info": {"success": infos["success"], "_success": ended}, "_final_info": ended}
        if "effect" in infos:
            infos["final_info"] |= {"effect": infos["effect"], "_effect": ended}
            infos["effect"] = np.where(ended, "", infos["effect"])
        # Outside of `final_info`, `success` is that of the episodes that start now or go on.
        infos["success"] = np.zeros(self.num_envs, dtype=bool)
        self._start_episodes(self.engine.reset_done())

    def _statistics(self, which: np.ndarray) -> Arrays:
        """Return, length and seconds of the episodes that have just ended: (N,) each, 0 elsewhere."""
        lengths = np.zeros(self.num_envs, dtype=np.int64)
        lengths[which] = self._step_counts[which]
        seconds = np.zeros(self.num_envs)
        seconds[which] = time.perf_counter() - self._started[which]
        # Only the last step of an episode has a reward, so the reward is the return.
        return {"r": self.engine.rewards.copy(), "l": lengths, "t": seconds}

    # ------------------------------------------------------------ observations

    def _observe(self) -> Arrays:
        engine = self.engine
        kind = self.observation_kind
        if kind in ("symbolic", "text"):
            image = engine.images.copy() if self.copy else engine.images
        elif kind == "rgb":
            image = rgb_views(engine.images, TILE_PIXELS) if self.copy else self._draw_frames()
        else:
            image = self._make_images(kind, slice(None))
        missions = self.missions if self.missions_kind == "text" else engine.missions
        if self.copy:
            observations = {"image": image, "direction": engine.directions.copy(), "mission": _copied(missions)}
        else:
            observations = {"image": _read_only(image), "direction": engine.directions, "mission": missions}
        if kind == "text":
            observations["text"] = self._describe_views(self._everywhere)
        return observations

    def _make_images(self, kind: Observation, which: Any) -> np.ndarray:
        """New images of the worlds that `which` selects."""
        engine = self.engine
        if kind == "rgb":
            return rgb_views(engine.images[which], TILE_PIXELS)
        if kind == "one_hot":
            return one_hot_views(engine.images[which])
        if kind == "full_rgb":
            return full_rgb_views(engine.worlds[which], engine.images[which])
        return full_views(engine.worlds[which], self._size)

    def _draw_frames(self) -> np.ndarray:
        """The RGB observations, in an array that the next call overwrites."""
        frames = self._frames = np.empty(self._image_shape, dtype=np.uint8) if self._frames is None else self._frames
        blit_views(self.engine.images, *view_tiles(TILE_PIXELS), frames, 0, self.num_envs)
        return frames

    def _final_observations(self, which: np.ndarray) -> Arrays:
        """The observations before the next episodes start; images that must be rendered are zero except in `which`."""
        engine = self.engine
        if self.observation_kind in ("symbolic", "text"):
            image = engine.images.copy()
        else:
            image = np.zeros(self._image_shape, dtype=np.uint8)
            image[which] = self._make_images(self.observation_kind, which)
        missions = self.missions if self.missions_kind == "text" else engine.missions.copy()
        observations = {"image": image, "direction": engine.directions.copy(), "mission": missions}
        if self.observation_kind == "text":
            observations["text"] = self._describe_views(engine.done)
        return observations

    def _describe_views(self, chosen: np.ndarray) -> tuple[str, ...]:
        """The views in English, where `chosen`, (N,) bool, is true; elsewhere an empty text."""
        views = zip(self.engine.images, chosen.tolist(), strict=True)
        return tuple("\n".join(describe_view(view, self.wording)) if wanted else "" for view, wanted in views)

    def _describe_effects(self, before: np.recarray, actions: np.ndarray, skipped: np.ndarray | None) -> np.ndarray:
        """What the actions did, (N,) str objects; an empty text in worlds that did not take theirs."""
        effects = np.full(self.num_envs, "", dtype=object)
        for i in range(self.num_envs):
            if skipped is None or not skipped[i]:
                effects[i] = describe_effect(before[i], int(actions[i]), self.engine.worlds[i])
        return effects

    # ------------------------------------------------------------ single worlds

    def mission_text(self, index: int) -> str:
        """The mission of one world in English."""
        return detokenize(self.engine.missions[index])

    @property
    def missions(self) -> tuple[str, ...]:
        """The missions of all worlds in English."""
        return tuple(detokenize(tokens) for tokens in self.engine.missions)

    @property
    def agent_pos(self) -> np.ndarray:
        """The agents' (x, y): (N, 2) int64."""
        y, x = np.divmod(self.engine.worlds.agent.astype(np.int64) - ORIGIN, STRIDE)
        return np.stack([x, y], axis=1)

    @property
    def agent_dir(self) -> np.ndarray:
        """The agents' headings: (N,) int64."""
        return self.engine.worlds.agent_dir.astype(np.int64)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every world, such as `agent_pos`, `mission` or `carrying`; see `call`."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every world, such as `agent_dir`.

        Args:
            name: The attribute.
            values: A list or tuple with one value per world, or one value for all.
        """
        each = values if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"expected one value per world ({self.num_envs}), got {len(each)}")
        for i, value in enumerate(each):
            setattr(self.world(i), name, value)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every world, or reads an attribute; worlds have those of `gymnasium.make`'s environment.

        It takes a Python object per world; for many worlds, use `agent_pos`, `agent_dir`, `missions` and `engine`.
        """
        found = [getattr(self.world(i), name) for i in range(self.num_envs)]
        return tuple(each(*args, **kwargs) if callable(each) else each for each in found)

    def world(self, index: int) -> WorldView:
        """One world, with the attributes of a single environment: `agent_pos`, `grid`, `carrying` and so on."""
        if not 0 <= index < self.num_envs:
            raise IndexError(f"there is no world {index}; worlds are numbered 0..{self.num_envs - 1}")
        if index not in self._views:
            self._views[index] = WorldView(self, index)
        return self._views[index]

    def _follow_objects(self, skipped: np.ndarray | None) -> None:
        """Lets the objects that somebody has looked at follow this step, except in worlds that did not take it."""
        for i, view in self._views.items():
            if view._tracked is not None and (skipped is None or not skipped[i]):
                view._tracked.follow()

    @property
    def np_random(self) -> np.random.Generator:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Not offered, because every world has a generator of its own."""
        raise AttributeError(
            "a vector environment has no np_random: every world has its own generator; use reset(seed=...), the "
            "generator of a single environment, or a generator of your own"
        )

    @np_random.setter
    def np_random(self, value: Any) -> None:
        raise AttributeError("a vector environment has no np_random to set: use reset(seed=...)")

    @property
    def np_random_seed(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The last integer given to `reset(seed=...)`; None if there was none."""
        return self._np_random_seed

    def snapshot(self, index: int) -> bytes:
        """The complete state of one world, including its random generator, for `restore`."""
        return self.engine.snapshot(index)

    def restore(self, index: int, snapshot: bytes) -> None:
        """Restores one world from a snapshot; the next call returns its observation."""
        self.engine.restore(index, snapshot)
        if index in self._views:
            self._views[index]._forget_objects()
        self._started[index] = time.perf_counter()

    def render(self) -> tuple[Any, ...] | None:
        """An image or text for each world, depending on `render_mode`."""
        if self.render_mode is None:
            gym.logger.warn(
                "render() was called without a render_mode: pass render_mode='rgb_array' to gymnasium.make_vec()"
            )
            return None
        if not self.was_reset:
            raise RuntimeError("call reset() before render()")
        worlds = self.engine.worlds
        views = self.engine.images
        if self.render_mode == "ansi":
            return tuple(f"{draw_text(w, color=True)}\n{self.mission_text(i)}" for i, w in enumerate(worlds))
        return tuple(draw_world(world, self.tile_size, view) for world, view in zip(worlds, views, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what `_prepare_buffers` builds: a copy needs views of its own engine."""
        rebuilt = ("_frames", "_step_counts", "_everywhere", "_views")
        return {name: value for name, value in vars(self).items() if name not in rebuilt}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare_buffers()

    def __copy__(self) -> "BabyAIVectorEnv":
        """A full copy: it continues from the same state and shares nothing with the original."""
        return copy.deepcopy(self)

    def _repr_html_(self) -> str:
        """The first worlds as HTML, for notebooks."""
        from babyai.render.notebook import html_scene
        from babyai.render.scene import take_scene

        if (self.engine.worlds.status == NOT_RESET).any():
            return html.escape(repr(self))
        shown = [html_scene(take_scene(self.engine, i), tile_size=16) for i in range(min(4, self.num_envs))]
        return f"<p>{html.escape(repr(self))}, the first {len(shown)}:</p>{''.join(shown)}"

    def close_extras(self, **kwargs: Any) -> None:
        """Stops the engine's threads."""
        self.engine.close()

    def _check_mask(self, mask: Any) -> np.ndarray:
        expected = f"the option 'reset_mask' must be an array of shape ({self.num_envs},) and dtype bool"
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"{expected}, not {type(mask).__name__}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"{expected}, not of shape {mask.shape}")
        if mask.dtype != bool:
            raise TypeError(f"{expected}, not of dtype {mask.dtype}")
        if not mask.any():
            raise ValueError(f"{expected} with at least one True element")
        return mask


def _find_mode(mode: AutoresetMode | str) -> AutoresetMode:
    if not isinstance(mode, AutoresetMode):
        check_choice("autoreset_mode", mode, [each.value for each in AutoresetMode])
    return AutoresetMode(mode)


def _choose_levels(level: str | Level | None, levels: Sequence[str | Level] | None) -> Sequence[str | Level]:
    if levels is not None:
        return [levels] if isinstance(levels, str | Level) else levels
    if level is None:
        raise ValueError("a vector environment needs `level`, or `levels` for several levels")
    return [level]


def _common_size(levels: Sequence[Level], observation: Observation) -> tuple[int, int]:
    """The (width, height) of the levels' grids; levels may only differ in size if observations are not "full"."""
    sizes = {(level.width, level.height) for level in levels}
    if observation.startswith("full") and len(sizes) > 1:
        names = " and ".join(f"{width} x {height}" for width, height in sorted(sizes))
        raise ValueError(f"full observations need levels of the same size, but these have {names} cells")
    return sizes.pop() if sizes else (0, 0)


def _copied(missions: Any) -> Any:
    return missions.copy() if isinstance(missions, np.ndarray) else missions


def _read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view. The engine updates images incrementally, so a caller's changes to them would persist."""
    view = array.view()
    view.flags.writeable = False
    return view
