"""A function of tokens that a GPU replays from CUDA graphs."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from babyai.agents.cuda_graph import CAPTURE_PRIORITY, CudaGraphFunction
from babyai.agents.map.model import MapPolicy
from babyai.agents.map.padding import Capacities, Sizes
from babyai.agents.map.tokens import Frames


class TokenFunction:
    """Calls a function with the tokens of frames; a GPU replays it, and the making of the tokens, from a CUDA graph.

    A graph needs fixed shapes, so tokens are padded. How many there are is counted first, in a graph of its own.

    Args:
        function: Takes tokens and then structures of tensors.
        policy: Makes the tokens.
        device: Where it runs.
        mutated: See `CudaGraphFunction`.
        slack: How much room for padding, see `Capacities`.
        enabled: Whether to use CUDA graphs on a GPU. Without them, tokens are not padded.
        priority: See `CudaGraphFunction`.
        settings: Other settings of `CudaGraphFunction`.

    Attributes:
        enabled: Whether CUDA graphs are used.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        policy: MapPolicy,
        device: torch.device,
        mutated: Callable[[], Iterable[Tensor]] = tuple,
        *,
        slack: float = 1.0,
        enabled: bool = True,
        priority: int = CAPTURE_PRIORITY,
        **settings: Any,
    ) -> None:
        self.function = function
        self.policy = policy
        # By number of frames.
        self._capacities = defaultdict[int, Capacities](partial(Capacities, slack))
        self.enabled = enabled and device.type == "cuda"
        shared = {"enabled": enabled, "compiled": True, "priority": priority}
        self._graph = CudaGraphFunction(self._call, device, mutated, **shared, **settings)
        self._count = CudaGraphFunction(policy.count, device, **shared, check_mutations=False)

    def __call__(self, frames: Frames, *inputs: Any) -> Any:
        """What the function returns; when replayed, tensors that the next call overwrites."""
        room = None
        if self.enabled:
            used = Sizes(*self._count(frames).tolist())
            room = self._capacities[len(frames.pose)].fit(used)
        return self._graph(frames, *inputs, room=room)

    def _call(self, frames: Frames, *inputs: Any, room: Sizes | None) -> Any:
        return self.function(self.policy.tokenize(frames, room), *inputs)
