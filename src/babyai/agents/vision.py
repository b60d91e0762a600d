"""From what the agent sees to a feature map: three ways to represent a tile, and the convolutions after it."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.config import AgentConfig

CHANNELS = 128
# The original gives each of the three channels of a tile this many rows of one table.
ROWS_PER_CHANNEL = 147
# No type, colour or state of a world has a higher number.
USED_ROWS = 16
PIXELS_PER_TILE = 8


class BagOfWords(nn.Module):
    """Looks up type, colour and state of each tile, and merges the three vectors."""

    values: Tensor

    def __init__(self, merge: str) -> None:
        super().__init__()
        self.table = nn.Embedding(3 * ROWS_PER_CHANNEL, CHANNELS)
        self.merge = merge
        self.register_buffer("values", torch.arange(USED_ROWS, dtype=torch.uint8), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 7, 7, 3) -> (B, 128, 7, 7)."""
        return torch.einsum("bcxy,ci->bixy", self.choose(image), self.rows())

    def convolve(self, image: Tensor, filters: nn.Conv2d) -> Tensor:
        """What `filters` make of the tiles, (B, 128, 7, 7).

        Filters over vectors that were looked up are filters over which vectors those were: the same numbers, with
        fewer channels to go through, and without a gradient that all tiles would add to the same few rows.
        """
        folded = torch.einsum("oixy,ci->ocxy", filters.weight, self.rows())
        folded = folded.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(self.choose(image), folded, filters.bias, padding=filters.padding)

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
            x = self.tiles.convolve(image, self.first)
        else:
            x = self.first(self.tiles(image).to(self.first.weight.dtype))
        x = self.pool(self.first_norm(x).relu_())
        return self.pool(self.second_norm(self.second(x)).relu_())
