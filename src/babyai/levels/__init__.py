"""A seed and a level become a world: building blocks, recipes, and the catalog of levels."""
