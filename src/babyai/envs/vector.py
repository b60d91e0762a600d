"""Many worlds as one Gymnasium vector environment, with all three ways of beginning the next episode."""

import time
from collections.abc import Sequence
from typing import Any, get_args

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from babyai.engine import Engine, Episodes, check_seed
from babyai.envs.arguments import check_choice, check_options, find_limited_level
from babyai.envs.spaces import TILE_PIXELS, Observation, action_space, full_views, image_space, token_space
from babyai.levels.catalog import Level, Rules
from babyai.render.blit import blit_views, rgb_views, view_tiles
from babyai.render.frame import draw_world
from babyai.render.text import draw_text
from babyai.world.language import words_of

RENDER_MODES = ("rgb_array", "ansi")
OBSERVATIONS = tuple(kind for kind in get_args(Observation) if kind != "text")
OPTIONS = ("reset_mask",)

Arrays = dict[str, np.ndarray]


class BabyAIVectorEnv(VectorEnv[Arrays, np.ndarray, np.ndarray]):
    """N worlds. Made with `gymnasium.make_vec("babyai/GoTo-v0", num_envs=N, ...)`.

    Observations are `image`, (N, 7, 7, 3) uint8 (in other kinds as in `BabyAIEnv`), `direction`, (N,) int64, and
    `mission`, (N, 72) uint8 token ids, which `mission_text` puts into English.

    When episodes end, `infos` has `episode` with the arrays `r`, `l` and `t` (return, length and seconds) and the mask
    `_episode`, as from Gymnasium's RecordEpisodeStatistics (which insists on making these two keys itself: give it an
    environment with `statistics=False`). `success` and `_success` say who succeeded. In SAME_STEP mode these two are in
    `final_info` instead, and `final_obs` has the last observations, as arrays like the observations themselves, which
    count where `_final_obs` is true.

    Args:
        num_envs: How many worlds.
        level: A level or its name.
        levels: Several of them, to be played side by side; world i plays number `i % len(levels)`.
        rules: "paper" (the world of the paper) or "minigrid" (Minigrid 3.2.0 to the bit).
        render_mode: None, "rgb_array" or "ansi".
        observation: "symbolic", "rgb" or "full".
        view_size: The side of the agent's view, odd, 3 to 15.
        agent_view_size: Minigrid's name for `view_size`.
        autoreset_mode: A member of `gymnasium.vector.AutoresetMode`, or its value.
        episodes: How an episode without a seed of its own begins: "stream", the world's generator goes on;
            "next_seed", with the world's last seed plus `num_envs`, so that every episode has a name.
        copy: Whether each call returns arrays of its own. Without, they are the engine's: read-only, and to be read
            before the next call overwrites them.
        statistics: Whether `infos` tells of the episodes that ended.
        threads: How many threads share the work; results do not depend on it.
        max_steps: The time limit of every episode; None leaves it to level and mission.
        done_actions: An instruction counts only once the agent plays `done` on the step after fulfilling it.
        tile_size: Pixels a side of one cell in pictures.
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
        view_size: int = 7,
        agent_view_size: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        episodes: Episodes = "stream",
        copy: bool = True,
        statistics: bool = True,
        threads: int = 1,
        max_steps: int | None = None,
        done_actions: bool = False,
        tile_size: int = 32,
    ) -> None:
        check_choice("render_mode", render_mode, (None, *RENDER_MODES))
        check_choice("observation of a vector environment", observation, OBSERVATIONS)
        view_size = view_size if agent_view_size is None else agent_view_size
        self.num_envs, self.render_mode, self.tile_size, self.copy = num_envs, render_mode, tile_size, copy
        self.statistics = statistics
        self.autoreset_mode = _find_mode(autoreset_mode)
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": 10,
            "autoreset_mode": self.autoreset_mode,
        }
        played = [find_limited_level(each, rules, max_steps) for each in _choose_levels(level, levels)]
        self.engine = Engine(
            *(played, num_envs),
            **{"rules": rules, "episodes": episodes, "view_size": view_size},
            **{"done_actions": done_actions, "threads": threads},
        )
        self.observation_kind, self._size = observation, _common_size(played, observation)
        self.single_action_space = action_space()
        self.single_observation_space = token_space(observation, view_size, self._size)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        # Where Minigrid hands an object over late, its pixels, unlike its symbols, show it at once.
        self._shown_late = observation == "rgb" and rules == "minigrid" and any(each.carrying for each in played)
        self._image_shape = (num_envs, *image_space(observation, view_size, self._size).shape)
        self._frames: np.ndarray | None = None
        self._started = np.zeros(num_envs)
        self._step_counts = self.engine.worlds.view(np.ndarray)["step_count"]
        self._ready = False

    # ------------------------------------------------------------ the two verbs

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *,
        seed: int | Sequence[int | None] | np.ndarray | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Arrays, dict[str, Any]]:
        """Begins a new episode in every world, or where the option `reset_mask`, (N,) bool, is true.

        Args:
            seed: An int s gives world i the seed s + i; a sequence gives one seed a world, None to go on without.
            options: May hold `reset_mask`.

        Returns:
            The observations of all worlds, and an empty dict.
        """
        given = check_options(options, OPTIONS)
        mask = self._check_mask(given["reset_mask"]) if "reset_mask" in given else np.ones(self.num_envs, dtype=bool)
        if seed is not None and not isinstance(seed, Sequence | np.ndarray):
            seed = check_seed(seed)
            super().reset(seed=seed)
        self.engine.reset(seed, mask)
        self._begin(mask)
        self._ready = True
        return self._observe(), {}

    def step(self, actions: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Plays one action in each world.

        In NEXT_STEP mode, worlds whose episode ended in the step before begin the next one, whatever their action.

        Args:
            actions: (N,) integers 0..6; see `babyai.Action`.

        Returns:
            Observations, rewards (N,) float64, terminations and truncations (N,) bool, infos.
        """
        engine, next_step = self.engine, self.autoreset_mode is AutoresetMode.NEXT_STEP
        resting = engine.done.copy() if next_step and self._ready else None
        engine.step(actions, skip_done=resting is not None)
        if resting is not None and resting.any():
            engine.reset(chosen=resting)
            self._begin(resting)
        rewards, terminated, truncated = engine.rewards, engine.terminated, engine.truncated
        if self.copy:
            rewards, terminated, truncated = rewards.copy(), terminated.copy(), truncated.copy()
        ended = terminated | truncated
        which = ended.nonzero()[0]
        infos = self._end(ended, which) if which.size else {}
        return self._observe(), rewards, terminated, truncated, infos

    def _begin(self, begun: np.ndarray) -> None:
        """Notes that episodes have begun in these worlds."""
        self._started[begun] = time.perf_counter()
        if self._shown_late:
            for i in np.flatnonzero(begun):
                self.engine.observe(int(i))

    def _end(self, ended: np.ndarray, which: np.ndarray) -> dict[str, Any]:
        """What there is to say of the episodes that have just ended; in SAME_STEP mode the next ones begin.

        Args:
            ended: (N,) bool, the worlds in which they did.
            which: The indices of these.
        """
        infos: dict[str, Any] = {}
        if self.statistics:
            infos |= {"episode": self._statistics(which), "_episode": ended}
        outcome = {"success": self.engine.rewards > 0, "_success": ended}
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return infos | outcome
        infos |= {"final_obs": self._last_observations(which), "_final_obs": ended}
        infos |= {"final_info": outcome, "_final_info": ended}
        self._begin(self.engine.reset_done())
        return infos

    def _statistics(self, which: np.ndarray) -> Arrays:
        """Return, length and seconds of the episodes that have just ended: (N,) each, 0 elsewhere."""
        lengths, seconds = np.zeros(self.num_envs, dtype=np.int64), np.zeros(self.num_envs)
        lengths[which] = self._step_counts[which]
        seconds[which] = time.perf_counter() - self._started[which]
        # Only the last step of an episode pays.
        return {"r": self.engine.rewards.copy(), "l": lengths, "t": seconds}

    # ------------------------------------------------------------ observations

    def _observe(self) -> Arrays:
        engine = self.engine
        if self.observation_kind == "symbolic":
            image = engine.images.copy() if self.copy else engine.images
        elif self.observation_kind == "rgb":
            image = rgb_views(engine.images, TILE_PIXELS) if self.copy else self._draw_frames()
        else:
            image = full_views(engine.worlds, self._size)
        if not self.copy:
            return {"image": _read_only(image), "direction": engine.directions, "mission": engine.missions}
        return {"image": image, "direction": engine.directions.copy(), "mission": engine.missions.copy()}

    def _draw_frames(self) -> np.ndarray:
        """The RGB observations, in an array that is kept for the next call."""
        frames = self._frames = np.empty(self._image_shape, dtype=np.uint8) if self._frames is None else self._frames
        blit_views(self.engine.images, *view_tiles(TILE_PIXELS), frames, 0, self.num_envs)
        return frames

    def _last_observations(self, which: np.ndarray) -> Arrays:
        """What there is to see now, before the next episodes begin; of pictures, only those of `which` are made."""
        engine = self.engine
        if self.observation_kind == "symbolic":
            image = engine.images.copy()
        else:
            image = np.zeros(self._image_shape, dtype=np.uint8)
            if self.observation_kind == "rgb":
                image[which] = rgb_views(engine.images[which], TILE_PIXELS)
            else:
                image[which] = full_views(engine.worlds[which], self._size)
        return {"image": image, "direction": engine.directions.copy(), "mission": engine.missions.copy()}

    # ------------------------------------------------------------ single worlds

    def mission_text(self, index: int) -> str:
        """The mission of one world in English."""
        return words_of(self.engine.missions[index])

    def snapshot(self, index: int) -> bytes:
        """One world, whole, its generator included: a value to keep, compare, or give to `restore`."""
        return self.engine.snapshot(index)

    def restore(self, index: int, snapshot: bytes) -> None:
        """Puts one world back where a snapshot was taken; the next call shows it."""
        self.engine.restore(index, snapshot)
        self._started[index] = time.perf_counter()

    def render(self) -> tuple[Any, ...] | None:
        """A picture or a drawing of each world, as `render_mode` says."""
        if self.render_mode is None:
            gym.logger.warn(
                "render() was called, but no render_mode was chosen: give make_vec() render_mode='rgb_array'"
            )
            return None
        if not self._ready:
            raise RuntimeError("there is nothing to draw yet: call reset() first")
        worlds, views = self.engine.worlds, self.engine.images
        if self.render_mode == "ansi":
            return tuple(f"{draw_text(w, color=True)}\n{self.mission_text(i)}" for i, w in enumerate(worlds))
        return tuple(draw_world(world, self.tile_size, view) for world, view in zip(worlds, views, strict=True))

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the engine's threads."""
        self.engine.close()

    def _check_mask(self, mask: Any) -> np.ndarray:
        expected = f"the option 'reset_mask' must be an array ({self.num_envs},) of bool"
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"{expected}, not {type(mask).__name__}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"{expected}, not of shape {mask.shape}")
        if mask.dtype != bool:
            raise TypeError(f"{expected}, not of {mask.dtype}")
        if not mask.any():
            raise ValueError(f"{expected} with at least one True, or there is nothing to reset")
        return mask


def _find_mode(mode: AutoresetMode | str) -> AutoresetMode:
    if not isinstance(mode, AutoresetMode):
        check_choice("autoreset_mode", mode, [each.value for each in AutoresetMode])
    return AutoresetMode(mode)


def _choose_levels(level: str | Level | None, levels: Sequence[str | Level] | None) -> Sequence[str | Level]:
    if levels is not None:
        return [levels] if isinstance(levels, str | Level) else levels
    if level is None:
        raise ValueError("a vector environment needs a level: give `level`, or `levels` for several")
    return [level]


def _common_size(levels: Sequence[Level], observation: Observation) -> tuple[int, int]:
    """The (width, height) of the levels' grids, which matters only where whole grids are observed."""
    sizes = {(level.width, level.height) for level in levels}
    if observation == "full" and len(sizes) > 1:
        names = " and ".join(f"{width} x {height}" for width, height in sorted(sizes))
        raise ValueError(f"images of the full grid need levels of one size; these have {names} cells")
    return sizes.pop() if sizes else (0, 0)


def _read_only(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written through: the engine redraws a view only where something changed in it."""
    view = array.view()
    view.flags.writeable = False
    return view
