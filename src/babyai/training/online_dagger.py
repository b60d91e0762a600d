"""Large-scale DAgger for agents whose memory needs no gradients.

Thousands of worlds are played, every frame is labeled by the expert and stored in a replay buffer on the device, and
gradient steps are made on random frames of it: one batch for each step of all worlds. The expert plays alone until the
agent agrees with it on most frames; from then on they take turns (see `guided_rollouts`).

An agent that plays with argmax actions fails by going around in circles. The teacher does not, so such frames are rare;
a part of each batch is drawn from those in which the agent is where it has been before (`revisit_fraction`).

The learning rate is constant after a warm-up, so that training can go on at any time; a short branch with
`decay_frames` makes the best of what has been learned. What is validated and saved is an exponential moving average of
the weights.
"""

import os
from concurrent.futures import Future
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.config import MAP
from babyai.agents.map.model import NUM_PROGRESS, Decisions, MapPolicy
from babyai.agents.map.token_function import TokenFunction
from babyai.agents.map.tokens import Tokens
from babyai.agents.precision import MixedPrecision
from babyai.seeds import roll_in_seed
from babyai.training.fit import Algorithm, Session, Stop, fit
from babyai.training.frame_buffer import NO_LABEL, FrameBuffer, LabeledFrames, Labels, PlayedFrames
from babyai.training.guided_rollouts import GuidedRollouts
from babyai.training.optimizer import make_adamw, optimizer_state, set_learning_rate
from babyai.training.options import OnlineDaggerOptions
from babyai.training.path_loss import path_losses
from babyai.tree import tree_map

METRICS = ("loss", "cross_entropy", "accuracy", "progress_loss", "goal_loss", "path_loss", "gradient_norm")
# Updates between two log rows.
ROW_UPDATES = 100
# The capacity of the buffer of revisits, as a part of the other one's, and how full it must be to be drawn from.
REVISITS_PART = 0.1
MIN_FILLED = 0.01
# CUDA graphs of a gradient step, one for each size of the padded tokens; each holds all activations.
MAX_GRAPHS = 3


def train(options: OnlineDaggerOptions, *, resume: bool = False, stop: Stop = lambda: False) -> Session:
    """Trains until the frames are over; see `fit`."""
    return fit(options, OnlineDagger, resume=resume, stop=stop)


class FrameLearner:
    """Gradient steps on single frames.

    Args:
        policy: On its device already.
        options: Learning rate, weight decay, clipping and so on.
        precision: "float32" or "bf16".

    Attributes:
        average: A copy of the policy with averaged weights.
    """

    def __init__(self, policy: MapPolicy, options: OnlineDaggerOptions, precision: Any) -> None:
        self.policy = policy
        self.options = options
        self.mixed = MixedPrecision(policy, precision)
        self.average = deepcopy(policy).eval()
        device = next(policy.parameters()).device
        self.optimizer = make_adamw(policy, options.learning_rate, options.weight_decay)
        self.num_steps = 0
        self.totals = torch.zeros(1 + len(METRICS), dtype=torch.float64, device=device)
        self._step = TokenFunction(
            self._gradient_step,
            policy,
            device,
            self.mutated,
            enabled=options.cuda_graphs,
            exact=precision == "float32",
            max_graphs=MAX_GRAPHS,
        )

    def learn(self, batch: LabeledFrames) -> None:
        """One gradient step."""
        set_learning_rate(self.optimizer, self._learning_rate())
        self._step(batch.frames, batch.labels)
        self._update_average()
        self.num_steps += 1

    def _learning_rate(self) -> float:
        options = self.options
        warm_up = (self.num_steps + 1) / options.warm_up
        frames_left = options.frames - self.num_steps * options.batch_size
        decay = frames_left / options.decay_frames if options.decay_frames else 1.0
        return options.learning_rate * min(1.0, warm_up, max(0.0, decay))

    def mutated(self) -> list[Tensor]:
        """The tensors that a gradient step changes in place, but for the average."""
        moments = optimizer_state(self.optimizer)
        return [*self.policy.parameters(), *self.mixed.half_weights(), *moments, self.totals]

    def _gradient_step(self, tokens: Tokens, labels: Labels) -> None:
        loss, metrics = self._loss(self.mixed.compute.decide_tokens(tokens), labels)
        self.mixed.backward(loss)
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.options.max_grad_norm)
        self.optimizer.step()
        self.mixed.update_weights()
        with torch.no_grad():
            self.totals += torch.cat([torch.ones_like(norm[None]), metrics, norm[None]])

    def _loss(self, decisions: Decisions, labels: Labels) -> tuple[Tensor, Tensor]:
        """Cross-entropy with the teacher's actions, plus auxiliary losses; frames without advice do not count."""
        has_label = labels.actions != NO_LABEL
        actions = torch.where(has_label, labels.actions, 0).long()
        weights = has_label.float() / has_label.sum().clamp(min=1)
        logits = decisions.logits.float()
        cross_entropy = (functional.cross_entropy(logits, actions, reduction="none") * weights).sum()
        accuracy = ((logits.argmax(1) == actions) * weights).sum()
        bits = labels.progress[:, None] >> torch.arange(NUM_PROGRESS, device=logits.device) & 1
        progress_loss = functional.binary_cross_entropy_with_logits(decisions.progress.float(), bits.float())
        goal, path = self.mixed.compute.predict_paths(decisions)
        goal_loss, path_loss = path_losses(goal, path, decisions.tokens, labels.paths.long())
        loss = cross_entropy + self.options.progress_coef * progress_loss
        loss = loss + self.options.path_coef * (goal_loss + path_loss)
        metrics = [loss, cross_entropy, accuracy, progress_loss, goal_loss, path_loss]
        return loss, torch.stack(metrics).detach()

    @torch.no_grad()
    def _update_average(self) -> None:
        decay = min(self.options.ema_decay, (1 + self.num_steps) / (10 + self.num_steps))
        averages: list[Tensor] = list(self.average.parameters())
        weights: list[Tensor] = list(self.policy.parameters())
        torch._foreach_lerp_(averages, weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call; waits for the device."""
        count, *sums = self.totals.tolist()
        self.totals.zero_()
        return {name: total / max(1.0, count) for name, total in zip(METRICS, sums, strict=True)}


class OnlineDagger(Algorithm):
    """Large-scale DAgger as an algorithm of `fit`."""

    name = "online-dagger"
    fresh_validation = False

    def __init__(self, session: Session) -> None:
        options = session.options
        assert isinstance(options, OnlineDaggerOptions)
        policy = session.policy
        assert isinstance(policy, MapPolicy)
        self.options = options
        self.learner: Any = FrameLearner(policy, options, session.precision)
        session.evaluate_instead(self.learner.average)
        self.frames_per_update = options.batch_size
        self.updates_per_row = ROW_UPDATES
        self.buffer = FrameBuffer(options.buffer_size)
        self.revisits = FrameBuffer(max(1, int(REVISITS_PART * options.buffer_size)))
        threads = options.threads or max(1, (os.cpu_count() or 1) - 2)
        self.rollouts = GuidedRollouts(
            self.learner.mixed.compute,
            options.level_names,
            options.worlds,
            rules=options.rules,
            first_seed=roll_in_seed(options.seed),
            seed=options.seed,
            solo=options.solo,
            take_over=options.take_over,
            hand_back=options.hand_back,
            max_disagreements=options.max_disagreements,
            threads=threads,
            cuda_graphs=options.cuda_graphs,
        )
        self.played = 0
        self._rows = 0
        self._is_first = True
        self._min_buffer = options.min_buffer
        if options.init_from is not None:
            # The agent can play already.
            self.rollouts.restart(0, True, [1.0] * len(options.level_names))
            self._refill()

    @staticmethod
    def check_options(options: OnlineDaggerOptions) -> None:
        """Raises if the agent is not one whose memory needs no gradients."""
        if options.architecture != MAP:
            raise ValueError(f"online-dagger trains the architecture {MAP!r}, not {options.architecture!r}")

    def close(self) -> None:
        """Stops the threads."""
        self.rollouts.close()

    def update(self) -> None:
        """One step of all worlds and, at the same time, one gradient step."""
        while self.buffer.size < min(self.buffer.capacity, self._min_buffer):
            self._store(self.rollouts.start_playing())
        # Before the other thread starts: while it captures a CUDA graph, nobody may use the default generator.
        batch = self._sample()
        playing = self.rollouts.start_playing()
        if self._is_first:
            # Capturing the first CUDA graph checks which tensors are changed meanwhile.
            playing.result()
            self._is_first = False
        self.learner.learn(batch)
        self._store(playing)
        self.rollouts.copy_weights(self.learner.mixed.compute)

    def _store(self, playing: Future[PlayedFrames]) -> None:
        played = playing.result()
        self.buffer.add(played.all)
        self.revisits.add(played.revisits)
        self.played += self.options.worlds

    def _sample(self) -> LabeledFrames:
        """A batch."""
        count = self.options.batch_size
        again = round(self.options.revisit_fraction * count)
        if not again or self.revisits.size <= MIN_FILLED * self.revisits.capacity:
            return self.buffer.sample(count)
        return tree_map(lambda *parts: torch.cat(parts), self.buffer.sample(count - again), self.revisits.sample(again))

    def _refill(self) -> None:
        """Fills half of the buffer first: all episodes have just started, and frames should not all be of that kind."""
        self._min_buffer = max(self.options.min_buffer, self.options.buffer_size // 2)

    def metrics(self) -> dict[str, Any]:
        """The row of the last updates."""
        row = self.learner.metrics()
        expert_frames = self.options.expert_frames
        is_over = expert_frames is not None and self.progress >= expert_frames
        if is_over or row["accuracy"] >= self.options.expert_until:
            self.rollouts.agent_plays = True
        self._rows += 1
        counts = {"frames": self.progress, "played_frames": self.played, "episodes": self.rollouts.num_started}
        counts["revisits"] = self.revisits.size
        return {**counts, **row, **self.rollouts.metrics()}

    @property
    def progress(self) -> float:
        """Frames learned from."""
        return self.learner.num_steps * self.options.batch_size

    def is_finished(self) -> bool:
        """Whether the frames are over."""
        return self.progress >= self.options.frames

    def should_validate(self) -> bool:
        """Whether to validate at this log row."""
        return self.options.validate_every > 0 and self._rows % self.options.validate_every == 0

    def tensors(self) -> dict[str, Tensor]:
        """The weights that are trained (the agent is their average), and the metrics' sums."""
        weights = {f"weights.{name}": tensor for name, tensor in self.learner.policy.state_dict().items()}
        return weights | {"totals": self.learner.totals}

    def state_dict(self) -> dict[str, Any]:
        """The schedule and the position in the seeds; worlds and buffer are not kept."""
        return {
            "steps": self.learner.num_steps,
            "rows": self._rows,
            "played": self.played,
            "agent_plays": self.rollouts.agent_plays,
            "failures": self.rollouts.failures.tolist(),
            "episodes": self.rollouts.num_started,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues with a schedule and new episodes; half of the buffer is refilled before the first gradient step."""
        self.learner.num_steps = state["steps"]
        self._rows = state["rows"]
        self.played = state["played"]
        self.rollouts.copy_weights(self.learner.mixed.compute)
        self.rollouts.restart(state["episodes"], state["agent_plays"], state["failures"])
        self._refill()
