"""Image encoders: three visual representations of a tile (section 2.1 of the paper), and the convolutions after it."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.config import AgentConfig

CHANNELS = 128
# Rows of the embedding table per channel of a tile, as in the authors' code.
ROWS_PER_CHANNEL = 147
# Every type, color and state is below this.
USED_ROWS = 16
PIXELS_PER_TILE = 8


class BagOfWords(nn.Module):
    """BOW: an embedding each for type, color and state of a tile, averaged or summed."""

    values: Tensor

    def __init__(self, merge: str) -> None:
        super().__init__()
        self.table = nn.Embedding(3 * ROWS_PER_CHANNEL, CHANNELS)
        self.merge = merge
        self.register_buffer("values", torch.arange(USED_ROWS, dtype=torch.uint8), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 7, 7, 3) -> (B, 128, 7, 7)."""
        return torch.einsum("bcxy,ci->bixy", self.one_hot(image), self.rows())

    def fold_into(self, filters: Tensor) -> Tensor:
        """Filters over embeddings (128, 128, 3, 3), as filters over one-hot tiles (128, 48, 3, 3).

        The convolution has the same output with fewer input channels, and the embeddings' gradient needs no
        scatter-add from all tiles to the same few rows.
        """
        folded = torch.einsum("oixy,ci->ocxy", filters, self.rows())
        return folded.contiguous(memory_format=torch.channels_last)

    def one_hot(self, image: Tensor) -> Tensor:
        """One-hot type, color and state of each tile: (B, 48, 7, 7)."""
        matches = (image[..., None] == self.values).flatten(3)  # (B, 7, 7, 48)
        return matches.to(self.table.weight.dtype).permute(0, 3, 1, 2)

    def rows(self) -> Tensor:
        """The embeddings of the values that occur, (48, 128), divided by three for the mean."""
        rows = self.table.weight.unflatten(0, (3, ROWS_PER_CHANNEL))[:, :USED_ROWS].flatten(0, 1)
        return rows / 3 if self.merge == "mean" else rows


class Pixels(nn.Module):
    """RGB frames: a linear embedding of each tile's 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, kernel_size=PIXELS_PER_TILE, stride=PIXELS_PER_TILE)

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 56, 56, 3) -> (B, 128, 7, 7)."""
        return self.conv(image.permute(0, 3, 1, 2).to(self.conv.weight.dtype) / 256)


class RawTiles(nn.Module):
    """The original's representation: the three integers of each tile as channels."""

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 7, 7, 3) -> (B, 3, 7, 7)."""
        return image.permute(0, 3, 1, 2)


def tile_encoder(config: AgentConfig) -> tuple[nn.Module, int]:
    """The tile encoder of an architecture, and its number of output channels."""
    if config.pixels:
        return Pixels(), CHANNELS
    if config.architecture.startswith("bow"):
        return BagOfWords(config.bag_of_words), CHANNELS
    return RawTiles(), 3


def conv_norm_relu(filters: nn.Conv2d, norm: nn.BatchNorm2d, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """`norm(filters(x)).relu()`, optionally with other weights for the filters.

    In training, batch normalization subtracts whatever a bias adds, so none is added; the running mean accounts for it.
    """
    assert filters.bias is not None
    bias = None if norm.training else filters.bias
    x = functional.conv2d(x, filters.weight if weight is None else weight, bias, padding=filters.padding)
    return normalize(norm, x, skipped_bias=filters.bias).relu_()


def normalize(norm: nn.BatchNorm2d, x: Tensor, skipped_bias: Tensor | None = None) -> Tensor:
    """`norm(x)` without the count of batches, which is not used.

    Args:
        norm: The layer.
        x: (B, C, H, W).
        skipped_bias: (C,), a bias that was not added to x in training but belongs in the running mean.
    """
    running_mean = norm.running_mean
    momentum = norm.momentum
    assert running_mean is not None and momentum is not None
    mean = running_mean
    if norm.training and skipped_bias is not None:
        # batch_norm multiplies the running mean by 1 - momentum before it adds the batch mean.
        mean = running_mean + momentum / (1 - momentum) * skipped_bias.detach()
    x = functional.batch_norm(x, mean, norm.running_var, norm.weight, norm.bias, norm.training, momentum, norm.eps)
    if mean is not running_mean:
        running_mean.copy_(mean)
    return x


class ImageEncoder(nn.Module):
    """Tile encoder, two convolutions and, in the original architecture, max-pooling after each."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.tiles, channels = tile_encoder(config)
        # Without pooling the first kernel is 3 x 3 instead of 2 x 2, so that the map keeps its size.
        self.conv1 = nn.Conv2d(channels, CHANNELS, kernel_size=3 if config.endpool else 2, padding=1)
        self.norm1 = nn.BatchNorm2d(CHANNELS)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, kernel_size=3, padding=1)
        self.norm2 = nn.BatchNorm2d(CHANNELS)
        self.pool = nn.Identity() if config.endpool else nn.MaxPool2d(2)

    def forward(self, image: Tensor) -> Tensor:
        """image: (B, 7, 7, 3), or pixels -> (B, 128, 7, 7), or (B, 128, 2, 2) with pooling."""
        if isinstance(self.tiles, BagOfWords):
            tiles = self.tiles.one_hot(image)
            weight = self.tiles.fold_into(self.conv1.weight)
        else:
            tiles = self.tiles(image).to(self.conv1.weight.dtype)
            weight = None
        x = self.pool(conv_norm_relu(self.conv1, self.norm1, tiles, weight))
        return self.pool(conv_norm_relu(self.conv2, self.norm2, x))
