"""Benchmarks of babyai and its peers. Not part of the installed package."""
