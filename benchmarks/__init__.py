"""Measurements of our speed beside that of the peers. Not part of the installed package."""
