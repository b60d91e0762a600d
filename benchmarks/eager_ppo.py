"""The peer of our PPO: the same algorithm and network over Minigrid's worlds, written as the authors wrote theirs.

Plain eager PyTorch. Worlds are stepped one after another, observations become tensors at every step, and both acting
and learning call the network once for each time step, which reads the instruction each time and leaves batch norm to
average over that step alone. Nothing is done to slow it down: convolutions get the layout in which the sum of
embeddings comes, channels last, as in the authors' code.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.model import FiLM, Model
from babyai.agents.vision import ROWS_PER_CHANNEL, BagOfWords
from babyai.training.optimizer import BETAS, EPSILON
from babyai.training.ppo import PPOSettings
from babyai.world.language import tokenize
from benchmarks.peers import make_minigrid

Observation = dict[str, Tensor]


def observe(shown: list[dict[str, Any]]) -> Observation:
    """What so many worlds show, as tensors; missions are cut to the longest."""
    missions = np.stack([tokenize(one["mission"]) for one in shown])
    return {
        "image": torch.from_numpy(np.stack([one["image"] for one in shown])),
        "mission": torch.from_numpy(missions[:, : int(np.count_nonzero(missions, axis=1).max())]),
    }


class PlainNetwork(nn.Module):
    """The small `bow_endpool_res` as one would write it down, on the weights of a `Model`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        assert model.config.architecture == "bow_endpool_res" and model.config.size == "small"
        self.model = model
        self.offsets = torch.arange(3) * ROWS_PER_CHANNEL

    def forward(self, observation: Observation, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step: logits (B, 7), value (B,), memory (B, 256)."""
        model, see = self.model, self.model.see
        assert isinstance(see.tiles, BagOfWords) and model.memory is not None
        embedded = see.tiles.table(observation["image"].long() + self.offsets)  # (B, 7, 7, 3, 128)
        tiles = embedded.mean(3) if see.tiles.merge == "mean" else embedded.sum(3)
        x = see.first_norm(see.first(tiles.permute(0, 3, 1, 2))).relu()
        x = see.second_norm(see.second(x)).relu()
        instruction = self.read(observation["mission"])
        for film in (model.first_film, model.second_film):
            x = self.modulate(film, x, instruction)
        x = functional.max_pool2d(x, 7).flatten(1).relu()
        h, c = model.memory(x, memory.chunk(2, 1))
        return model.actor(h), model.critic(h).squeeze(1), torch.cat([h, c], 1)

    def read(self, tokens: Tensor) -> Tensor:
        """The state at the last word, (B, 128)."""
        reader = self.model.read
        states, _ = reader.gru(reader.words(tokens.long()))  # pyright: ignore[reportCallIssue]
        return states[torch.arange(len(tokens)), (tokens != 0).sum(1) - 1]

    def modulate(self, film: FiLM, x: Tensor, instruction: Tensor) -> Tensor:
        """One FiLM block with its way round, (B, 128, 7, 7)."""
        y = film.second(film.first_norm(film.first(x)).relu())
        scale, shift = film.scale_and_shift(instruction)[:, :, None, None].chunk(2, 1)
        return film.second_norm(y * scale + shift).relu() + x


class EagerPPO:
    """A model, Minigrid's worlds, and an optimizer.

    Args:
        model: The network.
        level: The level's name.
        settings: The algorithm's numbers.
        seed: World k starts with seed 100 * seed + k.
    """

    def __init__(self, model: Model, level: str, settings: PPOSettings, seed: int = 0) -> None:
        self.model, self.settings = PlainNetwork(model).train(), settings
        self.worlds = [make_minigrid(level) for _ in range(settings.worlds)]
        self.shown = [world.reset(seed=100 * seed + k)[0] for k, world in enumerate(self.worlds)]
        self.memory = model.initial_memory(settings.worlds)
        self.mask = torch.ones(settings.worlds)
        self.generator = np.random.default_rng(seed)
        self.optimizer = torch.optim.Adam(model.parameters(), settings.learning_rate, betas=BETAS, eps=EPSILON)

    def update(self) -> float:
        """Plays and learns once; returns the last minibatch's loss."""
        return self.learn(*self.play())

    def step_worlds(self, actions: list[int]) -> tuple[list[float], list[bool]]:
        """Rewards and ends of one step; worlds whose episode ended begin the next one."""
        rewards, ended = [], []
        for k, (world, action) in enumerate(zip(self.worlds, actions, strict=True)):
            self.shown[k], reward, terminated, truncated, _ = world.step(action)
            rewards.append(float(reward))
            ended.append(bool(terminated or truncated))
            if ended[-1]:
                self.shown[k], _ = world.reset()
        return rewards, ended

    def play(self) -> tuple[Observation, dict[str, Tensor]]:
        """One rollout, flat: all worlds' first step, then all their second step, and so on."""
        settings = self.settings
        shown, steps = [], []
        for _ in range(settings.steps):
            before = {"memory": self.memory, "mask": self.mask}
            with torch.no_grad():
                logits, value, self.memory = self.model(observe(self.shown), self.memory * self.mask[:, None])
            policy = torch.distributions.Categorical(logits=logits)
            action = policy.sample()
            shown += self.shown
            rewards, ended = self.step_worlds(action.tolist())
            self.mask = 1 - torch.tensor(ended, dtype=torch.float32)
            after = {"reward": settings.reward_scale * torch.tensor(rewards), "going_on": self.mask}
            steps.append(before | after | {"value": value, "action": action, "log_chance": policy.log_prob(action)})
        with torch.no_grad():
            _, last_value, _ = self.model(observe(self.shown), self.memory * self.mask[:, None])
        self._estimate_advantages(steps, last_value)
        return observe(shown), {name: torch.cat([step[name] for step in steps]) for name in steps[0]}

    def _estimate_advantages(self, steps: list[dict[str, Tensor]], next_value: Tensor) -> None:
        settings, advantage = self.settings, torch.zeros(self.settings.worlds)
        for step in reversed(steps):
            surprise = step["reward"] + settings.discount * step["going_on"] * next_value - step["value"]
            advantage = surprise + settings.discount * settings.gae_lambda * step["going_on"] * advantage
            step["advantage"], next_value = advantage, step["value"]

    def learn(self, observation: Observation, played: dict[str, Tensor]) -> float:
        """All epochs over one rollout; returns the last minibatch's loss."""
        settings, loss = self.settings, torch.zeros(())
        first_steps = np.arange(0, settings.steps, settings.recurrence)
        starts = (first_steps[:, None] * settings.worlds + np.arange(settings.worlds)).ravel()
        for _ in range(settings.epochs):
            for batch in np.array_split(self.generator.permutation(starts), settings.minibatches):
                loss = self._loss(observation, played, torch.from_numpy(batch))
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), settings.max_gradient)
                self.optimizer.step()
        return float(loss.detach())

    def _loss(self, observation: Observation, played: dict[str, Tensor], batch: Tensor) -> Tensor:
        """The mean over the time steps of the pieces that start at `batch`."""
        settings, memory, losses = self.settings, played["memory"][batch], []
        for step in range(settings.recurrence):
            now = batch + step * settings.worlds
            at_step = {name: tensor[now] for name, tensor in played.items()}
            seen = {name: tensor[now] for name, tensor in observation.items()}
            logits, value, memory = self.model(seen, memory * at_step["mask"][:, None])
            losses.append(self._loss_at(logits, value, at_step))
        return torch.stack(losses).mean()

    def _loss_at(self, logits: Tensor, value: Tensor, at_step: dict[str, Tensor]) -> Tensor:
        settings, clip = self.settings, self.settings.clip
        policy = torch.distributions.Categorical(logits=logits)
        ratio = (policy.log_prob(at_step["action"]) - at_step["log_chance"]).exp()
        advantage, old_value = at_step["advantage"], at_step["value"]
        policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()

        returned = old_value + advantage
        clipped = old_value + (value - old_value).clamp(-clip, clip)
        value_loss = torch.max((value - returned) ** 2, (clipped - returned) ** 2).mean()
        return policy_loss + settings.value_weight * value_loss - settings.entropy * policy.entropy().mean()
