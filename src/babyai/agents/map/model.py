"""The map agent's network: a transformer over what it remembers and the words of the mission."""

import threading
from collections.abc import Collection
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.compilation import is_compiling_enabled
from babyai.agents.cuda_graph import URGENT_CAPTURE_PRIORITY, CudaGraphFunction
from babyai.agents.map import codes
from babyai.agents.map.events import LOG_SIZE
from babyai.agents.map.history import penalize_repetition
from babyai.agents.map.memory import NUM_LAST_ACTIONS, MapTables, Memory, make_tables, new_memory, update_memory
from babyai.agents.map.padding import Sizes
from babyai.agents.map.tokens import (
    CELLS,
    NUM_CELL_PLACES,
    NUM_PATCHES,
    Frames,
    Tokens,
    count_tokens,
    frames_of,
    tokenize_frames,
)
from babyai.agents.map.transformer import Transformer
from babyai.agents.policy import Observation, Unrolled, reset_state
from babyai.batch import Batch
from babyai.tree import tree_map
from babyai.world.codes import MAX_WORDS, NUM_ACTIONS, VOCABULARY
from babyai.world.state import MAX_CLAUSES

CELL_DIM = 24
# What the auxiliary head predicts: whether the first side is done, and each clause.
NUM_PROGRESS = 1 + MAX_CLAUSES


class Decisions(NamedTuple):
    """What the network makes of B frames."""

    logits: Tensor
    """(B, 7) of the actions, before the repetition penalty: learning with it would hide mistakes that it corrects."""
    values: Tensor
    """(B,)"""
    progress: Tensor
    """(B, 5) logits of the first auxiliary head."""
    hidden: Tensor
    """(T, dim) the tokens before the last layer, which the second auxiliary head reads."""
    tokens: Tokens

    @property
    def policy_logits(self) -> Tensor:
        """(B, 7) of the actions, for acting."""
        return penalize_repetition(self.logits, self.tokens.action_counts)


class MapPolicy(nn.Module):
    """Draws a map and reads it with a transformer.

    It follows the policy contract: its state is a `Memory`, which is updated without gradients. Since nothing else is
    carried from step to step, frames can be learned from in any order: see `decide`.

    Args:
        dim: Width of the transformer.
        layers: Number of layers.
        heads: Attention heads.
        without: What to leave out, of `config.MAP_PARTS`.
    """

    # The number of tokens differs from batch to batch, which a CUDA graph does not allow.
    cuda_graphs = False
    # With how many worlds a GPU evaluates it fastest: its kernels are launched one by one.
    best_worlds = 2048

    def __init__(self, dim: int = 256, layers: int = 6, heads: int = 4, without: Collection[str] = ()) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim must be a multiple of heads, but {dim} is none of {heads}")
        self.dim = dim
        self.without = without
        self.embed = TokenEmbedding(dim)
        self.layers = Transformer(dim, heads, layers)
        self.norm = nn.LayerNorm(dim)
        self.actor = nn.Linear(dim, NUM_ACTIONS)
        self.critic = nn.Linear(dim, 1)
        self.progress = nn.Linear(dim, NUM_PROGRESS)
        self.path_norm = nn.LayerNorm(dim)
        self.path = nn.Linear(dim, 2 * CELLS)
        nn.init.normal_(self.actor.weight, std=0.01)
        # Few cells are on the path.
        nn.init.constant_(self.path.bias, -4.0)
        for name, table in make_tables()._asdict().items():
            self.register_buffer(f"table_{name}", table, persistent=False)

    def float32_modules(self) -> list[nn.Module]:
        """The heads stay in float32."""
        return [self.norm, self.actor, self.critic, self.progress]

    # ------------------------------------------------------------ the policy contract

    def initial_state(self, n: int) -> Memory:
        """An empty map."""
        return new_memory(n, self.actor.weight.device)

    def forward(self, observation: Observation, state: Memory) -> tuple[Tensor, Tensor, Memory]:
        """One step of n lanes."""
        memory = self.remember(observation, state)
        decisions = self.decide(frames_of(memory, observation["mission"]))
        return decisions.policy_logits, decisions.values, memory

    def unroll(self, batch: Batch, state: Memory) -> Unrolled:
        """T steps of N lanes: the memory step by step, the network on all frames at once."""
        frames = []
        initial = self.initial_state(batch.num_lanes)
        for step, starts in enumerate(batch.starts):
            observation = batch.observation(step)
            state = self.remember(observation, reset_state(state, initial, starts))
            frames.append(frames_of(state, observation["mission"]))
        decisions = self.decide(Frames(*(torch.cat(parts) for parts in zip(*frames, strict=True))))
        shape = (batch.num_steps, batch.num_lanes)
        return Unrolled(decisions.policy_logits.view(*shape, -1), decisions.values.view(shape), state)

    # ------------------------------------------------------------ its two halves

    def remember(self, observation: Observation, state: Memory) -> Memory:
        """The memory after an observation."""
        inputs = (state, observation["image"], observation["last_action"])
        if state.contents.is_cuda and not torch.cuda.is_current_stream_capturing():
            update = captured_update(state.contents.device, threading.get_ident(), is_compiling_enabled())
            return tree_map(torch.clone, update(*inputs))
        return update_memory(*inputs, self.tables)

    def decide(self, frames: Frames) -> Decisions:
        """What to do in each frame."""
        return self.decide_tokens(self.tokenize(frames))

    def tokenize(self, frames: Frames, room: Sizes | None = None) -> Tokens:
        """The frames as tokens; see `tokenize_frames`."""
        return tokenize_frames(frames, self.tables.vectors, room, self.without)

    def count(self, frames: Frames) -> Tensor:
        """(7,) how many tokens there are; see `count_tokens`."""
        return count_tokens(frames, self.tables.vectors, self.without)

    def decide_tokens(self, tokens: Tokens) -> Decisions:
        """What to do in each frame, given its tokens."""
        hidden, first = self.layers(self.embed(tokens), tokens.ends, tokens.longest)
        agent = self.norm(first[: len(tokens.carried)].float())
        return Decisions(self.actor(agent), self.critic(agent)[:, 0], self.progress(agent), hidden, tokens)

    def predict_paths(self, decisions: Decisions) -> tuple[Tensor, Tensor]:
        """The second auxiliary head: (P, 9) logits of each cell being the teacher's goal, and of being on its path."""
        patches = decisions.hidden[decisions.tokens.patch_at]
        goal, path = self.path(self.path_norm(patches)).float().split(CELLS, 1)
        return goal, path

    @property
    def tables(self) -> MapTables:
        """Constants on the policy's device."""
        return MapTables(*(getattr(self, f"table_{name}") for name in MapTables._fields))


@cache
def captured_update(device: torch.device, thread: int, compiled: bool = False) -> CudaGraphFunction:
    """`update_memory` as a CUDA graph: hundreds of short kernels, which take longer to launch than to run.

    Each thread has its own, because the next call overwrites what the last one returned. Compiled, there are few
    kernels; but compiling takes longer than most evaluations.
    """
    tables = make_tables(device)

    def update(state: Memory, image: Tensor, action: Tensor) -> Memory:
        return update_memory(state, image, action, tables)

    return CudaGraphFunction(update, device, compiled=compiled, priority=URGENT_CAPTURE_PRIORITY)


class TokenEmbedding(nn.Module):
    """Embeds all tokens, each sort in its own way, at their positions in the packed sequence.

    The gradient of a lookup takes longer than the lookup. Two features of the same token are therefore looked up
    together, in the sum of their tables; see `_look_up_both`.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.agent = nn.Parameter(torch.zeros(dim))
        self.carried = nn.Embedding(codes.NUM_CONTENTS, dim)
        self.carried_place = nn.Embedding(NUM_CELL_PLACES, dim)
        self.last_actions = nn.ModuleList(nn.Embedding(1 + NUM_ACTIONS, dim) for _ in range(NUM_LAST_ACTIONS))
        self.cell = nn.ModuleList(
            nn.Embedding(count, CELL_DIM) for count in (codes.NUM_CONTENTS, NUM_CELL_PLACES, codes.NUM_CONTENTS, 256)
        )
        self.patch = nn.Linear(CELLS * CELL_DIM, dim)
        self.patch_index = nn.Embedding(NUM_PATCHES, dim)
        self.event_kind = nn.Embedding(codes.NUM_EVENT_KINDS, dim)
        self.event_content = nn.ModuleList(nn.Embedding(codes.NUM_CONTENTS, dim) for _ in range(2))
        self.event_place = nn.ModuleList(nn.Embedding(codes.NUM_PLACES, dim) for _ in range(2))
        self.event_rank = nn.ModuleList(nn.Embedding(LOG_SIZE + 1, dim) for _ in range(2))
        self.word = nn.Embedding(len(VOCABULARY), dim)
        self.word_index = nn.Embedding(MAX_WORDS, dim)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.3 if module.embedding_dim == CELL_DIM else 0.02)

    def forward(self, tokens: Tokens) -> Tensor:
        """(T, dim)."""
        agent = self.agent + _look_up_both(self.carried, self.carried_place, tokens.carried, tokens.carried_place)
        for table, action in zip(self.last_actions, tokens.last_actions.unbind(1), strict=True):
            agent = agent + table(action)
        patches = self.patch(self._embed_cells(tokens)) + self.patch_index(tokens.patch_index)
        events = self.event_kind(tokens.event_kind) + self._embed_classes(tokens)
        later, since = tokens.event_rank.unbind(1)
        events = events + _look_up_both(self.event_rank[0], self.event_rank[1], later, since)
        words = _look_up_both(self.word, self.word_index, tokens.word, tokens.word_index)
        # All at once: one copy after the other would each have to be undone in the backward pass.
        sorts = [part.to(patches.dtype) for part in (agent, patches, events, words)]
        at = torch.cat([tokens.ends[: len(agent)].long(), tokens.patch_at, tokens.event_at, tokens.word_at])
        hidden = torch.empty((len(at), self.dim), dtype=patches.dtype, device=patches.device)
        return hidden.index_copy_(0, at, torch.cat(sorts))

    def _embed_cells(self, tokens: Tokens) -> Tensor:
        """(P, 9 * CELL_DIM). Few cells have traces or visits, so only those are looked up."""
        contents, places, traces, visits = tokens.patches.unbind(1)
        cells = _look_up_both(self.cell[0], self.cell[1], contents, places).flatten(0, 1)
        for table, values, at in ((self.cell[2], traces, tokens.traced), (self.cell[3], visits, tokens.visited)):
            cells = cells.index_add(0, at, table(values.flatten()[at]).to(cells.dtype))
        return cells.view(len(contents), -1)

    def _embed_classes(self, tokens: Tokens) -> Tensor:
        """The thing of an event, and the sum of its neighbors, which only what is dropped has."""
        content = tokens.event_class // codes.NUM_PLACES
        place = tokens.event_class % codes.NUM_PLACES
        thing = _look_up_both(self.event_content[0], self.event_place[0], content[:, 0], place[:, 0])
        event = tokens.neighbors // 4
        side = tokens.neighbors % 4
        tables = (self.event_content[1], self.event_place[1])
        near = _look_up_both(*tables, content[event, 1 + side], place[event, 1 + side])
        return thing.index_add(0, event, near)


def _look_up_both(first: nn.Module, second: nn.Module, one: Tensor, other: Tensor) -> Tensor:
    """The sum of two embeddings; the tables are small, and added up before the lookup."""
    assert isinstance(first, nn.Embedding) and isinstance(second, nn.Embedding)
    table = (first.weight[:, None] + second.weight).flatten(0, 1)
    return functional.embedding(one * second.num_embeddings + other, table)
