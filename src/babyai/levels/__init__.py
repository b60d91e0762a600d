"""A seed and a level become a world: building blocks, recipes, and the catalogue of levels."""
