"""The paper's agent (section 2 and Appendix A): what it sees, modulated by the instruction, remembered by an LSTM.

image ──▶ convolutions ──▶ FiLM ──▶ FiLM ──▶ max-pool ──▶ LSTM ──▶ actor, critic
words ──▶ GRU ───────────────┴────────┘                    │
             └──────────── attention (big size) ◀──────────┘
"""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from babyai.agents.compilation import compilable, compile_function, is_compiling_enabled
from babyai.agents.config import AgentConfig
from babyai.agents.cuda_graph import join_side_stream, side_stream
from babyai.agents.film_lstm.language import AttentionEncoder, SentenceEncoder
from babyai.agents.film_lstm.lstm import SharedLinear, keep_mask, lstm_gates, lstm_scan, lstm_step
from babyai.agents.film_lstm.vision import CHANNELS, ImageEncoder, conv_norm_relu, normalize
from babyai.agents.policy import Observation, Unrolled
from babyai.batch import Batch
from babyai.world.codes import NUM_ACTIONS

NUM_DIRECTIONS = 4
HEAD_DIM = 64
LSTMState = tuple[Tensor, ...]


class FiLM(nn.Module):
    """Two convolutions whose output the instruction scales and shifts (Perez et al. 2017)."""

    def __init__(self, instruction_dim: int, residual: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(CHANNELS)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(CHANNELS)
        self.scale_and_shift = nn.Linear(instruction_dim, 2 * CHANNELS)
        self.residual = residual

    def forward(self, x: Tensor, instruction: Tensor) -> Tensor:
        """x: (B, 128, H, W), instruction: (B, D) -> (B, 128, H, W)."""
        return self.modulate(x, self.convolve(x), instruction)

    def convolve(self, x: Tensor) -> Tensor:
        """The part that does not depend on the instruction."""
        return self.conv2(conv_norm_relu(self.conv1, self.norm1, x))

    def modulate(self, x: Tensor, convolved: Tensor, instruction: Tensor) -> Tensor:
        """The part that does: scale and shift, normalize, ReLU, residual connection."""
        scale, shift = self.scale_and_shift(instruction)[:, :, None, None].chunk(2, 1)
        y = normalize(self.norm2, convolved * scale + shift).relu_()
        return x + y if self.residual else y


class Encoded(NamedTuple):
    """All that can be computed from B observations without the recurrent state.

    Attributes:
        image: (B, 128, H, W), the encoded image.
        convolved: (B, 128, H, W), the first FiLM's convolutions of it.
        words: (B, D), the encoded instruction; with attention (B, L, D), one vector per word.
        tokens: (B, L), the mission's token ids.
        extras: (B, E), one-hot direction and last action, for agents that see them.
    """

    image: Tensor
    convolved: Tensor
    words: Tensor
    tokens: Tensor
    extras: Tensor | None


class FilmLSTM(nn.Module):
    """The paper's agent. The recurrent state is the LSTM's (h, c), (B, memory_dim) float32 each, or () without memory.

    Weights may be in bf16 (see `babyai.agents.precision`), so each part casts its input to the dtype of its weights.
    """

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.config = config
        self.image_encoder = ImageEncoder(config)
        self.instruction_encoder = (
            AttentionEncoder(config.word_dim, config.memory_dim)
            if config.attention
            else SentenceEncoder(config.word_dim)
        )
        self.film1 = FiLM(self.instruction_encoder.out_dim, config.residual)
        self.film2 = FiLM(self.instruction_encoder.out_dim, config.residual)
        extra = NUM_DIRECTIONS * config.direction + (NUM_ACTIONS + 1) * config.last_action
        self.lstm = nn.LSTMCell(CHANNELS + extra, config.memory_dim) if config.memory_dim else None
        features = config.memory_dim or CHANNELS + extra
        self.actor = nn.Sequential(nn.Linear(features, HEAD_DIM), nn.Tanh(), nn.Linear(HEAD_DIM, NUM_ACTIONS))
        self.critic = nn.Sequential(nn.Linear(features, HEAD_DIM), nn.Tanh(), nn.Linear(HEAD_DIM, 1))
        self.apply(_initialize)

    # ------------------------------------------------------------ the policy contract

    @property
    def pixels(self) -> bool:
        """Whether it reads RGB frames."""
        return self.config.pixels

    def initial_state(self, n: int) -> LSTMState:
        """Zeros."""
        if self.lstm is None:
            return ()
        zeros = torch.zeros(n, self.config.memory_dim, device=self.lstm.weight_hh.device)
        return zeros, zeros.clone()

    def float32_modules(self) -> list[nn.Module]:
        """Batch normalization needs float32 statistics; the instruction encoders' GRUs are small and gain nothing."""
        kept = [module for module in self.modules() if isinstance(module, nn.BatchNorm2d | nn.GRU)]
        return [*kept, self.instruction_encoder.words]

    def forward(self, observation: Observation, state: LSTMState) -> tuple[Tensor, Tensor, LSTMState]:
        """One step: logits (B, 7), value (B,), state."""
        tokens = observation["mission"]
        with side_stream():
            words = self.instruction_encoder(tokens)
        image, convolved = self.encode_image(observation["image"])
        join_side_stream()
        extras = self.encode_extras(observation["direction"], observation["last_action"])
        return self.step(Encoded(image, convolved, words, tokens, extras), state)

    def unroll(self, batch: Batch, state: LSTMState) -> Unrolled:
        """T steps: images and instructions are encoded once for all of them, and only the rest runs step by step."""
        encoded = self._encode_batch(batch)
        if self.lstm is None:
            features = self.apply_film(encoded, self.instruction_vector(encoded, state))
            features = features.unflatten(0, batch.starts.shape)
        elif self.config.attention:
            features, state = self._unroll_with_attention(self.lstm, encoded, batch.starts, state)
        else:
            features, state = self._unroll_lstm(self.lstm, encoded, batch.starts, state)
        logits, values = self.heads(features)
        return Unrolled(logits, values, state)

    # ------------------------------------------------------------ one step

    @compilable
    def encode_image(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The encoded images and the first FiLM's convolutions of them, (B, 128, H, W) each."""
        image = self.image_encoder(images)
        return image, self.film1.convolve(image)

    def encode_extras(self, direction: Tensor, last_action: Tensor) -> Tensor | None:
        """Direction and last action, (B,) each, as one-hot vectors, if the agent sees them."""
        parts = []
        if self.config.direction:
            parts.append(functional.one_hot(direction.long(), NUM_DIRECTIONS))
        if self.config.last_action:
            # Action -1 means none yet.
            parts.append(functional.one_hot(last_action.long() + 1, NUM_ACTIONS + 1))
        return torch.cat(parts, 1).to(self.dtype) if parts else None

    @compilable
    def step(self, encoded: Encoded, state: LSTMState) -> tuple[Tensor, Tensor, LSTMState]:
        """The part of a step that needs the state."""
        features = self.apply_film(encoded, self.instruction_vector(encoded, state))
        if self.lstm is not None:
            state = lstm_step(self.lstm, features, *state)
            features = state[0]
        logits, value = self.heads(features)
        return logits, value, state

    def instruction_vector(self, encoded: Encoded, state: LSTMState) -> Tensor:
        """The instruction as one vector, (B, D); with attention, the words that matter in this state."""
        instruction = encoded.words
        if isinstance(self.instruction_encoder, AttentionEncoder):
            instruction = self.instruction_encoder.attend(instruction, encoded.tokens, torch.cat(state, 1))
        instruction = instruction.to(self.dtype)
        return instruction if self.config.instruction else torch.zeros_like(instruction)

    @compilable
    def apply_film(self, encoded: Encoded, instruction: Tensor) -> Tensor:
        """Both FiLM layers and the pooling, then the extra inputs: (B, 128 + E)."""
        x = self.film1.modulate(encoded.image, encoded.convolved, instruction)
        features = self.film2(x, instruction).amax((2, 3)).relu()
        return features if encoded.extras is None else torch.cat([features, encoded.extras], 1)

    @compilable
    def heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (..., 7) and values (...), in float32."""
        features = features.to(self.dtype)
        return self.actor(features).float(), self.critic(features).squeeze(-1).float()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype it computes in."""
        return self.actor[0].weight.dtype  # pyright: ignore[reportReturnType]

    # ------------------------------------------------------------ many steps

    def _encode_batch(self, batch: Batch) -> Encoded:
        """All T * N steps at once."""
        index = batch.mission_index.flatten()
        # The GRU is a chain of small kernels, for which a GPU has room while it computes the convolutions.
        with side_stream():
            words = self.instruction_encoder(batch.missions).index_select(0, index)
            tokens = batch.missions.index_select(0, index)
        image, convolved = self.encode_image(batch.images.flatten(0, 1))
        join_side_stream()
        extras = self.encode_extras(batch.directions.flatten(), batch.last_actions.flatten())
        return Encoded(image, convolved, words, tokens, extras)

    def _unroll_lstm(
        self, lstm: nn.LSTMCell, encoded: Encoded, starts: Tensor, state: LSTMState
    ) -> tuple[Tensor, LSTMState]:
        """Without attention, only the LSTM runs step by step."""
        features = self.apply_film(encoded, self.instruction_vector(encoded, state))
        features = features.unflatten(0, starts.shape)  # (T, N, 128 + E)
        inputs = functional.linear(features, lstm.weight_ih, lstm.bias_ih + lstm.bias_hh)  # (T, N, 4 * D)
        h, c = state
        states, h, c = lstm_scan(inputs, starts, h, c, lstm.weight_hh, is_compiling_enabled())
        return states, (h, c)

    def _unroll_with_attention(
        self, lstm: nn.LSTMCell, encoded: Encoded, starts: Tensor, state: LSTMState
    ) -> tuple[Tensor, LSTMState]:
        """With attention, everything after the first FiLM's convolutions depends on the state."""
        # Input and recurrent state enter the gates by one product instead of two.
        gates_of = SharedLinear(torch.cat([lstm.weight_ih, lstm.weight_hh], 1), lstm.bias_ih + lstm.bias_hh)
        # Cast only now, so that gradients of a mission's many steps add up in float32.
        encoded = encoded._replace(words=encoded.words.to(self.dtype))
        by_step = [
            [None] * len(starts) if part is None else part.unflatten(0, starts.shape).unbind(0) for part in encoded
        ]
        keep = keep_mask(starts)
        h, c = (part * keep[0] for part in state)
        states = []
        parameters = self._attention_step.parameters_by_step(len(starts))
        # Inside a function of our own, torch.compile would break the graph at the GRUs that the module contains.
        call = compile_function(functional_call) if is_compiling_enabled() else functional_call
        for step_parameters, keep_next, *step_encoded in zip(parameters, keep[1:], *by_step, strict=True):
            gates = gates_of(call(self._attention_step, step_parameters, (Encoded(*step_encoded), h, c)))
            output, h, c = _lstm_update(gates, c, keep_next)
            states.append(output)
        return torch.stack(states), (h, c)

    @cached_property
    def _attention_step(self) -> "_AttentionStep":
        return _AttentionStep(self)


class _AttentionStep(nn.Module):
    """The part of an unrolled step that comes before the LSTM's gates, when attention makes it depend on the state."""

    PARAMETERS = ("instruction_encoder.key", "film1.scale_and_shift", "film1.norm2", "film2")

    def __init__(self, model: FilmLSTM) -> None:
        super().__init__()
        self.model = model

    def forward(self, encoded: Encoded, h: Tensor, c: Tensor) -> Tensor:
        """The LSTM's input and recurrent state at one step: (N, 128 + E + D)."""
        features = self.model.apply_film(encoded, self.model.instruction_vector(encoded, (h, c)))
        return torch.cat([features, h.to(features.dtype)], 1)

    def parameters_by_step(self, steps: int) -> list[dict[str, Tensor]]:
        """A view of each parameter per step, so that autograd sums their gradients once and not after every step."""
        views = {
            name: parameter.expand(steps, *parameter.shape).unbind(0)
            for name, parameter in self.named_parameters()
            if name.removeprefix("model.").startswith(self.PARAMETERS)
        }
        return [{name: by_step[step] for name, by_step in views.items()} for step in range(steps)]


@compilable
def _lstm_update(gates: Tensor, c: Tensor, keep_next: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The output of one step, and the h and c that enter the next."""
    h, c = lstm_gates(gates, c)
    return h, h * keep_next, c * keep_next


def _initialize(module: nn.Module) -> None:
    """Linear layers: rows are random unit vectors, biases are zero (the authors' code)."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight)
        with torch.no_grad():
            module.weight /= module.weight.norm(dim=1, keepdim=True)
        nn.init.zeros_(module.bias)
