"""The five architectures of the paper in two sizes, and the files that keep them. Torch is needed from here on."""
