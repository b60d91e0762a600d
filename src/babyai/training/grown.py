"""Demonstrations that grow by what the agent fails, between epochs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from babyai.demos.packed import Demos, offsets_of, pack_demos
from babyai.demos.replay import Replay
from babyai.demos.sources import RESERVED, FileSource
from babyai.demos.store import PathLike
from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import Level, Rules
from babyai.training.session import Session

# How many demonstrations are made at a time.
BLOCK = 512


class GrowingSource(FileSource):
    """The demonstrations of a file, and those that were added since; see `FileSource`.

    Attributes:
        given: How many the file gave.
        growths: How often it has been asked to grow.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        seed: int = 0,
        demos: int | None = None,
        weights: Mapping[str, float] | None = None,
        shuffle: bool = True,
    ) -> None:
        super().__init__(path, seed=seed, demos=demos, weights=weights, shuffle=shuffle)
        self.given, self.growths = len(self.demos), 0
        self._weights = weights
        # The level and the seed of each one added. A list is never changed, since positions hold it.
        self._added: list[list[int]] = []

    @property
    def added_frames(self) -> int:
        """How many steps those have that were added."""
        return int(self.demos.lengths[self.given :].sum())

    def grow(self, levels: np.ndarray, seeds: np.ndarray) -> int:
        """Adds the expert's demonstrations of these missions, and begins a new pass; returns how many it succeeded in.

        Nobody may take from the source meanwhile, nor hold a position in it from before.

        Args:
            levels: (K,), places in the levels of the source.
            seeds: (K,).
        """
        self.growths += 1
        more = demonstrate(self.levels, self.rules, levels, seeds)
        if len(more):
            names = np.stack([more.levels, more.seeds], 1).tolist()
            self._hold(join_demos([self.demos, more]), self._added + names)
        return len(more)

    def state(self) -> dict[str, Any]:
        """The position, in the types of JSON."""
        return super().state() | {"kind": "growing", "growths": self.growths, "added": self._added}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes to a position; demonstrations that had been added until then are made again."""
        if state["kind"] != "growing":
            raise ValueError("this position belongs to another source of demonstrations")
        if state["added"] != self._added:
            names = np.array(state["added"], dtype=np.int64).reshape(-1, 2)
            more = demonstrate(self.levels, self.rules, names[:, 0], names[:, 1])
            self._hold(join_demos([self.demos.take(np.arange(self.given)), more]), state["added"])
        super().load({**state, "kind": "file"})
        self.growths = state["growths"]

    def _hold(self, demos: Demos, added: list[list[int]]) -> None:
        self.demos, self._added = demos, added
        self._groups = self._split(self._weights)
        self._positions = [0] * len(self._groups)
        self._orders.clear()

    def _order(self, group: int, turn: int) -> np.ndarray:
        if not self._added or not self.shuffle:
            return super()._order(group, turn)
        generator = np.random.default_rng([self.seed, group, turn, len(self._added)])
        return generator.permutation(self._groups[group])


class Growth:
    """What comes after an epoch: the agent plays missions that it has never seen, and is shown those that it fails.

    Args:
        session: The run, with the agent.
        replay: What learns from the source; made to forget what it has read ahead.
        source: What grows.
        first_seed: Of the missions; each epoch takes the next ones, none of them kept for validation or test.
        probe: How many missions of each level are played.
        most: How many demonstrations are added at most; a quarter of those given, if None.
    """

    def __init__(
        self,
        session: Session,
        replay: Replay,
        source: GrowingSource,
        *,
        first_seed: int,
        probe: int = 512,
        most: int | None = None,
    ) -> None:
        self.replay, self.source, self.first_seed, self.probe = replay, source, first_seed, probe
        # Each level gets as much of it as the others.
        self.most = max(1, (most or source.given // 4) // len(source.levels))
        self._player = AgentPlayer(session.model, precision=session.precision)

    def __call__(self) -> dict[str, float]:
        """Probes and grows; returns what is to be told of it."""
        source = self.source
        # After the last seeds below those of validation come the first ones again.
        first = self.first_seed + source.growths * self.probe % (RESERVED - self.first_seed - self.probe)
        results = [
            evaluate(self._player, level, missions=self.probe, first_seed=first, rules=source.rules)
            for level in source.levels
        ]
        failed = [result.failed_seeds[: self.most] for result in results]
        levels = np.repeat(np.arange(len(failed)), [len(seeds) for seeds in failed])
        # The replay's thread reads ahead. It ends here, and goes back to what has been learned from.
        self.replay.load_state_dict(self.replay.state_dict())
        added = source.grow(levels, np.concatenate(failed))
        return {
            "labelled_frames": source.added_frames,
            "training_demos": len(source.demos),
            "added_demos": added,
            "probed_success": sum(result.success_rate for result in results) / len(results),
        }


def demonstrate(levels: Sequence[Level], rules: Rules, numbers: np.ndarray, seeds: np.ndarray) -> Demos:
    """The expert's demonstrations of missions in which it succeeds.

    Args:
        levels: All levels.
        rules: "paper" or "minigrid".
        numbers: (K,) the place of each mission's level in them.
        seeds: (K,) the seed of each mission.
    """
    names, pieces = tuple(level.name for level in levels), []
    for start in range(0, len(seeds), BLOCK):
        block = slice(start, start + BLOCK)
        engine = Engine(levels, len(seeds[block]), rules=rules, assignment=numbers[block])
        engine.reset(seeds[block])
        actions, lengths, rewards = ExpertBatch(engine).demonstrate()
        succeeded = np.flatnonzero(rewards > 0)
        pieces.append(
            pack_demos(names, numbers[block], seeds[block], engine.missions, actions, lengths, rewards, succeeded)
        )
    nothing = np.zeros(0, dtype=np.int64)
    none = Demos(names, nothing.astype(np.int32), nothing, offsets_of(nothing), nothing.astype(np.uint8), np.zeros(0))
    return join_demos([none, *pieces])


def join_demos(pieces: Sequence[Demos]) -> Demos:
    """Several packs of the same levels as one, without their missions."""
    levels, seeds, lengths, actions, rewards = (
        np.concatenate([getattr(piece, name) for piece in pieces])
        for name in ("levels", "seeds", "lengths", "actions", "rewards")
    )
    return Demos(pieces[0].names, levels, seeds, offsets_of(lengths), actions, rewards)
