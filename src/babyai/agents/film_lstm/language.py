"""Instruction encoders: a GRU for the small size, a bidirectional GRU with attention for the big one (Appendix A)."""

import torch
from torch import Tensor, nn

WORD_ROWS = 100
HIDDEN = 128
# Added to the scores of words, so that padding gets no attention.
WORD_SCORE = 1000.0


class SentenceEncoder(nn.Module):
    """A GRU; the instruction is its state at the last word."""

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


class AttentionEncoder(nn.Module):
    """A bidirectional GRU over the words; the recurrent state decides which words the agent attends to."""

    def __init__(self, word_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORD_ROWS, word_dim)
        self.forward_gru = nn.GRU(word_dim, HIDDEN, batch_first=True)
        self.backward_gru = nn.GRU(word_dim, HIDDEN, batch_first=True)
        self.key = nn.Linear(2 * memory_dim, 2 * HIDDEN)
        self.out_dim = 2 * HIDDEN

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (M, L) -> (M, L, 256)."""
        words = self.words(tokens.long())  # (M, L, D)
        forward, _ = self.forward_gru(words)
        # Reversing each sentence by its own length avoids packed sequences, which need the lengths on the host.
        place = torch.arange(tokens.shape[1], device=tokens.device)
        reversed_index = ((tokens != 0).sum(1, keepdim=True) - 1 - place).clamp(min=0)[..., None]  # (M, L, 1)
        backward, _ = self.backward_gru(words.gather(1, reversed_index.expand_as(words)))
        return torch.cat([forward, backward.gather(1, reversed_index.expand(-1, -1, HIDDEN))], 2)

    def attend(self, words: Tensor, tokens: Tensor, state: Tensor) -> Tensor:
        """words: (B, L, 256), tokens: (B, L), state: (B, 2 * memory_dim) -> (B, 256)."""
        weights = self.attention_weights(words, tokens, state)
        return torch.einsum("bl,bld->bd", weights.to(words.dtype), words)

    def attention_weights(self, words: Tensor, tokens: Tensor, state: Tensor) -> Tensor:
        """How much each word matters in a state: (B, L) float32, each row sums to 1."""
        key = self.key(state.to(self.key.weight.dtype)).to(words.dtype)
        scores = torch.einsum("bld,bd->bl", words, key).float() + WORD_SCORE * (tokens != 0)
        return scores.softmax(1)
