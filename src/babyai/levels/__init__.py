"""Level generation: building blocks, recipes, and the catalog of levels."""
