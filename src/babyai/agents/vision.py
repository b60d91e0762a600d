"""From what the agent sees to a feature map: three ways to represent a tile, and the convolutions after it."""

import torch
from torch import Tensor, nn

from babyai.agents.config import AgentConfig

CHANNELS = 128
# The original gives each of the three channels of a tile this many rows of one table.
ROWS_PER_CHANNEL = 147
PIXELS_PER_TILE = 8


class BagOfWords(nn.Module):
    """Looks up type, colour and state of each tile, and merges the three vectors."""

    offsets: Tensor

    def __init__(self, merge: str) -> None:
        super().__init__()
        self.table = nn.Embedding(3 * ROWS_PER_CHANNEL, CHANNELS)
        self.merge = merge
        self.register_buffer("offsets", torch.arange(3) * ROWS_PER_CHANNEL, persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 7, 7, 3) -> (B, 128, 7, 7)."""
        words = self.table(image.long() + self.offsets)  # (B, 7, 7, 3, 128)
        tiles = words.mean(3) if self.merge == "mean" else words.sum(3)
        return tiles.permute(0, 3, 1, 2)


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
        return image.permute(0, 3, 1, 2).float()


def tile_encoder(config: AgentConfig) -> tuple[nn.Module, int]:
    """The first stage of an architecture, and how many channels it gives."""
    if config.pixels:
        return Pixels(), CHANNELS
    if config.architecture.startswith("bow"):
        return BagOfWords(config.bag_of_words), CHANNELS
    return RawTiles(), 3


def visual_encoder(config: AgentConfig) -> nn.Sequential:
    """Tiles, two convolutions and, in the 1.0 architecture, two rounds of pooling: (B, 128, 7, 7) or (B, 128, 2, 2)."""
    tiles, channels = tile_encoder(config)
    pool = nn.Identity() if config.endpool else nn.MaxPool2d(2)
    # Without pooling the first filter grows from 2 x 2 to 3 x 3, so that the map keeps its size.
    first = nn.Conv2d(channels, CHANNELS, kernel_size=3 if config.endpool else 2, padding=1)
    second = nn.Conv2d(CHANNELS, CHANNELS, kernel_size=3, padding=1)
    return nn.Sequential(
        *(tiles, first, nn.BatchNorm2d(CHANNELS), nn.ReLU(), pool),
        *(second, nn.BatchNorm2d(CHANNELS), nn.ReLU(), pool),
    )
