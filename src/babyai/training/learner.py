"""Learning to do as shown: one chunk, one step of Adam. Imitation and DAgger differ only in the chunks they give it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.captured import Captured, compile_part
from babyai.agents.device import Precision
from babyai.agents.precision import Working
from babyai.agents.unroll import Statistics, Steps, Unroller
from babyai.training.feed import Fed
from babyai.training.optimizer import descend, find_gradients, learning_state, make_adam

MEASURES = ("loss", "cross_entropy", "entropy", "accuracy")


def imitation_loss(logits: Tensor, actions: Tensor, entropy_weight: float) -> tuple[Tensor, Tensor]:
    """The loss, and what to add to the totals: 1, and the `MEASURES`; logits: (T, N, 7), actions: (T, N)."""
    log_probs = logits.log_softmax(2)
    cross_entropy = functional.nll_loss(log_probs.flatten(0, 1), actions.flatten())
    entropy = -(log_probs.exp() * log_probs).sum(2).mean()
    loss = cross_entropy - entropy_weight * entropy
    accuracy = (logits.argmax(2) == actions).float().mean()
    return loss, torch.stack([torch.ones_like(loss), loss, cross_entropy, entropy, accuracy]).detach()


class ImitationLearner:
    """A model, its optimizer, and the memories with which the next chunk begins.

    Args:
        model: On its device already.
        lanes: N, how many episodes a chunk shows side by side.
        learning_rate: Of Adam.
        entropy: How much an undecided policy is worth.
        statistics: See `Unroller`.
        precision: "float32", or "bf16" with weights in float32.
        fast: Compile and record on a GPU; without it, and on the CPU, the same steps one by one.
    """

    def __init__(
        self,
        model: nn.Module,
        lanes: int,
        *,
        learning_rate: float = 1e-4,
        entropy: float = 0.0,
        statistics: Statistics = "chunk",
        precision: Precision = "float32",
        fast: bool = True,
    ) -> None:
        self.model, self.working, self.entropy = model, Working(model, precision), entropy
        self.device = next(model.parameters()).device
        self.optimizer = make_adam(model, learning_rate)
        self.memory: Tensor = model.initial_memory(lanes, self.device)  # pyright: ignore[reportCallIssue]
        self.last_actions = torch.full((lanes,), -1, dtype=torch.long, device=self.device)
        self.totals = torch.zeros(1 + len(MEASURES), dtype=torch.float64, device=self.device)
        on_gpu = fast and self.device.type == "cuda"
        self._unroll = Unroller(self.working.model, statistics, compiled=on_gpu)
        self._find_loss = compile_part(imitation_loss) if on_gpu else imitation_loss
        self._step = Captured(self._learn, self.device, self._changes, enabled=fast, exact=precision == "float32")

    def learn(self, chunk: Fed) -> None:
        """One step of Adam on one chunk, which goes on where the last one ended."""
        self._step(*chunk)

    def measures(self) -> dict[str, float]:
        """Means over the chunks since the last call; waits for the device."""
        count, *sums = self.totals.tolist()
        self.totals.zero_()
        return {name: total / max(1.0, count) for name, total in zip(MEASURES, sums, strict=True)}

    def _learn(self, *chunk: Tensor) -> None:
        fed = Fed(*chunk)
        actions, taken = fed.actions.long(), fed.taken.long()
        before = torch.cat([self.last_actions[None], taken[:-1]])
        steps = Steps(
            images=fed.images,
            directions=fed.directions,
            last_actions=torch.where(fed.first, -1, before),
            first=fed.first,
            missions=fed.missions,
            mission_index=fed.mission_index,
        )
        logits, _, memory = self._unroll(steps, self.memory)
        loss, measured = self._find_loss(logits, actions, self.entropy)
        find_gradients(loss, self.working)
        descend(self.working, self.optimizer)
        with torch.no_grad():
            self.memory.copy_(memory)
            self.last_actions.copy_(taken[-1])
            self.totals += measured

    def _changes(self) -> list[Tensor]:
        return [*learning_state(self.working, self.optimizer), self.memory, self.last_actions, self.totals]

    def tensors(self) -> dict[str, Tensor]:
        """What has to be kept beside model and optimizer to go on later."""
        return {"memory": self.memory, "last_actions": self.last_actions, "totals": self.totals}

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        """Goes on where another learner was, with the weights that the model has now."""
        self.working.refresh()
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
