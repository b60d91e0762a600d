"""Proximal policy optimization (PPO) as in Appendix B of the paper and, where it is silent, the authors' code.

64 worlds play 40 steps each; the 2,560 frames are learned from in 4 epochs of 2 minibatches, in chunks of 20 steps.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from babyai.agents.compilation import compilable
from babyai.agents.device import Precision
from babyai.agents.policy import Unrolled
from babyai.batch import OBSERVATION_FIELDS, Batch, count_words
from babyai.engine import Engine
from babyai.seeds import ppo_seed
from babyai.training.fit import Algorithm, Session, Stop, fit
from babyai.training.learner import Learner
from babyai.training.options import BatchNorm, PPOHyperparameters, PPOOptions
from babyai.training.rollout import Collector, Rollout
from babyai.training.sample_efficiency import SampleEfficiency, default_window
from babyai.tree import tree_map
from babyai.world.validation import check_images

FIELDS = (*OBSERVATION_FIELDS, "actions", "log_probs", "values", "advantages")
METRICS = ("policy_loss", "value_loss", "entropy", "value")
# The authors log every so many updates.
UPDATES_PER_ROW = 10


def train(options: PPOOptions, *, resume: bool = False, stop: Stop = lambda: False) -> Session:
    """Trains until the frames are over or the sample efficiency is known; see `fit`."""
    return fit(options, PPORun, resume=resume, stop=stop)


def estimate_advantages(rollout: Rollout, hyper: PPOHyperparameters) -> np.ndarray:
    """Generalized advantage estimates, (T, N). Truncation counts as termination, as in the authors' code."""
    batch = rollout.batch
    rewards = hyper.reward_scale * batch.rewards
    not_done = (~np.logical_or(batch.terminated, batch.truncated)).astype(np.float32)
    values = np.concatenate([batch.values, rollout.last_values[None]])
    advantages = np.empty_like(rewards)
    next_advantage = np.zeros(rewards.shape[1], dtype=np.float32)
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + hyper.discount * not_done[step] * values[step + 1] - values[step]
        next_advantage = delta + hyper.discount * hyper.gae_lambda * not_done[step] * next_advantage
        advantages[step] = next_advantage
    return advantages


@compilable
def ppo_loss(
    hyper: PPOHyperparameters,
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
) -> tuple[Tensor, Tensor]:
    """The loss, and the `METRICS`; logits: (R, B, 7), all others: (R, B)."""
    clip = hyper.clip_coef
    all_log_probs = logits.log_softmax(2)
    entropy = -(all_log_probs.exp() * all_log_probs).sum(2).mean()

    ratio = (all_log_probs.gather(2, actions[..., None].long())[..., 0] - old_log_probs).exp()
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()

    returns = old_values + advantages
    clipped_values = old_values + (values - old_values).clamp(-clip, clip)
    value_loss = torch.max((values - returns) ** 2, (clipped_values - returns) ** 2).mean()

    loss = policy_loss + hyper.value_coef * value_loss - hyper.entropy_coef * entropy
    return loss, torch.stack([policy_loss, value_loss, entropy, values.mean()]).detach()


class PPO:
    """A policy, the worlds it plays, and its learner.

    Args:
        policy: On its device already.
        engine: `hyper.worlds` worlds that have been reset.
        hyper: Hyperparameters.
        seed: Random seed of sampled actions and of minibatches.
        batch_norm: See `Learner`.
        precision: See `Learner`.
        cuda_graphs: See `Learner`.
    """

    def __init__(
        self,
        policy: nn.Module,
        engine: Engine,
        hyper: PPOHyperparameters,
        *,
        seed: int = 0,
        batch_norm: BatchNorm = "chunk",
        precision: Precision = "float32",
        cuda_graphs: bool = True,
    ) -> None:
        self.hyper = hyper
        self.learner = Learner(
            policy,
            self.loss,
            METRICS,
            learning_rate=hyper.learning_rate,
            max_grad_norm=hyper.max_grad_norm,
            batch_norm=batch_norm,
            precision=precision,
            cuda_graphs=cuda_graphs,
        )
        # The authors leave batch normalization in training mode while acting: it averages over the worlds of a step.
        policy.train()
        self.learner.mixed.compute.train()
        self.collector = Collector(
            self.learner.mixed,
            engine,
            hyper.steps,
            hyper.recurrence,
            seed=seed,
            cuda_graphs=cuda_graphs,
            exact=precision == "float32",
        )
        self.generator = np.random.default_rng([seed, 1])
        self._learn = self.learner.graph(self._learn_epochs, tuple)
        self._words = 0

    def update(self) -> Rollout:
        """Plays a rollout and learns from it."""
        rollout = self.collector.collect()
        rollout.batch.advantages = estimate_advantages(rollout, self.hyper)
        batch = rollout.batch.only(FIELDS).deduplicate_missions()
        self._words = count_words(batch.missions, self._words if self.learner.device.type == "cuda" else 0)
        missions = np.ascontiguousarray(batch.missions[:, : self._words])
        chunks = replace(batch, missions=missions).split_steps(self.hyper.recurrence).map(torch.from_numpy)
        states = tree_map(lambda *parts: torch.cat(parts), *rollout.states)
        self._learn(torch.from_numpy(self._draw_minibatches()), replace(chunks, state=states))
        return rollout

    def loss(self, unrolled: Unrolled, batch: Batch) -> tuple[Tensor, Tensor]:
        """The clipped surrogate objective, the value loss and the entropy bonus."""
        old = (batch.actions, batch.log_probs, batch.values, batch.advantages)
        return ppo_loss(self.hyper, unrolled.logits, unrolled.values, *old)

    def _draw_minibatches(self) -> np.ndarray:
        """(epochs * minibatches, chunks per minibatch): the chunks of each gradient step."""
        orders = [self.generator.permutation(self.hyper.num_chunks) for _ in range(self.hyper.epochs)]
        return np.stack(orders).reshape(self.hyper.epochs * self.hyper.minibatches, -1)

    def _learn_epochs(self, minibatches: Tensor, chunks: Batch) -> None:
        for chosen in minibatches.unbind(0):
            minibatch = chunks.select_lanes(chosen)
            self.learner.gradient_step(minibatch, minibatch.state)

    # ------------------------------------------------------------ checkpoints

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint, besides policy and optimizer."""
        engine = self.collector.engine
        # In some levels the first image differs from what the world would show later, so images are saved too.
        return {
            **self.collector.tensors(),
            "totals": self.learner.totals,
            "worlds": torch.from_numpy(engine.worlds.view(np.ndarray).view(np.uint8)),
            "images": torch.from_numpy(engine.images),
        }

    def state_dict(self) -> dict[str, Any]:
        """The rest of a checkpoint, as JSON."""
        return {"rollout": self.collector.state_dict(), "minibatches": self.generator.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a checkpoint; tensors have been restored already."""
        engine = self.collector.engine
        images = check_images(engine.images).copy()
        for index in range(engine.num_worlds):
            engine.restore(index, engine.snapshot(index))
        engine.images[:] = images
        self.collector.load_state_dict(state["rollout"])
        self.generator.bit_generator.state = state["minibatches"]


class PPORun(Algorithm):
    """PPO as an algorithm of `fit`."""

    name = "ppo"
    updates_per_row = UPDATES_PER_ROW
    validation_metric = "validation"
    reward_breaks_ties = True

    def __init__(self, session: Session) -> None:
        options = session.options
        assert isinstance(options, PPOOptions)
        self.options = options
        engine = Engine(options.level_names, options.worlds, rules=options.rules)
        engine.reset(ppo_seed(options.seed))
        self.ppo = PPO(
            session.policy,
            engine,
            options,
            seed=options.seed,
            batch_norm=options.resolve_batch_norm(),
            precision=session.precision,
            cuda_graphs=options.cuda_graphs,
        )
        self.learner = self.ppo.learner
        self.frames_per_update = options.frames_per_update
        self.efficiency = SampleEfficiency(options.window or default_window(options.level_names), options.worlds)

    def update(self) -> None:
        """One rollout and the gradient steps on it."""
        rollout = self.ppo.update()
        self.efficiency.add(rollout.returns, rollout.lengths)

    @property
    def progress(self) -> float:
        """Frames so far."""
        return self.num_updates * self.frames_per_update

    def metrics(self) -> dict[str, Any]:
        """The authors' log row."""
        row = {"update": self.num_updates, "frames": self.progress, "episodes": self.efficiency.episodes}
        row |= self.efficiency.close_row() | self.learner.metrics()
        efficiency = {"centered": self.efficiency.centered, "trailing": self.efficiency.trailing}
        return row | {"sample_efficiency": efficiency}

    def should_validate(self) -> bool:
        """Whether a multiple of `validate_every` updates has been passed since the last log row."""
        every = self.options.validate_every
        return every > 0 and self.num_updates % every < UPDATES_PER_ROW

    def is_finished(self) -> bool:
        """Whether the frames are over or the sample efficiency is known; decided at log rows."""
        solved = self.options.stop_when_solved and self.efficiency.known
        return self.num_updates % UPDATES_PER_ROW == 0 and (self.progress >= self.options.frames or solved)

    def tensors(self) -> dict[str, Tensor]:
        """See `PPO.tensors`."""
        return self.ppo.tensors()

    def state_dict(self) -> dict[str, Any]:
        """Generators and counters."""
        return {"ppo": self.ppo.state_dict(), "efficiency": self.efficiency.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores generators and counters."""
        self.ppo.load_state_dict(state["ppo"])
        self.efficiency.load_state_dict(state["efficiency"])
