"""From the words of the instruction to vectors: one for the whole sentence, or one a word to attend to."""

import torch
from torch import Tensor, nn

WORD_ROWS = 100
HIDDEN = 128
# Added to the score of real words, so that padding gets no attention.
REAL_WORD = 1000.0


class SentenceReader(nn.Module):
    """Reads left to right; the vector is the state at the last word."""

    def __init__(self, word_dim: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORD_ROWS, word_dim)
        self.gru = nn.GRU(word_dim, HIDDEN, batch_first=True)
        self.out_dim = HIDDEN

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (M, L) -> (M, 128)."""
        states, _ = self.gru(self.words(tokens.long()))
        last = (tokens != 0).sum(1).clamp(min=1) - 1
        return states[torch.arange(len(tokens), device=tokens.device), last]


class AttentiveReader(nn.Module):
    """Reads in both directions; what is taken from the words depends on the agent's memory."""

    def __init__(self, word_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORD_ROWS, word_dim)
        self.onward = nn.GRU(word_dim, HIDDEN, batch_first=True)
        self.backward_ = nn.GRU(word_dim, HIDDEN, batch_first=True)
        self.key = nn.Linear(2 * memory_dim, 2 * HIDDEN)
        self.out_dim = 2 * HIDDEN

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (M, L) -> (M, L, 256)."""
        words = self.words(tokens.long())  # (M, L, D)
        onward, _ = self.onward(words)
        # Turning each sentence round by its own length spares packing, which would need the lengths on the host.
        place = torch.arange(tokens.shape[1], device=tokens.device)
        turned = ((tokens != 0).sum(1, keepdim=True) - 1 - place).clamp(min=0)[..., None]  # (M, L, 1)
        backward, _ = self.backward_(words.gather(1, turned.expand_as(words)))
        return torch.cat([onward, backward.gather(1, turned.expand(-1, -1, HIDDEN))], 2)

    def attend(self, states: Tensor, tokens: Tensor, memory: Tensor) -> Tensor:
        """states: (B, L, 256), tokens: (B, L), memory: (B, 2 * memory_dim) -> (B, 256)."""
        key = self.key(memory.to(self.key.weight.dtype)).to(states.dtype)
        scores = torch.einsum("bld,bd->bl", states, key).float() + REAL_WORD * (tokens != 0)
        return torch.einsum("bl,bld->bd", scores.softmax(1).to(states.dtype), states)
