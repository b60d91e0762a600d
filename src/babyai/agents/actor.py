"""Acting: a policy plays N episodes in parallel, from observations to actions."""

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from babyai.agents.cuda_graph import CudaGraphFunction
from babyai.agents.device import Precision, find_device
from babyai.agents.policy import Observation, State, allows_cuda_graphs, copy_state, new_state, reset_state
from babyai.agents.precision import MixedPrecision
from babyai.batch import count_words
from babyai.tree import tree_leaves


class ObservationPacker:
    """Packs the observations of N worlds into one array, (N, 6 + L + image) uint8, for one copy to the device.

    A row holds: whether an episode starts, the direction, four bytes of a random number for sampling, L token ids of
    the mission, the image.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self.count = count
        self.device = device
        self._words = 0
        self._image_shape = ()
        self._host = torch.empty(0)

    def pack(
        self,
        images: np.ndarray,
        missions: np.ndarray,
        directions: np.ndarray,
        starts: np.ndarray,
        uniforms: np.ndarray | None = None,
    ) -> Tensor:
        """The rows, in memory that the next call overwrites."""
        if starts.any() or not self._words:
            # A CUDA graph is captured for each shape, so on a GPU the number of words never decreases. Elsewhere it
            # depends on the missions alone, so that a resumed run computes what it would have computed.
            self._words = count_words(missions, self._words if self.device.type == "cuda" else 0)
        self._image_shape = images.shape[1:]
        image_start = 6 + self._words
        width = image_start + images[0].size
        if self._host.shape != (self.count, width):
            self._host = torch.empty((self.count, width), dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        rows = self._host.numpy()
        rows[:, 0] = starts
        rows[:, 1] = directions
        if uniforms is not None:
            rows[:, 2:6] = np.ascontiguousarray(uniforms, np.float32).view(np.uint8).reshape(self.count, 4)
        rows[:, 6:image_start] = missions[:, : self._words]
        rows[:, image_start:] = images.reshape(self.count, -1)
        return self._host

    def unpack(self, rows: Tensor, last_actions: Tensor) -> tuple[Observation, Tensor, Tensor]:
        """The observation of N lanes, where an episode starts, and the random numbers; last_actions: (N,)."""
        starts = rows[:, 0].bool()
        image_start = rows.shape[1] - int(np.prod(self._image_shape))
        observation = {
            "image": rows[:, image_start:].reshape(self.count, *self._image_shape),
            "mission": rows[:, 6:image_start],
            "direction": rows[:, 1],
            "last_action": torch.where(starts, -1, last_actions),
        }
        # A float32 must be aligned to four bytes, which inside a row it is not.
        uniforms = rows[:, 2:6].clone(memory_format=torch.contiguous_format).view(torch.float32)[:, 0]
        return observation, starts, uniforms


class Actor:
    """A policy that plays N episodes at once and keeps their recurrent states.

    Args:
        policy: On its device already. It acts in the mode it is in; for evaluation that is `policy.eval()`.
        count: N.
        device: Where the policy is.
        precision: "bf16" computes with a copy of the weights in bf16; see `update_weights`.
        sample: Whether actions are sampled from the policy, rather than its argmax taken.
        seed: Random seed for sampling.
        cuda_graphs: Whether a GPU replays the step from a CUDA graph.
    """

    def __init__(
        self,
        policy: nn.Module,
        count: int,
        *,
        device: str | torch.device = "cpu",
        precision: Precision = "float32",
        sample: bool = False,
        seed: int = 0,
        cuda_graphs: bool = True,
    ) -> None:
        self.device = find_device(str(device))
        self.sample = sample
        self.count = count
        self.state: State = new_state(policy, count)  # pyright: ignore[reportArgumentType]
        self.last_actions = torch.full((count,), -1, dtype=torch.long, device=self.device)
        self._initial: State = new_state(policy, count)  # pyright: ignore[reportArgumentType]
        self._generator = np.random.default_rng(seed)
        self._mixed = MixedPrecision(policy, precision)
        self._packer = ObservationPacker(count, self.device)
        cuda_graphs = cuda_graphs and allows_cuda_graphs(policy)
        settings = {"enabled": cuda_graphs, "exact": precision == "float32"}
        # A CUDA graph cannot branch, so sampling and argmax have one each.
        self._steps = {
            sample: CudaGraphFunction(partial(self._step, sample), self.device, self.mutated, **settings)
            for sample in (False, True)
        }

    def act(
        self,
        images: np.ndarray,
        missions: np.ndarray,
        directions: np.ndarray,
        starts: np.ndarray,
        uniforms: np.ndarray | None = None,
    ) -> np.ndarray:
        """The next action of each episode.

        Args:
            images: (N, 7, 7, 3) uint8, or pixels.
            missions: (N, 72) uint8 token ids.
            directions: (N,) integers.
            starts: (N,) bool, where an episode starts; the recurrent state is reset there.
            uniforms: (N,) float32 in [0, 1), random numbers for sampling; default: from the actor's own generator.

        Returns:
            (N,) int64.
        """
        if self.sample and uniforms is None:
            uniforms = self._generator.random(self.count, dtype=np.float32)
        rows = self._packer.pack(images, missions, directions, starts, uniforms)
        with torch.no_grad():
            actions: Tensor = self._steps[self.sample](rows)
        return actions.cpu().numpy()

    def update_weights(self) -> None:
        """Uses weights that have been changed in place."""
        self._mixed.update_weights()
        copy_state(self._initial, self._mixed.model.initial_state(self.count))  # pyright: ignore[reportCallIssue]

    def mutated(self) -> list[Tensor]:
        """The tensors that a step changes in place; in training mode, batch normalization updates its buffers."""
        buffers = [*self._mixed.model.buffers(), *self._mixed.compute.buffers()]
        return [*tree_leaves(self.state), self.last_actions, *buffers]

    def _step(self, sample: bool, rows: Tensor) -> Tensor:
        """rows: see `ObservationPacker` -> (N,) actions; keeps the state and the actions."""
        observation, starts, uniforms = self._packer.unpack(rows, self.last_actions)
        with self._mixed.autocast():
            logits, _, state = self._mixed.compute(observation, reset_state(self.state, self._initial, starts))
        actions = choose_actions(logits.float(), uniforms if sample else None)
        copy_state(self.state, state)
        self.last_actions.copy_(actions)
        return actions


def choose_actions(logits: Tensor, uniforms: Tensor | None = None) -> Tensor:
    """The argmax or, given (N,) uniform random numbers, actions sampled from the policy: (N,) int64."""
    if uniforms is None:
        return logits.argmax(1)
    below = logits.softmax(1).cumsum(1) <= uniforms[:, None]
    return below.sum(1).clamp(max=logits.shape[1] - 1)
