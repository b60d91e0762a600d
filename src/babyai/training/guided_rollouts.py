"""Roll-ins of large-scale DAgger: expert and agent take turns at the wheel, and the expert labels every frame.

An episode is played in one of two ways. *Solo*: the agent plays alone, with argmax actions, until it succeeds, is too
slow, or has disagreed with the expert too often; then it has failed, and the expert finishes. *Mixed*: who acts changes
at random, and the agent more often hands back where it disagrees. Without that, most frames would show an agent that
goes around in circles. Solo episodes measure how often the agent fails on each level; levels are drawn accordingly.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from babyai.agents.actor import choose_actions
from babyai.agents.compilation import compiling
from babyai.agents.cuda_graph import URGENT_CAPTURE_PRIORITY, URGENT_STREAM_PRIORITY
from babyai.agents.map.memory import Memory
from babyai.agents.map.token_function import TokenFunction
from babyai.agents.map.tokens import Frames, Tokens, find_revisits, frames_of, hide_frames
from babyai.agents.policy import reset_state
from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import Rules
from babyai.seeds import VALIDATION_SEED
from babyai.training.frame_buffer import NO_LABEL, LabeledFrames, Labels, PlayedFrames
from babyai.tree import tree_map

# CUDA graphs of the policy, one for each size of the padded tokens.
MAX_GRAPHS = 3
# Worlds per thread, at least: few, since the expert's advice takes long.
MIN_SHARD = 128
# Room for padding, more than in learning, because the number of tokens varies more.
ACTING_SLACK = 2.0
# A solo episode fails after this many steps, or this part of its time limit, whichever is more.
SOLO_STEPS = 40
SOLO_LIMIT = 0.6
# Probability that the agent hands back after a disagreement, in a mixed episode.
HAND_BACK_DISAGREEING = 0.1
# How much a solo episode changes the failure rate of its level, and the least weight of a level.
FAILURE_RATE = 0.02
LEAST_WEIGHT = 0.05


class GuidedRollouts:
    """W worlds in which expert and agent play.

    On a GPU they have a stream of their own, so that playing and learning overlap. It goes first, since the worlds are
    stepped on the CPU afterwards, while learning continues.

    Args:
        policy: The policy, with `remember` and `decide`, on its device. A copy of it acts; see `copy_weights`.
        levels: The levels' names.
        worlds: W.
        rules: "paper" or "minigrid".
        first_seed: Seed of the first episode.
        seed: Random seed of everything else.
        solo: Fraction of solo episodes, once the agent plays.
        take_over: Probability, per step, that the agent takes over from the expert in a mixed episode.
        hand_back: Probability, per step, that it hands back.
        max_disagreements: After how many disagreements with the expert a solo episode fails.
        threads: Threads of the engine.
        cuda_graphs: Whether a GPU replays the policy from CUDA graphs.

    Attributes:
        agent_plays: Whether the agent plays at all; if not, the expert plays alone.
        failures: (levels,) estimated failure rate of solo episodes.
    """

    def __init__(
        self,
        policy: Any,
        levels: Sequence[str],
        worlds: int,
        *,
        rules: Rules = "paper",
        first_seed: int = 0,
        seed: int = 0,
        solo: float = 0.3,
        take_over: float = 0.03,
        hand_back: float = 0.02,
        max_disagreements: int = 30,
        threads: int = 1,
        cuda_graphs: bool = True,
    ) -> None:
        self.policy = deepcopy(policy)
        self.agent_plays = False
        self.solo = solo
        self.take_over = take_over
        self.hand_back = hand_back
        self.max_disagreements = max_disagreements
        self.first_seed = first_seed
        self.failures = np.ones(len(levels))
        self.num_started = 0
        self.device = next(policy.parameters()).device
        self.engine = Engine(levels, worlds, rules=rules, threads=threads, min_shard=MIN_SHARD)
        self._rng = np.random.default_rng([seed, 0xDA66E2])
        self._memory: Memory = policy.initial_state(worlds)
        self._initial: Memory = policy.initial_state(worlds)
        on_gpu = self.device.type == "cuda"
        self._thread = ThreadPoolExecutor(1)
        self._stream = torch.cuda.Stream(self.device, priority=URGENT_STREAM_PRIORITY) if on_gpu else None
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._act = TokenFunction(
            self._choose,
            self.policy,
            self.device,
            slack=ACTING_SLACK,
            enabled=cuda_graphs,
            max_graphs=MAX_GRAPHS,
            check_mutations=False,
            priority=URGENT_CAPTURE_PRIORITY,
        )
        self._seed = seed
        self._chosen = torch.zeros(worlds, dtype=torch.long, pin_memory=on_gpu)
        self._is_solo = np.zeros(worlds, dtype=bool)
        self._is_greedy = np.zeros(worlds, dtype=bool)
        self._agent_drives = np.zeros(worlds, dtype=bool)
        # Where the agent has failed, and the expert finishes the episode.
        self._has_failed = np.zeros(worlds, dtype=bool)
        self._disagrees = np.zeros(worlds, dtype=bool)
        self._disagreements = np.zeros(worlds, dtype=np.int64)
        self._starts = np.ones(worlds, dtype=bool)
        self._actions = np.full(worlds, -1, dtype=np.int64)
        # Of frames that the agent acted on: how many, and how many with the expert's action. Of solo episodes: how
        # many ended, and how many succeeded, by level.
        self._agent_frames = np.zeros(2, dtype=np.int64)
        self._solo_episodes = np.zeros((2, len(levels)), dtype=np.int64)
        self.engine.reset(first_seed)
        self.expert = ExpertBatch(self.engine, "teacher")
        self._start(np.ones(worlds, dtype=bool))
        self._label()

    @property
    def num_worlds(self) -> int:
        """W."""
        return self.engine.num_worlds

    def start_playing(self) -> Future[PlayedFrames]:
        """One step of all worlds, in a thread of its own; returns the labeled frames before it.

        They have been computed when the result is there.
        """
        if self._stream is not None:
            # What the last step returned may still be in use.
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        return self._thread.submit(self._play)

    def _play(self) -> PlayedFrames:
        with torch.cuda.stream(self._stream):
            labeled = self.observe()
            chosen = self.choose(labeled.frames)
            again = find_revisits(labeled.frames).nonzero()[:, 0]
            revisits = tree_map(lambda tensor: tensor[again], labeled)
        if self._stream is not None:
            self._stream.synchronize()
        self.step(chosen)
        return PlayedFrames(labeled, revisits)

    @torch.no_grad()
    def copy_weights(self, policy: Any) -> None:
        """Takes over the weights of a policy, while nothing is played."""
        mine = list(self.policy.parameters())
        torch._foreach_copy_(mine, list(policy.parameters()))  # pyright: ignore[reportPrivateImportUsage]

    def close(self) -> None:
        """Stops the threads."""
        self._thread.shutdown()
        self.engine.close()

    @torch.no_grad()
    def observe(self) -> LabeledFrames:
        """The current frames with their labels; the memory is brought up to date."""
        worlds = self.engine.worlds
        progress = worlds.first_side_done | worlds.clauses_done << 1
        images, missions, actions, starts, labels, bits, paths = (
            self._to_device(array)
            for array in (
                *(self.engine.images, self.engine.missions, np.where(self._starts, -1, self._actions), self._starts),
                *(np.where(self._labels < 0, NO_LABEL, self._labels).astype(np.uint8), progress, self._paths),
            )
        )
        memory = reset_state(self._memory, self._initial, starts)
        with compiling(self._act.enabled):
            self._memory = self.policy.remember({"image": images, "last_action": actions}, memory)
        return LabeledFrames(frames_of(self._memory, missions), Labels(labels, bits, paths))

    @torch.no_grad()
    def choose(self, frames: Frames) -> Tensor | None:
        """(W,) the agent's actions, which are arbitrary where it does not drive; None if it drives nowhere.

        On a GPU they are still being computed when this returns.
        """
        if not self._agent_drives.any():
            return None
        uniforms = torch.rand(self.num_worlds, device=self.device, generator=self._generator)
        is_greedy = self._to_device(self._is_greedy)
        if self._act.enabled:
            # The others are not left out but hidden: a CUDA graph needs a fixed number of frames.
            hidden = self._to_device(~self._agent_drives)
            actions = self._act(hide_frames(frames, hidden), is_greedy, uniforms)
            return self._chosen.copy_(actions, non_blocking=True)
        driven = self._to_device(np.flatnonzero(self._agent_drives))
        part = Frames(*(each[driven] for each in frames))
        self._chosen[driven.cpu()] = self._act(part, is_greedy[driven], uniforms[driven]).cpu()
        return self._chosen

    def _choose(self, tokens: Tokens, greedy: Tensor, uniforms: Tensor) -> Tensor:
        """(B,) argmax actions where greedy, sampled ones elsewhere."""
        logits = self.policy.decide_tokens(tokens).policy_logits.float()
        return torch.where(greedy, choose_actions(logits), choose_actions(logits, uniforms))

    def step(self, chosen: Tensor | None) -> None:
        """Acts, labels the next states, and changes who is at the wheel.

        Args:
            chosen: What `choose` returned.
        """
        lost = self._labels < 0
        self._actions = np.where(lost, 0, self._labels)
        driven = self._agent_drives
        if chosen is not None:
            self._actions[driven] = chosen.numpy()[driven]
        self._disagrees = driven & (self._actions != self._labels)
        self._disagreements += self._disagrees
        self._agent_frames += np.count_nonzero(driven), np.count_nonzero(driven & ~self._disagrees)
        self.engine.step(self._actions)
        self._finish_solo_episodes(lost)
        # The expert cannot continue an episode without advice.
        ended = self.engine.done | lost
        self._starts = ended
        if ended.any():
            self._start(ended)
        self._change_drivers()
        self._label()

    def metrics(self) -> dict[str, Any]:
        """Statistics since the last call."""
        frames, agreed = self._agent_frames.tolist()
        ended, succeeded = self._solo_episodes.tolist()
        self._agent_frames[:] = 0
        self._solo_episodes[:] = 0
        names = [level.name for level in self.engine.levels]
        rates = {name: good / count for name, good, count in zip(names, succeeded, ended, strict=True) if count}
        return {"agent_frames": frames, "agent_accuracy": agreed / max(1, frames), "solo_success": rates}

    def restart(self, num_started: int, agent_plays: bool, failures: Sequence[float]) -> None:
        """Starts new episodes in all worlds, as the next of a run that has started this many."""
        self.num_started = num_started
        self.agent_plays = agent_plays
        self.failures[:] = failures
        self._rng = np.random.default_rng([self._seed, 0xDA66E2, num_started])
        self._generator.manual_seed(self._seed + num_started)
        everywhere = np.ones(self.num_worlds, dtype=bool)
        self._start(everywhere)
        self._starts = everywhere
        self._label()

    # ------------------------------------------------------------ episodes

    def _label(self) -> None:
        self._labels, self._paths = self.expert.advise_and_trace()

    def _start(self, chosen: np.ndarray) -> None:
        """Starts the next episodes in the chosen worlds."""
        count = int(np.count_nonzero(chosen))
        seeds = np.zeros(self.num_worlds, dtype=np.int64)
        numbers = self.num_started + np.arange(count)
        seeds[chosen] = self.first_seed + numbers % (VALIDATION_SEED - self.first_seed)
        self.num_started += count
        weights = LEAST_WEIGHT + self.failures
        self.engine.worlds.level[chosen] = self._rng.choice(len(weights), count, p=weights / weights.sum())
        self.engine.reset(seeds, chosen)
        self.expert.reset(chosen)
        self._is_solo[chosen] = self.agent_plays & (self._rng.random(count) < self.solo)
        self._is_greedy[chosen] = self._is_solo[chosen] | (self._rng.random(count) < 0.5)
        self._agent_drives[chosen] = self._is_solo[chosen]
        self._has_failed[chosen] = False
        self._disagreements[chosen] = 0
        self._disagrees[chosen] = False

    def _finish_solo_episodes(self, lost: np.ndarray) -> None:
        """Counts solo episodes that succeeded or failed; after a failure, the expert drives."""
        worlds = self.engine.worlds
        late = worlds.step_count > np.maximum(SOLO_STEPS, SOLO_LIMIT * worlds.max_steps)
        stuck = self._disagreements >= self.max_disagreements
        over = self._is_solo & (self.engine.done | late | stuck | lost)
        succeeded = over & (self.engine.rewards > 0)
        for world in np.flatnonzero(over):
            level = worlds.level[world]
            self.failures[level] += FAILURE_RATE * (float(not succeeded[world]) - self.failures[level])
            self._solo_episodes[:, level] += 1, int(succeeded[world])
        self._is_solo &= ~over
        self._has_failed |= over

    def _change_drivers(self) -> None:
        """In mixed episodes, the agent takes over or hands back at random."""
        draws = self._rng.random(self.num_worlds)
        hand_back = np.where(self._disagrees, max(HAND_BACK_DISAGREEING, self.hand_back), self.hand_back)
        drives = np.where(self._agent_drives, draws >= hand_back, draws < self.take_over)
        self._agent_drives = np.where(self._is_solo, True, drives & self.agent_plays & ~self._has_failed)

    def _to_device(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor.clone()
