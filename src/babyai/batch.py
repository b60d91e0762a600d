"""The batch: T steps of N lanes, the one type between a source of experience and a loss.

Replayed demonstrations, PPO's rollouts and DAgger's labeled roll-ins all produce a `Batch` of NumPy arrays; it becomes
a `Batch` of tensors on the way to the device, and that is what a policy unrolls and a loss reads. Lane n at step t + 1
continues lane n at step t, across episode boundaries, which `starts` marks; there is no padding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np

from babyai.tree import tree_map
from babyai.world.codes import MAX_WORDS
from babyai.world.view import VIEW_SIZE

# A NumPy array or a torch tensor. Torch is not imported here: demonstrations work without it.
Array = Any
ObservationKind = Literal["symbolic", "rgb"]
TILE_PIXELS = 8
# What a policy may read.
OBSERVATION_FIELDS = ("images", "directions", "last_actions", "missions", "mission_index", "starts")
# Missions are cut to the longest one, rounded up to a multiple of this, so that few shapes occur.
WORD_MULTIPLE = 8


@dataclass
class Batch:
    """T steps of N lanes, in which M missions occur.

    The first six fields are what a policy may read. Other fields are None where they are not provided or not needed.
    """

    images: Array
    """(T, N, 7, 7, 3) uint8 symbolic view, or (T, N, 56, 56, 3) pixels, before the action."""
    directions: Array
    """(T, N) uint8, the agent's heading."""
    last_actions: Array
    """(T, N) int8, the action of the step before; -1 where an episode starts."""
    missions: Array
    """(M, L) uint8 token ids, padded with 0. M varies, and rows that `mission_index` does not use may be all zeros."""
    mission_index: Array
    """(T, N) int32, the row of `missions` that holds."""
    starts: Array
    """(T, N) bool, where an episode starts: the recurrent state is reset before this step."""
    actions: Array = None
    """(T, N) uint8, the action taken."""
    labels: Array = None
    """(T, N) uint8, the expert's action; equal to `actions` in demonstrations."""
    rewards: Array = None
    """(T, N) float32, the environment's reward for the action."""
    terminated: Array = None
    """(T, N) bool, where the action ended the episode by success or failure."""
    truncated: Array = None
    """(T, N) bool, where the time limit ended the episode."""
    levels: Array = None
    """(T, N) int32, the episode's level: an index into the levels of the source."""
    seeds: Array = None
    """(T, N) int64, the episode's seed."""
    log_probs: Array = None
    """(T, N) float32, log probability of the action under the policy that took it."""
    values: Array = None
    """(T, N) float32, that policy's value estimate before the action."""
    advantages: Array = None
    """(T, N) float32, generalized advantage estimates."""
    state: Any = None
    """The recurrent state before the first step, any structure of tensors (N, ...)."""

    @classmethod
    def empty(
        cls, steps: int, lanes: int, kind: ObservationKind = "symbolic", view_size: int = VIEW_SIZE, **optional: Any
    ) -> Self:
        """Uninitialized NumPy arrays, with room for as many missions as can occur.

        Args:
            steps: T.
            lanes: N.
            kind: Symbolic views, or RGB frames of 8 pixels per tile.
            view_size: Side of the agent's view.
            optional: Optional fields to allocate, with their dtypes, such as `log_probs=np.float32`.
        """
        side = view_size * TILE_PIXELS if kind == "rgb" else view_size
        shape = (steps, lanes)
        return cls(
            images=np.empty((*shape, side, side, 3), dtype=np.uint8),
            directions=np.empty(shape, dtype=np.uint8),
            last_actions=np.empty(shape, dtype=np.int8),
            missions=np.empty((lanes * (steps + 1), MAX_WORDS), dtype=np.uint8),
            mission_index=np.empty(shape, dtype=np.int32),
            starts=np.empty(shape, dtype=bool),
            actions=np.empty(shape, dtype=np.uint8),
            rewards=np.empty(shape, dtype=np.float32),
            terminated=np.empty(shape, dtype=bool),
            truncated=np.empty(shape, dtype=bool),
            levels=np.empty(shape, dtype=np.int32),
            seeds=np.empty(shape, dtype=np.int64),
            **{name: np.empty(shape, dtype=dtype) for name, dtype in optional.items()},
        )

    @property
    def num_steps(self) -> int:
        """T."""
        return self.starts.shape[0]

    @property
    def num_lanes(self) -> int:
        """N."""
        return self.starts.shape[1]

    def observation(self, step: int) -> dict[str, Array]:
        """What a policy sees at one step: the argument of its `forward`."""
        index = self.mission_index[step]
        return {
            "image": self.images[step],
            "mission": self.missions[index.long() if hasattr(index, "long") else index],
            "direction": self.directions[step],
            "last_action": self.last_actions[step],
        }

    def only(self, names: Sequence[str]) -> "Batch":
        """The batch with all fields but these set to None; `state` is kept."""
        dropped = {field.name: None for field in fields(self) if field.name not in (*names, "state")}
        return replace(self, **dropped)

    def map(self, function: Callable[[Array], Array]) -> "Batch":
        """The batch with `function` applied to every array and every tensor of the state."""
        return tree_map(function, self)

    def map_steps(self, function: Callable[[Array], Array]) -> "Batch":
        """The batch with `function` applied to every (T, N, ...) array; missions and state are kept."""
        names = [field.name for field in fields(self) if field.name not in ("missions", "state")]
        mapped = {name: function(array) for name in names if (array := getattr(self, name)) is not None}
        return replace(self, **mapped)

    def select_lanes(self, index: Array) -> "Batch":
        """The lanes that `index` names, (K,), with their state."""
        lanes = self.map_steps(lambda array: array[:, index])
        return replace(lanes, state=tree_map(lambda tensor: tensor[index], self.state))

    def split_steps(self, length: int) -> "Batch":
        """NumPy arrays only: cuts T steps into pieces of `length`, which become lanes: (length, T / length * N).

        The pieces of the first `length` steps come first. The state is not cut; the caller sets it.
        """

        def split(array: np.ndarray) -> np.ndarray:
            steps, lanes, *rest = array.shape
            pieces = array.reshape(steps // length, length, lanes, *rest).swapaxes(0, 1)
            return np.ascontiguousarray(pieces).reshape(length, -1, *rest)

        return self.map_steps(split)

    def deduplicate_missions(self) -> "Batch":
        """NumPy arrays only: each mission occurs once, and M is one of few sizes, N, 2 N, 4 N and so on.

        Encoding a mission once per batch saves time, and a CUDA graph is captured for each shape, so there should be
        few. Rows that are not used are zeros.
        """
        rows = np.ascontiguousarray(self.missions).view(f"V{self.missions.shape[1]}")[:, 0]
        _, first, numbers = np.unique(rows, return_index=True, return_inverse=True)
        size = self.num_lanes
        while size < len(first):
            size *= 2
        missions = np.zeros((size, self.missions.shape[1]), dtype=np.uint8)
        missions[: len(first)] = self.missions[first]
        return replace(self, missions=missions, mission_index=numbers.astype(np.int32)[self.mission_index])


def concatenate_lanes(batches: Sequence[Batch], out: Batch | None = None) -> Batch:
    """The lanes of several batches of NumPy arrays side by side, in order.

    Args:
        batches: All with the same steps and the same fields.
        out: Arrays to write to, in page-locked memory for instance; default: new ones.
    """
    joined: dict[str, Any] = {}
    offsets = np.cumsum([0] + [len(batch.missions) for batch in batches[:-1]])
    for field in fields(Batch):
        if field.name == "state" or getattr(batches[0], field.name) is None:
            continue
        arrays = [getattr(batch, field.name) for batch in batches]
        if field.name == "missions":
            joined["missions"] = np.concatenate(arrays)
            continue
        if field.name == "mission_index":
            arrays = [array + offset.astype(np.int32) for array, offset in zip(arrays, offsets, strict=True)]
        place = None if out is None else getattr(out, field.name)
        joined[field.name] = np.concatenate(arrays, axis=1, out=place)
    return Batch(**joined)


def count_words(missions: np.ndarray, at_least: int = 0) -> int:
    """How many columns of (M, 72) token ids to keep: those in use, rounded up, and no fewer than `at_least`."""
    used = int(np.count_nonzero(missions.any(0)))
    words = min(missions.shape[1], max(1, -(-used // WORD_MULTIPLE)) * WORD_MULTIPLE)
    return max(words, at_least)
