"""From what the agent sees to a feature map: three ways to represent a tile, and the convolutions after it."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.config import AgentConfig

CHANNELS = 128
# The original gives each of the three channels of a tile this many rows of one table.
ROWS_PER_CHANNEL = 147
# No type, color or state of a world has a higher number.
USED_ROWS = 16
PIXELS_PER_TILE = 8


class BagOfWords(nn.Module):
    """Looks up type, color and state of each tile, and merges the three vectors."""

    values: Tensor

    def __init__(self, merge: str) -> None:
        super().__init__()
        self.table = nn.Embedding(3 * ROWS_PER_CHANNEL, CHANNELS)
        self.merge = merge
        self.register_buffer("values", torch.arange(USED_ROWS, dtype=torch.uint8), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 7, 7, 3) -> (B, 128, 7, 7)."""
        return torch.einsum("bcxy,ci->bixy", self.choose(image), self.rows())

    def fold(self, filters: Tensor) -> Tensor:
        """Filters over the tiles' vectors (128, 128, 3, 3), as filters over what `choose` gives (128, 48, 3, 3).

        The same numbers come of it, with fewer channels to go through, and without a gradient that all tiles would add
        to the same few rows.
        """
        folded = torch.einsum("oixy,ci->ocxy", filters, self.rows())
        return folded.contiguous(memory_format=torch.channels_last)

    def choose(self, image: Tensor) -> Tensor:
        """Which rows each tile looks up, as zeros and ones: (B, 48, 7, 7)."""
        chosen = (image[..., None] == self.values).flatten(3)  # (B, 7, 7, 48)
        return chosen.to(self.table.weight.dtype).permute(0, 3, 1, 2)

    def rows(self) -> Tensor:
        """The rows that tiles can look up, (48, 128), as much as each counts."""
        rows = self.table.weight.unflatten(0, (3, ROWS_PER_CHANNEL))[:, :USED_ROWS].flatten(0, 1)
        return rows / 3 if self.merge == "mean" else rows


class Pixels(nn.Module):
    """One linear map of each tile's 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, kernel_size=PIXELS_PER_TILE, stride=PIXELS_PER_TILE)

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 56, 56, 3) -> (B, 128, 7, 7)."""
        return self.conv(image.permute(0, 3, 1, 2).to(self.conv.weight.dtype) / 256)


class RawTiles(nn.Module):
    """The three integers of each tile as they are."""

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 7, 7, 3) -> (B, 3, 7, 7)."""
        return image.permute(0, 3, 1, 2)


def tile_encoder(config: AgentConfig) -> tuple[nn.Module, int]:
    """The first stage of an architecture, and how many channels it gives."""
    if config.pixels:
        return Pixels(), CHANNELS
    if config.architecture.startswith("bow"):
        return BagOfWords(config.bag_of_words), CHANNELS
    return RawTiles(), 3


def conv_norm_relu(filters: nn.Conv2d, norm: nn.BatchNorm2d, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """`norm(filters(x)).relu()`, with other weights for the filters if they are given.

    In training a norm takes away what a bias adds everywhere, so none is added; the running average must know of it.
    """
    assert filters.bias is not None
    bias = None if norm.training else filters.bias
    x = functional.conv2d(x, filters.weight if weight is None else weight, bias, padding=filters.padding)
    return normalize(norm, x, left_out=filters.bias).relu_()


def normalize(norm: nn.BatchNorm2d, x: Tensor, left_out: Tensor | None = None) -> Tensor:
    """`norm(x)` but for the count of batches, which nobody needs; left_out: (C,), what in training x is short of."""
    kept, momentum = norm.running_mean, norm.momentum
    assert kept is not None and momentum is not None
    mean = kept
    if norm.training and left_out is not None:
        # The norm shrinks it by 1 - momentum before it adds what it saw.
        mean = kept + momentum / (1 - momentum) * left_out.detach()
    x = functional.batch_norm(x, mean, norm.running_var, norm.weight, norm.bias, norm.training, momentum, norm.eps)
    if mean is not kept:
        kept.copy_(mean)
    return x


class VisualEncoder(nn.Module):
    """Tiles, two convolutions and, in the 1.0 architecture, two rounds of pooling."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.tiles, channels = tile_encoder(config)
        # Without pooling the first filter grows from 2 x 2 to 3 x 3, so that the map keeps its size.
        self.first = nn.Conv2d(channels, CHANNELS, kernel_size=3 if config.endpool else 2, padding=1)
        self.first_norm = nn.BatchNorm2d(CHANNELS)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, kernel_size=3, padding=1)
        self.second_norm = nn.BatchNorm2d(CHANNELS)
        self.pool = nn.Identity() if config.endpool else nn.MaxPool2d(2)

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 7, 7, 3), or pixels -> (B, 128, 7, 7), or (B, 128, 2, 2) with pooling."""
        if isinstance(self.tiles, BagOfWords):
            tiles, weight = self.tiles.choose(image), self.tiles.fold(self.first.weight)
        else:
            tiles, weight = self.tiles(image).to(self.first.weight.dtype), None
        x = self.pool(conv_norm_relu(self.first, self.first_norm, tiles, weight))
        return self.pool(conv_norm_relu(self.second, self.second_norm, x))
