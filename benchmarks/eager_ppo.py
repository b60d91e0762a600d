"""The peer of our PPO on a CPU: the same algorithm and network in plain eager PyTorch, with Minigrid's environments.

It is written like the authors' code: environments are stepped one after the other, observations become tensors at every
step, and both acting and learning call the network once per time step, which encodes the instruction each time and
computes batch-normalization statistics over that step alone. It is not slowed down on purpose: convolutions get the
memory layout in which the sum of embeddings arrives, channels last, as in the authors' code.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.film_lstm.model import FiLM, FilmLSTM
from babyai.agents.film_lstm.vision import ROWS_PER_CHANNEL, BagOfWords
from babyai.training.optimizer import BETAS, EPSILON
from babyai.training.options import PPOHyperparameters
from babyai.world.language import tokenize
from benchmarks.peers import make_minigrid

Observation = dict[str, Tensor]


def to_tensors(observations: list[dict[str, Any]]) -> Observation:
    """The observations of B environments as tensors; missions are cut to the longest."""
    missions = np.stack([tokenize(observation["mission"]) for observation in observations])
    return {
        "image": torch.from_numpy(np.stack([observation["image"] for observation in observations])),
        "mission": torch.from_numpy(missions[:, : int(np.count_nonzero(missions, axis=1).max())]),
    }


class PlainNetwork(nn.Module):
    """The small `bow_endpool_res` without any optimization, with the weights of a `FilmLSTM`."""

    def __init__(self, policy: FilmLSTM) -> None:
        super().__init__()
        assert policy.config.architecture == "bow_endpool_res" and policy.config.size == "small"
        self.policy = policy
        self.offsets = torch.arange(3) * ROWS_PER_CHANNEL

    def forward(self, observation: Observation, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step: logits (B, 7), value (B,), memory (B, 256), which is h and c of the LSTM side by side."""
        policy = self.policy
        encoder = policy.image_encoder
        assert isinstance(encoder.tiles, BagOfWords) and policy.lstm is not None
        embedded = encoder.tiles.table(observation["image"].long() + self.offsets)  # (B, 7, 7, 3, 128)
        tiles = embedded.mean(3) if encoder.tiles.merge == "mean" else embedded.sum(3)
        x = encoder.norm1(encoder.conv1(tiles.permute(0, 3, 1, 2))).relu()
        x = encoder.norm2(encoder.conv2(x)).relu()
        instruction = self.encode_instruction(observation["mission"])
        for film in (policy.film1, policy.film2):
            x = self.apply_film(film, x, instruction)
        x = functional.max_pool2d(x, 7).flatten(1).relu()
        h, c = policy.lstm(x, memory.chunk(2, 1))
        return policy.actor(h), policy.critic(h).squeeze(1), torch.cat([h, c], 1)

    def encode_instruction(self, tokens: Tensor) -> Tensor:
        """The GRU's state at the last word, (B, 128)."""
        encoder = self.policy.instruction_encoder
        states, _ = encoder.gru(encoder.words(tokens.long()))  # pyright: ignore[reportCallIssue]
        return states[torch.arange(len(tokens)), (tokens != 0).sum(1) - 1]

    def apply_film(self, film: FiLM, x: Tensor, instruction: Tensor) -> Tensor:
        """One FiLM layer with its residual connection, (B, 128, 7, 7)."""
        y = film.conv2(film.norm1(film.conv1(x)).relu())
        scale, shift = film.scale_and_shift(instruction)[:, :, None, None].chunk(2, 1)
        return film.norm2(y * scale + shift).relu() + x


class EagerPPO:
    """A network, Minigrid's environments, and an optimizer.

    Args:
        policy: The network's weights.
        level: The level's name.
        hyper: Hyperparameters.
        seed: Environment k starts with the seed 100 * seed + k.
    """

    def __init__(self, policy: FilmLSTM, level: str, hyper: PPOHyperparameters, seed: int = 0) -> None:
        self.hyper = hyper
        self.network = PlainNetwork(policy).train()
        self.envs = [make_minigrid(level) for _ in range(hyper.worlds)]
        self.observations = [env.reset(seed=100 * seed + k)[0] for k, env in enumerate(self.envs)]
        self.memory = torch.cat(policy.initial_state(hyper.worlds), 1)
        # 0 where an episode starts, 1 elsewhere.
        self.mask = torch.ones(hyper.worlds)
        self.generator = np.random.default_rng(seed)
        self.optimizer = torch.optim.Adam(policy.parameters(), hyper.learning_rate, betas=BETAS, eps=EPSILON)

    def update(self) -> float:
        """Plays a rollout and learns from it; returns the loss of the last minibatch."""
        return self.learn(*self.play())

    def step_envs(self, actions: list[int]) -> tuple[list[float], list[bool]]:
        """One step of all environments: rewards, and where an episode ended and the next one started."""
        rewards = []
        done = []
        for k, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            self.observations[k], reward, terminated, truncated, _ = env.step(action)
            rewards.append(float(reward))
            done.append(bool(terminated or truncated))
            if done[-1]:
                self.observations[k], _ = env.reset()
        return rewards, done

    def play(self) -> tuple[Observation, dict[str, Tensor]]:
        """One rollout, flattened: the first step of all environments, then the second step, and so on."""
        hyper = self.hyper
        observations = []
        steps = []
        for _ in range(hyper.steps):
            before = {"memory": self.memory, "mask": self.mask}
            with torch.no_grad():
                observation = to_tensors(self.observations)
                logits, value, self.memory = self.network(observation, self.memory * self.mask[:, None])
            distribution = torch.distributions.Categorical(logits=logits)
            action = distribution.sample()
            observations += self.observations
            rewards, done = self.step_envs(action.tolist())
            self.mask = 1 - torch.tensor(done, dtype=torch.float32)
            after = {"reward": hyper.reward_scale * torch.tensor(rewards), "not_done": self.mask}
            chosen = {"value": value, "action": action, "log_prob": distribution.log_prob(action)}
            steps.append(before | after | chosen)
        with torch.no_grad():
            _, last_value, _ = self.network(to_tensors(self.observations), self.memory * self.mask[:, None])
        self._estimate_advantages(steps, last_value)
        return to_tensors(observations), {name: torch.cat([step[name] for step in steps]) for name in steps[0]}

    def _estimate_advantages(self, steps: list[dict[str, Tensor]], next_value: Tensor) -> None:
        """Adds the generalized advantage estimate to each step."""
        hyper = self.hyper
        advantage = torch.zeros(hyper.worlds)
        for step in reversed(steps):
            delta = step["reward"] + hyper.discount * step["not_done"] * next_value - step["value"]
            advantage = delta + hyper.discount * hyper.gae_lambda * step["not_done"] * advantage
            step["advantage"] = advantage
            next_value = step["value"]

    def learn(self, observation: Observation, rollout: dict[str, Tensor]) -> float:
        """All epochs over one rollout; returns the loss of the last minibatch."""
        hyper = self.hyper
        loss = torch.zeros(())
        first_steps = np.arange(0, hyper.steps, hyper.recurrence)
        chunks = (first_steps[:, None] * hyper.worlds + np.arange(hyper.worlds)).ravel()
        for _ in range(hyper.epochs):
            for minibatch in np.array_split(self.generator.permutation(chunks), hyper.minibatches):
                loss = self._loss(observation, rollout, torch.from_numpy(minibatch))
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), hyper.max_grad_norm)
                self.optimizer.step()
        return float(loss.detach())

    def _loss(self, observation: Observation, rollout: dict[str, Tensor], minibatch: Tensor) -> Tensor:
        """The mean loss over the time steps of the chunks whose first rows are `minibatch`."""
        memory = rollout["memory"][minibatch]
        losses = []
        for step in range(self.hyper.recurrence):
            rows = minibatch + step * self.hyper.worlds
            played = {name: tensor[rows] for name, tensor in rollout.items()}
            seen = {name: tensor[rows] for name, tensor in observation.items()}
            logits, value, memory = self.network(seen, memory * played["mask"][:, None])
            losses.append(self._step_loss(logits, value, played))
        return torch.stack(losses).mean()

    def _step_loss(self, logits: Tensor, value: Tensor, played: dict[str, Tensor]) -> Tensor:
        clip = self.hyper.clip_coef
        distribution = torch.distributions.Categorical(logits=logits)
        ratio = (distribution.log_prob(played["action"]) - played["log_prob"]).exp()
        advantage = played["advantage"]
        policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()

        old_value = played["value"]
        target = old_value + advantage
        clipped = old_value + (value - old_value).clamp(-clip, clip)
        value_loss = torch.max((value - target) ** 2, (clipped - target) ** 2).mean()
        entropy = distribution.entropy().mean()
        return policy_loss + self.hyper.value_coef * value_loss - self.hyper.entropy_coef * entropy
